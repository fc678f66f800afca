/* A library that is loaded before all others into a simulated daemon (LD_PRELOAD).

   Every change of a file and every message to the kernel is counted and hashed. At a chosen one the process
   is killed: before it, or in the middle of a write. What changes before it is synced is noted, so that the
   parent can undo it: that is a power cut. Disks have as much room as the parent says. Sleeping takes
   simulated time only. Times and free space of real files are always the same. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* What parent and daemon share; the same in preloading.py. */
enum {
    CALLS_LEFT,  /* changes until the process is killed; -1: it is not */
    PART,        /* of the write in which it is killed, in 256ths */
    CALLS,       /* changes so far */
    HASH,
    TIME_NS,     /* the time */
    ROOM,        /* bytes that the disk has left; -1: as many as are wanted */
    FAILS_LEFT,  /* changes of files until they fail; -1: they do not */
    FAILURES,    /* how many fail then */
    STORE_FAULTS, /* see store.py */
    WORDS
};

static volatile int64_t *words; /* NULL: this process is not simulated */
static int undo = -1, dump = -1;

#define REAL(name) static __typeof__(&name) real; if (real == NULL) real = dlsym(RTLD_NEXT, #name)

/* undo: a file to which changes are noted, dump: one for lines of text; -1: none. */
void simulation_begin(int64_t *shared, int undo_file, int dump_file) {
    words = shared;
    undo = undo_file;
    dump = dump_file;
}

/* --- Time ---------------------------------------------------------------------------------------- */

/* A clock_function; see logfs/log/writing/_clock.h. Each look takes a microsecond, so that loops which
   wait for a moment to come end. */
int64_t simulation_clock(clockid_t clock) {
    (void)clock;
    return words[TIME_NS] += 1000;
}

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    REAL(nanosleep);
    if (words == NULL)
        return real(wanted, left);
    words[TIME_NS] += wanted->tv_sec * 1000000000 + wanted->tv_nsec;
    return 0;
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    static const struct timespec none;

    REAL(ppoll);
    if (words == NULL || timeout == NULL)
        return real(fds, count, timeout, mask);
    words[TIME_NS] += timeout->tv_sec * 1000000000 + timeout->tv_nsec;
    return real(fds, count, &none, mask);
}

/* --- What happens -------------------------------------------------------------------------------- */

static void mix(const void *data, size_t size) {
    uint64_t hash = (uint64_t)words[HASH] ^ size;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001B3ull;
    words[HASH] = (int64_t)hash;
}

static void note(const char *what, const char *name, size_t size, int64_t at) {
    char line[400];
    int length;

    mix(what, strlen(what));
    mix(name, strlen(name));
    mix(&size, sizeof size);
    mix(&at, sizeof at);
    if (dump < 0)
        return;
    length = snprintf(line, sizeof line, "  disk %s %.300s %zu %lld %016llx\n", what, name, size, (long long)at,
                      (unsigned long long)words[HASH]);
    if (write(dump, line, (size_t)length) < 0) { /* it is for readers only */
    }
}

/* The last two parts of the path of an open file. */
static const char *name_of(int fd, char *buffer, size_t size) {
    char link[40], *at;
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, buffer, size - 1);
    if (length <= 0)
        return "";
    buffer[length] = 0;
    at = strrchr(buffer, '/');
    while (at != NULL && at > buffer && at[-1] != '/')
        at--;
    return at == NULL ? buffer : at;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int is_due(void) {
    words[CALLS]++;
    return words[CALLS_LEFT] >= 0 && words[CALLS_LEFT]-- == 0;
}

/* Whether the disk has an error at this change. */
static int has_failed(void) {
    if (words[FAILS_LEFT] < 0)
        return 0;
    if (words[FAILS_LEFT] > 0) {
        words[FAILS_LEFT]--;
        return 0;
    }
    if (words[FAILURES]-- <= 0) {
        words[FAILS_LEFT] = -1;
        return 0;
    }
    errno = EIO;
    return 1;
}

static mode_t mode_of(int fd, struct stat *found) {
    static int (*real)(int, struct stat *);

    if (real == NULL)
        real = dlsym(RTLD_NEXT, "fstat");
    return words != NULL && real(fd, found) == 0 ? found->st_mode : 0;
}

