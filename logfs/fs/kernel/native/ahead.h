/* Bytes that Python has rendered before they are read: small reads are answered from memory.

   Python puts and takes them in the thread of the event loop; any thread that reads requests answers. */

#ifndef LOGFS_AHEAD_H
#define LOGFS_AHEAD_H

#include <stddef.h>
#include <stdint.h>

#include "requests.h"

/* --- For Python ---------------------------------------------------------------------------------- */

/* The most open files that have bytes ahead at the same time. */
#define LOGFS_AHEAD_FILES 32

/* Answer reads of an open file natively, from bytes in memory: each read that begins where
   the last one ended, the first at the offset, and is entirely within the bytes. Any other read
   goes to Python, which takes back the rest before it does anything else with the file.

   data: must stay where it is, unchanged, until logfs_ahead_take. It replaces the bytes that were
   put before; no bytes keep a place for more.
   Returns 1; 0 if LOGFS_AHEAD_FILES other files have bytes ahead. */
int logfs_ahead_put(uint64_t fh, uint64_t offset, const void *data, size_t size);

/* Take back the bytes ahead of an open file; returns how many of them, at their end, have not been
   read. 0 if there were none. */
size_t logfs_ahead_take(uint64_t fh);

/* --- For the threads that read requests ---------------------------------------------------------- */

/* Answer a read from the bytes ahead of its file; returns whether that was possible. */
int ahead_answer(const struct request_header *header, size_t size);

#endif
