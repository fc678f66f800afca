/* Reads of growing files by the thread that appends, beside threads that play the kernel, programs and
   Python. Built with sanitizers: for races, and for memory. A pair of sockets is the device.

   Programs append numbered lines. Others read them: to the end, or as from a .follow name, where a read
   waits; more than can wait natively, each in reads of random sizes, two of one open file at the
   same place now and then. A thread sends signals for reads, another one requests that are too short or
   wrong. Two threads play Python: one serves requests, the other rolls and replaces segments, appends what
   only Python renders, and takes the lock for nothing. Every reader has to come to the end of the log, with
   the bytes that the others have read at the same places; these have to be the lines of each program, in
   order, each once. Then the mount ends while programs append and readers wait: all have to end.

   Arguments: seconds, seed. The working directory has to be on a file system that reads from the page cache
   without waiting (RWF_NOWAIT). Prints what is wrong and ends with status 1. */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../logfs/log/writing/_appending.h"

#include "../../logfs/records/_crc.h"

#include "../../logfs/fs/kernel/native/answered.h"
#include "../../logfs/fs/kernel/native/answering.h"
#include "../../logfs/fs/kernel/native/handover.h"
#include "../../logfs/fs/kernel/native/openfiles.h"
#include "../../logfs/fs/kernel/native/queue.h"
#include "../../logfs/fs/kernel/native/reading.h"
#include "../../logfs/fs/kernel/native/serving.h"
#include "../../logfs/fs/kernel/native/session.h"

#define PARTITIONS 2
#define WRITERS 4
#define FOLLOWERS 12 /* more than can wait natively */
#define PLAIN 4      /* readers that do not wait */
#define READERS (FOLLOWERS + PLAIN)
#define SECOND_READERS 4 /* read where a follower is, through its open file */
#define CALLERS (WRITERS + READERS + SECOND_READERS)
#define SEGMENTS 8192
#define SEGMENT_BYTES 250000
#define LARGEST_READ 8192 /* no reply waits for the others: all of them fit into the socket */
#define LARGEST_WRITE 80000 /* more than the first thread applies */
#define HEADER 61
#define LEFT_CODEC 1 /* attributes of a batch that only Python renders; its records are as they are */
#define PATIENCE_NS 60000000000LL

/* --- What is common to the threads --------------------------------------------------------------- */

static int kernel_end, device_end, changed = -1;
static int64_t burst_ns; /* when programs stop appending */
static int64_t wrong, is_full, is_ended, last_unique = 1;
static int64_t is_quiet; /* nothing but what programs read and append happens */

static void fail(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    __atomic_store_n(&wrong, 1, __ATOMIC_SEQ_CST);
}

static int64_t get(int64_t *what) { return __atomic_load_n(what, __ATOMIC_SEQ_CST); }
static void set(int64_t *what, int64_t value) { __atomic_store_n(what, value, __ATOMIC_SEQ_CST); }

/* --- The log ------------------------------------------------------------------------------------- */

struct segment {
    int fd;
    int64_t before, base_offset; /* of the text, of the records */
    int64_t text, bytes;         /* of a sealed one */
};

static struct log {
    log_partition *partition;
    log_end end;
    shown_end shown;
    pthread_mutex_t mutex; /* of the list, for the threads of Python */
    struct segment segments[SEGMENTS];
    int count;
} logs[PARTITIONS];

static int temporary(void) {
    int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0) {
        perror("O_TMPFILE");
        exit(1);
    }
    return fd;
}

/* Make the header of a batch whose records follow it. */
static void seal_batch(uint8_t *batch, int64_t size, int64_t base_offset, int64_t count, int attributes) {
    memset(batch, 0, HEADER);
    lf_put64(batch, base_offset);
    lf_put32(batch + 8, size - 12);
    batch[16] = 2;
    batch[22] = (uint8_t)attributes;
    lf_put32(batch + 23, count - 1);
    memset(batch + 43, 0xff, 14); /* no producer */
    lf_put32(batch + 57, count);
    lf_put32(batch + 17, lf_crc32c(0, batch + 21, (size_t)size - 21));
}

static uint8_t *put_record(uint8_t *p, const uint8_t *line, int64_t bytes, int64_t delta) {
    uint8_t body[16], *q = body;

    *q++ = 0;
    q = lf_put_varint(q, 0);
    q = lf_put_varint(q, delta);
    q = lf_put_varint(q, -1);
    q = lf_put_varint(q, bytes);
    p = lf_put_varint(p, q - body + bytes + 1);
    memcpy(p, body, (size_t)(q - body));
    memcpy(p + (q - body), line, (size_t)bytes);
    p += q - body + bytes;
    *p++ = 0;
    return p;
}

/* Encode lines as one batch; see lf_encode. */
static int encode_batch(lf_encoded *encoded, const uint8_t *text, int64_t size, int64_t base_offset,
                        int attributes) {
    uint8_t *p = encoded->p + HEADER;
    const uint8_t *end = text + size, *newline;
    int64_t count = 0;

    for (const uint8_t *line = text; line < end; line = newline + 1) {
        newline = memchr(line, '\n', (size_t)(end - line));
        p = put_record(p, line, newline - line, count++);
    }
    encoded->size = p - encoded->p;
    encoded->count = 1;
    encoded->batches[0] =
        (lf_added){encoded->size, base_offset, base_offset + count - 1, 0, count, size, size, size};
    seal_batch(encoded->p, encoded->size, base_offset, count, attributes);
    return 1;
}

