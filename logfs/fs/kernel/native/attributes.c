/* The attributes of files that grow and of directories; see attributes.h. */

#include "attributes.h"

#include <pthread.h>

#include "openfiles.h"

#define PLACES 4096u /* an inode of another number may take the place of one */
#define BLOCK_BYTES 512
#define READ_BYTES (1u << 20) /* what programs are told to read and write at a time; see replies.py */

struct known {
    uint64_t node; /* 0: none */
    log_partition *partition; /* NULL: it is a directory */
    int64_t changes, before;  /* before: the position at which the active segment begins */
    int64_t modified_ms;      /* of a directory */
    uint32_t valid_ms;
    int view;
    uint32_t mode, uid, gid;
    uint64_t append_key; /* 0: Python opens the file */
    uint64_t shown;      /* the number that programs see */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct known places[PLACES];

static struct known *place_of(uint64_t node) { return &places[node % PLACES]; }

/* Find the length and the time of what is known; returns 0 if Python has to answer. */
static int measure(const struct known *known, int64_t *length, int64_t *modified_ms) {
    if (known->partition != NULL)
        return openfiles_functions->length(
            known->partition, known->view, known->changes, length, modified_ms);
    *length = 0;
    *modified_ms = known->modified_ms;
    return 1;
}

int attributes_find(uint64_t node, struct attributes_reply *found) {
    struct known known;
    int64_t length = 0, modified_ms = 0;
    uint64_t modified_s;
    uint32_t modified_ns;
    int is_true;

    pthread_mutex_lock(&mutex);
    known = *place_of(node);
    is_true = known.node == node && node != 0 &&
              measure(&known, &length, &modified_ms);
    pthread_mutex_unlock(&mutex);
    if (!is_true || modified_ms < 0)
        return 0;
    modified_s = (uint64_t)modified_ms / 1000;
    modified_ns = (uint32_t)(modified_ms % 1000) * 1000000;
    *found = (struct attributes_reply){
        .valid_s = known.valid_ms / 1000,
        .valid_ns = known.valid_ms % 1000 * 1000000,
        .node = known.shown,
        .size = (uint64_t)(known.before + length),
        .blocks = ((uint64_t)(known.before + length) + BLOCK_BYTES - 1) / BLOCK_BYTES,
        .accessed_s = modified_s,
        .modified_s = modified_s,
        .changed_s = modified_s,
        .accessed_ns = modified_ns,
        .modified_ns = modified_ns,
        .changed_ns = modified_ns,
        .mode = known.mode,
        .links = 1,
        .uid = known.uid,
        .gid = known.gid,
        .block_bytes = READ_BYTES,
    };
    return 1;
}

int attributes_find_partition(
    uint64_t node, log_partition **partition, int64_t *changes, int *view, uint64_t *key) {
    const struct known *known;
    int is_found;

    pthread_mutex_lock(&mutex);
    known = place_of(node);
    is_found = node != 0 && known->node == node && known->append_key != 0;
    if (is_found) {
        *partition = known->partition;
        *changes = known->changes;
        *view = known->view;
        *key = known->append_key;
        openfiles_functions->hold(*partition);
    }
    pthread_mutex_unlock(&mutex);
    return is_found;
}

static void forget(struct known *known) {
    if (known->node != 0 && known->partition != NULL)
        openfiles_functions->release(known->partition);
    known->node = 0;
}

static void know(struct known known) {
    struct known *place = place_of(known.node);

    if (known.partition != NULL)
        openfiles_functions->hold(known.partition);
    pthread_mutex_lock(&mutex);
    forget(place);
    *place = known;
    pthread_mutex_unlock(&mutex);
}

void logfs_serving_know(uint64_t node, log_partition *partition, int64_t changes, int view,
                        int64_t before, uint32_t mode, uint32_t uid, uint32_t gid,
                        uint64_t append_key, uint64_t shown) {
    know((struct known){.node = node,
                        .partition = partition,
                        .changes = changes,
                        .before = before,
                        .view = view,
                        .mode = mode,
                        .uid = uid,
                        .gid = gid,
                        .append_key = append_key,
                        .shown = shown});
}

void logfs_serving_know_directory(uint64_t node, uint32_t mode, uint32_t uid, uint32_t gid,
                                  int64_t modified_ms, uint32_t valid_ms) {
    know((struct known){.node = node,
                        .shown = node,
                        .modified_ms = modified_ms,
                        .valid_ms = valid_ms,
                        .mode = mode,
                        .uid = uid,
                        .gid = gid});
}

void logfs_serving_forget(void) {
    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; i < PLACES; i++)
        forget(&places[i]);
    pthread_mutex_unlock(&mutex);
}
