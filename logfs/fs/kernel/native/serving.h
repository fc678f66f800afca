/* Which thread reads the requests: that of pyfuse3, or a native one.

   Both answer the same requests natively: those of answering.h, and reads for which Python has put
   bytes ahead (ahead.h). The native thread does that while Python works, and without the event loop,
   which takes several times as long as a line. But what it has read for Python costs a second switch of
   threads: it is put into a queue (queue.h), from which pyfuse3 gets it. So the native thread reads once
   there have been several requests more of the first kind than of the second, and pyfuse3 reads once
   there have been several more of the second. That makes stat(2) and listings 1.23 times as fast.

   pyfuse3 waits for a descriptor (epoll) that can be read when the queue is not empty, or when the
   native thread waits and the kernel has a request. So neither pyfuse3 nor libfuse knows of the thread.

   No disk may keep the thread that reads: then no topic would be served. Large writes, and all that the
   event loop reads, are applied by other threads (applying.h). Small ones are applied by the native thread
   itself, which saves a switch of threads. If one takes longer than WATCH_MS, another native thread reads
   from then on; the first one finishes that write, and waits until it is needed again.

   Without threads the event loop answers the same requests natively, and applies small writes itself. Work
   for other threads waits until it is asked to do some of it: logfs_serving_work. */

#ifndef LOGFS_SERVING_H
#define LOGFS_SERVING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../../log/writing/_clock.h"
#include "../../../log/writing/_served.h"
#include "answering.h"
#include "requests.h"

/* --- For Python; the thread of the event loop only ---------------------------------------------- */

/* Have a thread for the next mount. functions: see _served.h; NULL: no thread. on_loop: the event loop
   does what the native threads do otherwise. */
void logfs_want_serving(const appending_functions *functions, int on_loop);

/* Without threads: do some of the work of a partition, by its number among those that have any. Returns 0
   if there was none. */
int logfs_serving_work(unsigned choice);

/* Read other clocks than those of the machine; before there are threads. */
void logfs_use_clock(clock_function *given);

/* Whether the mount has the thread. */
int logfs_has_serving(void);

/* The descriptor that can be read after an append for which readers wait; reading it is left to the
   caller. -1: there is no thread. */
int logfs_serving_changes(void);

/* Leave requests in the kernel from now on. */
void logfs_stop_reading(void);

/* How many requests have been read and not been answered. */
int logfs_in_flight(void);

/* --- For hooks.c --------------------------------------------------------------------------------- */

/* Begin to serve a session whose requests are read from a descriptor. Returns the descriptor that
   pyfuse3 has to wait for; -1: there is no thread. */
int serving_start(int device);

/* Take a request from the queue. Returns its size, 0: there is none, -1: errno says why not. */
ssize_t serving_take(void *buffer, size_t size);

/* Whether requests are read by the thread just now, so that no other thread may read them. */
int serving_is_reading(void);

/* A reply of Python has been sent. */
void serving_note_reply(uint64_t unique);

/* Answer natively a request that pyfuse3 has read, if that is possible. A request that has to come
   after those in the queue is put there. slot: what
   handover_note_read has returned for it. */
enum answered serving_answer(const struct request_header *header, size_t size, unsigned slot);

/* End the thread. Returns 0 if there is none. */
int serving_stop(void);

#endif
