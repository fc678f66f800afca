/* Native appends of lines: what a native thread may do to a partition, and when.

   A partition has one mutex, which every change takes: those of Python (PartitionLock) and those of
   the thread. Python may take it at any time, and the thread only tries. While a partition is *armed*,
   the thread may append lines as long as no bound is reached that Python has worked out. Whenever
   Python takes the mutex for a change, the partition is disarmed; Python arms it again after its own
   appends. So nothing that Python has changed is unknown to the thread.

   Anything else is left to Python: other lines, bounds, a disk that fails. A request that is left has
   changed nothing in the log, and Python does it as if it had not been tried.

   A line that is not complete is kept in the frames of a file, see unfinished.py; the functions that
   make a frame and note one are those that Python uses. */

#ifndef LOGFS_APPENDING_H
#define LOGFS_APPENDING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "_clock.h"
#include "_crc.h"
#include "_end.h"
#include "_served.h"
#include "_sleeping.h"
#include "_writeorder.h"

/* --- Numbers that Python reads and sets without the mutex ---------------------------------------- */

static int peek(const int *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }
static int64_t peek_long(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }
static void put(int *number, int value) { __atomic_store_n(number, value, __ATOMIC_RELEASE); }
static void put_long(int64_t *number, int64_t value) {
    __atomic_store_n(number, value, __ATOMIC_RELEASE);
}

/* --- Calls to the files --------------------------------------------------------------------------- */

/* What is done to a file by its descriptor. Each returns 0 or an errno. */
typedef struct file_calls {
    int (*write)(int fd, const uint8_t *data, int64_t size, int64_t position);
    int (*cut)(int fd, int64_t size);
    int (*hold)(int fd); /* returns another descriptor of the file, which Python does not close; -1 */
    int (*sync)(int fd, int *is_removed); /* takes that descriptor back */
} file_calls;

static int machine_write(int fd, const uint8_t *data, int64_t size, int64_t position) {
    while (size > 0) {
        ssize_t done = pwrite(fd, data, (size_t)size, position);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return done < 0 ? errno : EIO;
        }
        data += done;
        position += done;
        size -= done;
    }
    return 0;
}

static int machine_cut(int fd, int64_t size) { return ftruncate(fd, size) == 0 ? 0 : errno; }

