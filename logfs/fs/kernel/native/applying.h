/* Writes that are applied by threads that may wait for the disk, not by the one that has read them.

   These are large ones, those that the event loop reads, and those of a partition of which another
   write is here. So the pieces of one call are applied in the order in which the kernel has sent them:
   each partition has a lane (lanes.h). A request that is left to Python is left before the next
   one of the partition is tried. */

#ifndef LOGFS_APPLYING_H
#define LOGFS_APPLYING_H

#include <stddef.h>

#include "../../../log/writing/_served.h"
#include "queue.h"
#include "requests.h"

/* Begin. apply: applies a write; returns 0 if it is left to Python, which has been noted then. */
void applying_start(int (*apply)(const struct request_header *header, size_t size, unsigned slot));

/* Whether writes to a partition wait here, or are under way, so that others have to come after them. */
int applying_has(const log_partition *partition);

/* Apply a write that is in a buffer. Returns the buffer for the next request; NULL: it is left to the
   caller, because the mount ends or there is no memory. */
struct buffer *applying_add(struct buffer *buffer);

/* The same for a request in other memory, which has a slot. Returns 0 if it is left to the caller. */
int applying_add_copy(const struct request_header *header, size_t size, unsigned slot);

/* Without threads: the partitions with work, and to do some of that of one. */
unsigned applying_count(void);
void applying_work(unsigned which);

/* Apply what waits, and end the threads. */
void applying_stop(void);

#endif
