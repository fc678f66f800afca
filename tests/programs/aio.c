/* aio FILE HOW BYTES TIMES: write so many bytes of lines to a file, opened with O_APPEND, so many times.
   HOW: aio or uring, by system calls, each with an upper case last letter for O_DIRECT. Prints what is
   written to the standard output. Ends with status 77 where the kernel does not offer it. */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOT_OFFERED 77

static long write_by_aio(int fd, const char *data, size_t size) {
    aio_context_t context = 0;
    struct iocb call = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = (uint32_t)fd,
                        .aio_buf = (uintptr_t)data, .aio_nbytes = size};
    struct iocb *calls[] = {&call};
    struct io_event event = {0};

    if (syscall(SYS_io_setup, 8, &context) != 0)
        exit(NOT_OFFERED);
    if (syscall(SYS_io_submit, context, 1L, calls) != 1)
        return -errno;
    syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL);
    syscall(SYS_io_destroy, context);
    return (long)event.res;
}

static long write_by_uring(int fd, const char *data, size_t size) {
    const int protection = PROT_READ | PROT_WRITE, kind = MAP_SHARED | MAP_POPULATE;
    struct io_uring_params made = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 8, &made);
    struct io_uring_sqe *entry;
    struct io_uring_cqe *done;
    unsigned *tail, *head;
    char *queue, *results;
    long written;

    if (ring < 0)
        exit(NOT_OFFERED);
    queue = mmap(NULL, made.sq_off.array + made.sq_entries * sizeof(unsigned), protection, kind, ring,
                 IORING_OFF_SQ_RING);
    results = mmap(NULL, made.cq_off.cqes + made.cq_entries * sizeof *done, protection, kind, ring,
                   IORING_OFF_CQ_RING);
    entry = mmap(NULL, made.sq_entries * sizeof *entry, protection, kind, ring, IORING_OFF_SQES);
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_WRITE, .fd = fd, .addr = (uintptr_t)data,
                                   .len = (unsigned)size, .off = (uint64_t)-1};
    ((unsigned *)(queue + made.sq_off.array))[0] = 0;
    tail = (unsigned *)(queue + made.sq_off.tail);
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return -errno;
    head = (unsigned *)(results + made.cq_off.head);
    done = (struct io_uring_cqe *)(results + made.cq_off.cqes);
    written = done[*head & *(unsigned *)(results + made.cq_off.ring_mask)].res;
    close(ring);
    return written;
}

int main(int count, char **arguments) {
    const char *how = count == 5 ? arguments[2] : "";
    const int is_direct = how[0] != 0 && how[strlen(how) - 1] < 'a';
    const size_t size = count == 5 ? (size_t)atol(arguments[3]) : 0;
    int fd = count == 5 ? open(arguments[1], O_WRONLY | O_APPEND | (is_direct ? O_DIRECT : 0)) : -1;
    char *data = aligned_alloc(4096, (size + 8191) / 4096 * 4096);
    long number = 0;

    if (fd < 0 || data == NULL)
        return 2;
    for (long time = 0; time < atol(arguments[4]); time++) {
        long written;

        for (size_t at = 0; at < size; number++)
            at += (size_t)snprintf(data + at, size + 4000 - at, "%ld line of a write, %ld\n", number,
                                   number * number % 999);
        data[size - 1] = '\n';
        written = how[0] == 'a' ? write_by_aio(fd, data, size) : write_by_uring(fd, data, size);
        if (written != (long)size || fwrite(data, 1, size, stdout) != size) {
            fprintf(stderr, "%ld bytes of %zu: %s\n", written, size, strerror((int)-written));
            return 1;
        }
    }
    return 0;
}
