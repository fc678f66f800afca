/* The open files that append, and the requests about them that Python has not answered.

   Order. A RELEASE or a write that is left to Python must not be overtaken by a write to the same
   partition. So the partition is cold until Python has replied: all its writes go to Python. */

#ifndef LOGFS_OPENFILES_H
#define LOGFS_OPENFILES_H

#include <stddef.h>
#include <stdint.h>

#include "../../../log/writing/_served.h"

struct open_file {
    struct open_file *next;
    uint64_t fh, key; /* key: of the partition, for the slots of handover.h */
    log_partition *partition;
    log_writer *writer; /* NULL: its writes are left to Python */
    log_writer *own;    /* that of a file that was opened natively; as long as the file */
    int64_t users;      /* threads that use it just now, and 1 while it is open */
    int is_own;         /* it was opened natively: Python does not know it */
    unsigned place;     /* then: of its note in handover.h */
    uint64_t node;
    uint32_t flags, uid; /* flags: of open(2) */
};

/* The functions of the log engine; NULL before the first of them is wanted. */
extern const appending_functions *openfiles_functions;

/* --- For Python ---------------------------------------------------------------------------------- */

/* Note an open file that appends to a partition, until logfs_serving_close. Returns 1, or 0 without
   memory: then the partition is left to Python whenever that file is used. */
int logfs_serving_open(uint64_t fh, log_partition *partition);

/* Answer the requests about such a file natively from now on. key: of the partition, for the slots
   of writes in handover.h. */
void logfs_serving_begin(uint64_t fh, log_writer *writer, uint64_t key);

/* Leave them to Python again, and forget the file. Its last request has been answered, or the mount ends:
   then a write that is under way is waited for. */
void logfs_serving_close(uint64_t fh);

/* Find a file that was opened natively, see opening.h. Returns 0 if there is none. facts: inode,
   flags of open(2), user. */
int logfs_opening_find(uint64_t fh, uint64_t facts[4]);

/* Have Python own such a file from now on; it is left to Python until logfs_serving_begin. Waits for no
   write. Returns how many of its writes were applied or are under way, or -1: it has been closed. */
int64_t logfs_opening_take(uint64_t fh);

/* The handles of such files of a partition, and how many there are of all partitions. */
size_t logfs_opening_list(const log_partition *partition, uint64_t *handles, size_t room);
size_t logfs_opening_count(void);

/* --- For the threads that read requests ---------------------------------------------------------- */

/* What a thread knows of a file that it uses. Python may take the writer from the file meanwhile; both
   stay. */
struct borrowed {
    struct open_file *file;
    log_partition *partition;
    log_writer *writer;
    uint64_t key;
};

/* Find a file, which stays until openfiles_put_back. Returns 0 if it is not known. Any thread. */
int openfiles_borrow(uint64_t fh, struct borrowed *borrowed);
void openfiles_put_back(const struct borrowed *borrowed);

/* Have a file that was opened natively, which now owns its writer and has a hold on its partition.
   Returns 0 without memory. */
int openfiles_add(const struct open_file *opened);

/* Close such a file, whose other requests have been answered. Returns 0 if it is none, or is Python's.
   node: its inode. */
int openfiles_remove(uint64_t fh, uint64_t *node);

/* Note that a request goes to Python which no write to its partition may overtake. */
void openfiles_note_left(uint64_t unique, uint64_t fh, int is_writer);

/* Python has answered a request, of any kind. */
void openfiles_note_reply(uint64_t unique);

/* Whether Python has a request that may be about any partition. */
int openfiles_has_left_anywhere(void);

#endif
