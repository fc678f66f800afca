/* The state that outlives a daemon; handover.h has its layout. */

#define _GNU_SOURCE

#include "handover.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The large requests at these places keep their memory; others return what is more than this. */
#define PLACES_WITH_MEMORY 8
#define BYTES_WITH_MEMORY 65536

struct kept { /* a request that is kept whole */
    uint64_t unique; /* 0: free */
    uint64_t size;
    uint64_t interrupt; /* the number of an INTERRUPT of it that has been read; 0: none */
};

#define SMALL_BYTES (STATE_SMALL_BYTES - sizeof(struct kept))
_Static_assert(STATE_KEPT * sizeof(struct kept) <= STATE_KEPT_TABLE_BYTES - 4096, "the table fits");

/* The largest request, and room. */
#define RESIDENT_BYTES STATE_KEPT_BYTES

/* How many places after its own a kept request may be found. */
#define PROBES 32

static char *state; /* NULL: nothing is kept */
static uint64_t *words;
static char *resident; /* see handover_resident; NULL: there is none */
static int state_fd = -1;
static int adopted_fd = -1;
static int is_adopted;
static int is_stopped;
static int is_replaying;
static int leaves_resend_out;
static int is_keeping; /* requests are kept whole */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows: the slots and in_flight */
static int in_flight;
static uint16_t used[STATE_SLOTS], unused[STATE_SLOTS]; /* slots, by their numbers */
static int used_count, unused_count;
static uint16_t unopened[STATE_OPENED]; /* free notes of open files */
static int unopened_count;
static int old_slots;            /* slots of the daemon before that have not come again */
static int large_kept;           /* large requests that are kept */
static struct kept **old_kept;   /* requests of the daemon before, the oldest first */
static size_t old_kept_count, old_kept_read;
static uint64_t last_poll_handle;
static uint64_t next_interrupt;  /* an INTERRUPT to be read again: its number and its target */
static uint64_t next_interrupted;

static uint64_t *slot_at(unsigned index) {
    return (uint64_t *)(state + STATE_SLOTS_AT) + (size_t)(index % STATE_SLOTS) * SLOT_WORDS;
}

uint64_t logfs_state_bytes(void) { return STATE_BYTES; }

static void list_slots(void);
static void list_unopened(void);

/* If the pages for a request are not in memory, and SIGKILL comes while the kernel copies it, the kernel
   answers the program with EIO and does not send it again.
   Source: fuse_dev_do_read in fs/fuse/dev.c; fatal_signal_pending in mm/gup.c. */
void *handover_resident(size_t size) {
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (mapped == MAP_FAILED)
        return NULL;
    madvise(mapped, size, MADV_DONTFORK); /* a fork would make its pages copies on write */
    mlock(mapped, size);
    return mapped;
}

int logfs_keep(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    void *mapped;

    if (copy < 0)
        return -errno;
    mapped = mmap(NULL, STATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, copy, 0);
    if (mapped == MAP_FAILED) {
        int error = errno;

        close(copy);
        return -error;
    }
    state = mapped;
    state_fd = copy;
    words = mapped;
    words[STATE_WORD_CURRENT] = 0;
    list_slots();
    list_unopened();
    if (resident == NULL)
        resident = handover_resident(RESIDENT_BYTES);
    return 0;
}

void logfs_adopt(int fd) { adopted_fd = fd; }

int logfs_is_adopted(void) { return is_adopted; }

void handover_stop(void) { is_stopped = 1; }

int handover_in_flight(void) { return __atomic_load_n(&in_flight, __ATOMIC_SEQ_CST); }

int logfs_keeps_requests(void) { return is_keeping; }

void logfs_without_resend(void) { leaves_resend_out = 1; }

int handover_is_stopped(void) { return is_stopped; }

int handover_is_replaying(void) { return is_replaying; }

int handover_descriptor(void) { return state == NULL ? -1 : adopted_fd; }

/* --- Slots --------------------------------------------------------------------------------------- */

/* List the slots that are in use and those that are not, those with the lowest numbers last: few
   slots are used again and again, and stay in the cache of the processor. */
