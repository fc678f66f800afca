/* Native threads that flush partitions for the FSYNC requests that wait.

   The requests of a partition share flushes: one flush answers all that came before it began, and the next
   one begins when it ends. Several partitions are flushed at the same time (lanes.h). A flush that fails
   is left to Python, with all requests that wait for it. */

#ifndef LOGFS_SYNCING_H
#define LOGFS_SYNCING_H

#include <stddef.h>
#include <stdint.h>

#include "../../../log/writing/_served.h"
#include "requests.h"

/* Answer an FSYNC request once all records of a partition below an offset are durable. Returns 0 if that
   is left to the caller. */
int syncing_add(log_partition *partition, int64_t offset, const struct request_header *header,
                size_t size);

/* Without threads: the partitions with work, and to do some of that of one. */
unsigned syncing_count(void);
void syncing_work(unsigned which);

/* Finish what waits, and end the threads. */
void syncing_stop(void);

#endif
