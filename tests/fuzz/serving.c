/* The thread that applies writes, beside threads that play the kernel, programs and Python. Built with
   sanitizers: for races, and for memory. A pair of sockets is the device.

   Each program writes numbered lines, whole and in pieces, of any size up to 200 KB, and closes and opens
   its file now and then. The pieces of one call may be under way at the same time. Python takes files that
   were opened without it at any time. Now and then the disk keeps a write of the first log until programs
   have written to the other one. Another program sends what the kernel never sends. In the end the log has to hold each line once, those of each program in order. Lines are encoded as themselves here. Programs sync the
   log now and then (those with odd numbers write whole lines only): when that returns, a sync of the file has begun after what the log had shown before.

   Arguments: seconds, seed. Prints what is wrong and ends with status 1. */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int sync_noted(int fd);
static ssize_t hanging_pwrite(int fd, const void *data, size_t size, off_t position);
#define fsync sync_noted
#define pwrite hanging_pwrite

#include "../../logfs/log/writing/_appending.h"

#include "../../logfs/fs/kernel/native/answered.h"
#include "../../logfs/fs/kernel/native/attributes.h"
#include "../../logfs/fs/kernel/native/handover.h"
#include "../../logfs/fs/kernel/native/naming.h"
#include "../../logfs/fs/kernel/native/openfiles.h"
#include "../../logfs/fs/kernel/native/opening.h"
#include "../../logfs/fs/kernel/native/queue.h"
#include "../../logfs/fs/kernel/native/serving.h"
#include "../../logfs/fs/kernel/native/session.h"

#define PROGRAMS 6
#define PARTITIONS 2
#define LINE_ROOM 300000
#define PIECES 4
#define HANG_REQUESTS 40 /* of other programs, while the disk hangs */
#define HANG_PATIENCE_MS 20000

static int kernel_end, device_end;
static int64_t end_ns;
static uint64_t last_unique = 1;
static pthread_mutex_t replies_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t replies_changed = PTHREAD_COND_INITIALIZER;
static struct {
    uint64_t unique, pieces[PIECES]; /* pieces: of a call, that wait beside it; 0: none */
    uint32_t accepted;               /* by them */
    int32_t error;
    uint32_t size;
    uint64_t length; /* of a file, from its attributes */
    uint64_t looked; /* of one that was looked up */
    uint64_t fh;     /* of a file that was opened; the inode of one that was looked up */
    int is_done;
} waiting_for[PROGRAMS];

static log_partition *partitions[PARTITIONS];
static log_end ends[PARTITIONS];
static shown_end shown[PARTITIONS];
static int logs[PARTITIONS];
static log_writer writers[PROGRAMS];
static line_file lines[PROGRAMS];
static int64_t synced[PARTITIONS]; /* bytes of the logs */
static int64_t wrong, taken;
/* Look-ups of each log: those that the kernel knows of, and those of which Python does. */
static int64_t known_lookups[PARTITIONS], told_lookups[PARTITIONS];
static int64_t forgotten;
static uint64_t handles[PROGRAMS]; /* of the files that are open */
static int64_t written_beside, hangs;
static int hanging;

/* --- The log ------------------------------------------------------------------------------------- */

/* Do as pwrite(2); one in a hundred writes to the first log hangs until the other one has been written to. */
static ssize_t hanging_pwrite(int fd, const void *data, size_t size, off_t position) {
    static int64_t count;

    if (fd == logs[0] && __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST) % 100 == 50 &&
        clock_ns(CLOCK_MONOTONIC) < end_ns) {
        int64_t until = __atomic_load_n(&written_beside, __ATOMIC_SEQ_CST) + HANG_REQUESTS;
        int left = HANG_PATIENCE_MS;

        __atomic_add_fetch(&hanging, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&written_beside, __ATOMIC_SEQ_CST) < until && left-- > 0)
            usleep(1000);
        __atomic_sub_fetch(&hanging, 1, __ATOMIC_SEQ_CST);
        if (left < 0) {
            fprintf(stderr, "a disk that hangs under one log keeps the other\n");
            wrong = 1;
        }
        __atomic_add_fetch(&hangs, 1, __ATOMIC_SEQ_CST);
    }
    return syscall(SYS_pwrite64, fd, data, size, position);
}

