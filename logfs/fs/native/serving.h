/* Which thread reads the requests: that of pyfuse3, or a native one.

   Both answer the same requests without Python: the WRITEs, FSYNCs and FLUSHes of open files that
   append, GETATTRs of files that grow, OPENs and RELEASEs of files that append whole lines (answering.h), and reads for which Python has put bytes ahead. The native thread does that while
   Python works, and without the event loop, which takes several times as long as a line. But what it
   has read for Python costs a second switch of threads: it is put into a queue, from which pyfuse3 gets it. So
   the native thread reads once there have been several requests more of the first kind than of
   the second, and pyfuse3 reads once there have been several more of the second.

   pyfuse3 waits for a descriptor (epoll) that can be read when the queue is not empty, or when the
   native thread waits and the kernel has a request. So neither pyfuse3 nor libfuse knows of the thread.

   Large writes that the native thread has read are applied by a second one, so that a line does not wait
   for a MiB. */

#ifndef LOGFS_SERVING_H
#define LOGFS_SERVING_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../log/writing/_served.h"
#include "answering.h"
#include "requests.h"

/* --- For Python; the thread of the event loop only ---------------------------------------------- */

/* Have a thread for the next mount. functions: see _served.h; NULL: no thread. */
void logfs_want_serving(const appending_functions *functions);

/* Whether the mount has the thread. */
int logfs_has_serving(void);

/* Note an open file that appends to a partition, until logfs_serving_close. Returns 1, or 0 without
   memory: then the partition is left to Python whenever that file is used. */
int logfs_serving_open(uint64_t fh, log_partition *partition);

/* Answer the requests about such a file without Python from now on. key: of the partition, for the slots
   of writes in handover.h. */
void logfs_serving_begin(uint64_t fh, log_writer *writer, uint64_t key);

/* Leave them to Python again, and forget the file. Its last request has been answered. */
void logfs_serving_close(uint64_t fh);

/* Answer GETATTRs of an inode without Python from now on, as long as Python has not changed its partition
   since it was marked with changes. before: the position at which the active segment begins in the view.
   append_key: if it may be opened to append without Python, too: of its partition, as above. Else 0. */
void logfs_serving_know(uint64_t node, log_partition *partition, int64_t changes, int view,
                        int64_t before, uint32_t mode, uint32_t uid, uint32_t gid,
                        uint64_t append_key);

/* Let a user open files to append without Python, see opening.h. */
void logfs_opening_allow(uint32_t uid);

/* Find such a file that is open; returns 0 if there is none. facts: inode, flags of open(2), user. */
int logfs_opening_find(uint64_t fh, uint64_t facts[4]);

/* Have Python own such a file from now on; it is left to Python until logfs_serving_begin. Returns how many
   of its writes were applied, or -1: it has been closed. */
int64_t logfs_opening_take(uint64_t fh);

/* The handles of such files of a partition, and how many there are of all partitions. */
size_t logfs_opening_list(const log_partition *partition, uint64_t *handles, size_t room);
size_t logfs_opening_count(void);

/* Answer reads of an open file without Python, from an offset on, see reading.h. changes: as above. fd: of
   the file of a segment, and file_end: where its last batch ends. place: in it, the numbers of a
   cursor_place. view: as logfs.types.View. is_active: the segment grows. may_wait: a read that has nothing
   waits. Returns 1, or 0 if there is no place for it now. */
int logfs_reading_give(uint64_t fh, uint64_t offset, log_partition *partition, int64_t changes, int fd,
                       const int64_t place[4], int64_t file_end, int view, int is_active,
                       int may_wait);

/* Leave them to Python again, also one that waits. Returns how many bytes were read, and the place after
   them; -1: nothing was given. */
int64_t logfs_reading_take(uint64_t fh, int64_t place[4]);

/* Leave the reads that wait for records of a partition to Python: all of them, or those before which
   Python has changed the partition. NULL: of any partition. */
void logfs_reading_return(const log_partition *partition, int all);

/* End all reads that wait with ENOTCONN: the mount stops. */
void logfs_reading_end(void);

/* How many reads wait. */
int logfs_reading_waiting(void);

/* Forget what is known of all inodes. */
void logfs_serving_forget(void);

/* The descriptor that can be read after an append for which readers wait; reading it is left to the
   caller. -1: there is no thread. */
int logfs_serving_changes(void);

/* How many writes, fsyncs, closes, stats, reads, opens and releases were answered without Python, and how many requests the thread has
   put into the queue. */
uint64_t logfs_serving_writes(void);
uint64_t logfs_serving_syncs(void);
uint64_t logfs_serving_flushes(void);
uint64_t logfs_serving_stats(void);
uint64_t logfs_serving_reads(void);
uint64_t logfs_serving_opens(void);
uint64_t logfs_serving_releases(void);
uint64_t logfs_serving_queued(void);

/* End the thread. pyfuse3 must not read requests any more, and may be closed then. */
void logfs_serving_stop(void);

/* --- For hooks.c and handover.c ------------------------------------------------------------------ */

/* Begin to serve a session whose requests are read from a descriptor. Returns the descriptor that
   pyfuse3 has to wait for; -1: there is no thread. */
int serving_start(int device);

/* Take a request from the queue. Returns its size, 0: there is none, -1: errno says why not. */
ssize_t serving_take(void *buffer, size_t size);

/* Whether requests are read by the thread just now, so that no other thread may read them. */
int serving_is_reading(void);

/* Have the thread leave all further requests in the kernel. */
void serving_leave_requests(void);

/* A reply of Python has been sent. */
void serving_note_reply(uint64_t unique);

/* Answer a request that pyfuse3 has read, without Python, if that is possible. slot: what
   handover_note_read has returned for it. */
enum answered serving_answer(const struct request_header *header, size_t size, unsigned slot);

/* Have libfuse know the descriptor of /dev/fuse again, which it closes. */
void hooks_give_device_back(void);

/* Answer a read from bytes ahead, see hooks.h; returns whether that was possible. */
int hooks_answer_read(int device, const struct request_header *header, size_t size);

#endif
