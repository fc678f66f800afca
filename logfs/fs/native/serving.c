/* The thread that reads the requests; serving.h says what it does. */

#define _GNU_SOURCE

#include "serving.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "handover.h"
#include "syncing.h"

#define BUFFER_BYTES ((1u << 20) + 16384) /* the largest request, and room */
#define BUFFERS 4                         /* one is read into, others are on their way */
#define LARGE_BYTES 65536u                /* larger writes go to the second thread */
#define LINGER_NS 1000000000 /* how long the thread goes on reading when no file is served any more */
#define AWAKE_NS 50000 /* how long to look for the next request after a read; see hooks.c */

static int64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* --- Open files ---------------------------------------------------------------------------------- */

#define BUCKETS 4096u

struct file {
    struct file *next;
    uint64_t fh, key;
    log_partition *partition;
    log_writer *writer; /* NULL: its writes are left to Python */
    int users;          /* threads that use it just now */
};

struct cold { /* a request that Python has not answered */
    uint64_t unique;
    log_partition *partition; /* NULL: it may be about any */
};

static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct file *buckets[BUCKETS];
static struct cold *colds;
static size_t cold_count, cold_room;
static int64_t cold_anywhere; /* of them, those that may be about any partition */
static int served_count;      /* files with a writer */

static const appending_functions *functions;

/* Descriptors: of /dev/fuse; the events of the queue, of the thread and of changes; what pyfuse3 waits
   for, see serving.h (-1: there is no thread). */
static int device = -1, queue_event = -1, control = -1, changes = -1, waiting = -1;

static struct file **place_of(uint64_t fh) {
    struct file **place = &buckets[(fh ^ fh >> 12) % BUCKETS];
    while (*place != NULL && (*place)->fh != fh)
        place = &(*place)->next;
    return place;
}

/* Find a file, which stays until put_back. */
static struct file *borrow(uint64_t fh) {
    struct file *file;

    pthread_mutex_lock(&table_mutex);
    file = *place_of(fh);
    if (file != NULL)
        __atomic_add_fetch(&file->users, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&table_mutex);
    return file;
}

static void put_back(struct file *file) { __atomic_sub_fetch(&file->users, 1, __ATOMIC_SEQ_CST); }

