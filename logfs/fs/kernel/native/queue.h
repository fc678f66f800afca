/* The requests that the native thread has read for Python, and the buffers into which it reads. */

#ifndef LOGFS_QUEUE_H
#define LOGFS_QUEUE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lanes.h"
#include "requests.h"

#define QUEUE_BUFFER_BYTES ((1u << 20) + 16384) /* the largest request, and room */

struct buffer {
    struct lane_item item; /* in applying.c */
    struct buffer *next;
    uint8_t *bytes;
    ssize_t size;
    unsigned slot; /* 1 + the slot of the request; 0: it has none */
    int is_copy;   /* its memory is as large as the request, and in one piece with it */
};

/* Make what is needed. Returns an eventfd that can be read while a request is queued, or -1. */
int queue_start(void);

/* Make one more buffer, or take one that is not in use, and give it back. NULL: there is none. */
struct buffer *queue_make_buffer(void);
struct buffer *queue_take_spare(void);
void queue_give_spare(struct buffer *buffer);

/* Put a request into the queue. Returns the buffer for the next one. */
struct buffer *queue_add(struct buffer *buffer);

/* The same for a request in other memory. */
void queue_add_copy(const struct request_header *header, size_t size, unsigned slot);

/* The kernel has ended the connection: say so after the last request. */
void queue_end(void);

/* Take the first request. Returns its size, 0: there is none, -1: errno says why not. */
ssize_t queue_take(void *buffer, size_t size);

/* Whether none is there, for the thread that takes them. */
int queue_is_empty(void);

/* How many requests were put into it. */
uint64_t queue_count(void);

/* Have an eventfd be readable, or not any more. */
void queue_wake(int event);
void queue_calm(int event);

#endif