static int encode(lf_encoded *encoded, int view, const uint8_t *first, int64_t first_bytes,
                  const uint8_t *rest, int64_t rest_bytes, int64_t base_offset, int64_t now_ms,
                  int64_t limit, int64_t leader_epoch) {
    (void)view, (void)first, (void)now_ms, (void)limit, (void)leader_epoch;
    return first_bytes == 0 && encode_batch(encoded, rest, rest_bytes, base_offset, 0);
}

/* Render the records of a batch, of any attributes; returns the bytes. */
static int64_t render_batch(const uint8_t *batch, uint8_t *out) {
    const uint8_t *p = batch + HEADER;
    int64_t done = 0;

    for (int64_t left = lf_get32(batch + 57); left > 0; left--) {
        uint64_t number[5];

        for (int i = 0; i < 5; i++) {
            if (i == 1)
                p++; /* attributes */
            number[i] = 0;
            for (int shift = 0;; shift += 7) {
                number[i] |= (uint64_t)(*p & 0x7f) << shift;
                if (*p++ < 0x80)
                    break;
            }
        }
        memcpy(out + done, p, (size_t)lf_unzigzag(number[4]));
        done += lf_unzigzag(number[4]);
        out[done++] = '\n';
        p += lf_unzigzag(number[4]) + 1;
    }
    return done;
}

static void arm(struct log *log) {
    log_partition *partition = log->partition;
    const int64_t last = INT64_MAX / 2;

    log->end.due = log->end.due_times = 0;
    partition->bounds = (append_bounds){SEGMENT_BYTES, last, last, last, last, last, LOG_END_ENTRIES, last,
                                        0, log->segments[log->count - 1].fd, last, last};
    partition->room_end = last;
    partition->end = &log->end;
    partition->shown = &log->shown;
    partition_show_position(partition, log->end.at.file_position);
    partition_arm(partition);
}

static void lock(struct log *log) { /* as PartitionLock.__enter__ */
    pthread_mutex_lock(&log->partition->mutex);
    partition_disarm(log->partition);
    partition_change(log->partition);
}

static void unlock(struct log *log) { pthread_mutex_unlock(&log->partition->mutex); }

/* Begin a new segment. With the lock. */
static void roll(struct log *log) {
    struct segment *last = &log->segments[log->count - 1];

    if (log->end.at.text == 0 || log->count == SEGMENTS) {
        set(&is_full, log->count == SEGMENTS);
        return;
    }
    pthread_mutex_lock(&log->mutex);
    last->text = log->end.at.text;
    last->bytes = log->end.at.file_position;
    log->segments[log->count++] = (struct segment){temporary(), last->before + last->text,
                                                   log->end.at.next_offset, 0, 0};
    lf_end_begin(&log->end.at, log->end.at.next_offset, 4096);
    partition_show(&log->shown, &log->end.at);
    pthread_mutex_unlock(&log->mutex);
}

/* Append lines as Python does: in a batch that it alone renders, now and then. With the lock. */
static void append(struct log *log, const uint8_t *text, int64_t size, int attributes) {
    static __thread uint8_t bytes[2 * LARGEST_WRITE + HEADER + 4096];
    lf_encoded encoded = {.p = bytes, .capacity = sizeof bytes};

    if (log->end.at.file_position + 2 * LARGEST_WRITE + HEADER > SEGMENT_BYTES)
        roll(log);
    encode_batch(&encoded, text, size, log->end.at.next_offset, attributes);
    log->end.due = 0;
    log_end_append(&log->end, appending_pwrite, &log->segments[log->count - 1].fd, bytes,
                   encoded.batches, 1);
    partition_show(&log->shown, &log->end.at);
}

/* Write a sealed segment again, with all its lines in larger batches, and close the old file. With the lock. */
static void replace(struct log *log, int number) {
    static uint8_t old[2 * SEGMENT_BYTES], text[2 * SEGMENT_BYTES], bytes[4 * SEGMENT_BYTES];
    struct segment *segment = &log->segments[number];
    lf_encoded encoded = {.p = bytes, .capacity = sizeof bytes};
    int64_t size = 0;
    int fd = temporary();

    if (pread(segment->fd, old, sizeof old, 0) != segment->bytes)
        fail("a segment is not as long as it was");
    for (int64_t at = 0; at < segment->bytes; at += 12 + (int64_t)lf_get32(old + at + 8))
        size += render_batch(old + at, text + size);
    encode_batch(&encoded, text, size, segment->base_offset, 0);
    if (appending_pwrite(&fd, bytes, encoded.size, 0) != 0)
        perror("replace");
    pthread_mutex_lock(&log->mutex);
    close(segment->fd);
    segment->fd = fd;
    segment->bytes = encoded.size;
    pthread_mutex_unlock(&log->mutex);
}

