/* Flushes for FSYNC requests; syncing.h says what they are. */

#define _GNU_SOURCE

#include "syncing.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"
#include "session.h"

#define THREADS 64
#define STACK_BYTES (256 * 1024)
#define REQUEST_BYTES 64 /* a header and struct fuse_fsync_in, with room */

struct waiting { /* a request */
    struct waiting *next;
    int64_t offset;
    size_t size;
    union {
        struct request_header header;
        uint8_t bytes[REQUEST_BYTES];
    };
};

struct group { /* the requests of a partition */
    struct group *next, *next_todo;
    const appending_functions *functions;
    log_partition *partition;
    struct waiting *first, **last;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct group *groups;              /* all */
static struct group *todo, **todo_last = &todo; /* those that no thread flushes */
static pthread_t threads[THREADS];
static int thread_count, idle_count, todo_count, is_ending;

/* Answer the requests that a flush covers; all are left to Python if it has failed. With the mutex, which
   is given up meanwhile. */
static void answer(struct group *group, int64_t offset) {
    struct waiting *covered = NULL, **end = &covered, **place = &group->first, *request;

    while ((request = *place) != NULL) {
        if (offset != SYNC_LEFT && request->offset > offset) {
            place = &request->next;
            continue;
        }
        *place = request->next;
        *end = request;
        end = &request->next;
    }
    *end = NULL;
    group->last = place;
    pthread_mutex_unlock(&mutex);
    while ((request = covered) != NULL) {
        covered = request->next;
        if (offset != SYNC_LEFT)
            session_reply(request->header.unique, 0, NULL, 0);
        else
            queue_add_copy(&request->header, request->size);
        free(request);
    }
    pthread_mutex_lock(&mutex);
}

static void forget(struct group *group) {
    struct group **place = &groups;

    while (*place != group)
        place = &(*place)->next;
    *place = group->next;
}

static void *flush_groups(void *unused) {
    struct group *group;
    int64_t offset;

    (void)unused;
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (todo == NULL && !is_ending) {
            idle_count++;
            pthread_cond_wait(&work, &mutex);
            idle_count--;
        }
        group = todo;
        if (group == NULL)
            break;
        todo = group->next_todo;
        if (todo == NULL)
            todo_last = &todo;
        todo_count--;
        while (group->first != NULL) {
            pthread_mutex_unlock(&mutex);
            offset = group->functions->sync(group->partition);
            pthread_mutex_lock(&mutex);
            answer(group, offset);
        }
        forget(group);
        pthread_mutex_unlock(&mutex);
        group->functions->release(group->partition);
        free(group);
        pthread_mutex_lock(&mutex);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* Have a thread for each group that waits for one. With the mutex. Returns 0 if there is no thread. */
static int start_thread(void) {
    pthread_attr_t attributes;
    sigset_t all, before;

    if (idle_count >= todo_count || thread_count == THREADS)
        return thread_count > 0;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&threads[thread_count], &attributes, flush_groups, NULL) == 0)
        __atomic_add_fetch(&thread_count, 1, __ATOMIC_RELAXED);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return thread_count > 0;
}

static struct group *group_of(const appending_functions *functions, log_partition *partition) {
    struct group *group = groups;

    while (group != NULL && group->partition != partition)
        group = group->next;
    if (group != NULL)
        return group;
    group = calloc(1, sizeof *group);
    if (group == NULL)
        return NULL;
    todo_count++;
    if (!start_thread()) {
        todo_count--;
        free(group);
        return NULL;
    }
    functions->hold(partition);
    group->functions = functions;
    group->partition = partition;
    group->last = &group->first;
    group->next = groups;
    groups = group;
    *todo_last = group;
    todo_last = &group->next_todo;
    return group;
}

int syncing_add(const appending_functions *functions, log_partition *partition, int64_t offset,
                const struct request_header *header, size_t size) {
    struct waiting *request = size > REQUEST_BYTES ? NULL : malloc(sizeof *request);
    struct group *group;

    if (request == NULL)
        return 0;
    request->next = NULL;
    request->offset = offset;
    request->size = size;
    memcpy(request->bytes, header, size);
    pthread_mutex_lock(&mutex);
    group = is_ending ? NULL : group_of(functions, partition);
    if (group != NULL) {
        *group->last = request;
        group->last = &request->next;
    }
    pthread_mutex_unlock(&mutex);
    if (group == NULL) {
        free(request);
        return 0;
    }
    pthread_cond_signal(&work);
    return 1;
}

int syncing_threads(void) { return __atomic_load_n(&thread_count, __ATOMIC_RELAXED); }

void syncing_stop(void) {
    pthread_mutex_lock(&mutex);
    is_ending = 1;
    pthread_cond_broadcast(&work);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
}
