/* The calls to the disk that a thread makes while it reads requests, for a thread that watches it. */

#ifndef LOGFS_CALLS_H
#define LOGFS_CALLS_H

#include <stdint.h>

#define CALL_LOST UINT64_MAX

struct calls {
    uint64_t count;   /* so far */
    uint64_t current; /* the number of the one that is under way; 0: none; CALL_LOST: see calls_take */
    void (*begun)(void); /* called when one begins, if the watching thread sleeps */
};

/* Note the calls of this thread from now on. */
void calls_watch(struct calls *calls);

/* This thread has a partition to itself, and is about to write to its files; it has done so. */
void calls_begin(void);
void calls_end(void);

/* Whether the watching thread sleeps, which may be said before it looks at the calls once more. */
void calls_note_sleep(int sleeps);

/* Have another thread do what this one did until it began a call. Returns 0 if the call has ended. */
int calls_take(struct calls *calls, uint64_t call);

#endif