/* As a request that Python has to answer first, which comes while a read is rendered, now and then. */
static int shown_end_or_not(const log_partition *partition, int64_t changes, int64_t *file_position) {
    static __thread unsigned seed;

    return appending_shown_end(partition, changes, file_position) &&
           (get(&is_quiet) || rand_r(&seed) % 50 != 0);
}

/* --- Python: requests ---------------------------------------------------------------------------- */

static struct opened { /* of a reader; by the number of the open file, the newest of a reader */
    uint64_t fh;
    int in_order, is_given;
    int64_t next;
} opened[READERS];

static struct pending {
    uint64_t unique, fh;
    int64_t offset, size;
    int is_pending;
} pending[READERS + SECOND_READERS + 64];
static log_writer writers[WRITERS];
static line_file lines[WRITERS];
static int64_t python_reads, python_waits;

static struct log *log_of_reader(int reader) { return &logs[reader % PARTITIONS]; }

static void reply(uint64_t unique, int error, const void *data, size_t size) {
    session_reply(unique, error, data, size);
    serving_note_reply(unique);
}

/* Read from the list of segments. place: what a cursor needs to continue after it. Returns the bytes. */
static int64_t read_log(struct log *log, int64_t offset, int64_t size, uint8_t *out, int64_t place[4],
                        struct segment *in, int *is_active) {
    static uint8_t bytes[2 * SEGMENT_BYTES], text[2 * SEGMENT_BYTES];
    int64_t end = 0, at = 0, got = 0, before = 0, rendered;
    int number;

    pthread_mutex_lock(&log->mutex);
    number = log->count - 1;
    while (number > 0 && log->segments[number].before > offset)
        number--;
    *in = log->segments[number];
    *is_active = number == log->count - 1;
    if (*is_active) {
        shown_end shown = partition_shown(&log->shown);

        in->bytes = shown.file_position;
        in->text = shown.text;
    }
    end = pread(in->fd, bytes, (size_t)in->bytes, 0);
    pthread_mutex_unlock(&log->mutex);
    if (end != in->bytes)
        fail("a segment is shorter than it was");
    place[0] = place[1] = in->bytes;
    place[2] = place[3] = 0;
    while (got < size && at < end) {
        rendered = render_batch(bytes + at, text);
        if (in->before + before + rendered > offset + got) {
            int64_t from = offset + got - in->before - before;
            int64_t n = rendered - from < size - got ? rendered - from : size - got;

            memcpy(out + got, text + from, (size_t)n);
            got += n;
            if (from + n < rendered) {
                place[0] = at;
                place[1] = at + 12 + lf_get32(bytes + at + 8);
                place[2] = from + n;
                place[3] = text[from + n - 1] != '\n';
                return got;
            }
        }
        before += rendered;
        at += 12 + (int64_t)lf_get32(bytes + at + 8);
        place[0] = place[1] = at;
    }
    return got;
}

/* Take the place of a file back. */
static void take(struct opened *file) {
    int64_t place[4], given;

    if (!file->is_given)
        return;
    given = logfs_reading_take(file->fh, place);
    file->is_given = 0;
    if (given < 0)
        fail("what was given is not there");
    file->next += given;
}

/* Let the library read on; as NativeReads.give. */
static void give(int reader, int64_t offset) {
    struct log *log = log_of_reader(reader);
    struct opened *file = &opened[reader];
    struct segment in;
    uint8_t nothing[1];
    int64_t place[4], changes;
    int is_active;

    if (pthread_mutex_trylock(&log->partition->mutex) != 0)
        return;
    changes = log->partition->changes;
    pthread_mutex_unlock(&log->partition->mutex);
    if (offset > 0 && read_log(log, offset - 1, 1, nothing, place, &in, &is_active) != 1)
        fail("a byte that was read is not there any more");
    else if (offset > 0 && (is_active || place[0] < in.bytes)) {
        pthread_mutex_lock(&log->mutex); /* the descriptor stays open */
        if (__atomic_load_n(&log->partition->changes, __ATOMIC_SEQ_CST) == changes)
            file->is_given = logfs_reading_give(file->fh, (uint64_t)offset, log->partition, changes, in.fd,
                                                place, in.bytes, 0, is_active, reader < FOLLOWERS);
        pthread_mutex_unlock(&log->mutex);
    }
}

/* Answer a read, or have it wait; returns whether it was answered. */
static int try_read(int reader, const struct pending *read) {
    struct opened *file = &opened[reader];
    static uint8_t out[LARGEST_READ];
    struct segment in;
    int64_t place[4], got;
    int is_active;

    take(file);
    got = read_log(log_of_reader(reader), read->offset, read->size, out, place, &in, &is_active);
    if (got == 0 && reader < FOLLOWERS)
        return 0;
    python_reads++;
    file->in_order = read->offset == file->next ? file->in_order + 1 : 0;
    file->next = read->offset + got;
    if (got > 0 && file->in_order >= 2)
        give(reader, file->next);
    reply(read->unique, 0, out, (size_t)got);
    return 1;
}

