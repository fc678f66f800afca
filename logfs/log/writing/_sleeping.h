/* How long a thread has slept, for the disk, a lock or a page: the time in which it ran, or could have
   run if a processor had been free, is left out. On a busy machine a call that loses the processor takes
   long, and says nothing about the disk.

   What a thread has waited for a processor is in /proc/thread-self/schedstat (proc_pid_schedstat(5)).
   That takes longer to read than a clock. So it is read once a millisecond at most, before a call: what a
   thread has lost during that millisecond may be taken for a part of the call. */

#ifndef LOGFS_SLEEPING_H
#define LOGFS_SLEEPING_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "_clock.h"

#define SLEEPING_LOOK_NS 1000000

struct sleeping {
    int64_t begun_ns;   /* of the call */
    int64_t looked_ns;  /* when the next two were read; 0: not yet */
    int64_t delayed_ns; /* the thread has waited for a processor so far */
    long sleeps;        /* how often it has slept so far */
    int fd;             /* of what the kernel tells; -1: it does not */
};

/* How often this thread has slept. */
static long sleeping_count(void) {
    struct rusage used;

    getrusage(RUSAGE_THREAD, &used);
    return used.ru_nvcsw;
}

/* How long it has waited for a processor; 0 if that is not known. */
static int64_t sleeping_delay(int fd) {
    char text[100], *second;
    ssize_t size = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);

    if (size <= 0)
        return 0;
    text[size] = 0;
    second = strchr(text, ' ');
    return second == NULL ? 0 : strtoll(second, NULL, 10);
}

/* A call of this thread begins; returns when. */
static int64_t sleeping_begin(struct sleeping *sleeping) {
    sleeping->begun_ns = clock_ns(CLOCK_MONOTONIC);
    if (sleeping->looked_ns == 0)
        sleeping->fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (sleeping->begun_ns - sleeping->looked_ns > SLEEPING_LOOK_NS) {
        sleeping->delayed_ns = sleeping_delay(sleeping->fd);
        sleeping->sleeps = sleeping_count();
        sleeping->begun_ns = sleeping->looked_ns = clock_ns(CLOCK_MONOTONIC);
    }
    return sleeping->begun_ns;
}

/* Whether the call that ends now, after so long, has slept longer than a limit. */
static int sleeping_was_longer(const struct sleeping *sleeping, int64_t taken_ns, int64_t limit_ns) {
    return taken_ns > limit_ns && sleeping_count() != sleeping->sleeps &&
           taken_ns - (sleeping_delay(sleeping->fd) - sleeping->delayed_ns) > limit_ns;
}

#endif
