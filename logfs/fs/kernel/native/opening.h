/* Opening and closing files that append, so that `echo >>` takes no Python.

   Python says which inodes may be opened (logfs_serving_know in attributes.h). An OPEN of one with O_APPEND,
   for writing only, gets the number of its request as the number of the file, as in Python. It is noted
   for the next daemon (handover.h) before the reply. Such a file appends whole lines, and has no object in
   Python. The first request that is left to Python, such as half a line, has Python take the file: from
   then on it is one that Python has opened.

   Left to Python are opens that wait for something (a partition that is to be loaded again, requests that
   Python has not answered), of users with limits, with O_SYNC or O_DSYNC, and all that are refused. */

#ifndef LOGFS_OPENING_H
#define LOGFS_OPENING_H

#include <stddef.h>
#include <stdint.h>

#include "requests.h"

/* --- For Python ---------------------------------------------------------------------------------- */

/* Let a user open files to append natively, see opening.h. */
void logfs_opening_allow(uint32_t uid);

/* --- For the threads that read requests ---------------------------------------------------------- */

/* Answer an OPEN; returns 0 if it is left to Python. Any thread. */
int opening_open(const struct request_header *header, size_t size);

/* Close a file that Python does not know; the caller replies. Returns 0 if it is left to Python. */
int opening_release(const struct request_header *header, size_t size);

#endif
