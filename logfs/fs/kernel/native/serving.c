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
#include <unistd.h>

#include "ahead.h"
#include "answering.h"
#include "applying.h"
#include "calls.h"
#include "handover.h"
#include "lanes.h"
#include "openfiles.h"
#include "queue.h"
#include "session.h"
#include "syncing.h"
#include "watching.h"

#define AWAKE_NS 50000     /* how long to look for the next request after a read; see hooks.c */
#define MOST 8             /* of one kind, more than of the other, before the other thread reads */

/* Descriptors: of /dev/fuse; the events of the thread and of changes; what pyfuse3 waits for, see
   serving.h (-1: there is no thread). */
static int device = -1, control = -1, changes = -1, waiting = -1;

#define WATCH_MS 100       /* how long a call to the disk may keep the thread that reads */
#define QUIET_LOOKS 10     /* so many looks without a call, and the watching thread sleeps */
#define ERROR_NS 10000000  /* how long to wait after an error of a read */

/* --- The reading thread ----------------------------------------------------------------------------------- */

struct reader {
    struct reader *next;
    pthread_t thread;
    struct calls calls; /* CALL_LOST: another thread reads since then */
    int is_idle;        /* another thread reads, and this one has finished */
};

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t state_changed = PTHREAD_COND_INITIALIZER;
static pthread_cond_t watch_wanted; /* by the watching thread */
static struct reader *readers; /* all */
static struct reader *current; /* it reads */
static __thread struct reader *self;
static int is_on_loop;    /* there are no threads: see logfs_want_serving */
static int is_wanted;     /* the thread reads */
static int is_parked = 1; /* it waits, and pyfuse3 reads */
static int leaves_requests, has_ended, is_stopped;
static int score; /* of the thread that reads: requests that were answered here less those for Python */

/* Have pyfuse3 wait for requests of the kernel, or for the queue alone. */
static void watch_device(int is_watched) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = device};
    static int was_watched;

    if (was_watched == is_watched)
        return;
    was_watched = is_watched;
    epoll_ctl(waiting, is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, device, &event);
}

/* Wait until this thread has to read; returns 0 when it has to end. */
static int park(void) {
    int goes_on;

    pthread_mutex_lock(&state_mutex);
    while (!is_stopped && (current != self || !is_wanted || leaves_requests || has_ended)) {
        self->is_idle = current != self;
        if (current == self) {
            if (!leaves_requests && !has_ended)
                watch_device(1);
            __atomic_store_n(&is_parked, 1, __ATOMIC_SEQ_CST);
        }
        pthread_cond_wait(&state_changed, &state_mutex);
    }
    self->is_idle = 0;
    queue_calm(control);
    goes_on = !is_stopped;
    pthread_mutex_unlock(&state_mutex);
    return goes_on;
}

static int is_lost(void) { return __atomic_load_n(&self->calls.current, __ATOMIC_SEQ_CST) == CALL_LOST; }

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
    pthread_cond_signal(&watch_wanted);
    pthread_mutex_unlock(&state_mutex);
}

/* Note a request that the thread which reads has read, and choose the thread for the next ones.
   A FLUSH takes no part: it is cheap here, but it comes with requests that Python has to answer. */