static int encode(lf_encoded *encoded, int view, const uint8_t *first, int64_t first_bytes,
                  const uint8_t *rest, int64_t rest_bytes, int64_t base_offset, int64_t now_ms,
                  int64_t limit, int64_t leader_epoch) {
    int64_t count = 0, size = first_bytes + rest_bytes;
    (void)view, (void)limit, (void)leader_epoch;
    memcpy(encoded->p, first, (size_t)first_bytes);
    memcpy(encoded->p + first_bytes, rest, (size_t)rest_bytes);
    for (int64_t i = 0; i < size; i++)
        count += encoded->p[i] == '\n';
    encoded->size = size;
    encoded->count = 1;
    encoded->batches[0] = (lf_added){size, base_offset, base_offset + count - 1, now_ms, count, size,
                                     size, size};
    return 1;
}

/* Do as fsync(2), and note how much of a log is durable then. */
static int sync_noted(int fd) {
    struct stat file, log;

    fstat(fd, &file);
    usleep(300);
    for (int i = 0; i < PARTITIONS; i++) {
        int64_t before = __atomic_load_n(&synced[i], __ATOMIC_SEQ_CST);

        fstat(logs[i], &log);
        while (log.st_ino == file.st_ino && before < file.st_size &&
               !__atomic_compare_exchange_n(&synced[i], &before, file.st_size, 0, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST))
            ;
    }
    return 0;
}

static void arm(int number) {
    log_partition *partition = partitions[number];
    const int64_t last = INT64_MAX / 2;
    ends[number].due = ends[number].due_times = 0; /* taken */
    partition->bounds = (append_bounds){last, last, last, last, last, last, LOG_END_ENTRIES, last, 0,
                                        logs[number], last, last};
    partition->settled_announcements = partition->announcements; /* a sync of the log is enough */
    partition->room_end = last;
    partition->end = &ends[number];
    partition->shown = &shown[number];
    partition_arm(partition);
}

static void lock(int number) {
    pthread_mutex_lock(&partitions[number]->mutex);
    partition_disarm(partitions[number]);
    partitions[number]->changes++;
}

static int try_lock(int number) {
    if (pthread_mutex_trylock(&partitions[number]->mutex) != 0)
        return 0;
    partition_disarm(partitions[number]);
    partitions[number]->changes++;
    return 1;
}

static void unlock(int number) { pthread_mutex_unlock(&partitions[number]->mutex); }

/* --- Python -------------------------------------------------------------------------------------- */

static void nothing_before(write_notes *notes, int64_t end, int64_t unfinished) {
    (void)notes, (void)end, (void)unfinished;
}
static void nothing_after(write_notes *notes, int64_t accepted) { (void)notes, (void)accepted; }

static void reply(uint64_t unique, int error, uint64_t size) {
    struct reply_header header = {.length = sizeof header, .error = -error, .unique = unique};
    struct iovec parts[] = {{&header, sizeof header}, {&size, sizeof size}};

    header.length += error == 0 ? sizeof size : 0;
    if (writev(device_end, parts, error == 0 ? 2 : 1) < 0)
        perror("reply");
    handover_note_reply(unique, 1);
    serving_note_reply(unique);
}

/* Answer GETATTR, and have the next ones answered natively. */
static void look(uint64_t unique, uint64_t node) {
    log_partition *partition = partitions[node - 1];
    struct attributes_reply found = {.node = node};
    struct reply_header header = {.length = sizeof header + sizeof found, .unique = unique};
    struct iovec parts[] = {{&header, sizeof header}, {&found, sizeof found}};

    found.size = (uint64_t)partition_shown(&shown[node - 1]).text;
    if (pthread_mutex_trylock(&partition->mutex) == 0) {
        found.size = (uint64_t)ends[node - 1].at.text;
        logfs_serving_know(node, partition, partition->changes, 0,
                           ends[node - 1].at.text - appending_rendered(partition, 0), 0, 0, 0, 7, node);
        pthread_mutex_unlock(&partition->mutex);
    }
    if (writev(device_end, parts, 2) < 0)
        perror("reply");
    handover_note_reply(unique, 1);
    serving_note_reply(unique);
}

static char name_of(uint64_t node) { return (char)('a' + node - 1); }

static void take_lookups(uint64_t node) { told_lookups[node - 1] += (int64_t)logfs_naming_take(node); }

