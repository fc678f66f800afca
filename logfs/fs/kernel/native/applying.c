/* Writes that wait for the disk; applying.h says which. */

#define _GNU_SOURCE

#include "applying.h"

#include <stdlib.h>
#include <string.h>

#include "lanes.h"
#include "openfiles.h"

static void work(struct lane *lane);
static struct lanes lanes = LANES(work);
static int (*apply)(const struct request_header *header, size_t size, unsigned slot);

void applying_start(int (*function)(const struct request_header *, size_t, unsigned)) {
    apply = function;
}

static void work(struct lane *lane) {
    struct buffer *buffer = (void *)lane->first; /* it stays until it is done, see applying_has */
    const struct request_header *header = (const void *)buffer->bytes;
    const size_t size = (size_t)buffer->size;
    const int is_left = !apply(header, size, buffer->slot);

    pthread_mutex_lock(&lanes.mutex);
    lane->first = buffer->item.next;
    if (lane->first == NULL)
        lane->last = &lane->first;
    pthread_mutex_unlock(&lanes.mutex);
    if (!buffer->is_copy) {
        queue_give_spare(is_left ? queue_add(buffer) : buffer);
        return;
    }
    if (is_left)
        queue_add_copy(header, size, buffer->slot);
    free(buffer);
}

int applying_has(const log_partition *partition) { return lanes_has(&lanes, partition); }

static int add(struct buffer *buffer) {
    const struct request_header *header = (const void *)buffer->bytes;
    const struct write_request *request = (const void *)(header + 1);
    struct borrowed file;
    int is_added;

    if (!openfiles_borrow(request->fh, &file))
        return 0;
    is_added = lanes_add(&lanes, file.partition, &buffer->item);
    openfiles_put_back(&file);
    return is_added;
}

int applying_add_copy(const struct request_header *header, size_t size, unsigned slot) {
    struct buffer *copy = malloc(sizeof *copy + size);

    if (copy == NULL)
        return 0;
    *copy = (struct buffer){.bytes = (uint8_t *)(copy + 1), .size = (ssize_t)size, .slot = slot,
                            .is_copy = 1};
    memcpy(copy->bytes, header, size);
    if (add(copy))
        return 1;
    free(copy);
    return 0;
}

struct buffer *applying_add(struct buffer *buffer) {
    struct buffer *other = queue_take_spare();

    if (other == NULL)
        return applying_add_copy((const void *)buffer->bytes, (size_t)buffer->size, buffer->slot)
                   ? buffer
                   : NULL;
    if (add(buffer))
        return other;
    queue_give_spare(other);
    return NULL;
}

unsigned applying_count(void) { return lanes_count(&lanes); }

void applying_work(unsigned which) { lanes_work(&lanes, which); }

void applying_stop(void) { lanes_stop(&lanes); }
