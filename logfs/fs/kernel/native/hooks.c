/* The hooks between pyfuse3 and libfuse; hooks.h says what they do.

   The session. fuse_session_mount() is where a session becomes known. It is given functions that
   read requests and write replies (fuse_session_custom_io); they see every byte on its way.

   Passthrough. It has to be agreed on in the reply to INIT, and the reply to OPEN names the backing
   file. libfuse knows neither before 3.17, where the bytes are changed on their way out:

     fuse_init_out   flags |= FUSE_INIT_EXT, flags2 |= FUSE_PASSTHROUGH >> 32, max_stack_depth = 1
     fuse_open_out   open_flags = FOPEN_PASSTHROUGH, the word after it is the number

   From 3.17 on the same is asked for in libfuse's own way: a flag that the function for INIT sets
   (it is wrapped where the session is made), and a field of what fuse_reply_open() is given.

   Sources: include/uapi/linux/fuse.h, fs/fuse/{inode,iomode,passthrough,backing}.c of Linux 6.18;
   lib/fuse_lowlevel.c of libfuse 3.14 and 3.17. */

#define _GNU_SOURCE
#define FUSE_USE_VERSION 312

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../../log/writing/_clock.h"
#include "ahead.h"
#include "handover.h"
#include "hooks.h"
#include "serving.h"
#include "session.h"
#include "watching.h"

struct backing_map {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};

#define BACKING_OPEN _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

/* --- State, of the one session that pyfuse3 has ------------------------------------------------ */

static int is_wanted = 1;
static int offers_parallel;
static int is_agreed; /* see logfs_has_passthrough */
static int has_own_way;
static uint64_t init_request_number;
static int asks_passthrough;
static uint64_t last_request;
static uint32_t last_thread;
static uint32_t listing_room; /* of that request */
static void (*on_interrupt)(uint64_t);
static struct {
    char *begin;
    size_t size;
} last_buffer; /* into which that request was read */
static struct {
    uint64_t fh;
    int id;
} next_open;         /* see logfs_pass_through; id 0: none */
static int is_open_reply, is_only_read; /* of the reply that is being sent */
static int patch_id; /* the number for the reply that is being sent, where bytes are changed */

/* How long to poll for the next request without sleeping (longer than the reader's processor takes
   to wake up), how long asleep, and how long in all. Small reads are 2.4 times as fast with it: see dd and
   wc in the benchmark "cat". */
#define AWAKE_NS 50000
#define PATIENCE_NS 200000
#define LONGEST_NS 1000000
#define STOPPED_NS 2000000

typedef int give_io_function(struct fuse_session *, const struct fuse_custom_io *, int);

static give_io_function *give_io_again; /* see give_device_back */
static struct fuse_session *session_of_io;

static uint64_t replied; /* see logfs_reply; its handler has not returned; 0: none */

int logfs_version(void) { return LOGFS_HOOKS_VERSION; }

void logfs_want_passthrough(int wanted) { is_wanted = wanted; }

int logfs_has_passthrough(void) { return is_agreed; }


uint64_t logfs_request(void) { return last_request; }

uint32_t logfs_request_thread(void) { return last_thread; }

uint32_t logfs_listing_room(void) { return listing_room; }

void logfs_hold(uint64_t *words) {
    words[0] = last_request;
    words[1] = last_thread;
    words[2] = listing_room;
    handover_hold(words + 3);
}

void logfs_resume(const uint64_t *words) {
    last_request = words[0];
    last_thread = (uint32_t)words[1];
    listing_room = (uint32_t)words[2];
    last_buffer.begin = NULL;
    handover_resume(words + 3);
}

void logfs_on_interrupt(void (*interrupted)(uint64_t)) { on_interrupt = interrupted; }

void logfs_drop_buffer(void) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)last_buffer.begin, end = begin + last_buffer.size;
    const uintptr_t first = (begin + 2 * page - 1) / page * page, last = end / page * page;

    if (last_buffer.begin != NULL && first < last)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

int logfs_backing_open(int fd) {
    struct backing_map map = {.fd = fd};
    int id;

    if (logfs_session() < 0 || is_agreed != 1)
        return -EOPNOTSUPP;
    id = ioctl(logfs_session(), BACKING_OPEN, &map);
    return id < 0 ? -errno : id;
}

int logfs_backing_close(int backing_id) {
    uint32_t id = (uint32_t)backing_id;

    return ioctl(logfs_session(), BACKING_CLOSE, &id) < 0 ? -errno : 0;
}

void logfs_pass_through(uint64_t fh, int backing_id) {
    next_open.fh = fh;
    next_open.id = backing_id;
}