/* Note that a request goes to Python which no write to its partition may overtake. */
static void note_cold(uint64_t unique, uint64_t fh, int is_writer) {
    struct file *file;
    log_partition *partition;

    pthread_mutex_lock(&table_mutex);
    file = *place_of(fh);
    partition = file == NULL ? NULL : file->partition;
    if (partition == NULL && !is_writer) {
        pthread_mutex_unlock(&table_mutex);
        return;
    }
    if (cold_count == cold_room) {
        size_t room = cold_room == 0 ? 64 : 2 * cold_room;
        struct cold *more = realloc(colds, room * sizeof *more);
        if (more == NULL) { /* for good: no write is applied here any more */
            cold_anywhere++;
            pthread_mutex_unlock(&table_mutex);
            return;
        }
        colds = more;
        cold_room = room;
    }
    colds[cold_count++] = (struct cold){unique, partition};
    if (partition != NULL) {
        functions->hold(partition);
        functions->count_cold(partition, 1);
    } else {
        __atomic_add_fetch(&cold_anywhere, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&table_mutex);
}

void serving_note_reply(uint64_t unique) {
    log_partition *partition = NULL;
    size_t i;

    if (waiting < 0)
        return;
    pthread_mutex_lock(&table_mutex);
    for (i = 0; i < cold_count && colds[i].unique != unique; i++)
        ;
    if (i < cold_count) {
        partition = colds[i].partition;
        colds[i] = colds[--cold_count];
        if (partition != NULL)
            functions->count_cold(partition, -1);
        else
            __atomic_sub_fetch(&cold_anywhere, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&table_mutex);
    if (partition != NULL)
        functions->release(partition);
}

/* --- The queue of requests for Python ------------------------------------------------------------ */

struct buffer {
    struct buffer *next;
    uint8_t *bytes;
    ssize_t size;
    unsigned slot; /* 1 + the slot of the request; 0: it has none */
};

struct queued {
    struct queued *next;
    struct buffer *buffer; /* where the request is; NULL: it follows */
    size_t size;           /* 0: the kernel has ended the connection */
    unsigned slot;
    uint8_t bytes[];
};

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct queued *queue_first, *queue_last;
static struct buffer *spare; /* buffers that are not in use */
static uint64_t writes, syncs, flushes, queued;

static void wake(int event) {
    uint64_t one = 1;

    if (write(event, &one, sizeof one) < 0) { /* it can be read already */
    }
}

static void calm(int event) {
    uint64_t count;

    if (read(event, &count, sizeof count) < 0) { /* it could not be read */
    }
}

static struct buffer *take_spare(void) {
    struct buffer *buffer;

    pthread_mutex_lock(&queue_mutex);
    buffer = spare;
    if (buffer != NULL)
        spare = buffer->next;
    pthread_mutex_unlock(&queue_mutex);
    return buffer;
}

static void give_spare(struct buffer *buffer) {
    pthread_mutex_lock(&queue_mutex);
    buffer->next = spare;
    spare = buffer;
    pthread_mutex_unlock(&queue_mutex);
}

static void enqueue(struct queued *request) {
    int is_first;

    request->next = NULL;
    pthread_mutex_lock(&queue_mutex);
    is_first = queue_first == NULL;
    if (is_first)
        queue_first = request;
    else
        queue_last->next = request;
    queue_last = request;
    queued++;
    pthread_mutex_unlock(&queue_mutex);
    if (is_first)
        wake(queue_event);
}

ssize_t serving_take(void *buffer, size_t size) {
    struct queued *request;
    ssize_t taken;

    if (waiting < 0)
        return 0;
    pthread_mutex_lock(&queue_mutex);
    request = queue_first;
    if (request != NULL && request->size > 0) {
        queue_first = request->next;
        if (queue_first == NULL)
            calm(queue_event);
    }
    pthread_mutex_unlock(&queue_mutex);
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
        give_spare(request->buffer);
    free(request);
    return taken;
}

/* Leave a request to Python. Returns the buffer for the next one. */
static struct buffer *leave(struct buffer *buffer) {
    const struct request_header *header = (const void *)buffer->bytes;
    struct buffer *other = buffer->size > 4096 ? take_spare() : NULL;
    struct queued *request;

    if (header->opcode == FUSE_OPCODE_WRITE) {
        const struct write_request *write = (const void *)(header + 1);
        note_cold(header->unique, write->fh, 1);
    } else if (header->opcode == FUSE_OPCODE_RELEASE) {
        const struct release_request *release = (const void *)(header + 1);
        note_cold(header->unique, release->fh, (release->flags & O_ACCMODE) != O_RDONLY);
    }
    for (;;) {
        request = malloc(sizeof *request + (other != NULL ? 0 : (size_t)buffer->size));
        if (request != NULL)
            break;
        sched_yield(); /* no request may be lost */
    }
    request->buffer = other != NULL ? buffer : NULL;
    request->size = (size_t)buffer->size;
    request->slot = buffer->slot;
    if (other == NULL)
        memcpy(request->bytes, buffer->bytes, (size_t)buffer->size);
    enqueue(request);
    return other != NULL ? other : buffer;
}

void serving_leave(const struct request_header *header, size_t size) {
    struct queued *request;

    while ((request = malloc(sizeof *request + size)) == NULL)
        sched_yield(); /* no request may be lost */
    request->buffer = NULL;
    request->size = size;
    request->slot = 0;
    memcpy(request->bytes, header, size);
    enqueue(request);
}

/* --- Writes -------------------------------------------------------------------------------------- */

struct noted_write {
    write_notes notes;
    uint64_t *slot; /* NULL: nothing is kept */
    uint64_t key;
};

static void note_before(write_notes *notes, int64_t log_end, int64_t unfinished) {
    struct noted_write *noted = (void *)notes;

    if (noted->slot == NULL)
        return;
    noted->slot[SLOT_LOG_END] = (uint64_t)log_end;
    noted->slot[SLOT_UNFINISHED] = (uint64_t)unfinished;
    noted->slot[SLOT_PARTITION] = noted->key;
    __atomic_store_n(&noted->slot[SLOT_STAGE], SLOT_BEGUN, __ATOMIC_RELEASE);
}

static void note_after(write_notes *notes, int64_t accepted) {
    struct noted_write *noted = (void *)notes;

    if (noted->slot == NULL)
        return;
    noted->slot[SLOT_RESULT] = (uint64_t)accepted;
    __atomic_store_n(&noted->slot[SLOT_STAGE], SLOT_DONE, __ATOMIC_RELEASE);
}

/* Apply a write and answer it, unless that is left to Python. */
static int apply(const struct buffer *buffer, struct file *file) {
    const struct request_header *header = (const void *)buffer->bytes;
    const struct write_request *request = (const void *)(header + 1);
    struct noted_write noted = {
        {note_before, note_after}, handover_slot(buffer->slot), file->key};
    struct reply_header reply = {.unique = header->unique};
    uint32_t written[2] = {0, 0};
    struct iovec parts[] = {{&reply, sizeof reply}, {written, sizeof written}};
    int64_t accepted;

    if (__atomic_load_n(&cold_anywhere, __ATOMIC_SEQ_CST) > 0)
        return 0;
    accepted = functions->write(file->writer, (const uint8_t *)(request + 1), request->size,
                                &noted.notes);
    if (accepted < 0)
        return 0;
    written[0] = (uint32_t)accepted;
    reply.length = sizeof reply + sizeof written;
    if (writev(device, parts, 2) < 0) { /* the program has gone */
    }
    handover_note_reply(header->unique, 1);
    __atomic_add_fetch(&writes, 1, __ATOMIC_RELAXED);
    if (functions->is_watched(file->partition))
        wake(changes);
    return 1;
}

/* Whether a request is a write that may be applied here: not one that is sent again. */
static int is_plain_write(const struct buffer *buffer) {
    const struct request_header *header = (const void *)buffer->bytes;
    const struct write_request *request = (const void *)(header + 1);

    return header->opcode == FUSE_OPCODE_WRITE && !(header->unique & REQUEST_RESENT) &&
           (size_t)buffer->size >= sizeof *header + sizeof *request &&
           header->length == (size_t)buffer->size &&
           request->size == (size_t)buffer->size - sizeof *header - sizeof *request &&
           !(request->flags & WRITE_FROM_CACHE);
}

/* --- Fsyncs and closes -------------------------------------------------------------------------------------- */

void serving_answer(uint64_t unique) {
    struct reply_header reply = {.length = sizeof reply, .unique = unique};

    if (write(device, &reply, sizeof reply) < 0) { /* the program has gone */
    }
    handover_note_reply(unique, 1);
}

/* Answer an fsync, now or after a flush, unless that is left to Python. */
static int sync_file(const struct buffer *buffer) {
    const struct request_header *header = (const void *)buffer->bytes;
    const struct fsync_request *request = (const void *)(header + 1);
    struct file *file;
    int64_t offset = 0;
    int answer = SYNC_LEFT;

    if ((size_t)buffer->size != sizeof *header + sizeof *request ||
        header->length != (size_t)buffer->size ||
        __atomic_load_n(&cold_anywhere, __ATOMIC_SEQ_CST) > 0)
        return 0;
    file = borrow(request->fh);
    if (file == NULL)
        return 0;
    if (file->writer != NULL)
        answer = functions->needs_sync(file->writer, &offset);
    if (answer == SYNC_NEEDED && !syncing_add(functions, file->partition, offset, header,
                                              (size_t)buffer->size))
        answer = SYNC_LEFT;
    put_back(file);
    if (answer == SYNC_DONE)
        serving_answer(header->unique);
    if (answer != SYNC_LEFT)
        __atomic_add_fetch(&syncs, 1, __ATOMIC_RELAXED);
    return answer != SYNC_LEFT;
}

/* Answer a close that has nothing to report. */
static int close_file(const struct buffer *buffer) {
    const struct request_header *header = (const void *)buffer->bytes;
    const struct flush_request *request = (const void *)(header + 1);
    struct file *file;
    int is_done;

    if ((size_t)buffer->size != sizeof *header + sizeof *request ||
        header->length != (size_t)buffer->size)
        return 0;
    file = borrow(request->fh);
    if (file == NULL)
        return 0;
    is_done = file->writer != NULL && functions->may_close(file->writer);
    put_back(file);
    if (is_done) {
        serving_answer(header->unique);
        __atomic_add_fetch(&flushes, 1, __ATOMIC_RELAXED);
    }
    return is_done;
}

/* --- The second thread --------------------------------------------------------------------------- */

static pthread_mutex_t large_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t large_ready = PTHREAD_COND_INITIALIZER;
static struct buffer *large_first, *large_last;
static int is_stopped;
static pthread_t first_thread, second_thread;

static void *apply_large(void *unused) {
    (void)unused;
    for (;;) {
        const struct request_header *header;
        struct buffer *buffer;
        struct file *file;
        int is_done;

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
        header = (const void *)buffer->bytes;
        file = borrow(((const struct write_request *)(header + 1))->fh);
        is_done = file != NULL && file->writer != NULL && apply(buffer, file);
        if (file != NULL)
            put_back(file);
        give_spare(is_done ? buffer : leave(buffer));
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

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t state_changed = PTHREAD_COND_INITIALIZER;
static int is_wanted;     /* some file is served */
static int64_t until_ns;  /* if not, the thread goes on until then; CLOCK_MONOTONIC */
static int is_parked = 1; /* the thread waits, and pyfuse3 reads requests */
static int leaves_requests, has_ended;

/* Have pyfuse3 wait for requests of the kernel, or for the queue alone. */
static void watch_device(int is_watched) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = device};

    epoll_ctl(waiting, is_watched ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, device, &event);
}

/* For how many more milliseconds the thread reads requests; -1: without end. */
static int wanted_ms(void) {
    int64_t left_ns;

    if (__atomic_load_n(&is_wanted, __ATOMIC_SEQ_CST))
        return -1;
    left_ns = __atomic_load_n(&until_ns, __ATOMIC_SEQ_CST) - now_ns();
    return left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0;
}

/* Wait until a file is served; returns 0 when the thread has to end. */
static int park(void) {
    int goes_on;

    pthread_mutex_lock(&state_mutex);
    if (!is_stopped && (wanted_ms() == 0 || leaves_requests || has_ended)) {
        if (!leaves_requests && !has_ended)
            watch_device(1);
        __atomic_store_n(&is_parked, 1, __ATOMIC_SEQ_CST);
        while (!is_stopped && (!is_wanted || leaves_requests || has_ended))
            pthread_cond_wait(&state_changed, &state_mutex);
    }
    calm(control);
    goes_on = !is_stopped;
    pthread_mutex_unlock(&state_mutex);
    return goes_on;
}

static int has_to_park(void) {
    return wanted_ms() == 0 ||
           __atomic_load_n(&leaves_requests, __ATOMIC_SEQ_CST) ||
           __atomic_load_n(&is_stopped, __ATOMIC_SEQ_CST);
}

/* Tell Python that the kernel has ended the connection. */
static void end_connection(void) {
    struct queued *end = calloc(1, sizeof *end);

    __atomic_store_n(&has_ended, 1, __ATOMIC_SEQ_CST);
    if (end != NULL)
        enqueue(end);
}

/* Serve a request; returns the buffer for the next one. */
static struct buffer *serve(struct buffer *buffer, int64_t *answered_ns) {
    const struct request_header *header = (const void *)buffer->bytes;
    struct file *file = NULL;
    int is_done = 0;

    if (hooks_answer_read(device, header, (size_t)buffer->size)) {
        *answered_ns = now_ns();
        return buffer;
    }
    buffer->slot = handover_note_read(header, (size_t)buffer->size);
    if (is_plain_write(buffer)) {
        const struct write_request *request = (const void *)(header + 1);

        file = borrow(request->fh);
        if (file != NULL && file->writer != NULL) {
            struct buffer *other = request->size >= LARGE_BYTES ? take_spare() : NULL;

            if (other != NULL) {
                put_back(file);
                pass_on(buffer);
                return other;
            }
            is_done = apply(buffer, file);
        }
        if (file != NULL)
            put_back(file);
    } else if (header->opcode == FUSE_OPCODE_FSYNC) {
        is_done = sync_file(buffer);
    } else if (header->opcode == FUSE_OPCODE_FLUSH) {
        is_done = close_file(buffer);
    }
    return is_done ? buffer : leave(buffer);
}

static void *read_requests(void *unused) {
    struct buffer *buffer = take_spare();
    int64_t answered_ns = 0;

    (void)unused;
    while (park()) {
        while (!has_to_park()) {
            buffer->size = read(device, buffer->bytes, BUFFER_BYTES);
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
                if (poll(ready, 2, wanted_ms()) > 0 && ready[1].revents != 0)
                    calm(control);
                continue;
            }
            if (buffer->size < 0 && (errno == EINTR || errno == ENOENT))
                continue;
            end_connection(); /* ENODEV: unmounted */
            break;
        }
    }
    give_spare(buffer);
    return NULL;
}

/* Change what the thread is to do. */
static void tell(int *what, int value) {
    pthread_mutex_lock(&state_mutex);
    __atomic_store_n(what, value, __ATOMIC_SEQ_CST);
    if (is_wanted && !leaves_requests && !has_ended && is_parked) {
        watch_device(0);
        __atomic_store_n(&is_parked, 0, __ATOMIC_SEQ_CST);
    }
    wake(control);
    pthread_cond_broadcast(&state_changed);
    pthread_mutex_unlock(&state_mutex);
}

int serving_is_reading(void) {
    return waiting >= 0 && !__atomic_load_n(&is_parked, __ATOMIC_SEQ_CST);
}

void serving_leave_requests(void) {
    if (waiting >= 0)
        tell(&leaves_requests, 1);
}

/* --- For Python ---------------------------------------------------------------------------------- */

void logfs_want_serving(const appending_functions *given) { functions = given; }

int logfs_has_serving(void) { return waiting >= 0; }

uint64_t logfs_serving_writes(void) { return __atomic_load_n(&writes, __ATOMIC_RELAXED); }

uint64_t logfs_serving_syncs(void) { return __atomic_load_n(&syncs, __ATOMIC_RELAXED); }

uint64_t logfs_serving_flushes(void) { return __atomic_load_n(&flushes, __ATOMIC_RELAXED); }

uint64_t logfs_serving_queued(void) { return __atomic_load_n(&queued, __ATOMIC_RELAXED); }

int logfs_serving_changes(void) { return changes; }

int logfs_serving_open(uint64_t fh, log_partition *partition) {
    struct file **place, *file = calloc(1, sizeof *file);

    if (file == NULL)
        return 0;
    file->fh = fh;
    file->partition = partition;
    functions->hold(partition);
    pthread_mutex_lock(&table_mutex);
    place = place_of(fh);
    if (*place == NULL) {
        *place = file;
        file = NULL;
    }
    pthread_mutex_unlock(&table_mutex);
    if (file != NULL) { /* it is known */
        functions->release(partition);
        free(file);
    }
    return 1;
}

void logfs_serving_begin(uint64_t fh, log_writer *writer, uint64_t key) {
    struct file *file;
    int is_first = 0;

    pthread_mutex_lock(&table_mutex);
    file = *place_of(fh);
    /* Where requests are kept whole, they are read in the thread of Python alone. */
    if (file != NULL && file->writer == NULL && !logfs_keeps_requests()) {
        file->key = key;
        file->writer = writer;
        is_first = served_count++ == 0;
    }
    pthread_mutex_unlock(&table_mutex);
    if (is_first)
        tell(&is_wanted, 1);
}

void logfs_serving_close(uint64_t fh) {
    struct file **place, *file;
    int is_last = 0;

    pthread_mutex_lock(&table_mutex);
    place = place_of(fh);
    file = *place;
    if (file != NULL) {
        *place = file->next;
        is_last = file->writer != NULL && --served_count == 0;
        if (is_last)
            __atomic_store_n(&until_ns, now_ns() + LINGER_NS, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&table_mutex);
    if (file == NULL)
        return;
    while (__atomic_load_n(&file->users, __ATOMIC_SEQ_CST) > 0)
        sched_yield(); /* it has sent its last reply */
    functions->release(file->partition);
    free(file);
    if (is_last)
        tell(&is_wanted, 0);
}

static int make_buffers(void) {
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *buffer = calloc(1, sizeof *buffer);
        uint8_t *bytes = handover_resident(BUFFER_BYTES);

        if (buffer == NULL || bytes == NULL) {
            free(buffer);
            return i > 0;
        }
        buffer->bytes = bytes;
        give_spare(buffer);
    }
    return 1;
}

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

    if (functions == NULL || waiting >= 0)
        return -1;
    device = fd;
    queue_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    control = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    changes = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    waiting = epoll_create1(EPOLL_CLOEXEC);
    event.data.fd = queue_event;
    if (queue_event < 0 || control < 0 || changes < 0 || waiting < 0 || !make_buffers() ||
        epoll_ctl(waiting, EPOLL_CTL_ADD, queue_event, &event) != 0 || start_threads() != 0) {
        waiting = -1; /* the descriptors stay: it is once for a process */
        return -1;
    }
    return waiting;
}

void logfs_serving_stop(void) {
    if (waiting < 0 || is_stopped)
        return;
    tell(&is_stopped, 1);
    pthread_mutex_lock(&large_mutex);
    pthread_cond_broadcast(&large_ready);
    pthread_mutex_unlock(&large_mutex);
    pthread_join(first_thread, NULL);
    pthread_join(second_thread, NULL);
    syncing_stop();
    hooks_give_device_back();
}
