/* Which thread reads the requests; serving.h says what it does. */

#define _GNU_SOURCE

#include "serving.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ahead.h"
#include "answering.h"
#include "handover.h"
#include "openfiles.h"
#include "queue.h"
#include "syncing.h"
#include "watching.h"

#define LARGE_BYTES 65535u /* larger writes go to the second thread */
#define AWAKE_NS 50000     /* how long to look for the next request after a read; see hooks.c */
#define MOST 8             /* of one kind, more than of the other, before the other thread reads */

/* Descriptors: of /dev/fuse; the events of the thread and of changes; what pyfuse3 waits for, see
   serving.h (-1: there is no thread). */
static int device = -1, control = -1, changes = -1, waiting = -1;

/* --- The reading thread ----------------------------------------------------------------------------------- */

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t state_changed = PTHREAD_COND_INITIALIZER;
static int is_wanted;     /* the thread reads */
static int is_parked = 1; /* it waits, and pyfuse3 reads */
static int leaves_requests, has_ended, is_stopped;
static int score; /* of the thread that reads: requests that were answered here less those for Python */

static int64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Have pyfuse3 wait for requests of the kernel, or for the queue alone. */
static void watch_device(int is_watched) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = device};

    epoll_ctl(waiting, is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, device, &event);
}

/* Wait until the thread has to read; returns 0 when it has to end. */
static int park(void) {
    int goes_on;

    pthread_mutex_lock(&state_mutex);
    if (!is_stopped && (!is_wanted || leaves_requests || has_ended)) {
        if (!leaves_requests && !has_ended)
            watch_device(1);
        __atomic_store_n(&is_parked, 1, __ATOMIC_SEQ_CST);
        while (!is_stopped && (!is_wanted || leaves_requests || has_ended))
            pthread_cond_wait(&state_changed, &state_mutex);
    }
    queue_calm(control);
    goes_on = !is_stopped;
    pthread_mutex_unlock(&state_mutex);
    return goes_on;
}

static int has_to_park(void) {
    return !__atomic_load_n(&is_wanted, __ATOMIC_SEQ_CST) ||
           __atomic_load_n(&leaves_requests, __ATOMIC_SEQ_CST) ||
           __atomic_load_n(&is_stopped, __ATOMIC_SEQ_CST);
}

/* Change what the thread is to do. */
static void tell(int *what, int value) {
    pthread_mutex_lock(&state_mutex);
    __atomic_store_n(what, value, __ATOMIC_SEQ_CST);
    if (is_wanted && !leaves_requests && !has_ended && is_parked) {
        watch_device(0);
        __atomic_store_n(&is_parked, 0, __ATOMIC_SEQ_CST);
    }
    queue_wake(control);
    pthread_cond_broadcast(&state_changed);
    pthread_mutex_unlock(&state_mutex);
}

/* Note a request that the thread which reads has read, and choose the thread for the next ones.
   A FLUSH takes no part: it is cheap here, but it comes with requests that Python has to answer. */
static void note_kind(uint32_t opcode, int is_answered) {
    int now = __atomic_load_n(&score, __ATOMIC_RELAXED);

    if (is_one_way(opcode) || opcode == FUSE_OPCODE_FLUSH)
        return;
    if (is_answered && now < MOST)
        now++;
    else if (!is_answered && now > -MOST)
        now--;
    __atomic_store_n(&score, now, __ATOMIC_RELAXED);
    if (now == MOST && !is_wanted)
        tell(&is_wanted, 1);
    else if (now == -MOST && is_wanted)
        tell(&is_wanted, 0);
}

int serving_is_reading(void) {
    return waiting >= 0 && !__atomic_load_n(&is_parked, __ATOMIC_SEQ_CST);
}

void logfs_stop_reading(int stopped) {
    handover_stop(stopped);
    if (stopped && waiting >= 0)
        tell(&leaves_requests, 1);
}

int logfs_in_flight(void) {
    /* While the thread may be about to serve a request, that is as good as one in flight. */
    return handover_in_flight() + (handover_is_stopped() && serving_is_reading());
}

ssize_t serving_take(void *buffer, size_t size) {
    return waiting < 0 ? 0 : queue_take(buffer, size);
}

void serving_note_reply(uint64_t unique) {
    if (waiting >= 0)
        openfiles_note_reply(unique);
}

enum answered serving_answer(const struct request_header *header, size_t size, unsigned slot) {
    enum answered answered;

    if (waiting < 0)
        return LEFT;
    answered = answering_try(header, size, slot, UINT32_MAX);
    if (answered == LEFT)
        answering_note_left(header, size);
    note_kind(header->opcode, answered != LEFT);
    return answered;
}

/* --- The second thread --------------------------------------------------------------------------- */

static pthread_mutex_t large_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t large_ready = PTHREAD_COND_INITIALIZER;
static struct buffer *large_first, *large_last;
static pthread_t first_thread, second_thread;

/* Leave a request to Python. Returns the buffer for the next one. */
static struct buffer *leave(struct buffer *buffer) {
    answering_note_left((const void *)buffer->bytes, (size_t)buffer->size);
    return queue_add(buffer);
}