/* Answer LOOKUP of a log in the directory 1000, and have the next ones answered natively. */
static void find_name(uint64_t unique, uint64_t node) {
    struct entry_reply found = {.node = node};
    struct reply_header header = {.length = sizeof header + sizeof found, .unique = unique};
    struct iovec parts[] = {{&header, sizeof header}, {&found, sizeof found}};
    uint64_t length = (uint64_t)partition_shown(&shown[node - 1]).text;
    const char name = name_of(node);

    memcpy(found.attributes + sizeof(uint64_t), &length, sizeof length);
    told_lookups[node - 1]++;
    if (logfs_naming_know(1000, &name, 1, node, 1000, 0) != 0) {
        fprintf(stderr, "two names have one place\n");
        wrong = 1;
    }
    if (writev(device_end, parts, 2) < 0)
        perror("reply");
    handover_note_reply(unique, 1);
    serving_note_reply(unique);
}

/* The kernel takes look-ups back: of as many it has been told before. */
static void forget_lookups(const struct request_header *header) {
    uint64_t node = header->node, count;

    memcpy(&count, header + 1, sizeof count);
    told_lookups[node - 1] -= (int64_t)count;
    if (told_lookups[node - 1] <= 0)
        take_lookups(node);
    if (told_lookups[node - 1] < 0) {
        fprintf(stderr, "look-ups were not counted\n");
        wrong = 1;
    }
    forgotten++;
}

/* Have all names forgotten, as before a change of topics. */
static void forget_names(void) {
    uint64_t nodes[LOGFS_NAMING_PLACES], lookups[LOGFS_NAMING_PLACES];
    size_t count = logfs_naming_take_all(nodes, lookups);

    for (size_t i = 0; i < count; i++)
        told_lookups[nodes[i] - 1] += (int64_t)lookups[i];
}

/* Calls on a log, by the thread that Python has for it. */
static void change_log(const uint8_t *bytes, size_t size) {
    const struct request_header *header = (const void *)bytes;
    const struct write_request *request = (const void *)(header + 1);
    const size_t number = header->pid - 1;
    const int place = (int)(number % PARTITIONS);

    if (header->opcode == FUSE_OPCODE_WRITE && size >= sizeof *header + sizeof *request &&
               size == sizeof *header + sizeof *request + request->size && request->size > 0) {
        write_notes notes = {nothing_before, nothing_after};
        const uint8_t *data = (const uint8_t *)(request + 1), *last;
        int64_t accepted;
        line_file *line = writers[number].line;

        lock(place);
        arm(place);
        if (line->line_bytes == 0 && line->end > LINE_RESET_BYTES) {
            if (ftruncate(line->fd, LINE_FILE_HEADER) != 0)
                perror("line");
            line->end = LINE_FILE_HEADER;
            line->crc = 0;
        }
        accepted = appending_apply(&writers[number], data, request->size, &notes);
        if (accepted < 0 && (last = memrchr(data, '\n', request->size)) != NULL)
            accepted = appending_apply(&writers[number], data, last + 1 - data, &notes);
        if (accepted < 0)
            partition_disarm(partitions[place]);
        unlock(place);
        reply(header->unique, accepted < 0 ? EMSGSIZE : 0, accepted < 0 ? 0 : (uint32_t)accepted);
    } else if (header->opcode == FUSE_OPCODE_FSYNC) {
        lock(place);
        fsync(logs[place]);
        if (__atomic_load_n(&partitions[place]->recovery_point, __ATOMIC_SEQ_CST) <
            ends[place].at.next_offset)
            __atomic_store_n(&partitions[place]->recovery_point, ends[place].at.next_offset,
                             __ATOMIC_SEQ_CST);
        arm(place);
        unlock(place);
        reply(header->unique, 0, 0);
    } else {
        reply(header->unique, EINVAL, 0);
    }
}

struct change {
    struct change *next;
    size_t size;
    uint8_t bytes[];
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct change *first, **last;
    int is_over;
} changes[PARTITIONS];

static void *change_logs(void *given) {
    const size_t place = (size_t)given;

    pthread_mutex_lock(&changes[place].mutex);
    for (;;) {
        struct change *change = changes[place].first;

        if (change == NULL && changes[place].is_over)
            break;
        if (change == NULL) {
            pthread_cond_wait(&changes[place].changed, &changes[place].mutex);
            continue;
        }
        if ((changes[place].first = change->next) == NULL)
            changes[place].last = &changes[place].first;
        pthread_mutex_unlock(&changes[place].mutex);
        change_log(change->bytes, change->size);
        free(change);
        pthread_mutex_lock(&changes[place].mutex);
    }
    pthread_mutex_unlock(&changes[place].mutex);
    return NULL;
}

