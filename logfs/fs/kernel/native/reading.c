/* Native reads of growing files; see reading.h. */

#define _GNU_SOURCE

#include "reading.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "../../../log/reading/_cursor.h"
#include "../../../log/writing/_clock.h"
#include "answered.h"
#include "handover.h"
#include "openfiles.h"
#include "queue.h"
#include "session.h"
#include "watching.h"

#define PLACES 32        /* cursors with a buffer */
#define WAITING_PLACES 8 /* of them, those of files that wait: each append looks at them */
#define BUCKETS 256u
#define IDLE_NS 1000000000
#define REPLY_BYTES (1u << 20) /* the largest read that the kernel sends */
#define REPLY_SLACK 64
/* The kernel splits a larger read(2), and ends it at the first short reply: a reply to a part of it that is
   not short would have the next part wait. 256 pages, the first not whole. */
#define WHOLE_BYTES (255u * 4096)

struct reader {
    struct reader *next;
    uint64_t fh, offset; /* offset: of the next byte in the file that is read */
    log_partition *partition;
    int64_t changes;   /* of the partition, when the place was given */
    int64_t file_end;  /* of the segment, at that time */
    int is_active;     /* the segment grows */
    int is_open;       /* the cursor can be used */
    int64_t given;     /* bytes */
    int64_t used_ns;
    plain_cursor cursor;
    cursor_place place; /* of the next byte */
    int may_wait;       /* a read that has nothing waits */
    struct {
        struct request_header header; /* unique 0: no read waits */
        struct read_request wanted;
    } kept;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct reader *buckets[BUCKETS];
static struct reader *opened[PLACES];
static uint8_t *reply_bytes;
static int waiting_count; /* reads that wait */
static int is_ending;     /* none waits any more */

static struct reader **place_of(uint64_t fh) {
    struct reader **place = &buckets[(fh ^ fh >> 8) % BUCKETS];

    while (*place != NULL && (*place)->fh != fh)
        place = &(*place)->next;
    return place;
}

/* Leave the reads of a file to Python; what it has been given stays known. */
static void close_cursor(struct reader *reader) {
    if (!reader->is_open)
        return;
    reader->is_open = 0;
    close(reader->cursor.fd);
    cursor_free(&reader->cursor);
    for (int i = 0; i < PLACES; i++)
        if (opened[i] == reader)
            opened[i] = NULL;
}

/* Find the end of what may be read of the segment; 0 if Python has changed the partition. */
static int find_end(const struct reader *reader, int64_t *file_end) {
    int64_t shown;

    if (!openfiles_functions->shown_end(reader->partition, reader->changes, &shown))
        return 0;
    *file_end = reader->is_active && shown >= 0 ? shown : reader->file_end;
    return 1;
}

/* Render the reply to a read; -1: it is left to Python. */
static int64_t render(struct reader *reader, uint32_t wanted) {
    enum cursor_status status = CURSOR_LEFT;
    int64_t file_end, unused, done = -1;

    if (!find_end(reader, &file_end))
        return -1;
    if (cursor_skip(&reader->cursor, file_end, reply_bytes, REPLY_BYTES))
        done = cursor_render(&reader->cursor, file_end, reply_bytes, wanted, &status);
    /* The end of a sealed segment is not that of the log. And what was changed meanwhile may have been
       read half before and half after the change. */
    if (status == CURSOR_LEFT || (status == CURSOR_END && !reader->is_active) ||
        !find_end(reader, &unused))
        return -1;
    return done;
}

/* Send what was rendered. */
static void send_reply(struct reader *reader, uint64_t unique, int64_t done) {
    session_reply(unique, 0, reply_bytes, (size_t)done);
    watching_note_reply(unique, (size_t)done);
    reader->place = cursor_where(&reader->cursor);
    reader->offset += (uint64_t)done;
    reader->given += done;
    reader->used_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
    openfiles_functions->count_read(reader->partition, done);
    answered_count(FUSE_OPCODE_READ);
}

/* How many bytes a reply may have. */
static uint32_t room_of(const struct reader *reader, uint32_t wanted) {
    return reader->may_wait && wanted > WHOLE_BYTES ? wanted - 1 : wanted;
}

static void stop_waiting(struct reader *reader) {
    reader->kept.header.unique = 0;
    __atomic_sub_fetch(&waiting_count, 1, __ATOMIC_SEQ_CST);
}

/* Answer a read that waits if there is something. Returns 0 if that is left to Python. */
static int answer_waiting(struct reader *reader) {
    const uint64_t unique = reader->kept.header.unique;
    int64_t done = render(reader, room_of(reader, reader->kept.wanted.size));

    if (done > 0) {
        stop_waiting(reader);
        send_reply(reader, unique, done);
    }
    return done >= 0;
}

/* Leave the read of a file that waits to Python. */
static void return_waiting(struct reader *reader) {
    queue_add_copy(&reader->kept.header, sizeof reader->kept, 0);
    stop_waiting(reader);
}

static enum reading answer(struct reader *reader, const struct request_header *header) {
    const struct read_request *wanted = (const void *)(header + 1);
    int64_t done = render(reader, room_of(reader, wanted->size));

