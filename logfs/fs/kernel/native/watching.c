/* Which programs read and write which open files; watching.h says when. */

#define _GNU_SOURCE

#include "watching.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLACES (2 * WATCHED_MOST) /* of the hash table */
#define WAITING 8192              /* READs whose replies have not been seen, by their numbers */

int watching_is_on;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct watched rows[WATCHED_MOST];
static size_t row_count;
static uint16_t places[PLACES]; /* number of the row + 1; 0: free */
static uint64_t missed;
static struct waiting {
    uint64_t unique;
    uint16_t row; /* its number + 1 */
} waiting[WAITING];

/* Find what a program is called, and the process of a thread. */
static void describe(struct watched *row) {
    char path[64], text[512];
    const char *found;
    ssize_t got = -1;
    int fd;

    snprintf(path, sizeof path, "/proc/%u/status", row->thread);
    fd = row->thread == 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        got = read(fd, text, sizeof text - 1);
        close(fd);
    }
    text[got < 0 ? 0 : got] = 0;
    row->pid = row->thread;
    if (strncmp(text, "Name:\t", 6) == 0) {
        size_t length = strcspn(text + 6, "\n");

        if (length >= WATCHED_NAME)
            length = WATCHED_NAME - 1;
        memcpy(row->name, text + 6, length);
    }
    found = strstr(text, "\nTgid:\t");
    if (found != NULL)
        row->pid = (uint32_t)strtoul(found + 7, NULL, 10);
}

/* Find the row of a request, or make it; NULL: there is no room. */
static struct watched *find(const struct request_header *header, uint64_t fh) {
    uint64_t hash = (fh ^ (uint64_t)header->pid << 20 ^ header->opcode) * 0x9E3779B97F4A7C15ull;
    size_t place = (size_t)(hash >> 32) % PLACES;

    for (;; place = (place + 1) % PLACES) {
        struct watched *row;

        if (places[place] == 0)
            break;
        row = &rows[places[place] - 1];
        if (row->fh == fh && row->thread == header->pid && row->opcode == header->opcode &&
            row->uid == header->uid)
            return row;
    }
    if (row_count == WATCHED_MOST)
        return NULL;
    rows[row_count] = (struct watched){
        .fh = fh, .opcode = header->opcode, .uid = header->uid, .thread = header->pid};
    describe(&rows[row_count]);
    places[place] = (uint16_t)(row_count + 1);
    return &rows[row_count++];
}

static struct waiting *waiting_of(uint64_t unique) {
    return &waiting[unique / 2 % WAITING]; /* the kernel gives even numbers */
}

void watching_count_request(const struct request_header *header, size_t size) {
    const struct write_request *write = (const void *)(header + 1);
    const uint64_t fh = write->fh; /* the first field in all three */
    struct watched *row;

    if ((header->opcode != FUSE_OPCODE_READ && header->opcode != FUSE_OPCODE_WRITE &&
         header->opcode != FUSE_OPCODE_FSYNC) ||
        size < sizeof *header + sizeof(struct fsync_request))
        return;
    pthread_mutex_lock(&mutex);
    row = find(header, fh);
    if (row == NULL) {
        missed++;
    } else {
        row->requests++;
        if (header->opcode == FUSE_OPCODE_WRITE && size >= sizeof *header + sizeof *write)
            row->bytes += write->size;
        else if (header->opcode == FUSE_OPCODE_READ)
            *waiting_of(header->unique) =
                (struct waiting){header->unique, (uint16_t)(row - rows + 1)};
    }
    pthread_mutex_unlock(&mutex);
}

void watching_count_reply(uint64_t unique, size_t bytes) {
    struct waiting *found = waiting_of(unique);

    pthread_mutex_lock(&mutex);
    if (found->unique == unique && found->row != 0) {
        rows[found->row - 1].bytes += bytes;
        found->row = 0;
    }
    pthread_mutex_unlock(&mutex);
}

void logfs_watch(int is_watched) {
    pthread_mutex_lock(&mutex);
    row_count = missed = 0;
    memset(places, 0, sizeof places);
    memset(waiting, 0, sizeof waiting);
    __atomic_store_n(&watching_is_on, is_watched, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&mutex);
}

size_t logfs_watched(struct watched *copies) {
    size_t count;

    pthread_mutex_lock(&mutex);
    count = row_count;
    memcpy(copies, rows, count * sizeof *rows);
    pthread_mutex_unlock(&mutex);
    return count;
}

uint64_t logfs_watched_missed(void) {
    uint64_t count;

    pthread_mutex_lock(&mutex);
    count = missed;
    pthread_mutex_unlock(&mutex);
    return count;
}