static void change_in_thread(int place, const uint8_t *bytes, size_t size) {
    struct change *change = malloc(sizeof *change + size);

    change->next = NULL;
    change->size = size;
    memcpy(change->bytes, bytes, size);
    pthread_mutex_lock(&changes[place].mutex);
    *changes[place].last = change;
    changes[place].last = &change->next;
    pthread_cond_signal(&changes[place].changed);
    pthread_mutex_unlock(&changes[place].mutex);
}

static void answer(const uint8_t *bytes, size_t size) {
    const struct request_header *header = (const void *)bytes;
    const struct write_request *request = (const void *)(header + 1);
    size_t number;
    int place;

    if (header->opcode == FUSE_OPCODE_FORGET && header->pid > 0 && header->pid <= PROGRAMS)
        forget_lookups(header);
    if (is_one_way(header->opcode))
        return;
    if (header->opcode == FUSE_OPCODE_LOOKUP && header->pid > 0 && header->pid <= PROGRAMS) {
        find_name(header->unique, (uint64_t)bytes[sizeof *header] - 'a' + 1);
        return;
    }
    if (header->opcode == FUSE_OPCODE_GETATTR && header->node > 0 && header->node <= PARTITIONS) {
        look(header->unique, header->node);
        return;
    }
    if (size < sizeof *header + sizeof(uint64_t) || header->pid == 0 || header->pid > PROGRAMS) {
        reply(header->unique, EINVAL, 0);
        return;
    }
    number = header->pid - 1;
    place = (int)(number % PARTITIONS);
    if (header->opcode == FUSE_OPCODE_OPEN) {
        logfs_serving_open(header->pid, partitions[place]);
        logfs_serving_begin(header->pid, &writers[number], 7);
        reply(header->unique, 0, header->pid);
        return;
    }
    if (logfs_opening_take(request->fh) >= 0) { /* it was opened natively */
        logfs_serving_begin(request->fh, &writers[number], 7);
        __atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
    }
    if (request->fh != header->pid && request->fh < PROGRAMS + 10) {
        reply(header->unique, EINVAL, 0);
    } else if (header->opcode == FUSE_OPCODE_RELEASE) {
        logfs_serving_close(request->fh);
        reply(header->unique, 0, 0);
    } else if (header->opcode == FUSE_OPCODE_WRITE || header->opcode == FUSE_OPCODE_FSYNC) {
        change_in_thread(place, bytes, size);
    } else {
        reply(header->unique, header->opcode == FUSE_OPCODE_FLUSH ? 0 : ENOSYS, 0);
    }
}

/* Have Python take a file at any time. */
static void *take_files(void *unused) {
    (void)unused;
    while (clock_ns(CLOCK_MONOTONIC) < end_ns)
        for (int i = 0; i < PROGRAMS; i++) {
            if (logfs_opening_take(__atomic_load_n(&handles[i], __ATOMIC_SEQ_CST)) >= 0)
                __atomic_add_fetch(&taken, 1, __ATOMIC_SEQ_CST);
            usleep(100);
        }
    return NULL;
}

static void *be_python(void *waited) {
    static uint8_t buffer[(1 << 20) + 16384];
    struct pollfd ready = {*(int *)waited, POLLIN, 0};

    for (int step = 0;; step++) {
        ssize_t got;

        if (poll(&ready, 1, 20) < 0)
            perror("poll");
        got = serving_take(buffer, sizeof buffer);
        if (got < 0)
            return NULL; /* the connection has ended */
        if (got == 0 && !serving_is_reading()) {
            got = read(device_end, buffer, sizeof buffer);
            if (got >= (ssize_t)sizeof(struct request_header)) {
                unsigned slot = handover_note_read((void *)buffer, (size_t)got);

                if (serving_answer((void *)buffer, (size_t)got, slot) != LEFT)
                    got = -1;
                else
                    handover_begin_request((void *)buffer, (size_t)got, slot);
            } else if (got == 0) {
                return NULL;
            }
        }
        if (got >= (ssize_t)sizeof(struct request_header))
            answer(buffer, (size_t)got);
        if (step % 50 == 0) { /* a change that only Python makes */
            if (try_lock(step / 50 % PARTITIONS))
                unlock(step / 50 % PARTITIONS);
        }
        if (step % 500 == 0)
            forget_names();
        (void)partition_shown(&shown[step % PARTITIONS]);
    }
}

/* --- The kernel and the programs ----------------------------------------------------------------- */

