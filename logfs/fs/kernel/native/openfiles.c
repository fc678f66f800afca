/* The open files that append; openfiles.h says what is kept of them. */

#include "openfiles.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "handover.h"

#define BUCKETS 4096u

struct left { /* a request that Python has not answered */
    uint64_t unique;
    log_partition *partition; /* NULL: it may be about any */
};

const appending_functions *openfiles_functions;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct open_file *buckets[BUCKETS];
static struct left *lefts;
static size_t left_count, left_room;
static size_t own_count; /* files that were opened natively */
static int64_t left_anywhere; /* of them, those that may be about any partition */

static struct open_file **place_of(uint64_t fh) {
    struct open_file **place = &buckets[(fh ^ fh >> 12) % BUCKETS];
    while (*place != NULL && (*place)->fh != fh)
        place = &(*place)->next;
    return place;
}

int openfiles_borrow(uint64_t fh, struct borrowed *borrowed) {
    struct open_file *file;

    pthread_mutex_lock(&mutex);
    file = *place_of(fh);
    if (file != NULL) {
        __atomic_add_fetch(&file->users, 1, __ATOMIC_SEQ_CST);
        *borrowed = (struct borrowed){file, file->partition, file->writer, file->key};
    }
    pthread_mutex_unlock(&mutex);
    return file != NULL;
}

/* End the use of a file. The last user ends it. */
static void put_back(struct open_file *file) {
    if (__atomic_sub_fetch(&file->users, 1, __ATOMIC_SEQ_CST) > 0)
        return;
    if (file->own != NULL)
        openfiles_functions->close(file->own);
    openfiles_functions->release(file->partition);
    free(file);
}

void openfiles_put_back(const struct borrowed *borrowed) { put_back(borrowed->file); }

int openfiles_add(const struct open_file *opened) {
    struct open_file **place, *file = malloc(sizeof *file);
    int is_added = 0;

    if (file == NULL)
        return 0;
    *file = *opened;
    file->own = file->writer;
    file->users = 1;
    pthread_mutex_lock(&mutex);
    place = place_of(file->fh);
    if (*place == NULL) {
        *place = file;
        own_count++;
        is_added = 1;
    }
    pthread_mutex_unlock(&mutex);
    if (!is_added)
        free(file);
    return is_added;
}

int openfiles_remove(uint64_t fh, uint64_t *node) {
    struct open_file **place, *file;

    pthread_mutex_lock(&mutex);
    place = place_of(fh);
    file = *place;
    if (file == NULL || !file->is_own) {
        pthread_mutex_unlock(&mutex);
        return 0;
    }
    *place = file->next;
    own_count--;
    pthread_mutex_unlock(&mutex);
    *node = file->node;
    handover_note_closed(file->place);
    put_back(file);
    return 1;
}

