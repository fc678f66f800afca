/* Reads of growing files that go on where the last one ended, without Python.

   Python reads first. After a few reads in a row it gives the place it has come to: a segment, and a
   place in its file (give). From then on each read that goes on there is rendered from the page cache by a
   cursor (log/reading/_cursor.h), also at the end of the log, where it ends early or has nothing. Any other
   read is left to Python, which takes the cursor back first (take), with the place it has come to.

   A cursor is of one moment of its partition: as soon as Python has changed that, reads are left to it.
   So there is one rule for what is deleted, compacted or cut, and it is that of Python. What is appended
   without Python is no such change: the end of the log is asked for at each read.

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

#include "../../log/writing/_served.h"
#include "requests.h"

enum reading { READING_LEFT, READING_ANSWERED, READING_WAITS };

/* Answer a read on a descriptor of /dev/fuse, or keep it until there is something. Any thread. */
enum reading reading_answer(int device, const struct request_header *header, size_t size);

/* Answer the reads that wait for records of a partition, to which a native thread has appended. Returns
   whether Python has to look at one of them. */
int reading_note_append(int device, const log_partition *partition);

/* End the read that an INTERRUPT is about; returns 0 if it does not wait here. */
int reading_interrupt(int device, const struct request_header *header, size_t size);

#endif