static void *read_replies(void *unused) {
    uint8_t buffer[256];

    (void)unused;
    for (;;) {
        const struct reply_header *header = (const void *)buffer;
        ssize_t got = read(kernel_end, buffer, sizeof buffer);

        if (got <= 0)
            return NULL;
        pthread_mutex_lock(&replies_mutex);
        for (int i = 0; i < PROGRAMS * PIECES; i++)
            if (waiting_for[i / PIECES].pieces[i % PIECES] == header->unique) {
                uint32_t accepted = 0;

                memcpy(&accepted, buffer + sizeof *header, header->error == 0 ? sizeof accepted : 0);
                waiting_for[i / PIECES].accepted += accepted;
                waiting_for[i / PIECES].pieces[i % PIECES] = 0;
            }
        for (int i = 0; i < PROGRAMS; i++)
            if (waiting_for[i].unique == header->unique) {
                waiting_for[i].error = header->error;
                memcpy(&waiting_for[i].size, buffer + sizeof *header, sizeof(uint32_t));
                memcpy(&waiting_for[i].length,
                       buffer + sizeof *header + offsetof(struct attributes_reply, size),
                       sizeof(uint64_t));
                memcpy(&waiting_for[i].looked,
                       buffer + sizeof *header + offsetof(struct entry_reply, attributes) +
                           sizeof(uint64_t), sizeof(uint64_t));
                memcpy(&waiting_for[i].fh, buffer + sizeof *header, sizeof(uint64_t));
                waiting_for[i].is_done = 1;
            }
        pthread_cond_broadcast(&replies_changed);
        pthread_mutex_unlock(&replies_mutex);
    }
}

static uint64_t next_unique(void) { return __atomic_add_fetch(&last_unique, 2, __ATOMIC_SEQ_CST); }

static int32_t request_about(int program, uint64_t node, uint32_t opcode, const void *body,
                             size_t body_bytes, const void *data, size_t bytes, uint32_t *size) {
    struct request_header header = {.length = (uint32_t)(sizeof header + body_bytes + bytes),
                                    .opcode = opcode,
                                    .unique = next_unique(),
                                    .node = node,
                                    .pid = (uint32_t)program + 1};
    struct iovec parts[] = {
        {&header, sizeof header}, {(void *)body, body_bytes}, {(void *)data, bytes}};
    int32_t error;

    pthread_mutex_lock(&replies_mutex);
    waiting_for[program].unique = header.unique;
    waiting_for[program].is_done = 0;
    pthread_mutex_unlock(&replies_mutex);
    if (writev(kernel_end, parts, 3) < 0)
        perror("request");
    pthread_mutex_lock(&replies_mutex);
    while (!waiting_for[program].is_done)
        pthread_cond_wait(&replies_changed, &replies_mutex);
    error = waiting_for[program].error;
    *size = waiting_for[program].size;
    pthread_mutex_unlock(&replies_mutex);
    return error;
}

/* Send a piece of a write, and do not wait for the reply. */
static void send_piece(int program, int piece, uint64_t fh, const void *data, size_t bytes) {
    struct write_request body = {.fh = fh, .size = (uint32_t)bytes};
    struct request_header header = {.length = (uint32_t)(sizeof header + sizeof body + bytes),
                                    .opcode = FUSE_OPCODE_WRITE,
                                    .unique = next_unique(),
                                    .node = (uint64_t)(program % PARTITIONS) + 1,
                                    .pid = (uint32_t)program + 1};
    struct iovec parts[] = {{&header, sizeof header}, {&body, sizeof body}, {(void *)data, bytes}};

    pthread_mutex_lock(&replies_mutex);
    waiting_for[program].pieces[piece] = header.unique;
    pthread_mutex_unlock(&replies_mutex);
    if (writev(kernel_end, parts, 3) < 0)
        perror("piece");
}

/* Write as the kernel does an asynchronous write: in pieces that are under way at the same time. */
static void write_in_pieces(int program, uint64_t fh, const char *text, size_t size, unsigned *seed) {
    size_t done = 0;

    pthread_mutex_lock(&replies_mutex);
    waiting_for[program].accepted = 0;
    pthread_mutex_unlock(&replies_mutex);
    for (int piece = 0; piece < PIECES; piece++) {
        size_t part = piece == PIECES - 1 ? size - done : (size_t)rand_r(seed) % (size - done) + 1;

        /* Odd programs write whole lines only. */
        while (program % 2 && part < size - done && text[done + part - 1] != '\n')
            part++;
        send_piece(program, piece, fh, text + done, part);
        done += part;
        if (done == size)
            break;
    }
    pthread_mutex_lock(&replies_mutex);
    for (int piece = 0; piece < PIECES; piece++)
        while (waiting_for[program].pieces[piece] != 0)
            pthread_cond_wait(&replies_changed, &replies_mutex);
    if (waiting_for[program].accepted != size) {
        fprintf(stderr, "%u of %zu bytes in pieces\n", waiting_for[program].accepted, size);
        wrong = 1;
    }
    pthread_mutex_unlock(&replies_mutex);
}