static int machine_hold(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

static int machine_sync(int fd, int *is_removed) {
    struct stat file;
    int error = fsync(fd) == 0 ? 0 : errno;
    *is_removed = error == 0 && (fstat(fd, &file) != 0 || file.st_nlink == 0);
    close(fd);
    return error;
}

static const file_calls MACHINE_FILES = {machine_write, machine_cut, machine_hold, machine_sync};

/* Those of the machine, unless a test has put another disk in their place. */
static const file_calls *appending_files = &MACHINE_FILES;

/* --- The file of an unfinished line ------------------------------------------------------------- */

#define FRAME_HEADER 12
#define FRAME_BYTES 1
#define FRAME_ANNOUNCED 2
#define LINE_FILE_HEADER 16
#define LINE_KEPT_BYTES 4096  /* a longer line is not in memory */
#define LINE_RESET_BYTES 65536 /* between two lines a longer file is cut back, by Python */

typedef struct line_file {
    int fd;                   /* -1: it is not open, or only Python can write it */
    int is_durable, is_void;  /* see UnfinishedFile */
    uint8_t *kept;            /* the line, if line_bytes is not more than LINE_KEPT_BYTES */
    int64_t kept_bytes, kept_room;
    int64_t line_bytes;
    int64_t end, line_begin, before_end; /* of the frames; where the line begins; before the announcement */
    uint32_t crc, line_crc, before_crc;
    int has_before;
    int64_t changes, synced_changes, announced_change;
    int64_t first_announced; /* -1: nothing is announced */
} line_file;

static void line_begin_file(line_file *line) {
    line->fd = -1;
    line->end = 0;
    line->crc = 0;
    line->has_before = 0;
    line->announced_change = 0;
    line->first_announced = -1;
    line->is_void = 0;
}

/* Make a frame in FRAME_HEADER bytes, which come before its data in the file; returns its checksum. */
static uint32_t line_frame(
    const line_file *line, uint8_t header[FRAME_HEADER], int kind, const uint8_t *data, int64_t n) {
    uint8_t checked[12];
    uint32_t crc;
    lf_put32(checked, line->crc);
    lf_put32(checked + 4, kind);
    lf_put32(checked + 8, n);
    crc = lf_crc32c(lf_crc32c(0, checked, sizeof checked), data, (size_t)n);
    memcpy(header, checked + 4, 8);
    lf_put32(header + 8, crc);
    return crc;
}

/* Note that a frame of size bytes is in the file. */
static void line_wrote(line_file *line, int64_t size, uint32_t crc) {
    __atomic_add_fetch(&line->changes, 1, __ATOMIC_SEQ_CST);
    line->end += size;
    line->crc = crc;
}

/* Note that the line is longer, by a frame that began at begin after the checksum crc; 0 or ENOMEM. */
static int line_kept(line_file *line, const uint8_t *data, int64_t n, int64_t begin, uint32_t crc) {
    line->has_before = 0;
    if (line->line_bytes == 0) {
        line->line_begin = begin;
        line->line_crc = crc;
    }
    if (n == 0) {
        return 0; /* an empty line has no room yet */
    }
    line->line_bytes += n;
    if (line->line_bytes > LINE_KEPT_BYTES) {
        line->kept_bytes = 0;
        return 0;
    }
    if (line->line_bytes > line->kept_room) {
        int64_t room = line->line_bytes < 128 ? 256 : LINE_KEPT_BYTES;
        uint8_t *kept = realloc(line->kept, (size_t)room);
        if (kept == NULL) {
            line->kept_bytes = 0; /* it is in the file */
            return ENOMEM;
        }
        line->kept = kept;
        line->kept_room = room;
    }
    memcpy(line->kept + line->kept_bytes, data, (size_t)n);
    line->kept_bytes = line->line_bytes;
    return 0;
}

/* Note that an announcement is in the file, whose frame began at begin after the checksum crc. */
static void line_announced(line_file *line, int64_t base_offset, int64_t begin, uint32_t crc) {
    line->before_end = begin;
    line->before_crc = crc;
    line->has_before = 1;
    line->announced_change = line->changes;
    if (line->first_announced < 0) {
        line->first_announced = base_offset;
    }
}

/* Note that an announcement is to be cut off; returns whether there was one. */
static int line_cancelled(line_file *line) {
    if (!line->has_before) {
        return 0;
    }
    line->end = line->before_end;
    line->crc = line->before_crc;
    line->has_before = 0;
    return 1;
}

/* The announced batch is in the log: the next line is empty. */
static void line_consumed(line_file *line) {
    line->kept_bytes = line->line_bytes = 0;
    line->has_before = 0;
}

/* --- A partition --------------------------------------------------------------------------------- */

typedef struct append_bounds { /* all are inclusive */
    int64_t file_position, last_offset, timestamp;
    int64_t text, tsv, jsonl; /* lengths of the renderings of the segment */
    int64_t entries;          /* of the indexes, that have not been taken */
    int64_t max_batch_bytes;
    int32_t leader_epoch;
    int fd; /* of the .log */
    int64_t granted_bytes, granted_until_ms; /* of the quotas of the topic */
} append_bounds;

#define APPEND_CLASSES 12 /* of counters.py */
#define SYNC_CLASSES 14

typedef struct shown_end { /* what readers see of the end of the active segment */
    uint64_t version;      /* odd while it is changed */
    int64_t next_offset, file_position, max_timestamp, text, tsv, jsonl;
} shown_end;

/* The writers of each field, and their locks. "mutex" is that of the partition, "none" means atomic. Python
   is any thread of it, through PartitionLock. docs/internals/write-path.md has the same with the readers.

       references                  any thread                                   none
       depth                       Python: __enter__, take_now, __exit__        mutex
       is_busy                     an append                                    mutex
       is_armed                    1: Python: arm                               mutex
                                   0: Python; an append or a sync that failed   mutex
       is_slow, has_failed         1: an append                                 mutex
                                   0: Python: take_slow, take_failed            none
       is_watched                  Python                                       none
       is_noting                   a sync                                       mutex
       sync_error                  a sync; never reset                          mutex
       read_bytes                  reads add, Python takes                      none
       cold                        appending_count_cold                         none
       end, shown                  Python: arm, disarm, __dealloc__             mutex
       *end                        an append; Python: NativeEnd                 mutex
       *shown                      an append; readers go by its version         mutex
       shown_position              an append; Python: arm, disarm               mutex
                                   -1: Python, before each change               none
       room_end, bounds,           Python: arm                                  mutex
       settled_announcements
       encode                      partition_new, then constant
       clock_ms                    tests                                        none
       last_modified_ms            an append; Python: Appender.publish          mutex
       unflushed_since_ms          an append, a sync; Python: publish           mutex
                                   Python: Flusher                              none
       recovery_point              a sync                                       mutex
                                   Python: Flusher, with its lock               none
       changes                     Python: __enter__, take_now                  mutex
                                   Python: unmark, a lower recovery_point       none
       announcements               an append                                    mutex
       syncs, sync_*               a sync; Python: take_counts                  mutex
       appends, records, bytes,    an append; Python: take_counts               mutex
       nanoseconds, classes

   A recovery point that is too low is safe, so its two writers need no common lock. A sync notes its
   result only if changes is what it was when the sync began. */
struct log_partition {
    int64_t references;
    pthread_mutex_t mutex;
    int depth;       /* of the owner of the mutex, in calls of Python */
    int is_busy;     /* the thread has the mutex */
    int is_armed;
    int is_slow;     /* an append of the thread slept long */
    int has_failed;  /* the thread may have left something in the file of a line */
    int is_watched;  /* readers wait for records */
    int is_noting;   /* a thread that syncs has the mutex, for a moment */
    int sync_error;  /* errno of a sync that failed, which Python has not seen yet; 0: none */
    int64_t read_bytes; /* that were read natively, and have not been taken */
    int64_t cold;    /* requests that Python has not answered yet, and that must not be overtaken */
    log_end *end;
    shown_end *shown; /* of end */
    int64_t shown_position; /* where the .log ends for readers; -1: only Python knows that */
    int64_t room_end; /* blocks are set aside up to here */
    append_bounds bounds;
    lf_encode *encode;
    int64_t clock_ms; /* 0: that of the machine */
    int64_t last_modified_ms, unflushed_since_ms; /* -1: none */
    int64_t recovery_point;        /* the first offset that is not known to be durable */
    int64_t changes;               /* how often Python has taken the mutex, or cut the log */
    int64_t settled_announcements; /* as announcements, where a sync of the .log is enough; -1: it is not */
    int64_t syncs, sync_nanoseconds, sync_classes[SYNC_CLASSES];
    int64_t announcements;
    int64_t appends, records, bytes, nanoseconds, classes[APPEND_CLASSES];
};

struct log_writer { /* an open file that appends */
    log_partition *partition;
    line_file *line; /* NULL: it has no file for an unfinished line */
    int view;
    int has_failed; /* Python has a failure to report */
    int64_t writes;
};

static log_partition *partition_new(lf_encode *encode) {
    log_partition *partition = calloc(1, sizeof *partition);
    pthread_mutexattr_t kind;
    if (partition == NULL) {
        return NULL;
    }
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&partition->mutex, &kind);
    pthread_mutexattr_destroy(&kind);
    partition->references = 1;
    partition->encode = encode;
    partition->unflushed_since_ms = -1;
    partition->settled_announcements = -1;
    partition->shown_position = -1;
    return partition;
}

