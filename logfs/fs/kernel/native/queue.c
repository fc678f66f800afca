/* The queue of requests for Python; see queue.h. */

#define _GNU_SOURCE

#include "queue.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "handover.h"

#define BUFFERS 4          /* one is read into, others are on their way */
#define COPIED_BYTES 4096  /* a larger request stays in the buffer */

struct queued {
    struct queued *next;
    struct buffer *buffer; /* where the request is; NULL: it follows */
    size_t size;           /* 0: the kernel has ended the connection */
    unsigned slot;
    uint8_t bytes[];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct queued *first, *last;
static struct buffer *spare; /* buffers that are not in use */
static uint64_t count;
static int ready = -1;

void queue_wake(int event) {
    uint64_t one = 1;

    if (write(event, &one, sizeof one) < 0) { /* it can be read already */
    }
}

void queue_calm(int event) {
    uint64_t events;

    if (read(event, &events, sizeof events) < 0) { /* it could not be read */
    }
}

struct buffer *queue_make_buffer(void) {
    struct buffer *buffer = calloc(1, sizeof *buffer);

    if (buffer != NULL && (buffer->bytes = handover_resident(QUEUE_BUFFER_BYTES)) == NULL) {
        free(buffer);
        buffer = NULL;
    }
    return buffer;
}

struct buffer *queue_take_spare(void) {
    struct buffer *buffer;

    pthread_mutex_lock(&mutex);
    buffer = spare;
    if (buffer != NULL)
        spare = buffer->next;
    pthread_mutex_unlock(&mutex);
    return buffer;
}

void queue_give_spare(struct buffer *buffer) {
    pthread_mutex_lock(&mutex);
    buffer->next = spare;
    spare = buffer;
    pthread_mutex_unlock(&mutex);
}

static void enqueue(struct queued *request) {
    request->next = NULL;
    pthread_mutex_lock(&mutex);
    if (first == NULL) {
        first = request;
        queue_wake(ready); /* with the mutex: it can be read as long as there is a request */
    } else {
        last->next = request;
    }
    last = request;
    count++;
    pthread_mutex_unlock(&mutex);
}

ssize_t queue_take(void *buffer, size_t size) {
    struct queued *request;
    ssize_t taken;

    pthread_mutex_lock(&mutex);
    request = first;
    if (request != NULL && request->size > 0) {
        first = request->next;
        if (first == NULL)
            queue_calm(ready);
    }
    pthread_mutex_unlock(&mutex);
    if (request == NULL)
        return 0;
    if (request->size == 0) { /* it stays: nothing comes after it */
        errno = ENODEV;
        return -1;
    }
    taken = (ssize_t)(request->size < size ? request->size : size);
    memcpy(buffer, request->buffer != NULL ? request->buffer->bytes : request->bytes, (size_t)taken);
    handover_begin_request(buffer, (size_t)taken, request->slot);
    if (request->buffer != NULL)
        queue_give_spare(request->buffer);
    free(request);
    return taken;
}

static struct queued *make(size_t size) {
    struct queued *request;

    while ((request = malloc(sizeof *request + size)) == NULL)
        sched_yield(); /* no request may be lost */
    return request;
}

struct buffer *queue_add(struct buffer *buffer) {
    struct buffer *other = buffer->size > COPIED_BYTES ? queue_take_spare() : NULL;
    struct queued *request = make(other != NULL ? 0 : (size_t)buffer->size);

    request->buffer = other != NULL ? buffer : NULL;
    request->size = (size_t)buffer->size;
    request->slot = buffer->slot;
    if (other == NULL)
        memcpy(request->bytes, buffer->bytes, (size_t)buffer->size);
    enqueue(request);
    return other != NULL ? other : buffer;
}

void queue_add_copy(const struct request_header *header, size_t size, unsigned slot) {
    struct queued *request = make(size);

    request->buffer = NULL;
    request->size = size;
    request->slot = slot;
    memcpy(request->bytes, header, size);
    enqueue(request);
}

void queue_end(void) {
    struct queued *end = make(0);

    end->buffer = NULL;
    end->size = 0;
    end->slot = 0;
    enqueue(end);
}

int queue_is_empty(void) {
    int is_empty;

    pthread_mutex_lock(&mutex);
    is_empty = first == NULL;
    pthread_mutex_unlock(&mutex);
    return is_empty;
}

uint64_t queue_count(void) {
    uint64_t added;

    pthread_mutex_lock(&mutex);
    added = count;
    pthread_mutex_unlock(&mutex);
    return added;
}

int queue_start(void) {
    ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    for (int i = 0; ready >= 0 && i < BUFFERS; i++) {
        struct buffer *buffer = queue_make_buffer();

        if (buffer == NULL)
            return i > 0 ? ready : -1;
        queue_give_spare(buffer);
    }
    return ready;
}
