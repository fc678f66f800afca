/* Native work on partitions that may wait for the disk: a lane for each partition.

   What is added to a lane is done in order, by one thread at a time. Lanes do not wait for each other:
   threads are started when all are busy, up to a limit, and stay. */

#ifndef LOGFS_LANES_H
#define LOGFS_LANES_H

#include <pthread.h>
#include <stdint.h>

#include "../../../log/writing/_served.h"

#define LANE_THREADS 64

struct lane_item {
    struct lane_item *next;
};

struct lane {
    struct lane *next, *next_todo;
    log_partition *partition;
    struct lane_item *first, **last;
};

struct lanes {
    /* Do some of the work of a lane, and take it out. Without the mutex, in one thread a lane. */
    void (*work)(struct lane *lane);
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct lane *all, *todo, **todo_last; /* todo: those that no thread has */
    pthread_t threads[LANE_THREADS];
    int thread_count, idle_count, todo_count, lane_count, is_ending;
};

#define LANES(does) {.work = (does), .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

/* Add work on a partition. Returns 0 if that is left to the caller: there is no memory, or the end. */
int lanes_add(struct lanes *lanes, log_partition *partition, struct lane_item *item);

/* Whether there is work on a partition that has not been done. Any thread. */
int lanes_has(struct lanes *lanes, const log_partition *partition);

/* Finish what waits, and end the threads. */
void lanes_stop(struct lanes *lanes);

/* Start no threads: the work of all lanes is done when lanes_work is called. Before any is added. */
void lanes_without_threads(void);

/* How many lanes no thread has; to do some of the work of one of them. */
unsigned lanes_count(struct lanes *lanes);
void lanes_work(struct lanes *lanes, unsigned which);

#endif