static void list_slots(void) {
    used_count = unused_count = 0;
    for (unsigned i = STATE_SLOTS; i-- > 0;)
        if (slot_at(i)[SLOT_UNIQUE] != 0)
            used[used_count++] = (uint16_t)i;
        else
            unused[unused_count++] = (uint16_t)i;
}

/* Return the place of a request in the list of slots in use; -1 if it has none. */
static int find_used(uint64_t number) {
    for (int i = 0; i < used_count; i++)
        if (slot_at(used[i])[SLOT_UNIQUE] == number)
            return i;
    return -1;
}

static void free_slot(int place) {
    unsigned index = used[place];
    uint64_t *slot = slot_at(index);

    if (slot[SLOT_IS_OLD])
        old_slots--;
    slot[SLOT_STAGE] = SLOT_READ;
    __atomic_store_n(&slot[SLOT_UNIQUE], 0, __ATOMIC_RELEASE);
    slot[SLOT_IS_OLD] = 0;
    used[place] = used[--used_count];
    unused[unused_count++] = (uint16_t)index;
}

/* Give a WRITE request its slot: one that is sent again has the slot that it had. Returns 1 + it, or 0. */
static unsigned take_slot(const struct request_header *header, size_t size) {
    const struct write_request *write = (const void *)(header + 1);
    uint64_t number = header->unique & ~REQUEST_RESENT;
    unsigned index;
    uint64_t *slot;
    int place;

    if (size < sizeof *header + sizeof *write)
        return 0;
    if (old_slots > 0 && (place = find_used(number)) >= 0) {
        index = used[place];
        slot = slot_at(index);
        if (slot[SLOT_IS_OLD]) {
            slot[SLOT_IS_OLD] = 0;
            old_slots--;
        }
    } else if (unused_count > 0) {
        index = unused[--unused_count];
        used[used_count++] = (uint16_t)index;
        slot = slot_at(index);
        memset(slot, 0, SLOT_WORDS * sizeof *slot);
        slot[SLOT_FH] = write->fh;
        slot[SLOT_NODE] = header->node;
        slot[SLOT_SIZE] = write->size;
        __atomic_store_n(&slot[SLOT_UNIQUE], number, __ATOMIC_RELEASE);
    } else {
        words[STATE_WORD_WITHOUT_SLOT]++;
        return 0;
    }
    return 1 + index;
}

uint64_t *handover_slot(unsigned slot) { return slot == 0 ? NULL : slot_at(slot - 1); }

/* Free the slots of requests that the daemon before had answered: all others have come again. */
static void free_old_slots(void) {
    for (int place = used_count - 1; old_slots > 0 && place >= 0; place--)
        if (slot_at(used[place])[SLOT_IS_OLD])
            free_slot(place);
    old_slots = 0;
}

/* --- Files that were opened natively -------------------------------------------------------- */

static uint64_t *opened_at(unsigned index) {
    return (uint64_t *)(state + STATE_OPENED_AT) + (size_t)index * OPENED_WORDS;
}

/* All are free: before the first is used, Python has taken those of the daemon before. */
static void list_unopened(void) {
    unopened_count = 0;
    for (unsigned i = STATE_OPENED; i-- > 0;)
        unopened[unopened_count++] = (uint16_t)i;
}

