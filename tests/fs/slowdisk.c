/* A disk that is slow while there is a file. Preloaded. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
static void wait_for_disk(void) { if (access(getenv("SLOW_DISK"), F_OK) == 0) usleep(12000); }
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    wait_for_disk();
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off_t at) {
    return pwrite(fd, bytes, size, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    wait_for_disk();
    return syscall(SYS_pwritev, fd, parts, count, at, 0);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at) {
    return pwritev(fd, parts, count, at);
}
