/* The calls to the disk of a thread; see calls.h. */

#include "calls.h"

#include <stddef.h>

static __thread struct calls *own;
static int sleeps;

void calls_watch(struct calls *calls) { own = calls; }

void calls_begin(void) {
    if (own == NULL)
        return;
    __atomic_store_n(&own->count, own->count + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&own->current, own->count, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&sleeps, __ATOMIC_SEQ_CST))
        own->begun();
}

static int exchange(struct calls *calls, uint64_t before, uint64_t after) {
    return __atomic_compare_exchange_n(&calls->current, &before, after, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

void calls_end(void) {
    if (own != NULL)
        exchange(own, own->count, 0);
}

void calls_note_sleep(int is_asleep) { __atomic_store_n(&sleeps, is_asleep, __ATOMIC_SEQ_CST); }

int calls_take(struct calls *calls, uint64_t call) { return exchange(calls, call, CALL_LOST); }
