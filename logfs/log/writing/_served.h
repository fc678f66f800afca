/* What a native thread needs of the partitions and the writers of a process.

   The functions are in the module _end, those of the thread in logfs/fs/kernel/native: each knows the other
   by this header alone. */

#ifndef LOGFS_SERVED_H
#define LOGFS_SERVED_H

#include <stdint.h>

typedef struct log_partition log_partition;
typedef struct log_writer log_writer;

#define APPENDING_LEFT (-1) /* the request is left to Python */

enum { SYNC_LEFT = -1, SYNC_DONE, SYNC_NEEDED };

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
    /* Whether write may do it: nothing is left to Python that has to come before. Without the mutex. */
    int (*may_write)(const log_partition *partition);
    /* Whether an fsync of an open file needs a flush of its partition: SYNC_DONE: all is durable;
       SYNC_NEEDED: up to an offset; SYNC_LEFT: it is left to Python. */
    int (*needs_sync)(log_writer *writer, int64_t *offset);
    /* Whether close(2) of an open file has nothing to report. */
    int (*may_close)(log_writer *writer);
    /* Flush a partition, in any thread that may wait for the disk. Returns the offset below which all
       is durable; SYNC_LEFT: it is left to Python. */
    int64_t (*sync)(log_partition *partition);
    /* Find how long the rendering of the active segment is in a view, and the clock of the newest append.
       Returns 0 if Python has changed the partition since changes, or may be doing so, or has to answer
       something before. */
    int (*length)(log_partition *partition, int view, int64_t changes, int64_t *length,
                  int64_t *modified_ms);
    /* Find where the .log of the active segment ends for readers; -1: only Python knows that. Returns 0
       in the same cases. */
    int (*shown_end)(const log_partition *partition, int64_t changes, int64_t *file_position);
    /* Count bytes that were read natively. */
    void (*count_read)(log_partition *partition, int64_t bytes);
    /* Open a file that appends whole lines in a view. Returns NULL if that is left to Python: it has
       changed the partition since changes, or appends to it itself. */
    log_writer *(*open)(log_partition *partition, int view, int64_t changes);
    /* How many writes were applied through it. Any thread. */
    int64_t (*writes)(const log_writer *writer);
    /* Its end, after the last write. */
    void (*close)(log_writer *writer);
    /* Count requests that Python has to answer before anything else is done to the partition. */
    void (*count_cold)(log_partition *partition, int change);
    /* Whether readers wait for records. */
    int (*is_watched)(const log_partition *partition);
    void (*hold)(log_partition *partition);
    void (*release)(log_partition *partition);
} appending_functions;

#endif
