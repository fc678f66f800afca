/* The requests that the native thread has read for Python, and the buffers into which it reads. */

#ifndef LOGFS_QUEUE_H
#define LOGFS_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "requests.h"

#define QUEUE_BUFFER_BYTES ((1u << 20) + 16384) /* the largest request, and room */

struct buffer {
    struct buffer *next;
    uint8_t *bytes;
    ssize_t size;
    unsigned slot; /* 1 + the slot of the request; 0: it has none */
};

/* Make what is needed. Returns an eventfd that can be read while a request is queued, or -1. */
int queue_start(void);

/* Take a buffer that is not in use, and give it back. NULL: there is none. */
struct buffer *queue_take_spare(void);
void queue_give_spare(struct buffer *buffer);

/* Put a request into the queue. Returns the buffer for the next one. */
struct buffer *queue_add(struct buffer *buffer);

/* The same for a request in other memory, which has no slot. */
void queue_add_copy(const struct request_header *header, size_t size);

/* The kernel has ended the connection: say so after the last request. */
void queue_end(void);

/* Take the first request. Returns its size, 0: there is none, -1: errno says why not. */
ssize_t queue_take(void *buffer, size_t size);

/* How many requests were put into it. */
uint64_t queue_count(void);

/* Have an eventfd be readable, or not any more. */
void queue_wake(int event);
void queue_calm(int event);

#endif