static void partition_hold(log_partition *partition) {
    __atomic_add_fetch(&partition->references, 1, __ATOMIC_SEQ_CST);
}

static void partition_release(log_partition *partition) {
    if (__atomic_sub_fetch(&partition->references, 1, __ATOMIC_SEQ_CST) == 0) {
        pthread_mutex_destroy(&partition->mutex);
        free(partition);
    }
}

/* Let the thread append, or leave appends to Python. With the mutex; others read it without. */
static void partition_arm(log_partition *partition) {
    __atomic_store_n(&partition->is_armed, 1, __ATOMIC_RELAXED);
}

static void partition_disarm(log_partition *partition) {
    __atomic_store_n(&partition->is_armed, 0, __ATOMIC_RELAXED);
}

/* Note whether readers wait. Their next look at the log is after this. */
static void partition_watch(log_partition *partition, int is_watched) {
    __atomic_store_n(&partition->is_watched, is_watched, __ATOMIC_SEQ_CST);
}

/* Note where the .log ends for readers, which take no mutex; -1: only Python knows that. */
static void partition_show_position(log_partition *partition, int64_t position) {
    __atomic_store_n(&partition->shown_position, position, __ATOMIC_SEQ_CST);
}

/* Python changes the partition: what threads know of it is of the past. */
static void partition_change(log_partition *partition) {
    __atomic_add_fetch(&partition->changes, 1, __ATOMIC_SEQ_CST);
    partition_show_position(partition, -1);
}