static int reader_of(uint64_t fh) {
    for (int i = 0; i < READERS; i++)
        if (opened[i].fh == fh)
            return i;
    return -1;
}

/* A partition has changed, or perhaps: look at what waits. */
static void look_at_pending(void) {
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++)
        if (pending[i].is_pending && try_read(reader_of(pending[i].fh), &pending[i]))
            pending[i].is_pending = 0;
}

static void begin_read(const struct request_header *header, const struct read_request *wanted) {
    int reader = reader_of(wanted->fh);
    struct pending read = {header->unique, wanted->fh, (int64_t)wanted->offset, wanted->size, 1};
    size_t place = 0;

    if (reader < 0 || wanted->size == 0 || wanted->size > LARGEST_READ) {
        reply(header->unique, EINVAL, "", 0);
        return;
    }
    if (try_read(reader, &read))
        return;
    if (get(&is_ended)) {
        reply(header->unique, ENOTCONN, "", 0);
        return;
    }
    python_waits++;
    while (place < sizeof pending / sizeof *pending && pending[place].is_pending)
        place++;
    if (place == sizeof pending / sizeof *pending) {
        fail("too many reads wait");
        return;
    }
    pending[place] = read;
    partition_watch(log_of_reader(reader)->partition, 1);
    look_at_pending(); /* what was appended before it was watched */
}

static void end_pending(uint64_t unique, int error) {
    for (size_t i = 0; i < sizeof pending / sizeof *pending; i++)
        if (pending[i].is_pending && (unique == 0 || pending[i].unique == unique)) {
            pending[i].is_pending = 0;
            reply(pending[i].unique, error, "", 0);
        }
}

static void write_lines(const struct request_header *header, const struct write_request *wanted) {
    uint32_t written[2] = {wanted->size, 0};
    struct log *log = &logs[(wanted->fh - 1) % PARTITIONS];

    lock(log);
    append(log, (const uint8_t *)(wanted + 1), wanted->size, header->unique % 10 == 0 ? LEFT_CODEC : 0);
    arm(log);
    unlock(log);
    logfs_reading_return(log->partition, 0);
    reply(header->unique, 0, written, sizeof written);
    look_at_pending();
}

/* The caller is the number in the header; its open file is its own. */
static void open_file(const struct request_header *header) {
    struct open_reply opening = {.fh = header->unique};
    int caller = (int)header->pid - 1, reader = caller - WRITERS;

    if (caller < WRITERS) {
        opening.fh = header->pid;
        logfs_serving_open(opening.fh, writers[caller].partition);
        logfs_serving_begin(opening.fh, &writers[caller], 7);
        lock(&logs[caller % PARTITIONS]);
        arm(&logs[caller % PARTITIONS]);
        unlock(&logs[caller % PARTITIONS]);
    } else {
        opened[reader] = (struct opened){.fh = opening.fh};
    }
    reply(header->unique, 0, &opening, sizeof opening);
}

static void answer(const uint8_t *bytes, size_t size) {
    const struct request_header *header = (const void *)bytes;
    const void *body = header + 1;
    const struct write_request *write = body;
    const struct release_request *release = body;
    const size_t left = size - sizeof *header;
    int reader;

    if (header->opcode == FUSE_OPCODE_INTERRUPT) {
        if (left >= sizeof(uint64_t))
            end_pending(*(const uint64_t *)body, EINTR);
        return;
    }
    if (is_one_way(header->opcode))
        return;
    if (header->length != size || header->pid == 0 || header->pid > CALLERS) {
        reply(header->unique, EINVAL, "", 0);
    } else if (header->opcode == FUSE_OPCODE_OPEN) {
        open_file(header);
    } else if (header->opcode == FUSE_OPCODE_READ && left >= sizeof(struct read_request)) {
        begin_read(header, body);
    } else if (header->opcode == FUSE_OPCODE_WRITE && left == sizeof *write + write->size) {
        write_lines(header, write);
    } else if (header->opcode == FUSE_OPCODE_RELEASE && (reader = reader_of(release->fh)) >= 0) {
        take(&opened[reader]);
        opened[reader].fh = 0;
        reply(header->unique, 0, "", 0);
    } else {
        reply(header->unique, ENOSYS, "", 0);
    }
}

/* Serve a request of the queue or the device; returns 0 at the end of the connection. */
static int serve_one(void) {
    static uint8_t buffer[LARGEST_WRITE + 16384];
    ssize_t got = serving_take(buffer, sizeof buffer);

    if (got == 0 && !serving_is_reading()) {
        got = read(device_end, buffer, sizeof buffer);
        if (got == 0)
            return 0;
        if (got >= (ssize_t)sizeof(struct request_header) &&
            serving_answer((void *)buffer, (size_t)got, 0) != LEFT)
            return 1;
    }
    if (got >= (ssize_t)sizeof(struct request_header))
        answer(buffer, (size_t)got);
    return got >= 0 || errno == EAGAIN || errno == EINTR;
}