void openfiles_note_left(uint64_t unique, uint64_t fh, int is_writer) {
    struct open_file *file;
    log_partition *partition;

    pthread_mutex_lock(&mutex);
    file = *place_of(fh);
    partition = file == NULL ? NULL : file->partition;
    if (partition == NULL && !is_writer) {
        pthread_mutex_unlock(&mutex);
        return;
    }
    if (left_count == left_room) {
        size_t room = left_room == 0 ? 64 : 2 * left_room;
        struct left *more = realloc(lefts, room * sizeof *more);
        if (more == NULL) { /* for good: no write is applied natively any more */
            __atomic_add_fetch(&left_anywhere, 1, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&mutex);
            return;
        }
        lefts = more;
        left_room = room;
    }
    lefts[left_count++] = (struct left){unique, partition};
    if (partition != NULL) {
        openfiles_functions->hold(partition);
        openfiles_functions->count_cold(partition, 1);
    } else {
        __atomic_add_fetch(&left_anywhere, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&mutex);
}

void openfiles_note_reply(uint64_t unique) {
    log_partition *partition = NULL;
    size_t i;

    pthread_mutex_lock(&mutex);
    for (i = 0; i < left_count && lefts[i].unique != unique; i++)
        ;
    if (i < left_count) {
        partition = lefts[i].partition;
        lefts[i] = lefts[--left_count];
        if (partition != NULL)
            openfiles_functions->count_cold(partition, -1);
        else
            __atomic_sub_fetch(&left_anywhere, 1, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&mutex);
    if (partition != NULL)
        openfiles_functions->release(partition);
}

int openfiles_has_left_anywhere(void) {
    return __atomic_load_n(&left_anywhere, __ATOMIC_SEQ_CST) > 0;
}

/* --- For Python ---------------------------------------------------------------------------------- */

int logfs_serving_open(uint64_t fh, log_partition *partition) {
    struct open_file **place, *file = calloc(1, sizeof *file);

    if (file == NULL)
        return 0;
    file->fh = fh;
    file->users = 1;
    file->partition = partition;
    openfiles_functions->hold(partition);
    pthread_mutex_lock(&mutex);
    place = place_of(fh);
    if (*place == NULL) {
        *place = file;
        file = NULL;
    }
    pthread_mutex_unlock(&mutex);
    if (file != NULL) { /* it is known */
        openfiles_functions->release(partition);
        free(file);
    }
    return 1;
}

void logfs_serving_begin(uint64_t fh, log_writer *writer, uint64_t key) {
    struct open_file *file;

    pthread_mutex_lock(&mutex);
    file = *place_of(fh);
    /* Where requests are kept whole, they are read in the thread of Python alone. */
    if (file != NULL && file->writer == NULL && !logfs_keeps_requests()) {
        file->key = key;
        file->writer = writer;
    }
    pthread_mutex_unlock(&mutex);
}

void logfs_serving_close(uint64_t fh) {
    struct open_file **place, *file;

    pthread_mutex_lock(&mutex);
    place = place_of(fh);
    file = *place;
    if (file != NULL)
        *place = file->next;
    pthread_mutex_unlock(&mutex);
    if (file == NULL)
        return;
    /* A thread that has sent the last reply has no use of the writer, which is Python's. */
    while (__atomic_load_n(&file->users, __ATOMIC_SEQ_CST) > 1)
        sched_yield();
    put_back(file);
}

int logfs_opening_find(uint64_t fh, uint64_t facts[4]) {
    struct open_file *file;
    int is_own;

    pthread_mutex_lock(&mutex);
    file = *place_of(fh);
    is_own = file != NULL && file->is_own;
    if (is_own) {
        facts[0] = file->node;
        facts[1] = file->flags;
        facts[2] = file->uid;
    }
    pthread_mutex_unlock(&mutex);
    return is_own;
}

int64_t logfs_opening_take(uint64_t fh) {
    struct open_file *file;
    int64_t writes = -1;

    pthread_mutex_lock(&mutex);
    file = *place_of(fh);
    if (file != NULL && file->is_own) {
        file->writer = NULL;
        file->is_own = 0;
        own_count--;
        handover_note_closed(file->place);
        writes = openfiles_functions->writes(file->own) +
                 (__atomic_load_n(&file->users, __ATOMIC_SEQ_CST) > 1);
    }
    pthread_mutex_unlock(&mutex);
    return writes;
}

size_t logfs_opening_list(const log_partition *partition, uint64_t *handles, size_t room) {
    size_t count = 0;

    pthread_mutex_lock(&mutex);
    for (size_t i = 0; own_count > 0 && i < BUCKETS; i++)
        for (struct open_file *file = buckets[i]; file != NULL; file = file->next)
            if (file->is_own && file->partition == partition && count < room)
                handles[count++] = file->fh;
    pthread_mutex_unlock(&mutex);
    return count;
}

size_t logfs_opening_count(void) {
    size_t count;

    pthread_mutex_lock(&mutex);
    count = own_count;
    pthread_mutex_unlock(&mutex);
    return count;
}