static void *apply_large(void *unused) {
    (void)unused;
    for (;;) {
        struct buffer *buffer;
        enum answered answered;

        pthread_mutex_lock(&large_mutex);
        while (large_first == NULL && !__atomic_load_n(&is_stopped, __ATOMIC_SEQ_CST))
            pthread_cond_wait(&large_ready, &large_mutex);
        buffer = large_first;
        if (buffer == NULL) {
            pthread_mutex_unlock(&large_mutex);
            return NULL;
        }
        large_first = buffer->next;
        pthread_mutex_unlock(&large_mutex);
        answered = answering_try((const void *)buffer->bytes, (size_t)buffer->size, buffer->slot,
                                 UINT32_MAX);
        queue_give_spare(answered == LEFT ? leave(buffer) : buffer);
    }
}

/* Give a large write to the second thread. */
static void pass_on(struct buffer *buffer) {
    buffer->next = NULL;
    pthread_mutex_lock(&large_mutex);
    if (large_first == NULL)
        large_first = buffer;
    else
        large_last->next = buffer;
    large_last = buffer;
    pthread_mutex_unlock(&large_mutex);
    pthread_cond_signal(&large_ready);
}

/* --- The thread ---------------------------------------------------------------------------------- */

/* Tell Python that the kernel has ended the connection. */
static void end_connection(void) {
    __atomic_store_n(&has_ended, 1, __ATOMIC_SEQ_CST);
    queue_end();
}

/* Serve a request; returns the buffer for the next one. */
static struct buffer *serve(struct buffer *buffer, int64_t *answered_ns) {
    const struct request_header *header = (const void *)buffer->bytes;
    const uint32_t opcode = header->opcode;
    const size_t size = (size_t)buffer->size;
    struct buffer *other = NULL;
    enum answered answered;

    if (ahead_answer(header, size)) {
        *answered_ns = now_ns();
        return buffer;
    }
    watching_note_request(header, size);
    buffer->slot = handover_note_read(header, size);
    answered = answering_try(header, size, buffer->slot, LARGE_BYTES);
    if (answered == IS_LARGE && (other = queue_take_spare()) != NULL) {
        pass_on(buffer);
        buffer = other;
    } else if (answered == IS_LARGE) {
        answered = answering_try(header, size, buffer->slot, UINT32_MAX);
    }
    if (answered == LEFT)
        buffer = leave(buffer);
    if (answered == ANSWERED && opcode == FUSE_OPCODE_READ)
        *answered_ns = now_ns();
    note_kind(opcode, answered != LEFT);
    return buffer;
}

static void *read_requests(void *unused) {
    struct buffer *buffer = queue_take_spare();
    int64_t answered_ns = 0;

    (void)unused;
    while (park()) {
        while (!has_to_park()) {
            buffer->size = read(device, buffer->bytes, QUEUE_BUFFER_BYTES);
            if (buffer->size >= (ssize_t)sizeof(struct request_header)) {
                buffer = serve(buffer, &answered_ns);
                continue;
            }
            if (buffer->size < 0 && errno == EAGAIN) {
                struct pollfd ready[] = {{device, POLLIN, 0}, {control, POLLIN, 0}};

                if (answered_ns != 0 && now_ns() - answered_ns < AWAKE_NS)
                    continue;
                answered_ns = 0;
                handover_note_idle();
                if (poll(ready, 2, -1) > 0 && ready[1].revents != 0)
                    queue_calm(control);
                continue;
            }
            if (buffer->size < 0 && (errno == EINTR || errno == ENOENT))
                continue;
            end_connection(); /* ENODEV: unmounted */
            break;
        }
    }
    queue_give_spare(buffer);
    return NULL;
}

/* --- For Python ---------------------------------------------------------------------------------- */

void logfs_want_serving(const appending_functions *given) { openfiles_functions = given; }

int logfs_has_serving(void) { return waiting >= 0; }

uint64_t logfs_serving_queued(void) { return queue_count(); }

int logfs_serving_changes(void) { return changes; }

static int start_threads(void) {
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&first_thread, NULL, read_requests, NULL);
    if (error == 0 && pthread_create(&second_thread, NULL, apply_large, NULL) != 0) {
        tell(&is_stopped, 1);
        pthread_join(first_thread, NULL);
        error = EAGAIN;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int serving_start(int fd) {
    struct epoll_event event = {.events = EPOLLIN};
    int queued;

    if (openfiles_functions == NULL || waiting >= 0)
        return -1;
    device = fd;
    queued = queue_start();
    control = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    changes = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    waiting = epoll_create1(EPOLL_CLOEXEC);
    event.data.fd = queued;
    answering_start(changes);
    if (queued < 0 || control < 0 || changes < 0 || waiting < 0 ||
        epoll_ctl(waiting, EPOLL_CTL_ADD, queued, &event) != 0 || start_threads() != 0) {
        waiting = -1; /* the descriptors stay: it is once for a process */
        return -1;
    }
    return waiting;
}

int serving_stop(void) {
    if (waiting < 0 || is_stopped)
        return 0;
    tell(&is_stopped, 1);
    pthread_mutex_lock(&large_mutex);
    pthread_cond_broadcast(&large_ready);
    pthread_mutex_unlock(&large_mutex);
    pthread_join(first_thread, NULL);
    pthread_join(second_thread, NULL);
    syncing_stop();
    return 1;
}