static void *be_python(void *waited) {
    struct pollfd ready[] = {
        {*(int *)waited, POLLIN, 0}, {logfs_serving_changes(), POLLIN, 0}, {changed, POLLIN, 0}};
    int has_ended = 0;

    do {
        if (poll(ready, 3, 20) < 0)
            perror("poll");
        if (ready[1].revents != 0) { /* the library says so */
            queue_calm(logfs_serving_changes());
            look_at_pending();
        }
        if (ready[2].revents != 0) { /* the other thread of Python says so */
            queue_calm(changed);
            for (int i = 0; i < PARTITIONS; i++)
                logfs_reading_return(logs[i].partition, 0);
            look_at_pending();
        }
        if (get(&is_ended) && !has_ended) {
            has_ended = 1;
            logfs_reading_end();
            end_pending(0, ENOTCONN);
        }
    } while (serve_one());
    return NULL;
}

/* --- Python: the thread of changes --------------------------------------------------------------- */

static void *be_changer(void *given) {
    unsigned seed = *(unsigned *)given;

    while (!get(&is_ended)) {
        struct log *log = &logs[rand_r(&seed) % PARTITIONS];

        usleep((useconds_t)rand_r(&seed) % 8000);
        if (get(&is_quiet))
            continue;
        lock(log);
        switch (rand_r(&seed) % 4) {
        case 0:
            roll(log);
            break;
        case 1:
            if (log->count > 1)
                replace(log, rand_r(&seed) % (log->count - 1));
            break;
        case 2: /* as long as a slow disk takes */
            usleep(1000);
            break;
        default:
            break;
        }
        if (rand_r(&seed) % 2)
            arm(log);
        unlock(log);
        queue_wake(changed);
    }
    return NULL;
}

/* --- The kernel ---------------------------------------------------------------------------------- */

static pthread_mutex_t callers_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t callers_changed = PTHREAD_COND_INITIALIZER;
static struct caller {
    uint64_t unique;
    int32_t error;
    int64_t size;
    uint8_t *data;
    int is_waiting;
} callers[CALLERS];

static void *read_replies(void *unused) {
    static uint8_t buffer[LARGEST_READ + 4096];

    (void)unused;
    for (;;) {
        const struct reply_header *header = (const void *)buffer;
        ssize_t got = read(kernel_end, buffer, sizeof buffer);

        if (got <= 0)
            return NULL;
        pthread_mutex_lock(&callers_mutex);
        for (int i = 0; i < CALLERS; i++)
            if (callers[i].is_waiting && callers[i].unique == header->unique) {
                callers[i].error = -header->error;
                callers[i].size = got - (ssize_t)sizeof *header;
                memcpy(callers[i].data, header + 1, (size_t)callers[i].size);
                callers[i].is_waiting = 0;
            }
        pthread_cond_broadcast(&callers_changed);
        pthread_mutex_unlock(&callers_mutex);
    }
}

static uint64_t next_unique(void) {
    return (uint64_t)__atomic_add_fetch(&last_unique, 2, __ATOMIC_SEQ_CST) + 1;
}

/* Send a request and wait for the reply, whose bytes are returned, or -errno. */
static int64_t request(int caller, uint32_t opcode, const void *body, size_t body_bytes, const void *data,
                       size_t bytes, uint8_t *into) {
    struct request_header header = {.length = (uint32_t)(sizeof header + body_bytes + bytes),
                                    .opcode = opcode,
                                    .unique = next_unique(),
                                    .node = 1,
                                    .pid = (uint32_t)caller + 1};
    struct iovec parts[] = {
        {&header, sizeof header}, {(void *)body, body_bytes}, {(void *)data, bytes}};
    int64_t result;

    pthread_mutex_lock(&callers_mutex);
    callers[caller] = (struct caller){.unique = header.unique, .data = into, .is_waiting = 1};
    pthread_mutex_unlock(&callers_mutex);
    if (writev(kernel_end, parts, 3) < 0)
        perror("request");
    pthread_mutex_lock(&callers_mutex);
    while (callers[caller].is_waiting)
        pthread_cond_wait(&callers_changed, &callers_mutex);
    result = callers[caller].error != 0 ? -callers[caller].error : callers[caller].size;
    pthread_mutex_unlock(&callers_mutex);
    return result;
}

/* Send signals to programs that read. */
static void *send_signals(void *given) {
    unsigned seed = *(unsigned *)given;

    while (!get(&is_ended)) {
        struct request_header header = {.opcode = FUSE_OPCODE_INTERRUPT};
        int caller = WRITERS + rand_r(&seed) % (READERS + SECOND_READERS);
        uint64_t unique = 0;
        struct iovec parts[] = {{&header, sizeof header}, {&unique, sizeof unique}};

        pthread_mutex_lock(&callers_mutex);
        if (callers[caller].is_waiting && !get(&is_quiet))
            unique = callers[caller].unique;
        header.length = sizeof header + sizeof unique;
        header.unique = unique | 1;
        pthread_mutex_unlock(&callers_mutex);
        if (unique != 0 && writev(kernel_end, parts, 2) < 0)
            perror("signal");
        usleep(1000 + (useconds_t)rand_r(&seed) % 3000);
    }
    return NULL;
}

/* --- What was read ------------------------------------------------------------------------------- */