/* --- Undoing ------------------------------------------------------------------------------------- */

enum { WROTE = 1, CUT, SYNCED, CREATED, REMOVED, RENAMED };

struct change { /* followed by the names and the bytes */
    int64_t kind, file, directory, other_directory, at, size, data_size;
    int64_t name_size, other_name_size, target; /* target: the file that a rename has replaced */
};

static void put(const struct change *change, const char *name, const char *other, const void *data) {
    struct iovec parts[] = {{(void *)change, sizeof *change},
                            {(void *)name, (size_t)change->name_size},
                            {(void *)other, (size_t)change->other_name_size},
                            {(void *)data, (size_t)change->data_size}};
    static ssize_t (*real)(int, const struct iovec *, int);

    if (real == NULL)
        real = dlsym(RTLD_NEXT, "writev");
    if (real(undo, parts, 4) < 0)
        abort();
}

/* Note the bytes of a file from a position on that a change will take away. */
static void put_bytes(struct change change, int fd, int64_t from, int64_t to, const char *name,
                      const char *other) {
    uint8_t *bytes = to > from ? malloc((size_t)(to - from)) : NULL;

    if (bytes != NULL)
        change.data_size = pread(fd, bytes, (size_t)(to - from), from);
    put(&change, name, other, bytes);
    free(bytes);
}

static void put_write(int fd, const struct stat *found, int64_t at, size_t size) {
    const int64_t end = at + (int64_t)size < found->st_size ? at + (int64_t)size : found->st_size;

    if (undo >= 0)
        put_bytes((struct change){.kind = WROTE, .file = (int64_t)found->st_ino, .at = at,
                                  .size = found->st_size, .directory = (int64_t)size},
                  fd, at, end, "", "");
}

static int look(int directory, const char *name, struct stat *found) {
    static int (*real)(int, const char *, struct stat *, int);

    if (real == NULL)
        real = dlsym(RTLD_NEXT, "fstatat");
    return real(directory, name, found, AT_SYMLINK_NOFOLLOW) == 0;
}

static int64_t inode_of(int directory) {
    struct stat found;

    return look(directory, ".", &found) ? (int64_t)found.st_ino : 0;
}

/* Note that a name goes: because it is removed, or because another file gets it. */
static void put_removal(int directory, const char *name, struct change change, const char *other) {
    struct stat found;
    int fd = -1;

    if (undo < 0 || !look(directory, name, &found))
        return;
    if (change.kind == REMOVED)
        change.file = (int64_t)found.st_ino;
    else
        change.target = (int64_t)found.st_ino;
    change.at = found.st_mode;
    if (S_ISREG(found.st_mode))
        fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    put_bytes(change, fd, 0, fd < 0 ? 0 : found.st_size, change.kind == REMOVED ? name : other,
              change.kind == REMOVED ? "" : name);
    if (fd >= 0)
        close(fd);
}

/* --- Files --------------------------------------------------------------------------------------- */

/* Take room on the disk; returns how much there is. */
static size_t take_room(const struct stat *found, int64_t at, size_t size) {
    int64_t more = at + (int64_t)size - found->st_size;

    if (words[ROOM] < 0 || more <= 0)
        return size;
    if (more > words[ROOM]) {
        size = more - words[ROOM] < (int64_t)size ? size - (size_t)(more - words[ROOM]) : 0;
        more = words[ROOM];
    }
    words[ROOM] -= more;
    return size;
}