static void note_kind(uint32_t opcode, int is_answered) {
    int now = __atomic_load_n(&score, __ATOMIC_RELAXED);

    if (is_one_way(opcode) || opcode == FUSE_OPCODE_FLUSH || is_on_loop)
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

void logfs_stop_reading(void) {
    handover_stop();
    if (waiting >= 0)
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
    answered = answering_try(header, size, slot, is_on_loop ? BY_READER : BY_LOOP);
    if (answered == HAS_TO_WAIT && !applying_add_copy(header, size, slot))
        answered = LEFT;
    note_kind(header->opcode, answered != LEFT);
    if (answered != LEFT)
        return answered;
    answering_note_left(header, size);
    if (queue_is_empty())
        return LEFT;
    queue_add_copy(header, size, slot); /* requests that were read before are there */
    return WAITS;
}

/* --- The watching thread ------------------------------------------------------------------------- */

static pthread_t watching_thread;
static int watch_sleeps;

static struct reader *start_reader(void);

/* A call begins while the watching thread sleeps. */
static void wake_watch(void) {
    pthread_mutex_lock(&state_mutex);
    watch_sleeps = 0;
    calls_note_sleep(0);
    pthread_cond_signal(&watch_wanted);
    pthread_mutex_unlock(&state_mutex);
}

/* Have another thread read, as the one that does so is in a call. With the mutex. */
static void replace_reader(uint64_t call) {
    struct reader *other = readers;

    while (other != NULL && !other->is_idle)
        other = other->next;
    if (other == NULL && (other = start_reader()) == NULL)
        return;
    if (!calls_take(&current->calls, call))
        return;
    __atomic_store_n(&other->calls.current, 0, __ATOMIC_SEQ_CST);
    current = other;
    pthread_cond_broadcast(&state_changed);
}

static uint64_t call_under_way(void) {
    return __atomic_load_n(&current->calls.current, __ATOMIC_SEQ_CST);
}

static void *watch(void *unused) {
    uint64_t call, calls, last_call = 0, last_calls = 0;
    struct timespec until;
    int64_t until_ns;
    int quiet = 0;

    (void)unused;
    pthread_mutex_lock(&state_mutex);
    while (!is_stopped) {
        if (quiet == QUIET_LOOKS) {
            watch_sleeps = 1;
            calls_note_sleep(1);
            while (watch_sleeps && !is_stopped && call_under_way() == 0)
                pthread_cond_wait(&watch_wanted, &state_mutex);
            calls_note_sleep(0);
        }
        until_ns = clock_ns(CLOCK_MONOTONIC) + WATCH_MS * 1000000;
        until = (struct timespec){until_ns / 1000000000, until_ns % 1000000000};
        pthread_cond_timedwait(&watch_wanted, &state_mutex, &until);
        call = call_under_way();
        calls = __atomic_load_n(&current->calls.count, __ATOMIC_RELAXED);
        if (call != 0 && call == last_call)
            replace_reader(call);
        quiet = call == 0 && calls == last_calls ? quiet + 1 : 0;
        last_call = call;
        last_calls = calls;
    }
    pthread_mutex_unlock(&state_mutex);
    return NULL;
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
    struct buffer *other;
    enum answered answered;

    if (ahead_answer(header, size)) {
        *answered_ns = clock_ns(CLOCK_MONOTONIC);
        return buffer;
    }
    watching_note_request(header, size);
    buffer->slot = handover_note_read(header, size);
    answered = answering_try(header, size, buffer->slot, BY_READER);
    if (answered == HAS_TO_WAIT && (other = applying_add(buffer)) != NULL) {
        buffer = other;
    } else if (answered == HAS_TO_WAIT || answered == LEFT) {
        answered = LEFT;
        answering_note_left(header, size);
        buffer = queue_add(buffer);
    }
    if (is_lost())
        return buffer;
    if (answered == ANSWERED && opcode == FUSE_OPCODE_READ)
        *answered_ns = clock_ns(CLOCK_MONOTONIC);
    note_kind(opcode, answered != LEFT);
    return buffer;
}

static void *read_requests(void *given) {
    struct buffer *buffer = queue_take_spare();
    int64_t answered_ns = 0;

    self = given;
    self->calls.begun = wake_watch;
    calls_watch(&self->calls);
    while (buffer == NULL && (buffer = queue_make_buffer()) == NULL)
        nanosleep(&(struct timespec){.tv_nsec = ERROR_NS}, NULL);
    while (park()) {
        while (!has_to_park() && !is_lost()) {
            buffer->size = read(device, buffer->bytes, QUEUE_BUFFER_BYTES);
            if (buffer->size >= (ssize_t)sizeof(struct request_header)) {
                buffer = serve(buffer, &answered_ns);
                continue;
            }
            if (buffer->size < 0 && errno == EAGAIN) {
                struct pollfd ready[] = {{device, POLLIN, 0}, {control, POLLIN, 0}};

                if (answered_ns != 0 && clock_ns(CLOCK_MONOTONIC) - answered_ns < AWAKE_NS)
                    continue;
                answered_ns = 0;
                handover_note_idle();
                if (poll(ready, 2, -1) > 0 && ready[1].revents != 0)
                    queue_calm(control);
                continue;
            }
            if (buffer->size < 0 && (errno == EINTR || errno == ENOENT))
                continue;
            if (buffer->size < 0 && errno != ENODEV && !session_has_ended()) {
                nanosleep(&(struct timespec){.tv_nsec = ERROR_NS}, NULL);
                continue; /* there was no memory, say */
            }
            end_connection(); /* unmounted */
            break;
        }
    }
    queue_give_spare(buffer);
    return NULL;
}

/* --- For Python ---------------------------------------------------------------------------------- */

void logfs_want_serving(const appending_functions *given, int on_loop) {
    openfiles_functions = given;
    is_on_loop = on_loop;
}

void logfs_use_clock(clock_function *given) { clock_use(given); }

int logfs_serving_work(unsigned choice) {
    const unsigned applying = is_on_loop ? applying_count() : 0;
    const unsigned all = applying + (is_on_loop ? syncing_count() : 0);

    if (all == 0)
        return 0;
    choice %= all;
    if (choice < applying)
        applying_work(choice);
    else
        syncing_work(choice - applying);
    return 1;
}

int logfs_has_serving(void) { return waiting >= 0; }


int logfs_serving_changes(void) { return changes; }

/* Start a thread, which takes no signals. Returns 0 or an errno. */
static int start_thread(pthread_t *thread, void *(*function)(void *), void *given) {
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, function, given);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Start a thread that reads once it is the current one. With the mutex. NULL: there is none. */
static struct reader *start_reader(void) {
    struct reader *reader = calloc(1, sizeof *reader);

    if (reader == NULL || start_thread(&reader->thread, read_requests, reader) != 0) {
        free(reader);
        return NULL;
    }
    reader->next = readers;
    readers = reader;
    return reader;
}

static int apply_waiting(const struct request_header *header, size_t size, unsigned slot) {
    if (answering_try(header, size, slot, BY_LANE) != LEFT)
        return 1;
    answering_note_left(header, size);
    return 0;
}

static int start_threads(void) {
    pthread_condattr_t clock;

    if (is_on_loop) {
        lanes_without_threads();
        watch_device(1);
        return 1;
    }
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&watch_wanted, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_lock(&state_mutex);
    current = start_reader();
    pthread_mutex_unlock(&state_mutex);
    return current != NULL && start_thread(&watching_thread, watch, NULL) == 0;
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
    applying_start(apply_waiting);
    if (queued < 0 || control < 0 || changes < 0 || waiting < 0 ||
        epoll_ctl(waiting, EPOLL_CTL_ADD, queued, &event) != 0 || !start_threads()) {
        waiting = -1; /* the descriptors stay: it is once for a process */
        return -1;
    }
    return waiting;
}

int serving_stop(void) {
    if (waiting < 0 || is_stopped)
        return 0;
    tell(&is_stopped, 1);
    if (!is_on_loop)
        pthread_join(watching_thread, NULL);
    for (struct reader *reader = readers; reader != NULL; reader = reader->next)
        pthread_join(reader->thread, NULL);
    applying_stop();
    syncing_stop();
    return 1;
}