int logfs_reply(uint64_t request, const void *data, size_t size) {
    if (logfs_session() < 0 || session_write(request, 0, data, size) < 0)
        return 0;
    handover_note_reply(request, 1);
    watching_note_reply(request, size);
    replied = request;
    return 1;
}

/* --- The real functions ------------------------------------------------------------------------ */

/* Find a function of the libfuse that the caller uses: not of any libfuse that is loaded, and the
   caller is not in the global scope, so RTLD_NEXT would not find its libraries. */
static void *find(void *caller, const char *name, const char *version) {
    static void *scope;

    if (scope == NULL) {
        Dl_info info;

        if (dladdr(caller, &info))
            scope = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
        if (scope == NULL)
            return NULL;
    }
    return version == NULL ? dlsym(scope, name) : dlvsym(scope, name, version);
}

#define REAL(name) ((__typeof__(&name))find(__builtin_return_address(0), #name, NULL))

/* --- On their way: requests and replies -------------------------------------------------------- */

static void see_init(const struct request_header *header, size_t size) {
    const struct init_request *init = (const void *)(header + 1);

    handover_save_init(header, size);
    init_request_number = header->unique;
    offers_parallel = size >= sizeof *header + sizeof *init && init->flags & INIT_PARALLEL_DIROPS;
    if (size < sizeof *header + sizeof *init || !(init->flags & INIT_EXT) ||
        !(init->flags2 & INIT2_PASSTHROUGH))
        is_agreed = -1;
    else
        asks_passthrough = is_wanted;
}

/* Answer a request natively, if that is possible; otherwise it goes to Python. */
static enum answered answer_request(const struct request_header *header, size_t size) {
    unsigned slot = handover_note_read(header, size);
    enum answered answered;

    watching_note_request(header, size);
    answered = serving_answer(header, size, slot);
    if (answered == LEFT)
        handover_begin_request(header, size, slot);
    return answered;
}

/* Read a request that is not answered here. The descriptor does not block. After a reply from bytes
   ahead the next request is awaited for a short time, since a program that has read one piece reads
   the next; not for long, since the event loop has other work. EINTR makes pyfuse3 wait again. */
static ssize_t read_one(int fd, void *buffer, size_t size) {
    int64_t begun = 0, answered = 0, now; /* answered: a read */
    enum answered kind;

    while (!serving_is_reading()) {
        ssize_t got = handover_read(fd, buffer, size);

        if (got >= (ssize_t)sizeof(struct request_header)) {
            if (ahead_answer(buffer, (size_t)got))
                now = answered = clock_ns(CLOCK_MONOTONIC);
            else if ((kind = answer_request(buffer, (size_t)got)) == LEFT)
                return got;
            else {
                now = clock_ns(CLOCK_MONOTONIC);
                if (kind == ANSWERED &&
                    ((const struct request_header *)buffer)->opcode == FUSE_OPCODE_READ)
                    answered = now;
            }
            if (begun == 0)
                begun = now;
            else if (now - begun > LONGEST_NS)
                break;
            continue;
        }
        if (got == 0) /* a connection that is no device says so when it has ended */
            errno = ENODEV;
        if (got == 0 || errno != EAGAIN)
            return -1;
        handover_note_idle();
        if (answered == 0)
            break;
        now = clock_ns(CLOCK_MONOTONIC);
        if (now - begun > LONGEST_NS)
            break;
        if (now - answered > AWAKE_NS) { /* perhaps the reader needs this processor */
            struct pollfd readable = {.fd = fd, .events = POLLIN};
            struct timespec patience = {.tv_nsec = PATIENCE_NS};

            if (ppoll(&readable, 1, &patience, NULL) <= 0)
                break;
        }
    }
    errno = EINTR;
    return -1;
}

/* The descriptor of /dev/fuse, where libfuse has been given another one to wait for. */
static int device_of(int fd) { return logfs_has_serving() ? logfs_session() : fd; }

static uint32_t room_of(const struct request_header *header, size_t size) {
    const struct read_request *read = (const void *)(header + 1);

    return header->opcode == FUSE_OPCODE_READDIRPLUS && size >= sizeof *header + sizeof *read
               ? read->size
               : 0;
}