static struct oracle {
    pthread_mutex_t mutex;
    uint8_t *text;
    int64_t bytes, room;
} oracles[PARTITIONS];
static int64_t written[PARTITIONS]; /* bytes of text */

/* Compare what was read with what others have read at the same place; returns whether it is equal. */
static int compare(int place, const uint8_t *data, int64_t size, int64_t offset) {
    struct oracle *oracle = &oracles[place];
    int64_t known;
    int is_equal = 1;

    if (size == 0)
        return 1;
    pthread_mutex_lock(&oracle->mutex);
    if (offset > oracle->bytes) {
        is_equal = 0;
    } else {
        known = oracle->bytes - offset < size ? oracle->bytes - offset : size;
        is_equal = known == 0 || memcmp(oracle->text + offset, data, (size_t)known) == 0;
        if (offset + size > oracle->room) {
            oracle->room = 2 * (offset + size) + (1 << 20);
            oracle->text = realloc(oracle->text, (size_t)oracle->room);
        }
        memcpy(oracle->text + offset + known, data + known, (size_t)(size - known));
        oracle->bytes += size - known;
    }
    pthread_mutex_unlock(&oracle->mutex);
    return is_equal;
}

/* Check what was read: the lines of each writer are there once, in order. */
static void check_lines(int place, const int64_t appended[WRITERS]) {
    struct oracle *oracle = &oracles[place];
    int64_t found[WRITERS] = {0};
    uint8_t *line, *end, *newline;

    pthread_mutex_lock(&oracle->mutex); /* the second readers continue */
    line = oracle->text;
    end = line + oracle->bytes;
    for (; line < end; line = newline + 1) {
        int writer = -1, bytes = -1;
        long long number = -1;
        char numbers[41];

        newline = memchr(line, '\n', (size_t)(end - line));
        if (newline != NULL) /* sscanf(3) of the text itself would look for its end each time */
            sprintf(numbers, "%.*s", (int)(newline - line < 40 ? newline - line : 40), (char *)line);
        if (newline == NULL || sscanf(numbers, "%d %lld %d ", &writer, &number, &bytes) != 3 ||
            writer < 0 || writer >= WRITERS || number != found[writer] || newline - line != bytes) {
            fail("partition %d: unexpected line at %lld: %.60s", place, (long long)(line - oracle->text),
                 (char *)line);
            break;
        }
        found[writer]++;
    }
    pthread_mutex_unlock(&oracle->mutex);
    for (int i = place; i < WRITERS; i += PARTITIONS)
        if (found[i] != appended[i])
            fail("writer %d: %lld lines of %lld", i, (long long)found[i], (long long)appended[i]);
}

/* --- Programs ------------------------------------------------------------------------------------ */

static struct program {
    int number;
    unsigned seed;
    int64_t at, fh; /* at: of a reader, the next byte; of a writer, the next line */
} programs[CALLERS];

static uint64_t open_file_of(int caller) {
    struct open_request body = {.flags = O_RDONLY};
    uint8_t into[LARGEST_READ];
    struct open_reply opening = {0};

    if (request(caller, FUSE_OPCODE_OPEN, &body, sizeof body, "", 0, into) != sizeof opening)
        fail("a file cannot be opened");
    memcpy(&opening, into, sizeof opening);
    return opening.fh;
}

static void *be_writer(void *given) {
    struct program *program = given;
    const int place = program->number % PARTITIONS;
    struct write_request write = {.fh = (uint64_t)program->number + 1};
    char text[LARGEST_WRITE], padding[400];
    uint8_t into[LARGEST_READ];

    memset(padding, '-', sizeof padding);
    while (clock_ns(CLOCK_MONOTONIC) < burst_ns && !get(&is_full) && !get(&wrong) && !get(&is_ended)) {
        unsigned kind = (unsigned)rand_r(&program->seed);
        int lines_left = kind % 40 == 0 ? 2000 : kind % 4 == 0 ? 20 : 1;
        size_t size = 0;

        while (lines_left-- > 0 && size < LARGEST_WRITE - sizeof padding - 50) {
            char numbers[50];
            int padded = rand_r(&program->seed) % (lines_left % 5 ? 20 : (int)sizeof padding);
            int got = sprintf(numbers, "%d %lld ", program->number, (long long)program->at++);
            int bytes = got + 4 + padded; /* of the line, in three digits */

            size += (size_t)sprintf(text + size, "%s%03d %.*s\n", numbers, bytes, padded, padding);
        }
        write.size = (uint32_t)size;
        __atomic_add_fetch(&written[place], (int64_t)size, __ATOMIC_SEQ_CST);
        if (request(program->number, FUSE_OPCODE_WRITE, &write, sizeof write, text, size, into) < 4)
            fail("a write failed");
        if (rand_r(&program->seed) % 4 == 0)
            usleep((useconds_t)rand_r(&program->seed) % 3000);
    }
    return NULL;
}

/* Read at a place; returns the bytes, or -errno. */
static int64_t read_once(int caller, int64_t fh, int64_t at, unsigned *seed, uint8_t *into) {
    static const uint32_t sizes[] = {1, 7, 100, 1000, 4096, 4096, LARGEST_READ, LARGEST_READ};
    struct read_request read = {.fh = (uint64_t)fh, .offset = (uint64_t)at};

    read.size = sizes[rand_r(seed) % 8];
    return request(caller, FUSE_OPCODE_READ, &read, sizeof read, "", 0, into);
}

