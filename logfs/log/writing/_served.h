/* What a thread without Python needs of the partitions and the writers of a process.

   The functions are in the module _end, those of the thread in logfs/fs/native: each knows the other
   by this header alone. */

#ifndef LOGFS_SERVED_H
#define LOGFS_SERVED_H

#include <stdint.h>

typedef struct log_partition log_partition;
typedef struct log_writer log_writer;

#define APPENDING_LEFT (-1) /* the request is left to Python */

/* What is noted of a write, with the mutex: where the log ends before it, and how much was accepted. */
typedef struct write_notes write_notes;
struct write_notes {
    void (*begin)(write_notes *notes, int64_t log_end, int64_t unfinished);
    void (*done)(write_notes *notes, int64_t accepted);
};

typedef struct appending_functions {
    /* Apply a write of an open file, unless that is left to Python. Returns the bytes accepted, all or
       those of the complete lines; or APPENDING_LEFT. */
    int64_t (*write)(log_writer *writer, const uint8_t *data, int64_t size, write_notes *notes);
    /* Count requests that Python has to answer before anything else is done to the partition. */
    void (*count_cold)(log_partition *partition, int change);
    /* Whether readers wait for records. */
    int (*is_watched)(const log_partition *partition);
    void (*hold)(log_partition *partition);
    void (*release)(log_partition *partition);
} appending_functions;

#endif
