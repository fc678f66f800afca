/* Requests that may end each daemon that gets them; suspects.h says what they are. */

#include "suspects.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "requests.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *begun;  /* NULL: none are noted, since the daemon before stopped by itself */
static uint64_t *before; /* NULL: there are none */
static int begun_end, before_count;

void suspects_begin(uint64_t *tables, uint64_t turn, int was_planned) {
    uint64_t *own = tables + (turn & 1) * SUSPECTS, *other = tables + (~turn & 1) * SUSPECTS;

    memset(own, 0, SUSPECTS * sizeof *own);
    if (was_planned) {
        memset(other, 0, SUSPECTS * sizeof *other);
        return;
    }
    begun = own;
    before = other;
    for (int i = 0; i < SUSPECTS; i++)
        before_count += before[i] != 0;
}

void logfs_note_begun(uint64_t unique) {
    int place = 0;

    if (begun == NULL || !(unique & REQUEST_RESENT))
        return;
    pthread_mutex_lock(&mutex);
    while (place < begun_end && begun[place] != 0)
        place++;
    if (place < SUSPECTS) {
        begun[place] = unique & ~REQUEST_RESENT;
        if (place == begun_end)
            begun_end++;
    }
    pthread_mutex_unlock(&mutex);
}

void suspects_note_begun(uint64_t unique) {
    if (before_count < 2 || !logfs_is_suspect(unique))
        logfs_note_begun(unique);
}

void suspects_note_ended(uint64_t unique) {
    if (begun == NULL || !(unique & REQUEST_RESENT))
        return;
    pthread_mutex_lock(&mutex);
    for (int place = 0; place < begun_end; place++)
        if (begun[place] == (unique & ~REQUEST_RESENT)) {
            begun[place] = 0;
            break;
        }
    pthread_mutex_unlock(&mutex);
}

uint64_t logfs_suspects(void) { return (uint64_t)before_count; }

int logfs_is_suspect(uint64_t unique) {
    if (before == NULL || !(unique & REQUEST_RESENT))
        return 0;
    for (int place = 0; place < SUSPECTS; place++)
        if (before[place] == (unique & ~REQUEST_RESENT))
            return 1;
    return 0;
}

void logfs_note_waiting(uint64_t unique) { suspects_note_ended(unique); }
