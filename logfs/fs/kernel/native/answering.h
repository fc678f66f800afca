/* Requests that are answered natively: OPEN, WRITE, FSYNC, FLUSH and RELEASE of files that append,
   READ, GETATTR and LOOKUP.

   Any thread that reads requests, one at a time; writes: several. A request that is left to Python has
   changed nothing. */

#ifndef LOGFS_ANSWERING_H
#define LOGFS_ANSWERING_H

#include <stddef.h>
#include <stdint.h>

#include "requests.h"

/* --- For the threads that read requests ---------------------------------------------------------- */

/* Begin. changes: an eventfd, which can be read after an append for which readers wait. */
void answering_start(int changes);

enum answered {
    ANSWERED,
    WAITS,       /* it is a read, which will be answered when there is something to read */
    LEFT,        /* it is left to Python */
    HAS_TO_WAIT, /* it is a write for applying.h, and has not been tried */
};

enum answering { BY_READER, BY_LOOP, BY_LANE }; /* the thread: it reads, or is one of applying.h */

/* Answer a request. slot: what handover_note_read has returned for it. */
enum answered answering_try(
    const struct request_header *header, size_t size, unsigned slot, enum answering by);

/* Note that a request goes to Python, for the order of those about its partition. */
void answering_note_left(const struct request_header *header, size_t size);

#endif
