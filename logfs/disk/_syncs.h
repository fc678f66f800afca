/* Threads that call fsync(2) and know nothing else.

   The caller that starts a sync provides a logfs_sync, which belongs to the pool until
   logfs_syncs_take returns it. The pool signals finished syncs by an eventfd, one signal for all
   since the last take, and by a condition for waiting threads. Threads are started when all are
   busy, up to a limit, and stay. They block every signal.

   Any thread may call, with or without the interpreter's lock: nothing here takes it, and the pool's
   own lock is held for moments. */

#ifndef LOGFS_SYNCS_H
#define LOGFS_SYNCS_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOGFS_SYNCS_THREADS 64
/* Enough for fsync, and for what a sanitizer or a tracer puts on top. */
#define LOGFS_SYNCS_STACK (256 * 1024)

typedef struct logfs_sync {
    struct logfs_sync *next;
    void *owner;
    int fd;
    int error; /* errno of the fsync, 0 if it went well; once it is done */
    int is_done;
} logfs_sync;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t work; /* something waits in todo, or the pool ends */
    pthread_cond_t done; /* a sync is done */
    logfs_sync *todo, *todo_last;
    logfs_sync *finished, *finished_last;
    int event;
    int waiters;      /* for done */
    int idle;         /* threads that wait for work and were not promised any */
    int thread_count; /* of those in threads */
    int is_ending;
    pthread_t threads[LOGFS_SYNCS_THREADS];
} logfs_syncs;

static void logfs_syncs_append(logfs_sync **first, logfs_sync **last, logfs_sync *sync) {
    sync->next = NULL;
    if (*first == NULL) {
        *first = sync;
    } else {
        (*last)->next = sync;
    }
    *last = sync;
}

static void *logfs_syncs_work(void *argument) {
    logfs_syncs *pool = argument;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->todo == NULL && !pool->is_ending) {
            pthread_cond_wait(&pool->work, &pool->lock);
        }
        logfs_sync *sync = pool->todo;
        if (sync == NULL) {
            break;
        }
        pool->todo = sync->next;
        pthread_mutex_unlock(&pool->lock);
        int error = fsync(sync->fd) == 0 ? 0 : errno;
        pthread_mutex_lock(&pool->lock);
        sync->error = error;
        sync->is_done = 1;
        if (pool->waiters) {
            pthread_cond_broadcast(&pool->done);
        }
        int is_first = pool->finished == NULL;
        logfs_syncs_append(&pool->finished, &pool->finished_last, sync);
        pool->idle++;
        if (is_first) {
            /* Without the lock, for which the woken thread would wait. */
            pthread_mutex_unlock(&pool->lock);
            uint64_t one = 1;
            ssize_t written = write(pool->event, &one, sizeof one);
            (void)written; /* it holds far more than one signal for each thread */
            pthread_mutex_lock(&pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Make a pool without threads; NULL, and errno says why. */
static logfs_syncs *logfs_syncs_new(void) {
    logfs_syncs *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return NULL;
    }
    pool->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (pool->event < 0) {
        free(pool);
        return NULL;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    return pool;
}

/* End the threads, when they have done what was started, and free the pool. */
static void logfs_syncs_free(logfs_syncs *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->is_ending = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int n = 0; n < pool->thread_count; n++) {
        pthread_join(pool->threads[n], NULL);
    }
    close(pool->event);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static int logfs_syncs_add_thread(logfs_syncs *pool) {
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, LOGFS_SYNCS_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(
        &pool->threads[pool->thread_count], &attributes, logfs_syncs_work, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error == 0) {
        pool->thread_count++;
        pool->idle++;
    }
    return error;
}

/* Start a sync. Returns 0, or the errno with which the first thread could not be made. */
static int logfs_syncs_start(logfs_syncs *pool, logfs_sync *sync) {
    int error = 0;
    pthread_mutex_lock(&pool->lock);
    if (pool->idle <= 0 && pool->thread_count < LOGFS_SYNCS_THREADS) {
        error = logfs_syncs_add_thread(pool);
    }
    if (pool->thread_count) {
        error = 0;
        pool->idle--; /* below 0: so many wait for a thread */
        logfs_syncs_append(&pool->todo, &pool->todo_last, sync);
    }
    /* The woken thread would wait for the lock. */
    pthread_mutex_unlock(&pool->lock);
    if (error == 0) {
        pthread_cond_signal(&pool->work);
    }
    return error;
}

/* Take everything that is done, in the order in which it was; linked by next. */
static logfs_sync *logfs_syncs_take(logfs_syncs *pool) {
    pthread_mutex_lock(&pool->lock);
    logfs_sync *first = pool->finished;
    pool->finished = NULL;
    pthread_mutex_unlock(&pool->lock);
    return first;
}

/* Take the signal back, so that the eventfd tells of the next one. Before logfs_syncs_take. */
static void logfs_syncs_clear(logfs_syncs *pool) {
    uint64_t count;
    ssize_t got = read(pool->event, &count, sizeof count);
    (void)got; /* there may be none */
}

/* Wait until a sync is done. */
static void logfs_syncs_wait(logfs_syncs *pool, logfs_sync *sync) {
    pthread_mutex_lock(&pool->lock);
    pool->waiters++;
    while (!sync->is_done) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    pool->waiters--;
    pthread_mutex_unlock(&pool->lock);
}

#endif
