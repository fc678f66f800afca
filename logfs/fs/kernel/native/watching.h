/* Which programs read and write which open files, while it is watched.

   Every request that is read from the kernel is noted, whichever thread answers it. Unwatched, that
   costs one look at a variable. Watched, a request takes a mutex and a place in a table; the name of a
   program is read from /proc once, while the program waits for its answer. */

#ifndef LOGFS_WATCHING_H
#define LOGFS_WATCHING_H

#include <stddef.h>
#include <stdint.h>

#include "requests.h"

#define WATCHED_MOST 4096 /* rows; the requests of further ones are counted as missed */
#define WATCHED_NAME 16

struct watched {
    uint64_t fh;
    uint32_t opcode, uid; /* of a READ, a WRITE or an FSYNC */
    uint32_t thread, pid; /* pid: 0 if the process is in another namespace */
    uint64_t requests, bytes;
    char name[WATCHED_NAME];
};

/* --- For Python ---------------------------------------------------------------------------------- */

/* Count from now on, from nothing; or count no more. */
void logfs_watch(int is_watched);

/* Copy the rows, of which there are at most WATCHED_MOST; returns their number. */
size_t logfs_watched(struct watched *rows);

/* How many requests had no room in the table. */
uint64_t logfs_watched_missed(void);

/* --- For the threads that read requests and write replies ---------------------------------------- */

extern int watching_is_on;

void watching_count_request(const struct request_header *header, size_t size);
void watching_count_reply(uint64_t unique, size_t bytes);

/* Note a request that was read from the kernel, once. */
static inline void watching_note_request(const struct request_header *header, size_t size) {
    if (__atomic_load_n(&watching_is_on, __ATOMIC_RELAXED))
        watching_count_request(header, size);
}

/* Note how many bytes the reply to a request has, after its header. */
static inline void watching_note_reply(uint64_t unique, size_t bytes) {
    if (__atomic_load_n(&watching_is_on, __ATOMIC_RELAXED))
        watching_count_reply(unique, bytes);
}

#endif