static ssize_t put_data(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);
    static ssize_t (*real_one)(int, const void *, size_t, off64_t);
    struct stat found;
    char name[500];
    size_t size = 0, room;

    if (real == NULL)
        real = dlsym(RTLD_NEXT, "pwritev64v2");
    if (real_one == NULL)
        real_one = dlsym(RTLD_NEXT, "pwrite64");
    if (!S_ISREG(mode_of(fd, &found)))
        return real(fd, parts, count, at, flags);
    for (int i = 0; i < count; i++) {
        mix(parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    note("write", name_of(fd, name, sizeof name), size, at);
    if (is_due()) {
        size_t part = count > 0 ? parts[0].iov_len * (size_t)words[PART] / 256 : 0;

        put_write(fd, &found, at, part);
        if (part > 0)
            real_one(fd, parts[0].iov_base, part, at);
        die();
    }
    if (has_failed())
        return -1;
    room = take_room(&found, at, size);
    put_write(fd, &found, at, size);
    if (room == size)
        return real(fd, parts, count, at, flags);
    if (room == 0 || count == 0) {
        errno = ENOSPC;
        return -1;
    }
    return real_one(fd, parts[0].iov_base, room < parts[0].iov_len ? room : parts[0].iov_len, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    struct iovec part = {(void *)bytes, size};

    REAL(pwrite64);
    return words == NULL ? real(fd, bytes, size, at) : put_data(fd, &part, 1, at, 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) { return pwrite64(fd, bytes, size, at); }

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    REAL(pwritev64v2);
    return words == NULL ? real(fd, parts, count, at, flags) : put_data(fd, parts, count, at, flags);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return pwritev64v2(fd, parts, count, at, flags);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return pwritev64v2(fd, parts, count, at, 0);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return pwritev64v2(fd, parts, count, at, 0);
}

/* A message to the kernel: a reply or a notification. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat found;
    size_t size = 0;

    REAL(writev);
    if (words == NULL || !S_ISSOCK(mode_of(fd, &found)))
        return real(fd, parts, count);
    for (int i = 0; i < count; i++) {
        mix(parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    note("message", "", size, 0);
    if (is_due()) {
        if (words[PART] & 1)
            real(fd, parts, count);
        die();
    }
    return real(fd, parts, count);
}

static int sync_file(int fd, int (*real)(int)) {
    struct stat found;
    char name[500];
    mode_t mode = mode_of(fd, &found);
    int status;

    if (!S_ISREG(mode) && !S_ISDIR(mode))
        return real(fd);
    note("sync", name_of(fd, name, sizeof name), 0, 0);
    if (is_due())
        die();
    if (has_failed())
        return -1;
    status = real(fd);
    if (status == 0 && undo >= 0)
        put(&(struct change){.kind = SYNCED, .file = (int64_t)found.st_ino}, "", "", "");
    return status;
}

int fsync(int fd) {
    REAL(fsync);
    return words == NULL ? real(fd) : sync_file(fd, real);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return words == NULL ? real(fd) : sync_file(fd, real);
}

int ftruncate64(int fd, off64_t size) {
    struct stat found;
    char name[500];

    REAL(ftruncate64);
    if (!S_ISREG(mode_of(fd, &found)))
        return real(fd, size);
    note("truncate", name_of(fd, name, sizeof name), (size_t)size, 0);
    if (is_due())
        die();
    if (has_failed())
        return -1;
    if (undo >= 0)
        put_bytes((struct change){.kind = CUT, .file = (int64_t)found.st_ino, .at = size,
                                  .size = found.st_size},
                  fd, size, found.st_size, "", "");
    return real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

/* --- Names --------------------------------------------------------------------------------------- */

static void note_name(const char *what, const char *name) {
    const char *at = strrchr(name, '/');

    note(what, at == NULL ? name : at + 1, 0, 0);
    if (is_due())
        die();
}

static int rename_name(int from, const char *name, int to, const char *other,
                       int (*real)(int, const char *, int, const char *)) {
    struct change change = {.kind = RENAMED, .name_size = (int64_t)strlen(name),
                            .other_name_size = (int64_t)strlen(other)};
    struct stat found;

    note_name("rename", name);
    if (has_failed())
        return -1;
    if (undo >= 0 && look(from, name, &found)) {
        change.file = (int64_t)found.st_ino;
        change.directory = inode_of(from);
        change.other_directory = inode_of(to);
        if (look(to, other, &found))
            put_removal(to, other, change, name);
        else
            put(&change, name, other, "");
    }
    return real(from, name, to, other);
}

int renameat(int from, const char *name, int to, const char *other) {
    REAL(renameat);
    return words == NULL ? real(from, name, to, other) : rename_name(from, name, to, other, real);
}

int rename(const char *name, const char *other) { return renameat(AT_FDCWD, name, AT_FDCWD, other); }

int unlinkat(int directory, const char *name, int flags) {
    REAL(unlinkat);
    if (words == NULL)
        return real(directory, name, flags);
    note_name("remove", name);
    put_removal(directory, name,
                (struct change){.kind = REMOVED, .directory = undo < 0 ? 0 : inode_of(directory),
                                .name_size = (int64_t)strlen(name)}, "");
    return real(directory, name, flags);
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

/* Note a name that has been made. */
static void put_creation(int directory, const char *name) {
    struct stat found;

    if (undo >= 0 && look(directory, name, &found))
        put(&(struct change){.kind = CREATED, .file = (int64_t)found.st_ino, .at = found.st_mode,
                             .directory = inode_of(directory), .name_size = (int64_t)strlen(name)},
            name, "", "");
}

static int lacks_room(void) {
    if (words[ROOM] != 0)
        return 0;
    errno = ENOSPC;
    return 1;
}

int mkdirat(int directory, const char *name, mode_t mode) {
    int status;

    REAL(mkdirat);
    if (words == NULL)
        return real(directory, name, mode);
    note_name("mkdir", name);
    if (lacks_room() || has_failed())
        return -1;
    status = real(directory, name, mode);
    if (status == 0)
        put_creation(directory, name);
    return status;
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int openat64(int directory, const char *name, int flags, ...) {
    struct stat found;
    mode_t mode = 0;
    va_list rest;
    int fd, is_new;

    REAL(openat64);
    va_start(rest, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(rest, mode_t);
    va_end(rest);
    is_new = words != NULL && (flags & O_CREAT) && !look(directory, name, &found);
    if (is_new) {
        note_name("create", name);
        if (lacks_room() || has_failed())
            return -1;
    }
    fd = real(directory, name, flags, mode);
    if (is_new && fd >= 0)
        put_creation(directory, name);
    return fd;
}

int openat(int directory, const char *name, int flags, ...) {
    mode_t mode = 0;
    va_list rest;

    va_start(rest, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(rest, mode_t);
    va_end(rest);
    return openat64(directory, name, flags, mode);
}

/* --- Facts of the machine ------------------------------------------------------------------------ */

static void calm(struct stat *found) {
    if (words == NULL)
        return;
    found->st_mtim.tv_sec = found->st_ctim.tv_sec = found->st_atim.tv_sec = 1700000000;
    found->st_mtim.tv_nsec = found->st_ctim.tv_nsec = found->st_atim.tv_nsec = 0;
}

#define CALMED(name, arguments, given, result)                                                            \
    int name arguments {                                                                                  \
        static int(*real) arguments;                                                                      \
        int status;                                                                                       \
                                                                                                          \
        if (real == NULL)                                                                                 \
            real = dlsym(RTLD_NEXT, #name);                                                               \
        status = real given;                                                                              \
        if (status == 0)                                                                                  \
            calm((struct stat *)result);                                                                  \
        return status;                                                                                    \
    }

CALMED(fstat64, (int fd, struct stat64 *found), (fd, found), found)
CALMED(fstat, (int fd, struct stat *found), (fd, found), found)
CALMED(fstatat64, (int fd, const char *name, struct stat64 *found, int flags), (fd, name, found, flags), found)
CALMED(fstatat, (int fd, const char *name, struct stat *found, int flags), (fd, name, found, flags), found)
CALMED(stat64, (const char *name, struct stat64 *found), (name, found), found)
CALMED(stat, (const char *name, struct stat *found), (name, found), found)
CALMED(lstat64, (const char *name, struct stat64 *found), (name, found), found)
CALMED(lstat, (const char *name, struct stat *found), (name, found), found)

static void tell_room(struct statvfs *found) {
    if (words == NULL)
        return;
    *found = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1 << 20, .f_namemax = 255,
                              .f_files = 1 << 20, .f_ffree = 1 << 19, .f_favail = 1 << 19};
    found->f_bfree = found->f_bavail = words[ROOM] < 0 ? 1 << 19 : (fsblkcnt_t)words[ROOM] / 4096;
}

int statvfs64(const char *name, struct statvfs64 *found) {
    int status;

    REAL(statvfs64);
    status = real(name, found);
    if (status == 0)
        tell_room((struct statvfs *)found);
    return status;
}

int statvfs(const char *name, struct statvfs *found) { return statvfs64(name, (struct statvfs64 *)found); }