/* Show readers where the log ends. With the mutex. */
static void partition_show(shown_end *shown, const lf_end *end) {
    uint64_t version = shown->version;
    __atomic_store_n(&shown->version, version + 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&shown->next_offset, end->next_offset, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->file_position, end->file_position, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->max_timestamp, end->max_timestamp, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->text, end->text, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->tsv, end->tsv, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->jsonl, end->jsonl, __ATOMIC_RELAXED);
    __atomic_store_n(&shown->version, version + 2, __ATOMIC_RELEASE);
}

/* Read where the log ends, in any thread. */
static shown_end partition_shown(const shown_end *shown) {
    shown_end read;
    uint64_t after;
    do {
        read.version = __atomic_load_n(&shown->version, __ATOMIC_ACQUIRE);
        read.next_offset = __atomic_load_n(&shown->next_offset, __ATOMIC_RELAXED);
        read.file_position = __atomic_load_n(&shown->file_position, __ATOMIC_RELAXED);
        read.max_timestamp = __atomic_load_n(&shown->max_timestamp, __ATOMIC_RELAXED);
        read.text = __atomic_load_n(&shown->text, __ATOMIC_RELAXED);
        read.tsv = __atomic_load_n(&shown->tsv, __ATOMIC_RELAXED);
        read.jsonl = __atomic_load_n(&shown->jsonl, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        after = __atomic_load_n(&shown->version, __ATOMIC_RELAXED);
    } while (read.version != after || (read.version & 1) != 0);
    return read;
}

/* --- One write ----------------------------------------------------------------------------------- */

/* A partition whose disk takes longer is served in Python's threads. */
#define APPENDING_SLOW_NS 4000000
#define APPENDING_SCRATCH (5 << 20)
#define APPENDING_FIRST_BYTES (64 << 10) /* the longest first line that continues with a kept one */
#define APPENDING_ROOM_BYTES (64 << 10)  /* for larger batches, room is made before; see active.py */

static int appending_pwrite(void *file, const uint8_t *data, int64_t size, int64_t position) {
    return appending_files->write(*(int *)file, data, size, position);
}

/* Where batches are encoded, and a first line is put together: memory of this thread. */
static uint8_t *appending_scratch(void) {
    static __thread uint8_t *scratch;
    if (scratch == NULL) {
        void *mapped = mmap(
            NULL, APPENDING_SCRATCH + LINE_KEPT_BYTES + APPENDING_FIRST_BYTES,
            PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        scratch = mapped == MAP_FAILED ? NULL : mapped;
    }
    return scratch;
}

/* Write a frame after the last one; 0 or an errno. */
static int appending_frame(line_file *line, int kind, const uint8_t *data, int64_t n) {
    uint8_t small[FRAME_HEADER + LINE_KEPT_BYTES];
    uint32_t crc = line_frame(line, small, kind, data, n);
    int error;
    memcpy(small + FRAME_HEADER, data, (size_t)n);
    error = appending_pwrite(&line->fd, small, FRAME_HEADER + n, line->end);
    if (error == 0) {
        line_wrote(line, FRAME_HEADER + n, crc);
    }
    return error;
}

/* Cut off what a failed write, or an announcement whose batch is not in the log, has left. */
static void appending_cut(log_partition *partition, line_file *line) {
    line->is_void = 1;
    if (appending_files->cut(line->fd, line->end) == 0) {
        __atomic_add_fetch(&line->changes, 1, __ATOMIC_SEQ_CST);
        line->is_void = 0;
    } else {
        put(&partition->has_failed, 1);
    }
    partition_disarm(partition);
}

/* Whether the rest of a write can be kept as an unfinished line, or as more of one. A file without
   its header has no frames yet: Python makes both. */
static int appending_can_keep(const line_file *line, int64_t before, int64_t rest) {
    return line != NULL && line->end >= LINE_FILE_HEADER && before + rest <= LINE_KEPT_BYTES &&
           (before > 0 || line->end <= LINE_RESET_BYTES);
}

static int appending_fits(const log_partition *partition, const lf_encoded *encoded) {
    const append_bounds *bounds = &partition->bounds;
    const lf_end *at = &partition->end->at;
    const lf_added *last = &encoded->batches[encoded->count - 1];
    int64_t text = at->text, tsv = at->tsv, jsonl = at->jsonl;
    for (int i = 0; i < encoded->count; i++) {
        text += encoded->batches[i].text;
        tsv += encoded->batches[i].tsv;
        jsonl += encoded->batches[i].jsonl;
    }
    return at->file_position + encoded->size <= bounds->file_position &&
           last->last_offset <= bounds->last_offset && text <= bounds->text &&
           tsv <= bounds->tsv && jsonl <= bounds->jsonl &&
           partition->end->due + encoded->count <= bounds->entries &&
           (encoded->size < APPENDING_ROOM_BYTES ||
            at->file_position + encoded->size <= partition->room_end);
}

/* Encode the lines up to data + stop, after those that the line has kept; 0 if Python has to. */
static int appending_encode(
    const log_partition *partition, const log_writer *writer, const uint8_t *data, int64_t stop,
    int64_t now_ms, lf_encoded *encoded) {
    const line_file *line = writer->line;
    uint8_t *scratch = appending_scratch(), *first = scratch + APPENDING_SCRATCH;
    int64_t head = line == NULL ? 0 : line->line_bytes, first_bytes = 0, taken = 0;
    if (scratch == NULL) {
        return 0;
    }
    if (head > 0) {
        taken = (const uint8_t *)memchr(data, '\n', (size_t)stop) + 1 - data;
        if (taken > APPENDING_FIRST_BYTES) {
            return 0;
        }
        memcpy(first, line->kept, (size_t)head);
        memcpy(first + head, data, (size_t)taken);
        first_bytes = head + taken;
    }
    encoded->p = scratch;
    encoded->capacity = APPENDING_SCRATCH;
    return partition->encode(
        encoded, writer->view, first, first_bytes, data + taken, stop - taken,
        partition->end->at.next_offset, now_ms, partition->bounds.max_batch_bytes,
        partition->bounds.leader_epoch);
}

/* A write that the thread applies. */
typedef struct native_write {
    log_partition *partition;
    line_file *line;
    const lf_encoded *encoded;
    const uint8_t *rest; /* the bytes after the last newline */
    int64_t rest_bytes, stop, now_ms;
} native_write;

static int native_announce(void *of) {
    native_write *write = of;
    line_file *line = write->line;
    uint8_t mark[12];
    int64_t begin = line->end, base_offset = write->encoded->batches[0].base_offset;
    uint32_t crc = line->crc;
    lf_put64(mark, base_offset);
    memcpy(mark + 8, write->encoded->p + 17, 4);
    if (appending_frame(line, FRAME_ANNOUNCED, mark, sizeof mark) != 0)
        return -1;
    line_announced(line, base_offset, begin, crc);
    __atomic_add_fetch(&write->partition->announcements, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static int64_t native_append(void *of) {
    native_write *write = of;
    log_partition *partition = write->partition;
    const lf_encoded *encoded = write->encoded;
    log_end *end = partition->end;
    if (log_end_append(end, appending_pwrite, &partition->bounds.fd, encoded->p,
                       encoded->batches, encoded->count) != 0) {
        partition_disarm(partition);
        return -1;
    }
    put_long(&partition->appends, partition->appends + 1);
    for (int i = 0; i < encoded->count; i++) {
        partition->records += encoded->batches[i].count;
    }
    partition->bytes += encoded->size;
    __atomic_store_n(&partition->last_modified_ms, write->now_ms, __ATOMIC_RELAXED);
    if (__atomic_load_n(&partition->unflushed_since_ms, __ATOMIC_RELAXED) < 0) {
        __atomic_store_n(&partition->unflushed_since_ms, write->now_ms, __ATOMIC_RELAXED);
    }
    partition_show(partition->shown, &end->at);
    partition_show_position(partition, end->at.file_position);
    return write->stop;
}

static void native_cancel(void *of) {
    native_write *write = of;
    line_cancelled(write->line);
    appending_cut(write->partition, write->line);
}

static void native_consume(void *of) { line_consumed(((native_write *)of)->line); }

static int native_keep(void *of) {
    native_write *write = of;
    line_file *line = write->line;
    int64_t begin = line->end;
    uint32_t crc = line->crc;
    if (appending_frame(line, FRAME_BYTES, write->rest, write->rest_bytes) != 0) {
        appending_cut(write->partition, line);
        return -1;
    }
    line_kept(line, write->rest, write->rest_bytes, begin, crc);
    return 0;
}

static const write_steps NATIVE_STEPS = {
    native_announce, native_append, native_cancel, native_consume, native_keep};

static int64_t appending_now_ms(const log_partition *partition) {
    return partition->clock_ms ? partition->clock_ms : clock_ns(CLOCK_REALTIME) / 1000000;
}

/* Apply a write; the caller has the mutex. */
static int64_t appending_apply(
    log_writer *writer, const uint8_t *data, int64_t size, write_notes *notes) {
    log_partition *partition = writer->partition;
    line_file *line = writer->line;
    const uint8_t *last = memrchr(data, '\n', (size_t)size);
    int64_t stop = last == NULL ? 0 : last + 1 - data, rest = size - stop, accepted;
    int64_t head = line == NULL ? 0 : line->line_bytes;
    int64_t now_ms = appending_now_ms(partition), granted;
    lf_encoded encoded;

    if (!partition->is_armed)
        return APPENDING_LEFT;
    if (line != NULL && (line->fd < 0 || line->is_durable || line->is_void ||
                         line->kept_bytes != line->line_bytes))
        return APPENDING_LEFT;
    if (rest > 0 && !appending_can_keep(line, stop > 0 ? 0 : head, rest))
        return APPENDING_LEFT;
    if (stop > 0 && (now_ms > partition->bounds.timestamp ||
                     !appending_encode(partition, writer, data, stop, now_ms, &encoded) ||
                     !appending_fits(partition, &encoded)))
        return APPENDING_LEFT;
    granted = (stop > 0 ? encoded.size : 0) + rest;
    if (granted > partition->bounds.granted_bytes || now_ms > partition->bounds.granted_until_ms)
        return APPENDING_LEFT;
    partition->bounds.granted_bytes -= granted;

    native_write write = {partition, line, &encoded, data + stop, rest, stop, now_ms};
    notes->begin(notes, partition->end->at.next_offset, head);
    accepted = write_in_order(&NATIVE_STEPS, &write, head > 0, stop, size);
    if (accepted < 0)
        return APPENDING_LEFT;
    /* If fewer were accepted, the program writes the rest again, and gets the error from Python. */
    notes->done(notes, accepted);
    __atomic_add_fetch(&writer->writes, 1, __ATOMIC_RELAXED);
    return accepted;
}

static int appending_class(const int64_t *bounds, int count, int64_t taken_ns) {
    int i = 0;
    while (i < count && taken_ns > bounds[i]) {
        i++;
    }
    return i;
}

static void appending_observe(log_partition *partition, int64_t taken_ns) {
    /* As APPEND_BOUNDS_S in counters.py. */
    static const int64_t bounds[APPEND_CLASSES - 1] = {
        5000,   10000,   25000,   50000,    100000,    250000,
        1000000, 4000000, 16000000, 100000000, 1000000000};
    partition->classes[appending_class(bounds, APPEND_CLASSES - 1, taken_ns)]++;
    partition->nanoseconds += taken_ns;
}

/* Take the mutex unless Python has it. A thread that syncs has it for moments only. */
static int appending_try(log_partition *partition) {
    while (pthread_mutex_trylock(&partition->mutex) != 0) {
        if (!__atomic_load_n(&partition->is_noting, __ATOMIC_SEQ_CST))
            return 0;
        sched_yield();
    }
    return 1;
}

/* Apply a write; see _served.h. Any thread; it needs no interpreter. */
static int64_t appending_write(
    log_writer *writer, const uint8_t *data, int64_t size, write_notes *notes) {
    log_partition *partition = writer->partition;
    int64_t begun_ns, taken_ns, appends, accepted;
    static __thread struct sleeping sleeping;

    if (size <= 0 || __atomic_load_n(&partition->cold, __ATOMIC_SEQ_CST) > 0)
        return APPENDING_LEFT;
    if (!appending_try(partition))
        return APPENDING_LEFT;
    __atomic_store_n(&partition->is_busy, 1, __ATOMIC_SEQ_CST);
    begun_ns = sleeping_begin(&sleeping);
    appends = partition->appends;
    accepted = appending_apply(writer, data, size, notes);
    taken_ns = clock_ns(CLOCK_MONOTONIC) - begun_ns;
    if (partition->appends != appends) {
        appending_observe(partition, taken_ns);
    }
    if (sleeping_was_longer(&sleeping, taken_ns, APPENDING_SLOW_NS)) {
        partition_disarm(partition);
        put(&partition->is_slow, 1);
    }
    __atomic_store_n(&partition->is_busy, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&partition->mutex);
    return accepted;
}

/* --- Syncs --------------------------------------------------------------------------------------- */

/* Whether a sync of the .log makes all records durable. With the mutex. */
static int appending_may_sync(const log_partition *partition) {
    return partition->is_armed && partition->settled_announcements == partition->announcements;
}

static int appending_needs_sync(log_writer *writer, int64_t *offset) {
    log_partition *partition = writer->partition;
    int answer = SYNC_LEFT;

    if (__atomic_load_n(&partition->cold, __ATOMIC_SEQ_CST) > 0 || !appending_try(partition))
        return SYNC_LEFT;
    if (appending_may_sync(partition) && (writer->line == NULL || writer->line->line_bytes == 0)) {
        *offset = partition->end->at.next_offset;
        answer = __atomic_load_n(&partition->recovery_point, __ATOMIC_SEQ_CST) >= *offset
                     ? SYNC_DONE
                     : SYNC_NEEDED;
    }
    pthread_mutex_unlock(&partition->mutex);
    return answer;
}

static int appending_may_close(log_writer *writer) {
    log_partition *partition = writer->partition;
    int may_close;

    if (!appending_try(partition))
        return 0;
    may_close = partition->is_armed && !__atomic_load_n(&writer->has_failed, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&partition->mutex);
    return may_close;
}

static void appending_begin_note(log_partition *partition) {
    pthread_mutex_lock(&partition->mutex);
    __atomic_store_n(&partition->is_noting, 1, __ATOMIC_SEQ_CST);
}

static void appending_end_note(log_partition *partition) {
    __atomic_store_n(&partition->is_noting, 0, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&partition->mutex);
}

/* Leave the partition to Python after a sync that made nothing durable. While noting. */
static void appending_leave_sync(log_partition *partition, int64_t since_ms) {
    partition_disarm(partition);
    if (since_ms >= 0) {
        __atomic_store_n(&partition->unflushed_since_ms, since_ms, __ATOMIC_SEQ_CST);
    }
}

/* Note the end of a sync: what is durable, or that Python has to find out. */
static void appending_note_sync(
    log_partition *partition, int error, int64_t offset, int64_t changes, int64_t since_ms,
    int64_t taken_ns) {
    /* As FLUSH_BOUNDS_S in counters.py. */
    static const int64_t bounds[SYNC_CLASSES - 1] = {
        100000,   250000,   500000,   1000000,   2000000,    4000000,   8000000,
        16000000, 32000000, 64000000, 250000000, 1000000000, 5000000000};

    appending_begin_note(partition);
    if (error == 0) {
        /* If Python has had the mutex, the log may have been cut meanwhile. */
        if (changes == __atomic_load_n(&partition->changes, __ATOMIC_SEQ_CST) &&
            offset > __atomic_load_n(&partition->recovery_point, __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&partition->recovery_point, offset, __ATOMIC_SEQ_CST);
        }
        put_long(&partition->syncs, partition->syncs + 1);
        partition->sync_nanoseconds += taken_ns;
        partition->sync_classes[appending_class(bounds, SYNC_CLASSES - 1, taken_ns)]++;
    } else {
        put(&partition->sync_error, error);
        appending_leave_sync(partition, since_ms);
    }
    appending_end_note(partition);
}

/* Flush a partition; see _served.h. */
static int64_t appending_sync(log_partition *partition) {
    int64_t offset = SYNC_LEFT, changes = 0, since_ms = -1, begun_ns;
    int fd = -1, error, is_removed = 0;

    appending_begin_note(partition);
    if (appending_may_sync(partition)) {
        fd = appending_files->hold(partition->bounds.fd);
        offset = partition->end->at.next_offset;
        changes = __atomic_load_n(&partition->changes, __ATOMIC_SEQ_CST);
    }
    if (fd >= 0) {
        /* First: what is appended from now on is noted again. */
        since_ms = __atomic_exchange_n(&partition->unflushed_since_ms, -1, __ATOMIC_SEQ_CST);
    }
    appending_end_note(partition);
    if (fd < 0)
        return SYNC_LEFT;
    begun_ns = clock_ns(CLOCK_MONOTONIC);
    error = appending_files->sync(fd, &is_removed);
    if (is_removed) {
        /* Another program has removed the file: Python finds out, and tells of it. */
        appending_begin_note(partition);
        appending_leave_sync(partition, since_ms);
        appending_end_note(partition);
        return SYNC_LEFT;
    }
    appending_note_sync(partition, error, offset, changes, since_ms,
                        clock_ns(CLOCK_MONOTONIC) - begun_ns);
    return error == 0 ? offset : SYNC_LEFT;
}

/* --- The length ---------------------------------------------------------------------------------- */

/* The rendering of the active segment, with the mutex; 0 if no end of it is known here. */
static int64_t appending_rendered(const log_partition *partition, int view) {
    const log_end *end = partition->end;

    if (end == NULL)
        return 0;
    return view == 0 ? end->at.text : view == 1 ? end->at.tsv : end->at.jsonl;
}

static int appending_length(log_partition *partition, int view, int64_t changes, int64_t *length,
                            int64_t *modified_ms) {
    int is_unchanged;

    if (__atomic_load_n(&partition->cold, __ATOMIC_SEQ_CST) > 0 || !appending_try(partition))
        return 0;
    is_unchanged = partition->changes == changes;
    *length = appending_rendered(partition, view);
    *modified_ms = __atomic_load_n(&partition->last_modified_ms, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&partition->mutex);
    return is_unchanged;
}

/* Without the mutex: an append under way has shown nothing yet, and Python notes a change before it makes it. */
static int appending_shown_end(
    const log_partition *partition, int64_t changes, int64_t *file_position) {
    if (__atomic_load_n(&partition->cold, __ATOMIC_SEQ_CST) > 0)
        return 0;
    *file_position = __atomic_load_n(&partition->shown_position, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&partition->changes, __ATOMIC_SEQ_CST) == changes;
}

static void appending_count_read(log_partition *partition, int64_t bytes) {
    __atomic_add_fetch(&partition->read_bytes, bytes, __ATOMIC_RELAXED);
}

static int64_t partition_take_read(log_partition *partition) {
    return __atomic_exchange_n(&partition->read_bytes, 0, __ATOMIC_RELAXED);
}

/* Open a file that has no unfinished line; see _served.h. */
static log_writer *appending_open(log_partition *partition, int view, int64_t changes) {
    log_writer *writer;
    int may_open;

    if (__atomic_load_n(&partition->cold, __ATOMIC_SEQ_CST) > 0 || !appending_try(partition))
        return NULL;
    may_open = partition->is_armed && partition->changes == changes;
    pthread_mutex_unlock(&partition->mutex);
    writer = may_open ? calloc(1, sizeof *writer) : NULL;
    if (writer != NULL) {
        partition_hold(partition);
        writer->partition = partition;
        writer->view = view;
    }
    return writer;
}

static int64_t appending_writes(const log_writer *writer) {
    return __atomic_load_n(&writer->writes, __ATOMIC_RELAXED);
}

static int appending_may_write(const log_partition *partition) {
    return __atomic_load_n(&partition->is_armed, __ATOMIC_RELAXED) &&
           __atomic_load_n(&partition->cold, __ATOMIC_SEQ_CST) == 0;
}

static void appending_close(log_writer *writer) {
    partition_release(writer->partition);
    free(writer);
}

static void appending_count_cold(log_partition *partition, int change) {
    __atomic_add_fetch(&partition->cold, change, __ATOMIC_SEQ_CST);
}

static int appending_is_watched(const log_partition *partition) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* after the append that was shown, see is_watched */
    return __atomic_load_n(&partition->is_watched, __ATOMIC_RELAXED);
}

static const appending_functions APPENDING = {
    appending_write,      appending_may_write,  appending_needs_sync, appending_may_close,
    appending_sync,       appending_length,     appending_shown_end,  appending_count_read,
    appending_open,       appending_writes,     appending_close,      appending_count_cold,
    appending_is_watched, partition_hold,       partition_release};

#endif
