/* Reads of growing files without Python; see reading.h. */

#define _GNU_SOURCE

#include "reading.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "../../log/reading/_cursor.h"
#include "handover.h"
#include "openfiles.h"
#include "serving.h"
#include "watching.h"

#define PLACES 32        /* cursors with a buffer */
#define BUCKETS 256u
#define IDLE_NS 1000000000
#define REPLY_BYTES (1u << 20) /* the largest read that the kernel sends */
#define REPLY_SLACK 64

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
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct reader *buckets[BUCKETS];
static struct reader *opened[PLACES];
static uint8_t *reply_bytes;
static uint64_t reads;

static struct reader **place_of(uint64_t fh) {
    struct reader **place = &buckets[(fh ^ fh >> 8) % BUCKETS];

    while (*place != NULL && (*place)->fh != fh)
        place = &(*place)->next;
    return place;
}

static int64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
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

static int answer(int device, struct reader *reader, uint64_t unique, uint32_t wanted) {
    struct reply_header reply = {.unique = unique};
    struct iovec parts[] = {{&reply, sizeof reply}, {reply_bytes, 0}};
    int64_t done = render(reader, wanted);

    if (done < 0) {
        close_cursor(reader);
        return 0;
    }
    parts[1].iov_len = (size_t)done;
    reply.length = (uint32_t)(sizeof reply + (size_t)done);
    if (writev(device, parts, 2) < 0) { /* the program has gone */
    }
    watching_note_reply(unique, (size_t)done);
    reader->place = cursor_where(&reader->cursor);
    reader->offset += (uint64_t)done;
    reader->given += done;
    reader->used_ns = now_ns();
    openfiles_functions->count_read(reader->partition, done);
    __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
    return 1;
}

int reading_answer(int device, const struct request_header *header, size_t size) {
    const struct read_request *wanted = (const void *)(header + 1);
    struct reader *reader;
    int is_answered = 0;

    if (size < sizeof *header + sizeof *wanted || header->length != size || wanted->size == 0 ||
        wanted->size > REPLY_BYTES || openfiles_has_left_anywhere())
        return 0;
    pthread_mutex_lock(&mutex);
    reader = *place_of(wanted->fh);
    if (reader != NULL && reader->is_open && reader->offset == wanted->offset)
        is_answered = answer(device, reader, header->unique, wanted->size);
    pthread_mutex_unlock(&mutex);
    if (is_answered)
        handover_note_reply(header->unique, 1);
    return is_answered;
}

/* --- For Python; serving.h ----------------------------------------------------------------------- */

/* Find a place for a cursor, if need be that of a file which is not read just now; NULL: there is none. */
static struct reader **find_place(void) {
    struct reader **oldest = &opened[0];

    for (int i = 0; i < PLACES; i++) {
        if (opened[i] == NULL)
            return &opened[i];
        if (opened[i]->used_ns < (*oldest)->used_ns)
            oldest = &opened[i];
    }
    if (now_ns() - (*oldest)->used_ns < IDLE_NS)
        return NULL;
    close_cursor(*oldest);
    return oldest;
}

int logfs_reading_give(uint64_t fh, uint64_t offset, log_partition *partition, int64_t changes, int fd,
                       const int64_t place[4], int64_t file_end, int view, int is_active) {
    struct reader *reader = NULL, **bucket, **position = NULL;

    pthread_mutex_lock(&mutex);
    bucket = place_of(fh);
    if (reply_bytes == NULL)
        reply_bytes = handover_resident(REPLY_BYTES + REPLY_SLACK);
    if (logfs_has_serving() && *bucket == NULL && reply_bytes != NULL)
        position = find_place();
    if (position != NULL && (reader = calloc(1, sizeof *reader)) != NULL) {
        *reader = (struct reader){.fh = fh, .offset = offset, .partition = partition, .changes = changes,
                                  .file_end = file_end, .is_active = is_active};
        reader->place = (cursor_place){place[0], place[1], place[2], (int)place[3]};
        reader->used_ns = now_ns();
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

int64_t logfs_reading_take(uint64_t fh, int64_t place[4]) {
    struct reader **bucket, *reader;
    int64_t given;

    pthread_mutex_lock(&mutex);
    bucket = place_of(fh);
    reader = *bucket;
    if (reader != NULL) {
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

uint64_t logfs_serving_reads(void) { return __atomic_load_n(&reads, __ATOMIC_RELAXED); }
