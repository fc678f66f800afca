/* The open files that append, and the requests about them that Python has not answered.

   Order. A RELEASE or a write that is left to Python must not be overtaken by a write to the same
   partition. So the partition is cold until Python has replied: all its writes go to Python. */

#ifndef LOGFS_OPENFILES_H
#define LOGFS_OPENFILES_H

#include <stdint.h>

#include "../../log/writing/_served.h"

struct open_file {
    struct open_file *next;
    uint64_t fh, key; /* key: of the partition, for the slots of handover.h */
    log_partition *partition;
    log_writer *writer; /* NULL: its writes are left to Python */
    int users;          /* threads that use it just now */
};

/* The functions of the log engine; NULL before the first of them is wanted. */
extern const appending_functions *openfiles_functions;

/* Find a file, which stays until openfiles_put_back; NULL: it is not known. Any thread. */
struct open_file *openfiles_borrow(uint64_t fh);
void openfiles_put_back(struct open_file *file);

/* Note that a request goes to Python which no write to its partition may overtake. */
void openfiles_note_left(uint64_t unique, uint64_t fh, int is_writer);

/* Python has answered a request, of any kind. */
void openfiles_note_reply(uint64_t unique);

/* Whether Python has a request that may be about any partition. */
int openfiles_has_left_anywhere(void);

#endif
