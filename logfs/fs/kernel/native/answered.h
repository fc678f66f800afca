/* How many requests were answered natively, by their kind. */

#ifndef LOGFS_ANSWERED_H
#define LOGFS_ANSWERED_H

#include <stdint.h>

#define ANSWERED_AHEAD 0 /* reads from bytes ahead, see ahead.h; all others have their FUSE opcode */
#define ANSWERED_KINDS 64

/* Count a request that was answered. Any thread. */
void answered_count(unsigned kind);

/* --- For Python ---------------------------------------------------------------------------------- */

uint64_t logfs_answered(unsigned kind);

#endif