/* Read from the beginning of the log on, until the mount ends. */
static void *be_reader(void *given) {
    struct program *program = given;
    const int caller = program->number, place = (caller - WRITERS) % PARTITIONS;
    uint8_t into[LARGEST_READ];

    set(&program->fh, (int64_t)open_file_of(caller));
    while (!get(&wrong) && !get(&is_ended)) {
        int64_t at = get(&program->at);
        int64_t got = read_once(caller, program->fh, at, &program->seed, into);

        if (got == -ENOTCONN)
            break;
        if (got < 0 && got != -EINTR)
            fail("a read failed: %s", strerror((int)-got));
        else if (got > 0 && !compare(place, into, got, at))
            fail("reader %d: other bytes at %lld", caller, (long long)at);
        else if (got == 0 && caller - WRITERS < FOLLOWERS)
            fail("a read that should wait returned nothing");
        else if (got == 0)
            usleep(500);
        set(&program->at, at + (got > 0 ? got : 0));
        /* Close, open, and read again what was read last; in a pause each comes to the end. */
        if (rand_r(&program->seed) % 3000 == 0 && caller - WRITERS >= SECOND_READERS &&
            !get(&is_quiet)) {
            struct release_request release = {.fh = (uint64_t)program->fh};

            request(caller, FUSE_OPCODE_RELEASE, &release, sizeof release, "", 0, into);
            set(&program->fh, (int64_t)open_file_of(caller));
            set(&program->at, at - rand_r(&program->seed) % (at > 1 << 20 ? 1 << 20 : at + 1));
        }
    }
    return NULL;
}

/* Read where another reader is, through its open file, as pread(2) in a second thread does. */
static void *be_second(void *given) {
    struct program *program = given, *other = program - READERS;
    const int place = (other->number - WRITERS) % PARTITIONS;
    uint8_t into[LARGEST_READ];

    while (!get(&wrong) && !get(&is_ended)) {
        int64_t fh = get(&other->fh), at = get(&other->at), got;

        usleep((useconds_t)rand_r(&program->seed) % 2000);
        if (fh == 0 || get(&is_quiet))
            continue;
        got = read_once(program->number, fh, at, &program->seed, into);
        if (got > 0 && !compare(place, into, got, at))
            fail("second reader: other bytes at %lld", (long long)at);
        else if (got < 0 && got != -EINTR && got != -ENOTCONN)
            fail("a second read failed: %s", strerror((int)-got));
    }
    return NULL;
}

/* Send requests that no kernel sends: too short, or with wrong numbers. */
static void *send_garbage(void *given) {
    static const uint32_t opcodes[] = {FUSE_OPCODE_READ, FUSE_OPCODE_OPEN, FUSE_OPCODE_RELEASE,
                                       FUSE_OPCODE_INTERRUPT, FUSE_OPCODE_READ, FUSE_OPCODE_FLUSH};
    unsigned seed = *(unsigned *)given;
    uint8_t bytes[128];

    while (!get(&is_ended)) {
        struct request_header *header = (void *)bytes;
        struct read_request *read = (void *)(header + 1);
        struct program *reader = &programs[WRITERS + rand_r(&seed) % READERS];
        size_t size = sizeof *header + (size_t)rand_r(&seed) % (sizeof bytes - sizeof *header);

        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rand_r(&seed);
        header->opcode = opcodes[rand_r(&seed) % 6];
        header->length = rand_r(&seed) % 2 ? (uint32_t)size : (uint32_t)rand_r(&seed);
        header->unique = next_unique();
        header->pid = 0; /* no program */
        if (header->opcode == FUSE_OPCODE_READ && rand_r(&seed) % 2) {
            read->fh = (uint64_t)get(&reader->fh);
            read->offset = (uint64_t)get(&reader->at);
        } else if (header->opcode != FUSE_OPCODE_INTERRUPT) {
            read->fh = 1ull << 40 | read->fh;
        }
        if (rand_r(&seed) % 2)
            read->size %= LARGEST_READ;
        if (!get(&is_quiet) && send(kernel_end, bytes, size, 0) < 0)
            perror("garbage");
        usleep(1000);
    }
    return NULL;
}

/* --- All of it ----------------------------------------------------------------------------------- */

static void set_up(unsigned seed) {
    int pair[2], state = memfd_create("state", MFD_CLOEXEC);

    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair);
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &(int){4 << 20}, sizeof(int));
    kernel_end = pair[0];
    device_end = pair[1];
    session_begin(device_end);
    changed = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ftruncate(state, (off_t)logfs_state_bytes()) != 0 || logfs_keep(state) != 0)
        perror("state");
    for (int i = 0; i < PARTITIONS; i++) {
        logs[i].partition = partition_new(encode);
        pthread_mutex_init(&logs[i].mutex, NULL);
        pthread_mutex_init(&oracles[i].mutex, NULL);
        logs[i].segments[logs[i].count++].fd = temporary();
        lf_end_begin(&logs[i].end.at, 0, 4096);
    }
    for (int i = 0; i < WRITERS; i++) {
        line_begin_file(&lines[i]);
        writers[i] = (log_writer){logs[i % PARTITIONS].partition, NULL, 0, 0, 0};
    }
    for (int i = 0; i < CALLERS; i++)
        programs[i] = (struct program){.number = i, .seed = seed * 100 + (unsigned)i};
}