static int32_t request(int program, uint32_t opcode, const void *body, size_t body_bytes,
                       const void *data, size_t bytes, uint32_t *size) {
    uint64_t node = (uint64_t)(program % PARTITIONS) + 1;

    return request_about(program, node, opcode, body, body_bytes, data, bytes, size);
}

/* Sync the log of a program: what it has shown before is durable then. */
static void sync_log(int program, uint64_t fh) {
    struct fsync_request body = {.fh = fh};
    int place = program % PARTITIONS;
    int64_t wanted = partition_shown(&shown[place]).file_position;
    uint32_t size;

    if (request(program, FUSE_OPCODE_FSYNC, &body, sizeof body, "", 0, &size) != 0 ||
        __atomic_load_n(&synced[place], __ATOMIC_SEQ_CST) < wanted) {
        fprintf(stderr, "a sync has not made all durable\n");
        wrong = 1;
    }
}

/* Look at the log of a program: it is as long as what it has shown before, or longer. */
static void look_at_log(int program) {
    struct attributes_request body = {0};
    int64_t wanted = partition_shown(&shown[program % PARTITIONS]).text;
    uint32_t size;

    if (request(program, FUSE_OPCODE_GETATTR, &body, sizeof body, "", 0, &size) != 0 ||
        (int64_t)waiting_for[program].length < wanted) {
        fprintf(stderr, "a file is too short\n");
        wrong = 1;
    }
}

/* Look the log of a program up, and have the kernel forget now and then what it knows by then. */
static void look_up(int program, unsigned *seed) {
    const int place = program % PARTITIONS;
    const uint64_t node = (uint64_t)place + 1;
    const char name[] = {name_of(node), 0};
    int64_t wanted = partition_shown(&shown[place]).text;
    uint32_t size;

    if (request_about(program, 1000, FUSE_OPCODE_LOOKUP, name, sizeof name, "", 0, &size) != 0 ||
        waiting_for[program].fh != node || (int64_t)waiting_for[program].looked < wanted) {
        fprintf(stderr, "a name is not found\n");
        wrong = 1;
    }
    __atomic_add_fetch(&known_lookups[place], 1, __ATOMIC_SEQ_CST);
    if (rand_r(seed) % 20 == 0) {
        uint64_t count = (uint64_t)__atomic_exchange_n(&known_lookups[place], 0, __ATOMIC_SEQ_CST);
        struct request_header header = {.length = sizeof header + sizeof count,
                                        .opcode = FUSE_OPCODE_FORGET,
                                        .unique = next_unique(),
                                        .node = node,
                                        .pid = (uint32_t)program + 1};
        struct iovec parts[] = {{&header, sizeof header}, {&count, sizeof count}};

        if (writev(kernel_end, parts, 2) < 0)
            perror("forget");
    }
}

/* Open the log of a program; returns the number of the open file. */
static uint64_t open_log(int program) {
    struct open_request body = {.flags = O_WRONLY | O_APPEND};
    uint32_t size;

    if (request(program, FUSE_OPCODE_OPEN, &body, sizeof body, "", 0, &size) != 0) {
        fprintf(stderr, "a file cannot be opened\n");
        wrong = 1;
    }
    __atomic_store_n(&handles[program], waiting_for[program].fh, __ATOMIC_SEQ_CST);
    return waiting_for[program].fh;
}

struct program {
    int number;
    unsigned seed;
    int64_t written;
};

