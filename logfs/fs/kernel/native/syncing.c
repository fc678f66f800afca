/* Flushes for FSYNC requests; syncing.h says what they are. */

#define _GNU_SOURCE

#include "syncing.h"

#include <stdlib.h>
#include <string.h>

#include "lanes.h"
#include "openfiles.h"
#include "queue.h"
#include "session.h"

#define REQUEST_BYTES 64 /* a header and struct fuse_fsync_in, with room */

struct waiting { /* a request */
    struct lane_item item;
    int64_t offset;
    size_t size;
    union {
        struct request_header header;
        uint8_t bytes[REQUEST_BYTES];
    };
};

static void flush(struct lane *lane);
static struct lanes lanes = LANES(flush);

/* Flush a partition, and answer the requests that this covers; all are left to Python if it fails. */
static void flush(struct lane *lane) {
    const int64_t offset = openfiles_functions->sync(lane->partition);
    struct lane_item *covered = NULL, **end = &covered, **place = &lane->first;

    pthread_mutex_lock(&lanes.mutex);
    while (*place != NULL) {
        struct waiting *request = (void *)*place;

        if (offset != SYNC_LEFT && request->offset > offset) {
            place = &request->item.next;
            continue;
        }
        *place = request->item.next;
        *end = &request->item;
        end = &request->item.next;
    }
    *end = NULL;
    lane->last = place;
    pthread_mutex_unlock(&lanes.mutex);
    while (covered != NULL) {
        struct waiting *request = (void *)covered;

        covered = request->item.next;
        if (offset != SYNC_LEFT)
            session_reply(request->header.unique, 0, NULL, 0);
        else
            queue_add_copy(&request->header, request->size, 0);
        free(request);
    }
}

int syncing_add(log_partition *partition, int64_t offset, const struct request_header *header,
                size_t size) {
    struct waiting *request = size > REQUEST_BYTES ? NULL : malloc(sizeof *request);

    if (request == NULL)
        return 0;
    request->offset = offset;
    request->size = size;
    memcpy(request->bytes, header, size);
    if (lanes_add(&lanes, partition, &request->item))
        return 1;
    free(request);
    return 0;
}

unsigned syncing_count(void) { return lanes_count(&lanes); }

void syncing_work(unsigned which) { lanes_work(&lanes, which); }

void syncing_stop(void) { lanes_stop(&lanes); }