/* Wait until each reader has read all that was written. */
static void wait_for_readers(void) {
    int64_t until_ns = clock_ns(CLOCK_MONOTONIC) + PATIENCE_NS;

    for (int i = WRITERS; i < WRITERS + READERS && !get(&wrong); i++)
        while (get(&programs[i].at) < get(&written[(i - WRITERS) % PARTITIONS]) && !get(&wrong)) {
            usleep(1000);
            if (clock_ns(CLOCK_MONOTONIC) > until_ns)
                fail("reader %d hangs at %lld of %lld", i, (long long)get(&programs[i].at),
                     (long long)get(&written[(i - WRITERS) % PARTITIONS]));
        }
}

/* Have programs append for a time. */
static void append_for(int64_t ns) {
    pthread_t threads[WRITERS];

    burst_ns = clock_ns(CLOCK_MONOTONIC) + ns;
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, be_writer, &programs[i]);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
}

static void *be_reader_of_any_kind(void *given) {
    const struct program *program = given;

    return program->number < WRITERS + READERS ? be_reader(given) : be_second(given);
}

/* Let all continue, and see in pauses that no reader waits for what is there. */
static void run(int64_t for_ns) {
    int64_t until_ns = clock_ns(CLOCK_MONOTONIC) + for_ns, appended[WRITERS];

    while (clock_ns(CLOCK_MONOTONIC) < until_ns && !get(&wrong) && !get(&is_full)) {
        append_for(300000000);
        set(&is_quiet, 1);
        wait_for_readers();
        append_for(20000000); /* now most reads wait natively */
        wait_for_readers();
        set(&is_quiet, 0);
    }
    for (int i = 0; i < WRITERS; i++)
        appended[i] = programs[i].at;
    for (int i = 0; i < PARTITIONS && !get(&wrong); i++)
        check_lines(i, appended);
}

/* End the mount while a program appends, readers read, and those of the other partition wait. */
static void end_mount(pthread_t reading[READERS + SECOND_READERS]) {
    pthread_t writing;

    set(&is_quiet, 1);
    append_for(20000000);
    burst_ns = INT64_MAX;
    pthread_create(&writing, NULL, be_writer, &programs[0]);
    usleep(200000);
    set(&is_ended, 1);
    pthread_join(writing, NULL);
    for (int i = 0; i < READERS + SECOND_READERS; i++)
        pthread_join(reading[i], NULL); /* a reader that hangs is seen by the caller of this program */
}

int main(int count, char **arguments) {
    unsigned seed = count > 2 ? (unsigned)atoi(arguments[2]) : 1, seeds[] = {seed, seed + 1, seed + 2};
    void *(*helpers[])(void *) = {be_changer, send_signals, send_garbage};
    pthread_t python, replies, others[3], reading[READERS + SECOND_READERS];
    appending_functions functions = APPENDING;
    int waited;

    set_up(seed);
    functions.shown_end = shown_end_or_not;
    logfs_want_serving(&functions, 0);
    waited = serving_start(device_end);
    fcntl(device_end, F_SETFL, O_NONBLOCK);
    pthread_create(&python, NULL, be_python, &waited);
    pthread_create(&replies, NULL, read_replies, NULL);
    for (int i = 0; i < WRITERS; i++)
        open_file_of(i);
    for (int i = 0; i < 3; i++)
        pthread_create(&others[i], NULL, helpers[i], &seeds[i]);
    for (int i = 0; i < READERS + SECOND_READERS; i++)
        pthread_create(&reading[i], NULL, be_reader_of_any_kind, &programs[WRITERS + i]);
    run((count > 1 ? atoi(arguments[1]) : 5) * 1000000000LL);
    if (get(&wrong)) /* threads may hang */
        _exit(1);
    end_mount(reading);
    for (int i = 0; i < 3; i++)
        pthread_join(others[i], NULL);
    shutdown(kernel_end, SHUT_WR); /* reads of the device return 0 now */
    pthread_join(python, NULL);
    serving_stop();
    shutdown(device_end, SHUT_RDWR);
    pthread_join(replies, NULL);
    printf("%llu writes and %llu reads natively, %lld reads by Python, of which %lld waited, %d segments, "
           "%lld bytes\n",
           (unsigned long long)logfs_answered(FUSE_OPCODE_WRITE), (unsigned long long)logfs_answered(FUSE_OPCODE_READ),
           (long long)python_reads, (long long)python_waits, logs[0].count + logs[1].count,
           (long long)(written[0] + written[1]));
    return wrong != 0 || logfs_answered(FUSE_OPCODE_WRITE) == 0 || logfs_answered(FUSE_OPCODE_READ) == 0;
}