static void *be_program(void *given) {
    struct program *program = given;
    struct write_request write = {0};
    struct flush_request flush = {0};
    struct release_request release = {0, O_WRONLY, 0};
    char *text = malloc(LINE_ROOM);
    size_t filled = 0;
    uint32_t size;

    write.fh = flush.fh = release.fh = open_log(program->number);
    for (;;) {
        int is_over = clock_ns(CLOCK_MONOTONIC) > end_ns &&
                      __atomic_load_n(&hanging, __ATOMIC_SEQ_CST) == 0;
        unsigned kind = (unsigned)rand_r(&program->seed);
        size_t wanted = kind % 50 == 0 ? 200000 : kind % 5 == 0 ? 3000 : 40;
        size_t cut;

        while (filled < wanted && !is_over)
            filled += (size_t)sprintf(text + filled, "%d %lld %.*s\n", program->number,
                                      (long long)program->written++, rand_r(&program->seed) % 60,
                                      "----------------------------------------------------------");
        if (filled == 0)
            break;
        cut = is_over || program->number % 2 || kind % 3 ? filled : 1 + (size_t)rand_r(&program->seed) % filled;
        if (program->number % 2)
            __atomic_add_fetch(&written_beside, 1, __ATOMIC_SEQ_CST);
        if (kind % 7 == 0) {
            write_in_pieces(program->number, write.fh, text, filled, &program->seed);
            filled = 0;
        }
        write.size = (uint32_t)cut;
        if (filled > 0 && request(program->number, FUSE_OPCODE_WRITE, &write, sizeof write, text, cut, &size) != 0) {
            fprintf(stderr, "a write of %zu bytes failed\n", cut);
            wrong = 1;
            break;
        }
        if (filled > 0) {
            memmove(text, text + size, filled - size);
            filled -= size;
        }
        if (kind % 3 == 0)
            sync_log(program->number, write.fh);
        if (kind % 4 == 0)
            look_at_log(program->number);
        if (kind % 4 != 1)
            look_up(program->number, &program->seed);
        if (kind % 17 == 0 && (filled == 0 || lines[program->number].line_bytes == 0)) {
            request(program->number, FUSE_OPCODE_FLUSH, &flush, sizeof flush, "", 0, &size);
            request(program->number, FUSE_OPCODE_RELEASE, &release, sizeof release, "", 0, &size);
            look_at_log(program->number);
            write.fh = flush.fh = release.fh = open_log(program->number);
        }
    }
    free(text);
    return NULL;
}

static void *send_garbage(void *given) {
    unsigned seed = *(unsigned *)given;
    uint8_t bytes[256];

    while (clock_ns(CLOCK_MONOTONIC) < end_ns) {
        struct request_header *header = (void *)bytes;
        struct write_request *write = (void *)(header + 1);
        size_t size = sizeof *header + (size_t)rand_r(&seed) % (sizeof bytes - sizeof *header);

        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)rand_r(&seed);
        header->length = rand_r(&seed) % 2 ? (uint32_t)size : (uint32_t)rand_r(&seed);
        header->unique = next_unique();
        header->pid = 0; /* no program */
        if (rand_r(&seed) % 9 == 0) { /* a name that has no end, or more than one */
            header->node = 1000;
            bytes[sizeof *header] = 'a';
        }
        header->opcode = rand_r(&seed) % 2   ? FUSE_OPCODE_WRITE
                         : rand_r(&seed) % 4 ? (uint32_t)rand_r(&seed) % 60
                                             : FUSE_OPCODE_FSYNC;
        if (header->opcode == FUSE_OPCODE_OPEN || header->opcode == FUSE_OPCODE_RELEASE)
            header->opcode = FUSE_OPCODE_FORGET;
        /* No file that a program has open: its lines would be in the log. */
        write->fh = PROGRAMS + 1 + (uint64_t)rand_r(&seed) % 3;
        if (send(kernel_end, bytes, size, 0) < 0)
            perror("garbage");
        usleep(500);
    }
    return NULL;
}

/* Check a log: the lines of each program are there once, in order. Adds them up for each program. */
static void check(int log, int64_t counts[PROGRAMS]) {
    FILE *file = fdopen(dup(log), "r");
    char line[256];

    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        int program = -1;
        long long number = -1;

        if (sscanf(line, "%d %lld", &program, &number) != 2 || program < 0 || program >= PROGRAMS ||
            number != counts[program]) {
            fprintf(stderr, "unexpected line: %s", line);
            wrong = 1;
            break;
        }
        counts[program]++;
    }
    fclose(file);
}

static int temporary(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0) {
        perror(name);
        exit(1);
    }
    return fd;
}

static void set_up(void) {
    int pair[2], state = temporary("state");

    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair);
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &(int){4 << 20}, sizeof(int));
    kernel_end = pair[0];
    device_end = pair[1];
    if (ftruncate(state, (off_t)logfs_state_bytes()) != 0 || logfs_keep(state) != 0)
        perror("state");
    for (int i = 0; i < PARTITIONS; i++) {
        partitions[i] = partition_new(encode);
        logs[i] = temporary("log");
        lf_end_begin(&ends[i].at, 0, 4096);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        line_begin_file(&lines[i]);
        lines[i].fd = temporary("line");
        lines[i].end = LINE_FILE_HEADER;
        writers[i] = (log_writer){partitions[i % PARTITIONS], &lines[i], 0, 0, 0};
    }
}

