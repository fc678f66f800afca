/* How many requests were answered natively; see answered.h. */

#include "answered.h"

static uint64_t counts[ANSWERED_KINDS];

void answered_count(unsigned kind) { __atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED); }

uint64_t logfs_answered(unsigned kind) {
    return kind < ANSWERED_KINDS ? __atomic_load_n(&counts[kind], __ATOMIC_RELAXED) : 0;
}
