/* A disk that hangs under some files, for a daemon that is started with this library (LD_PRELOAD). HANGING
   names a file of struct control, which a test changes meanwhile. Reads that never wait do not hang. */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ = 1, WRITE = 2, SYNC = 4, OPEN = 8, CREATE = 16 };

struct control {
    volatile int kinds, hits; /* kinds: of the calls that hang; hits: those that have begun to */
    char path[248];           /* part of the paths of the files */
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("HANGING");
    int fd = name == NULL ? -1 : open(name, O_RDWR | O_CLOEXEC);
    void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    control = mapped == MAP_FAILED ? NULL : mapped;
}

static void hang(int kind, const char *path) {
    if (control == NULL || !(control->kinds & kind) || strstr(path, control->path) == NULL)
        return;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
    while (control->kinds & kind)
        usleep(2000);
}

static void hang_at(int kind, int directory, const char *name) {
    char link[64], path[4096];
    ssize_t size;

    if (control == NULL || !(control->kinds & kind))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    size = readlink(link, path, sizeof path / 2);
    snprintf(path + (size < 0 ? 0 : size), sizeof path / 2, "/%s", name);
    hang(kind, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define HANGS(type, name, kind, parameters, ...)  \
    type name parameters {                        \
        static __typeof__(&name) real;            \
        if (real == NULL)                         \
            real = REAL(name);                    \
        hang_at(kind, fd, "");                    \
        return real(__VA_ARGS__);                 \
    }

HANGS(ssize_t, pread, READ, (int fd, void *to, size_t size, off_t at), fd, to, size, at)
HANGS(ssize_t, pread64, READ, (int fd, void *to, size_t size, off64_t at), fd, to, size, at)
HANGS(ssize_t, preadv, READ, (int fd, const struct iovec *to, int count, off_t at), fd, to, count, at)
HANGS(ssize_t, preadv64, READ, (int fd, const struct iovec *to, int count, off64_t at), fd, to, count, at)
HANGS(ssize_t, pwrite, WRITE, (int fd, const void *from, size_t size, off_t at), fd, from, size, at)
HANGS(ssize_t, pwrite64, WRITE, (int fd, const void *from, size_t size, off64_t at), fd, from, size, at)
HANGS(ssize_t, pwritev, WRITE, (int fd, const struct iovec *from, int count, off_t at), fd, from, count, at)
HANGS(ssize_t, pwritev64, WRITE, (int fd, const struct iovec *from, int count, off64_t at), fd, from, count, at)
HANGS(int, fsync, SYNC, (int fd), fd)
HANGS(int, fdatasync, SYNC, (int fd), fd)

#define OPENS(name, directory, parameters, ...)                                      \
    int name parameters {                                                            \
        static __typeof__(&name) real;                                               \
        mode_t mode = 0;                                                             \
        if (real == NULL)                                                            \
            real = REAL(name);                                                       \
        if (flags & O_CREAT) {                                                       \
            va_list rest;                                                            \
            va_start(rest, flags);                                                   \
            mode = va_arg(rest, mode_t);                                             \
            va_end(rest);                                                            \
        }                                                                            \
        hang_at(flags & O_CREAT ? OPEN | CREATE : OPEN, directory, path);            \
        return real(__VA_ARGS__, mode);                                              \
    }

OPENS(open, -1, (const char *path, int flags, ...), path, flags)
OPENS(open64, -1, (const char *path, int flags, ...), path, flags)
OPENS(openat, fd, (int fd, const char *path, int flags, ...), fd, path, flags)
OPENS(openat64, fd, (int fd, const char *path, int flags, ...), fd, path, flags)
