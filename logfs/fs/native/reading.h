/* Reads of growing files that go on where the last one ended, without Python.

   Python reads first. After a few reads in a row it gives the place it has come to: a segment, and a
   place in its file (give). From then on each read that goes on there is rendered from the page cache by a
   cursor (log/reading/_cursor.h), also at the end of the log, where it ends early or has nothing. Any other
   read is left to Python, which takes the cursor back first (take), with the place it has come to.

   A cursor is of one moment of its partition: as soon as Python has changed that, reads are left to it.
   So there is one rule for what is deleted, compacted or cut, and it is that of Python. What is appended
   without Python is no such change: the end of the log is asked for at each read.

   A file that has not been read for a second may lose its cursor to another. Python notices when it takes
   the place. */

#ifndef LOGFS_READING_H
#define LOGFS_READING_H

#include <stddef.h>
#include <stdint.h>

#include "requests.h"

/* Answer a read on a descriptor of /dev/fuse; returns 0 if it is left to Python. Any thread. */
int reading_answer(int device, const struct request_header *header, size_t size);

#endif
