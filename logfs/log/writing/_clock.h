/* The clocks of the native code. All of it reads them here: those of the machine, or others that Python
   has set. Each library has its own setting. */

#ifndef LOGFS_CLOCK_H
#define LOGFS_CLOCK_H

#include <stdint.h>
#include <time.h>

typedef int64_t clock_function(clockid_t clock); /* returns nanoseconds */

static int64_t clock_of_machine(clockid_t clock) {
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Read a clock. */
__attribute__((weak, visibility("hidden"))) clock_function *clock_ns = clock_of_machine;

/* Read other clocks from now on; before there are other threads. */
static void clock_use(clock_function *given) { clock_ns = given; }

#endif
