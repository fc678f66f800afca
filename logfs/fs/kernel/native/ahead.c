/* Reads that are answered from bytes ahead; see ahead.h. */

#include "ahead.h"

#include <errno.h>
#include <pthread.h>

#include "answered.h"
#include "handover.h"
#include "session.h"
#include "watching.h"

static pthread_mutex_t aheads_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ahead { /* fh is 0 where there is none: pyfuse3's handles of ours begin at 1 */
    uint64_t fh, offset;
    const char *data;
    size_t left;
} aheads[LOGFS_AHEAD_FILES];

int logfs_ahead_put(uint64_t fh, uint64_t offset, const void *data, size_t size) {
    struct ahead *ahead, *place = NULL;

    pthread_mutex_lock(&aheads_mutex);
    for (ahead = aheads; ahead < aheads + LOGFS_AHEAD_FILES; ahead++)
        if (ahead->fh == fh || (ahead->fh == 0 && place == NULL)) {
            place = ahead;
            if (ahead->fh == fh)
                break;
        }
    if (place != NULL)
        *place = (struct ahead){fh, offset, data, size};
    pthread_mutex_unlock(&aheads_mutex);
    return place != NULL;
}

size_t logfs_ahead_take(uint64_t fh) {
    struct ahead *ahead;
    size_t left = 0;

    pthread_mutex_lock(&aheads_mutex);
    for (ahead = aheads; ahead < aheads + LOGFS_AHEAD_FILES; ahead++)
        if (ahead->fh == fh) {
            left = ahead->left;
            *ahead = (struct ahead){0};
            break;
        }
    pthread_mutex_unlock(&aheads_mutex);
    return left;
}

int ahead_answer(const struct request_header *header, size_t size) {
    const struct read_request *wanted = (const void *)(header + 1);
    struct ahead *ahead;
    int is_answered = 0;

    if (header->opcode != FUSE_OPCODE_READ || size < sizeof *header + sizeof *wanted)
        return 0;
    pthread_mutex_lock(&aheads_mutex);
    for (ahead = aheads; ahead < aheads + LOGFS_AHEAD_FILES; ahead++)
        if (ahead->fh == wanted->fh && ahead->left >= wanted->size &&
            ahead->offset == wanted->offset && ahead->left > 0) {
            int status = session_write(header->unique, 0, ahead->data, wanted->size);

            if (status < 0 && status != -ENOENT) /* ENOENT: the program has gone */
                break;
            ahead->data += wanted->size;
            ahead->offset += wanted->size;
            ahead->left -= wanted->size;
            answered_count(ANSWERED_AHEAD);
            is_answered = 1;
            break;
        }
    pthread_mutex_unlock(&aheads_mutex);
    if (is_answered) {
        handover_note_reply(header->unique, 0);
        watching_note_request(header, size);
        watching_note_reply(header->unique, wanted->size);
    }
    return is_answered;
}
