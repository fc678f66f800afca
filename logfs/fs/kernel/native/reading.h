/* Native reads of growing files, which continue where the last one ended.

   Python reads first. After a few reads in a row it gives the place it has come to: a segment, and a
   place in its file (give). From then on each read that continues there is rendered from the page cache by a
   cursor (log/reading/_cursor.h), also at the end of the log, where it ends early or has nothing. Any other
   read is left to Python, which takes the cursor back first (take), with the place it has come to.

   A cursor is of one moment of its partition: as soon as Python has changed that, reads are left to it.
   So there is one rule for what is deleted, compacted or cut, and it is that of Python. What is appended
   natively is no such change: the end of the log is asked for at each read.

   A file that has not been read for a second may lose its cursor to another. Python notices when it takes
   the place.

   A file may wait, as those of .follow do. A read of it that has nothing is kept, and answered by the thread
   that has appended what it waits for, directly after the reply to that append. It goes to Python if
   Python has changed the partition, if it is no longer the only read of the file, or if what comes is left
   to Python. All kept reads go to Python in the thread of Python, so that no report of a signal can be
   before the read that it is about. A signal ends a kept read with EINTR, the end of the mount with
   ENOTCONN. */

#ifndef LOGFS_READING_H
#define LOGFS_READING_H

#include <stddef.h>
#include <stdint.h>

#include "../../../log/writing/_served.h"
#include "requests.h"

/* --- For Python ---------------------------------------------------------------------------------- */

/* Answer reads of an open file natively, from an offset on, see reading.h. changes: as above. fd: of
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
   Python has changed the partition. */
void logfs_reading_return(const log_partition *partition, int all);

/* End all reads that wait with ENOTCONN: the mount stops. */
void logfs_reading_end(void);

/* How many reads wait. */
int logfs_reading_waiting(void);

/* --- For the threads that read requests ---------------------------------------------------------- */

enum reading { READING_LEFT, READING_ANSWERED, READING_WAITS };

/* Answer a read, or keep it until there is something. Any thread. */
enum reading reading_answer(const struct request_header *header, size_t size);

/* Answer the reads that wait for records of a partition, to which a native thread has appended, or leave
   them to Python. */
void reading_note_append(const log_partition *partition);

/* End the read that an INTERRUPT is about; returns 0 if it does not wait here. */
int reading_interrupt(const struct request_header *header, size_t size);

#endif
