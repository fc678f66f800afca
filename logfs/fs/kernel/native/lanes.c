/* Work on partitions; lanes.h says how. */

#define _GNU_SOURCE

#include "lanes.h"

#include <signal.h>
#include <stdlib.h>

#include "openfiles.h"

#define STACK_BYTES (256 * 1024)

static int has_no_threads;

void lanes_without_threads(void) { has_no_threads = 1; }

static void forget(struct lanes *lanes, struct lane *lane) {
    struct lane **place = &lanes->all;

    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    __atomic_sub_fetch(&lanes->lane_count, 1, __ATOMIC_SEQ_CST);
}

/* Let go a lane without work. With the mutex, which is given up meanwhile. */
static void end(struct lanes *lanes, struct lane *lane) {
    forget(lanes, lane);
    pthread_mutex_unlock(&lanes->mutex);
    openfiles_functions->release(lane->partition);
    free(lane);
    pthread_mutex_lock(&lanes->mutex);
}

static void *run(void *given) {
    struct lanes *lanes = given;
    struct lane *lane;

    pthread_mutex_lock(&lanes->mutex);
    for (;;) {
        while (lanes->todo == NULL && !lanes->is_ending) {
            lanes->idle_count++;
            pthread_cond_wait(&lanes->changed, &lanes->mutex);
            lanes->idle_count--;
        }
        lane = lanes->todo;
        if (lane == NULL)
            break;
        lanes->todo = lane->next_todo;
        lanes->todo_count--;
        while (lane->first != NULL) {
            pthread_mutex_unlock(&lanes->mutex);
            lanes->work(lane);
            pthread_mutex_lock(&lanes->mutex);
        }
        end(lanes, lane);
    }
    pthread_mutex_unlock(&lanes->mutex);
    return NULL;
}

/* Have a thread for each lane that waits for one. With the mutex. Returns 0 if there is no thread. */
static int start_thread(struct lanes *lanes) {
    pthread_attr_t attributes;
    sigset_t all, before;

    if (has_no_threads)
        return 1;
    if (lanes->idle_count >= lanes->todo_count || lanes->thread_count == LANE_THREADS)
        return lanes->thread_count > 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&lanes->threads[lanes->thread_count], &attributes, run, lanes) == 0)
        __atomic_add_fetch(&lanes->thread_count, 1, __ATOMIC_RELAXED);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return lanes->thread_count > 0;
}

static struct lane *find(const struct lanes *lanes, const log_partition *partition) {
    struct lane *lane = lanes->all;

    while (lane != NULL && lane->partition != partition)
        lane = lane->next;
    return lane;
}

static struct lane *make(struct lanes *lanes, log_partition *partition) {
    struct lane *lane = calloc(1, sizeof *lane), **place = &lanes->todo;

    if (lane == NULL)
        return NULL;
    lanes->todo_count++;
    if (!start_thread(lanes)) {
        lanes->todo_count--;
        free(lane);
        return NULL;
    }
    openfiles_functions->hold(partition);
    lane->partition = partition;
    lane->last = &lane->first;
    lane->next = lanes->all;
    lanes->all = lane;
    __atomic_add_fetch(&lanes->lane_count, 1, __ATOMIC_SEQ_CST);
    while (*place != NULL)
        place = &(*place)->next_todo;
    *place = lane;
    return lane;
}

int lanes_add(struct lanes *lanes, log_partition *partition, struct lane_item *item) {
    struct lane *lane = NULL;

    item->next = NULL;
    pthread_mutex_lock(&lanes->mutex);
    if (!lanes->is_ending && (lane = find(lanes, partition)) == NULL)
        lane = make(lanes, partition);
    if (lane != NULL) {
        *lane->last = item;
        lane->last = &item->next;
        pthread_cond_signal(&lanes->changed);
    }
    pthread_mutex_unlock(&lanes->mutex);
    return lane != NULL;
}

int lanes_has(struct lanes *lanes, const log_partition *partition) {
    int has_any;

    if (__atomic_load_n(&lanes->lane_count, __ATOMIC_SEQ_CST) == 0)
        return 0;
    pthread_mutex_lock(&lanes->mutex);
    has_any = find(lanes, partition) != NULL;
    pthread_mutex_unlock(&lanes->mutex);
    return has_any;
}

void lanes_stop(struct lanes *lanes) {
    pthread_mutex_lock(&lanes->mutex);
    lanes->is_ending = 1;
    pthread_cond_broadcast(&lanes->changed);
    pthread_mutex_unlock(&lanes->mutex);
    for (int i = 0; i < lanes->thread_count; i++)
        pthread_join(lanes->threads[i], NULL);
    while (lanes_count(lanes) > 0)
        lanes_work(lanes, 0);
}

unsigned lanes_count(struct lanes *lanes) {
    unsigned count;

    pthread_mutex_lock(&lanes->mutex);
    count = (unsigned)lanes->todo_count;
    pthread_mutex_unlock(&lanes->mutex);
    return count;
}

void lanes_work(struct lanes *lanes, unsigned which) {
    struct lane **place = &lanes->todo, *lane;

    while (which-- > 0)
        place = &(*place)->next_todo;
    lane = *place;
    lanes->work(lane);
    pthread_mutex_lock(&lanes->mutex);
    if (lane->first == NULL) {
        *place = lane->next_todo;
        lanes->todo_count--;
        end(lanes, lane);
    }
    pthread_mutex_unlock(&lanes->mutex);
}