    if (done == 0 && reader->may_wait && !is_ending) {
        reader->kept.header = *header;
        reader->kept.wanted = *wanted;
        __atomic_add_fetch(&waiting_count, 1, __ATOMIC_SEQ_CST);
        /* An append after the first look may have been noted before the count. */
        if (answer_waiting(reader))
            return READING_WAITS;
        stop_waiting(reader);
        done = -1;
    }
    if (done < 0 || (done == 0 && reader->may_wait)) {
        close_cursor(reader);
        return READING_LEFT;
    }
    send_reply(reader, header->unique, done);
    return READING_ANSWERED;
}

enum reading reading_answer(const struct request_header *header, size_t size) {
    const struct read_request *wanted = (const void *)(header + 1);
    enum reading answered = READING_LEFT;
    struct reader *reader;

    if (size < sizeof *header + sizeof *wanted || header->length != size || wanted->size == 0 ||
        wanted->size > REPLY_BYTES || openfiles_has_left_anywhere())
        return READING_LEFT;
    pthread_mutex_lock(&mutex);
    reader = *place_of(wanted->fh);
    if (reader != NULL && reader->is_open && reader->offset == wanted->offset &&
        reader->kept.header.unique == 0)
        answered = answer(reader, header);
    pthread_mutex_unlock(&mutex);
    return answered;
}

void reading_note_append(const log_partition *partition) {
    if (__atomic_load_n(&waiting_count, __ATOMIC_SEQ_CST) == 0)
        return;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < PLACES; i++)
        if (opened[i] != NULL && opened[i]->kept.header.unique != 0 &&
            opened[i]->partition == partition && !answer_waiting(opened[i])) {
            return_waiting(opened[i]);
            close_cursor(opened[i]); /* it is after bytes that the program did not get */
        }
    pthread_mutex_unlock(&mutex);
}

/* Answer a read that waits with an error. */
static void refuse(struct reader *reader, int error) {
    const uint64_t unique = reader->kept.header.unique;

    stop_waiting(reader);
    session_reply(unique, error, NULL, 0);
}

int reading_interrupt(const struct request_header *header, size_t size) {
    const uint64_t *unique = (const void *)(header + 1);
    int is_ended = 0;

    if (size < sizeof *header + sizeof *unique ||
        __atomic_load_n(&waiting_count, __ATOMIC_SEQ_CST) == 0)
        return 0;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < PLACES && !is_ended; i++)
        if (opened[i] != NULL && opened[i]->kept.header.unique != 0 &&
            ((opened[i]->kept.header.unique ^ *unique) & ~REQUEST_RESENT) == 0) {
            refuse(opened[i], EINTR);
            is_ended = 1;
        }
    pthread_mutex_unlock(&mutex);
    return is_ended;
}

/* --- For Python ---------------------------------------------------------------------------------- */

/* Find a place for a cursor, if need be that of a file which is not read just now; NULL: there is none. */
static struct reader **find_place(int may_wait) {
    struct reader **oldest = NULL, **unused = NULL;
    int waiting = 0;