static ssize_t read_request(int fd, void *buffer, size_t size, void *userdata) {
    const struct request_header *header = buffer;
    ssize_t got = serving_take(buffer, size);

    (void)userdata;
    if (got == 0) {
        /* If stopped, they stay in the kernel, for the successor. The loop finds the descriptor
           readable all the time until the last reply: it must not take a processor for that. */
        if (handover_is_stopped())
            nanosleep(&(struct timespec){.tv_nsec = STOPPED_NS}, NULL);
        if (handover_is_stopped() || serving_is_reading()) {
            errno = EINTR;
            return -1;
        }
        got = read_one(device_of(fd), buffer, size);
    }
    if (got < (ssize_t)sizeof *header)
        return got;
    next_open.id = 0; /* the step in which it was set is over */
    last_request = header->unique;
    last_thread = header->pid;
    listing_room = room_of(header, (size_t)got);
    last_buffer.begin = buffer;
    last_buffer.size = size;
    if (header->opcode == FUSE_OPCODE_INIT)
        see_init(header, (size_t)got);
    else if (header->opcode == FUSE_OPCODE_INTERRUPT && on_interrupt != NULL &&
             got >= (ssize_t)(sizeof *header + sizeof(uint64_t)))
        on_interrupt(*(const uint64_t *)(header + 1));
    return got;
}

/* Look-ups in one directory at the same time: one that waits for an object store must not hold the
   others, whose programs could not even be killed. libfuse does not ask for it. But it asks for the pieces
   of an asynchronous write at the same time: then a piece that fails would be followed by the next one. */
static void agree_order(const struct iovec *reply) {
    struct init_reply *init = reply->iov_base;

    if (reply->iov_len < sizeof *init)
        return;
    init->flags &= ~INIT_ASYNC_DIO;
    if (offers_parallel)
        init->flags |= INIT_PARALLEL_DIROPS;
}

static void agree(const struct iovec *reply) {
    struct init_reply *init = reply->iov_base;

    if (reply->iov_len < sizeof *init)
        return;
    if (!has_own_way) {
        init->flags |= INIT_EXT;
        init->flags2 |= INIT2_PASSTHROUGH;
        init->max_stack_depth = 1; /* files of file systems that are not stacked themselves */
    }
    if (init->flags2 & INIT2_PASSTHROUGH)
        is_agreed = 1;
}

static ssize_t write_reply(int fd, struct iovec *parts, int count, void *userdata) {
    const struct reply_header *header = parts[0].iov_base;
    ssize_t sent;
    int error;

    (void)userdata;
    fd = device_of(fd);
    /* A notification has no number, and may come from any thread. */
    if (header->unique == 0)
        return writev(fd, parts, count);
    if (header->unique == replied) {
        replied = 0;
        return header->length;
    }
    if (count >= 2 && header->error == 0) {
        if (header->unique == init_request_number) {
            init_request_number = 0;
            agree_order(&parts[1]);
            if (asks_passthrough)
                agree(&parts[1]);
            if (handover_is_replaying()) { /* the kernel has the reply of the first daemon */
                handover_compare_reply(parts, count);
                return header->length;
            }
            handover_save_reply(parts, count);
        } else if (is_open_reply && parts[1].iov_len == sizeof(struct open_reply)) {
            struct open_reply *open = parts[1].iov_base;

            if (patch_id != 0) {
                open->open_flags = OPEN_PASSTHROUGH;
                open->backing_id = patch_id;
            }
            /* No FLUSH at close(2): it has nothing to say, and while no daemon serves a program could
               not even be killed in it. */
            if (is_only_read)
                open->open_flags |= OPEN_NO_FLUSH;
        }
    }
    watching_note_reply(header->unique, header->length - sizeof *header);
    sent = writev(fd, parts, count);
    error = errno;
    session_note_reply(header->unique, sent < 0 ? -error : 0);
    serving_note_reply(header->unique);
    if (sent < 0 && error == ENOENT && session_has_ended()) /* libfuse would log it as an error */
        sent = header->length;
    errno = error;
    return sent;
}

/* --- What pyfuse3 calls in the place of libfuse's ---------------------------------------------- */

typedef void process_function(struct fuse_session *, const struct fuse_buf *);

/* Have a thread read the requests from now on: pyfuse3 waits for another descriptor then. */
static void begin_serving(struct fuse_session *session, give_io_function *give_io,
                          const struct fuse_custom_io *io) {
    int waiting = serving_start(logfs_session());

    if (waiting >= 0 && give_io(session, io, waiting) == 0) {
        give_io_again = give_io;
        session_of_io = session;
    }
}

/* Have libfuse know the descriptor of /dev/fuse again, which it closes. */
static void give_device_back(void) {
    if (session_of_io != NULL)
        give_io_again(session_of_io, &(struct fuse_custom_io){.writev = write_reply,
                                                              .read = read_request},
                      logfs_session());
    session_of_io = NULL;
}

void logfs_serving_stop(void) {
    if (serving_stop())
        give_device_back();
}