int handover_note_opened(uint64_t fh, uint64_t node, uint32_t flags, uint32_t uid, unsigned *place) {
    uint64_t *opened = NULL;

    *place = 0;
    if (state == NULL)
        return 1;
    pthread_mutex_lock(&mutex);
    if (unopened_count > 0) {
        *place = 1u + unopened[--unopened_count];
        opened = opened_at(*place - 1);
        if (*place > words[STATE_WORD_OPENED])
            words[STATE_WORD_OPENED] = *place;
        opened[OPENED_NODE] = node;
        opened[OPENED_FLAGS] = flags;
        opened[OPENED_USER] = uid;
        __atomic_store_n(&opened[OPENED_FH], fh, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&mutex);
    return opened != NULL;
}

void handover_note_closed(unsigned place) {
    if (place == 0)
        return;
    pthread_mutex_lock(&mutex);
    __atomic_store_n(&opened_at(place - 1)[OPENED_FH], 0, __ATOMIC_RELEASE);
    unopened[unopened_count++] = (uint16_t)(place - 1);
    pthread_mutex_unlock(&mutex);
}

/* --- Requests that are kept whole ---------------------------------------------------------------- */

/* A request is read into the place of a large one. A small one is then copied into a small place: that
   needs no other memory while it waits. Between the end of read(2) and the note in the table the
   request is known by the bytes at the place that this word names. */
static uint64_t *reading_word(void) { return (uint64_t *)(state + STATE_KEPT_AT); }

static struct kept *large_at(unsigned index) {
    return (struct kept *)(state + STATE_KEPT_AT + 4096) + index;
}

static struct kept *small_at(uint64_t index) {
    return (struct kept *)(state + STATE_KEPT_AT + STATE_KEPT_TABLE_BYTES +
                           (index % STATE_SMALL) * STATE_SMALL_BYTES);
}

static int is_large(const struct kept *kept) { return kept < small_at(0); }

static struct request_header *bytes_of(struct kept *kept) {
    if (!is_large(kept))
        return (void *)(kept + 1);
    return (void *)(state + STATE_LARGE_AT + (uint64_t)(kept - large_at(0)) * STATE_KEPT_BYTES);
}

/* Find a kept request; 0: a free place, of a small one if there is one near the place of the number. */
static struct kept *find_kept(uint64_t place, uint64_t number) {
    for (unsigned i = 0; i < PROBES; i++)
        if (small_at(place / 2 + i)->unique == number)
            return small_at(place / 2 + i);
    for (unsigned i = 0; number != 0 && large_kept > 0 && i < STATE_KEPT; i++)
        if (large_at(i)->unique == number)
            return large_at(i);
    return NULL;
}

static void free_kept(struct kept *kept) {
    off_t begin = (char *)bytes_of(kept) - state + BYTES_WITH_MEMORY;
    uint64_t size = kept->size;

    __atomic_store_n(&kept->unique, 0, __ATOMIC_RELEASE);
    if (!is_large(kept))
        return;
    large_kept--;
    bytes_of(kept)->unique = 0;
    if (size > BYTES_WITH_MEMORY && kept - large_at(0) >= PLACES_WITH_MEMORY)
        fallocate(state_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin,
                  STATE_KEPT_BYTES - BYTES_WITH_MEMORY);
}

/* Note the request that has been read into the place of a large one. */
static void note_kept(struct kept *place) {
    const struct request_header *header = bytes_of(place);
    uint64_t size = header->length;
    struct kept *small, *target;

    if (header->opcode == FUSE_OPCODE_INTERRUPT) {
        uint64_t number;

        memcpy(&number, header + 1, sizeof number);
        if ((target = find_kept(number, number)) != NULL)
            target->interrupt = header->unique;
    }
    if (is_one_way(header->opcode))
        return;
    small = size <= SMALL_BYTES ? find_kept(header->unique, 0) : NULL;
    target = small != NULL ? small : place;
    target->size = size;
    target->interrupt = 0;
    if (small != NULL)
        memcpy(bytes_of(small), header, size);
    else
        large_kept++;
    __atomic_store_n(&target->unique, header->unique, __ATOMIC_RELEASE);
}

static int is_older(const void *one, const void *other) {
    uint64_t first = (*(struct kept *const *)one)->unique;
    uint64_t second = (*(struct kept *const *)other)->unique;

    return first < second ? -1 : first > second;
}

/* Find the requests that the daemon before has kept. Returns 0 or -errno. */
static int collect_kept(void) {
    uint64_t reading = *reading_word();

    large_kept = 0;
    old_kept_count = old_kept_read = 0;
    old_kept = malloc((STATE_KEPT + STATE_SMALL) * sizeof *old_kept);
    if (old_kept == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < STATE_KEPT; i++)
        large_kept += large_at(i)->unique != 0;
    if (reading > 0 && reading <= STATE_KEPT) { /* it was killed directly after read(2) */
        struct kept *place = large_at((unsigned)reading - 1);
        uint64_t number = bytes_of(place)->unique;

        if (number != 0 && place->unique == 0 && find_kept(number, number) == NULL)
            note_kept(place);
    }
    for (unsigned i = 0; i < STATE_KEPT; i++)
        if (large_at(i)->unique != 0)
            old_kept[old_kept_count++] = large_at(i);
    for (unsigned i = 0; i < STATE_SMALL; i++)
        if (small_at(i)->unique != 0)
            old_kept[old_kept_count++] = small_at(i);
    qsort(old_kept, old_kept_count, sizeof *old_kept, is_older);
    return 0;
}

static int has_old_kept(void) { return old_kept_read < old_kept_count || next_interrupt != 0; }

/* Return an INTERRUPT or the oldest request that the daemon before had read. */
static ssize_t read_kept(void *buffer) {
    struct kept *oldest;

    if (next_interrupt != 0) {
        struct request_header header = {
            .length = sizeof header + sizeof next_interrupted,
            .opcode = FUSE_OPCODE_INTERRUPT,
            .unique = next_interrupt,
        };

        memcpy(buffer, &header, sizeof header);
        memcpy((char *)buffer + sizeof header, &next_interrupted, sizeof next_interrupted);
        next_interrupt = 0;
        return (ssize_t)header.length;
    }
    oldest = old_kept[old_kept_read++];
    memcpy(buffer, bytes_of(oldest), oldest->size);
    next_interrupt = oldest->interrupt;
    next_interrupted = oldest->unique;
    words[STATE_WORD_RESENT]++;
    return (ssize_t)oldest->size;
}

ssize_t handover_read(int fd, void *buffer, size_t size) {
    struct request_header *header;
    unsigned index = 0;
    ssize_t got;

    if (!is_keeping) {
        if (resident == NULL || size > RESIDENT_BYTES)
            return read(fd, buffer, size);
        got = read(fd, resident, size);
        if (got > 0)
            memcpy(buffer, resident, (size_t)got);
        return got;
    }
    if (has_old_kept())
        return read_kept(buffer);
    while (large_kept > 0 && index < STATE_KEPT && large_at(index)->unique != 0)
        index++;
    if (index == STATE_KEPT) { /* too many large requests in flight: this one is lost in a crash */
        words[STATE_WORD_WITHOUT_SLOT]++;
        return read(fd, buffer, size);
    }
    header = bytes_of(large_at(index));
    header->unique = 0;
    __atomic_store_n(reading_word(), index + 1, __ATOMIC_RELEASE);
    got = read(fd, header, size < STATE_KEPT_BYTES ? size : STATE_KEPT_BYTES);
    if (got < (ssize_t)sizeof *header)
        return got;
    memcpy(buffer, header, (size_t)got);
    note_kept(large_at(index));
    if (large_at(index)->unique == 0)
        header->unique = 0; /* it has its own place, or needs none */
    return got;
}

/* --- Requests and replies ------------------------------------------------------------------------ */

unsigned handover_note_read(const struct request_header *header, size_t size) {
    unsigned slot = 0;

    pthread_mutex_lock(&mutex);
    if (!is_one_way(header->opcode))
        in_flight++;
    if (state != NULL) {
        if (header->unique & REQUEST_RESENT) {
            if (!is_one_way(header->opcode))
                words[STATE_WORD_RESENT]++;
        } else if (old_slots > 0 && !is_keeping && !is_one_way(header->opcode)) {
            free_old_slots(); /* the kernel sends again before it sends anything new */
        }
        if (header->opcode == FUSE_OPCODE_WRITE)
            slot = take_slot(header, size);
    }
    pthread_mutex_unlock(&mutex);
    return slot;
}

void handover_begin_request(const struct request_header *header, size_t size, unsigned slot) {
    const struct poll_request *poll = (const void *)(header + 1);

    if (header->opcode == FUSE_OPCODE_POLL && size >= sizeof *header + sizeof *poll)
        last_poll_handle = poll->poll_handle;
    if (state != NULL)
        words[STATE_WORD_CURRENT] = slot;
    suspects_note_begun(header->unique);
}

void handover_hold(uint64_t *held) {
    held[0] = last_poll_handle;
    held[1] = state == NULL ? 0 : words[STATE_WORD_CURRENT];
}

void handover_resume(const uint64_t *held) {
    last_poll_handle = held[0];
    if (state != NULL)
        words[STATE_WORD_CURRENT] = held[1];
}

void handover_note_idle(void) {
    pthread_mutex_lock(&mutex);
    if (state != NULL && old_slots > 0 && !has_old_kept())
        free_old_slots();
    pthread_mutex_unlock(&mutex);
}

void handover_note_reply(uint64_t unique, int is_counted) {
    uint64_t number = unique & ~REQUEST_RESENT;
    int place;
    struct kept *kept;

    suspects_note_ended(unique);
    pthread_mutex_lock(&mutex);
    if (is_counted)
        in_flight--;
    if (state != NULL) {
        /* First the request: it must not be read again without its slot, which says what was
           applied. */
        if (is_keeping && (kept = find_kept(unique, unique)) != NULL)
            free_kept(kept);
        if ((place = find_used(number)) >= 0)
            free_slot(place);
    }
    pthread_mutex_unlock(&mutex);
}

uint64_t logfs_poll_handle(void) { return last_poll_handle; }

/* --- The take-over ------------------------------------------------------------------------------- */

/* Whether the kernel sends requests again when it is asked to. */
static int can_resend(void) {
    const struct request_header *header = (const void *)(state + STATE_INIT_AT);
    const struct init_request *init = (const void *)(header + 1);

    return !leaves_resend_out && words[STATE_WORD_INIT_SIZE] >= sizeof *header + sizeof *init &&
           init->flags & INIT_EXT && init->flags2 & INIT2_HAS_RESEND;
}

void handover_save_init(const struct request_header *header, size_t size) {
    if (state == NULL || is_replaying || size > STATE_INIT_BYTES)
        return;
    memcpy(state + STATE_INIT_AT, header, size);
    words[STATE_WORD_INIT_SIZE] = size;
    words[STATE_WORD_REPLY_SIZE] = 0;
    is_keeping = !can_resend();
}

/* Copy a reply without its header; returns its size, 0 if it is too large. */
static size_t join(const struct iovec *parts, int count, unsigned char *into) {
    size_t size = 0;

    for (int i = 1; i < count; i++) {
        if (size + parts[i].iov_len > STATE_REPLY_BYTES)
            return 0;
        memcpy(into + size, parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    return size;
}

void handover_save_reply(const struct iovec *parts, int count) {
    if (state != NULL)
        words[STATE_WORD_REPLY_SIZE] =
            join(parts, count, (unsigned char *)state + STATE_REPLY_AT);
}

void handover_compare_reply(const struct iovec *parts, int count) {
    _Alignas(8) unsigned char reply[STATE_REPLY_BYTES];
    size_t size = join(parts, count, reply);
    struct init_reply *init = (void *)reply, *saved = (void *)(state + STATE_REPLY_AT);

    /* Earlier versions agreed to it: it stays so for their connections, whose pieces applying.h keeps in
       order. */
    if (size >= sizeof *init)
        init->flags |= saved->flags & INIT_ASYNC_DIO;
    is_adopted = size > 0 && size == words[STATE_WORD_REPLY_SIZE] &&
                         memcmp(reply, state + STATE_REPLY_AT, size) == 0
                     ? 1
                     : -1;
}

const void *handover_begin_replay(size_t *size) {
    *size = words[STATE_WORD_INIT_SIZE];
    if (*size < sizeof(struct request_header) || *size > STATE_INIT_BYTES ||
        words[STATE_WORD_REPLY_SIZE] == 0) {
        is_adopted = -1;
        return NULL;
    }
    is_replaying = 1;
    return state + STATE_INIT_AT;
}

int handover_end_replay(int session_fd) {
    is_replaying = 0;
    in_flight = 0;
    if (is_adopted != 1) {
        is_adopted = -1;
        return -1;
    }
    adopted_fd = session_fd;
    is_keeping = !can_resend();
    list_slots();
    for (int place = 0; place < used_count; place++)
        slot_at(used[place])[SLOT_IS_OLD] = 1;
    old_slots = used_count;
    if (is_keeping && collect_kept() != 0)
        return -1;
    words[STATE_WORD_ADOPTIONS]++;
    words[STATE_WORD_CURRENT] = 0;
    suspects_begin((uint64_t *)(state + STATE_SUSPECTS_AT), words[STATE_WORD_ADOPTIONS],
                   words[STATE_WORD_PLANNED] != 0);
    return 0;
}