    for (int i = 0; i < PLACES; i++) {
        if (opened[i] == NULL) {
            unused = &opened[i];
            continue;
        }
        waiting += opened[i]->may_wait;
        if (opened[i]->kept.header.unique == 0 && (!may_wait || opened[i]->may_wait) &&
            (oldest == NULL || opened[i]->used_ns < (*oldest)->used_ns))
            oldest = &opened[i];
    }
    if (unused != NULL && (!may_wait || waiting < WAITING_PLACES))
        return unused;
    if (oldest == NULL || clock_ns(CLOCK_MONOTONIC_COARSE) - (*oldest)->used_ns < IDLE_NS)
        return NULL;
    close_cursor(*oldest);
    return oldest;
}

int logfs_reading_give(uint64_t fh, uint64_t offset, log_partition *partition, int64_t changes, int fd,
                       const int64_t place[4], int64_t file_end, int view, int is_active,
                       int may_wait) {
    struct reader *reader = NULL, **bucket, **position = NULL;

    pthread_mutex_lock(&mutex);
    bucket = place_of(fh);
    if (reply_bytes == NULL)
        reply_bytes = handover_resident(REPLY_BYTES + REPLY_SLACK);
    /* Where requests are kept whole, reports of signals are read in the thread of Python alone. */
    if (openfiles_functions != NULL && *bucket == NULL && reply_bytes != NULL &&
        !(may_wait && (is_ending || logfs_keeps_requests())))
        position = find_place(may_wait);
    if (position != NULL && (reader = calloc(1, sizeof *reader)) != NULL) {
        *reader = (struct reader){.fh = fh, .offset = offset, .partition = partition, .changes = changes,
                                  .file_end = file_end, .is_active = is_active,
                                  .may_wait = may_wait};
        reader->place = (cursor_place){place[0], place[1], place[2], (int)place[3]};
        reader->used_ns = clock_ns(CLOCK_MONOTONIC_COARSE);
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 3); /* Python may close the other */
        if (fd < 0) {
            free(reader);
            reader = NULL;
        } else {
            cursor_begin(&reader->cursor, fd, view, &reader->place);
            reader->is_open = 1;
            openfiles_functions->hold(partition);
            *bucket = *position = reader;
        }
    }
    pthread_mutex_unlock(&mutex);
    return reader != NULL;
}

void logfs_reading_return(const log_partition *partition, int all) {
    int64_t unused;

    if (__atomic_load_n(&waiting_count, __ATOMIC_SEQ_CST) == 0)
        return;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < PLACES; i++)
        if (opened[i] != NULL && opened[i]->kept.header.unique != 0 &&
            opened[i]->partition == partition &&
            (all || !find_end(opened[i], &unused)))
            return_waiting(opened[i]);
    pthread_mutex_unlock(&mutex);
}

void logfs_reading_end(void) {
    pthread_mutex_lock(&mutex);
    is_ending = 1;
    for (int i = 0; i < PLACES; i++)
        if (opened[i] != NULL && opened[i]->kept.header.unique != 0)
            refuse(opened[i], ENOTCONN);
    pthread_mutex_unlock(&mutex);
}

int logfs_reading_waiting(void) { return __atomic_load_n(&waiting_count, __ATOMIC_SEQ_CST); }

int64_t logfs_reading_take(uint64_t fh, int64_t place[4]) {
    struct reader **bucket, *reader;
    int64_t given;

    pthread_mutex_lock(&mutex);
    bucket = place_of(fh);
    reader = *bucket;
    if (reader != NULL) {
        if (reader->kept.header.unique != 0)
            return_waiting(reader);
        close_cursor(reader);
        *bucket = reader->next;
    }
    pthread_mutex_unlock(&mutex);
    if (reader == NULL)
        return -1;
    given = reader->given;
    place[0] = reader->place.batch_position;
    place[1] = reader->place.batch_end;
    place[2] = reader->place.delivered;
    place[3] = reader->place.is_inside;
    openfiles_functions->release(reader->partition);
    free(reader);
    return given;
}
