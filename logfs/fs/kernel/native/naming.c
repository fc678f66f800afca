/* Looking up names natively; see naming.h. */

#include "naming.h"

#include <pthread.h>
#include <string.h>

#include "answered.h"
#include "attributes.h"
#include "openfiles.h"
#include "session.h"

#define PLACES LOGFS_NAMING_PLACES /* another name may have the place of one */
#define NAME_BYTES 255             /* of the longest name */

struct named {
    uint64_t parent, lookups; /* lookups: that Python has not taken */
    uint32_t kept_ms;         /* how long the kernel may keep the name */
    uint32_t size;
    uint8_t is_single; /* each open file of it has another inode */
    uint8_t is_given;  /* then: a look-up was answered with this one, and it may be open */
    char name[NAME_BYTES];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t nodes[PLACES]; /* the inode at each place; 0: none */
static struct named places[PLACES];
static int has_single; /* such a name was known */

static unsigned place_of(uint64_t parent, const char *name, size_t size) {
    uint64_t hash = 14695981039346656037u ^ parent; /* FNV-1a */

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (uint8_t)name[i]) * 1099511628211u;
    return (unsigned)((hash ^ hash >> 32) % PLACES);
}

static int is_at(unsigned place, uint64_t parent, const char *name, size_t size) {
    const struct named *named = &places[place];

    return nodes[place] != 0 && named->parent == parent && named->size == size &&
           memcmp(named->name, name, size) == 0;
}

/* Find the inode of a name, and count that. Returns 0 if it is left to Python. */
static int find(uint64_t parent, const char *name, size_t size, struct entry_reply *entry) {
    unsigned place = place_of(parent, name, size);
    struct attributes_reply found;
    int is_found;

    pthread_mutex_lock(&mutex);
    is_found = is_at(place, parent, name, size) && !places[place].is_given &&
               attributes_find(nodes[place], &found);
    if (is_found) {
        places[place].is_given = places[place].is_single;
        places[place].lookups++;
        *entry = (struct entry_reply){
            .node = nodes[place],
            .valid_s = places[place].kept_ms / 1000,
            .valid_ns = places[place].kept_ms % 1000 * 1000000,
            .attributes_valid_s = found.valid_s,
            .attributes_valid_ns = found.valid_ns,
        };
        memcpy(entry->attributes, &found.node, sizeof entry->attributes);
    }
    pthread_mutex_unlock(&mutex);
    return is_found;
}

int naming_look_up(const struct request_header *header, size_t size) {
    const char *name = (const void *)(header + 1);
    struct entry_reply entry;
    size_t length;

    if (size < sizeof *header + 2 || header->length != size || header->unique & REQUEST_RESENT)
        return 0;
    length = size - sizeof *header - 1;
    if (length > NAME_BYTES || memchr(name, 0, length + 1) != name + length ||
        openfiles_has_left_anywhere() || !find(header->node, name, length, &entry))
        return 0;
    /* It fails only if the connection has ended, and the kernel forgets all. */
    session_reply(header->unique, 0, &entry, sizeof entry);
    answered_count(FUSE_OPCODE_LOOKUP);
    return 1;
}

void naming_give_back(uint64_t node) {
    if (__atomic_load_n(&has_single, __ATOMIC_RELAXED) == 0)
        return;
    pthread_mutex_lock(&mutex);
    for (unsigned place = 0; node != 0 && place < PLACES; place++)
        if (nodes[place] == node)
            places[place].is_given = 0;
    pthread_mutex_unlock(&mutex);
}

/* --- For Python ---------------------------------------------------------------------------------- */

uint64_t logfs_naming_know(
    uint64_t parent, const char *name, size_t size, uint64_t node, uint32_t kept_ms, int is_single) {
    unsigned place = place_of(parent, name, size);
    uint64_t other = 0;

    if (size == 0 || size > NAME_BYTES)
        return 0;
    if (is_single)
        __atomic_store_n(&has_single, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&mutex);
    if (nodes[place] != 0 && !(nodes[place] == node && is_at(place, parent, name, size))) {
        other = nodes[place];
    } else if (nodes[place] == 0) {
        places[place] = (struct named){.parent = parent,
                                       .kept_ms = kept_ms,
                                       .size = (uint32_t)size,
                                       .is_single = is_single != 0};
        memcpy(places[place].name, name, size);
        nodes[place] = node;
    }
    if (other == 0)
        places[place].is_given = places[place].is_single;
    pthread_mutex_unlock(&mutex);
    return other;
}

uint64_t logfs_naming_take(uint64_t node) {
    uint64_t lookups = 0;

    pthread_mutex_lock(&mutex);
    for (unsigned place = 0; node != 0 && place < PLACES; place++)
        if (nodes[place] == node) {
            lookups += places[place].lookups;
            nodes[place] = 0;
        }
    pthread_mutex_unlock(&mutex);
    return lookups;
}

size_t logfs_naming_take_all(uint64_t *taken, uint64_t *lookups) {
    size_t count = 0;

    pthread_mutex_lock(&mutex);
    for (unsigned place = 0; place < PLACES; place++)
        if (nodes[place] != 0) {
            taken[count] = nodes[place];
            lookups[count++] = places[place].lookups;
            nodes[place] = 0;
        }
    pthread_mutex_unlock(&mutex);
    return count;
}