/* Serve the connection of a daemon that has ended: libfuse gets the INIT request that this daemon got.
   The session has no mount point for libfuse, so it will not unmount. */
static int adopt(struct fuse_session *session, process_function *process, give_io_function *give_io,
                 const struct fuse_custom_io *io) {
    /* libfuse reads the request as if the buffer of a whole request followed. */
    static char buffer[1 << 16];
    struct fuse_buf init = {.mem = buffer};
    const void *saved = handover_begin_replay(&init.size);
    int fd = handover_descriptor();

    if (saved == NULL || process == NULL || give_io == NULL || give_io(session, io, fd) != 0)
        return -1;
    memcpy(buffer, saved, init.size);
    is_agreed = 0;
    see_init((const void *)buffer, init.size);
    process(session, &init);
    if (handover_end_replay(fd) != 0)
        return -1;
    session_begin(fd);
    if (!logfs_keeps_requests())
        session_notify(NOTIFY_RESEND, NULL, 0);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    begin_serving(session, give_io, io);
    return 0;
}

int fuse_session_mount(struct fuse_session *session, const char *mountpoint) {
    /* The custom I/O as in libfuse 3.14; newer ones still have that, under its version. */
    static const struct fuse_custom_io io = {.writev = write_reply, .read = read_request};
    give_io_function *give_io =
        find(__builtin_return_address(0), "fuse_session_custom_io", "FUSE_3.0");
    int (*get_fd)(struct fuse_session *) = REAL(fuse_session_fd);
    int (*mount)(struct fuse_session *, const char *) = REAL(fuse_session_mount);
    int status, fd;

    if (handover_descriptor() >= 0)
        return adopt(session, find(__builtin_return_address(0), "fuse_session_process_buf", NULL),
                     give_io, &io);
    if (mount == NULL)
        return -1;
    status = mount(session, mountpoint);
    if (status != 0 || give_io == NULL || get_fd == NULL)
        return status;
    fd = get_fd(session);
    is_agreed = 0;
    if (give_io(session, &io, fd) == 0) {
        session_begin(fd);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); /* see read_one */
        begin_serving(session, give_io, &io);
    }
    return 0;
}

int fuse_reply_open(fuse_req_t request, const struct fuse_file_info *file) {
    static int (*reply)(fuse_req_t, const struct fuse_file_info *);
    int id = next_open.fh == file->fh ? next_open.id : 0;
    int status;

    if (reply == NULL)
        reply = REAL(fuse_reply_open);
    next_open.id = 0;
    is_open_reply = 1;
    is_only_read = (file->flags & O_ACCMODE) == O_RDONLY;
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    if (id != 0 && has_own_way) {
        struct fuse_file_info passed = *file;

        passed.backing_id = id;
        passed.direct_io = passed.keep_cache = 0; /* the kernel allows neither beside it */
        status = reply(request, &passed);
        is_open_reply = 0;
        return status;
    }
#endif
    patch_id = id;
    status = reply(request, file);
    patch_id = is_open_reply = 0;
    return status;
}

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)

static void (*real_init)(void *, struct fuse_conn_info *);

/* Ask for passthrough in the flags that the real function uses as well: libfuse does not take
   changes of both, the old 32 bits and the new 64. */
static void init(void *userdata, struct fuse_conn_info *connection) {
    uint64_t before = connection->want_ext;

    if (real_init != NULL)
        real_init(userdata, connection);
    if (!is_wanted || !(connection->capable_ext & FUSE_CAP_PASSTHROUGH))
        return;
    if (connection->want_ext != before)
        connection->want_ext |= FUSE_CAP_PASSTHROUGH;
    else
        connection->want |= FUSE_CAP_PASSTHROUGH;
    connection->max_backing_stack_depth = FUSE_BACKING_STACKED_UNDER;
}

struct fuse_session *fuse_session_new_versioned(struct fuse_args *arguments,
                                                const struct fuse_lowlevel_ops *operations,
                                                size_t size, struct libfuse_version *version,
                                                void *userdata) {
    static struct fuse_lowlevel_ops wrapped;
    __typeof__(&fuse_session_new_versioned) make = REAL(fuse_session_new_versioned);

    if (make == NULL)
        return NULL;
    memset(&wrapped, 0, sizeof wrapped);
    memcpy(&wrapped, operations, size < sizeof wrapped ? size : sizeof wrapped);
    real_init = wrapped.init;
    wrapped.init = init;
    has_own_way = 1;
    return make(arguments, &wrapped, size < sizeof wrapped ? size : sizeof wrapped, version,
                userdata);
}

#endif