int main(int count, char **arguments) {
    unsigned seed = count > 2 ? (unsigned)atoi(arguments[2]) : 1, garbage_seed = seed + 1000;
    pthread_t python, replies, garbage, taker, threads[PROGRAMS], changers[PARTITIONS];
    struct program programs[PROGRAMS];
    int64_t counts[PROGRAMS] = {0};
    int waited;

    end_ns = clock_ns(CLOCK_MONOTONIC) + (count > 1 ? atoi(arguments[1]) : 5) * 1000000000LL;
    set_up();
    logfs_want_serving(&APPENDING, 0);
    logfs_opening_allow(0);
    session_begin(device_end);
    waited = serving_start(device_end);
    fcntl(device_end, F_SETFL, O_NONBLOCK);
    for (size_t i = 0; i < PARTITIONS; i++) {
        pthread_mutex_init(&changes[i].mutex, NULL);
        pthread_cond_init(&changes[i].changed, NULL);
        changes[i].last = &changes[i].first;
        pthread_create(&changers[i], NULL, change_logs, (void *)i);
    }
    pthread_create(&taker, NULL, take_files, NULL);
    pthread_create(&python, NULL, be_python, &waited);
    pthread_create(&replies, NULL, read_replies, NULL);
    pthread_create(&garbage, NULL, send_garbage, &garbage_seed);
    for (int i = 0; i < PROGRAMS; i++) {
        programs[i] = (struct program){i, seed * 100 + (unsigned)i, 0};
        pthread_create(&threads[i], NULL, be_program, &programs[i]);
    }
    for (int i = 0; i < PROGRAMS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(garbage, NULL);
    pthread_join(taker, NULL);
    for (int i = 0; i < PARTITIONS; i++) {
        pthread_mutex_lock(&changes[i].mutex);
        changes[i].is_over = 1;
        pthread_cond_signal(&changes[i].changed);
        pthread_mutex_unlock(&changes[i].mutex);
        pthread_join(changers[i], NULL);
    }
    shutdown(kernel_end, SHUT_WR); /* reads of the device return 0 now */
    pthread_join(python, NULL);
    serving_stop();
    shutdown(device_end, SHUT_RDWR);
    pthread_join(replies, NULL);
    for (int i = 0; i < PARTITIONS; i++)
        check(logs[i], counts);
    for (int i = 0; i < PROGRAMS; i++)
        if (counts[i] != programs[i].written) {
            fprintf(stderr, "program %d: %lld lines of %lld\n", i, (long long)counts[i],
                    (long long)programs[i].written);
            wrong = 1;
        }
    for (uint64_t node = 1; node <= PARTITIONS; node++) {
        take_lookups(node);
        if (told_lookups[node - 1] != known_lookups[node - 1]) {
            fprintf(stderr, "%lld look-ups, counted: %lld\n", (long long)known_lookups[node - 1],
                    (long long)told_lookups[node - 1]);
            wrong = 1;
        }
    }
    printf("%llu look-ups (%lld times forgotten), ", (unsigned long long)logfs_answered(FUSE_OPCODE_LOOKUP),
           (long long)forgotten);
    printf("%llu writes applied, %llu syncs, %llu stats, %llu opens (%lld taken), %llu requests queued, %lld hangs\n",
           (unsigned long long)logfs_answered(FUSE_OPCODE_WRITE), (unsigned long long)logfs_answered(FUSE_OPCODE_FSYNC),
           (unsigned long long)logfs_answered(FUSE_OPCODE_GETATTR), (unsigned long long)logfs_answered(FUSE_OPCODE_OPEN),
           (long long)taken, (unsigned long long)queue_count(), (long long)hangs);
    return wrong != 0 || logfs_answered(FUSE_OPCODE_WRITE) == 0 || logfs_answered(FUSE_OPCODE_FSYNC) == 0 ||
           logfs_answered(FUSE_OPCODE_GETATTR) == 0 || logfs_answered(FUSE_OPCODE_OPEN) == 0 || taken == 0 ||
           logfs_answered(FUSE_OPCODE_LOOKUP) == 0 || forgotten == 0 || hangs == 0;
}
