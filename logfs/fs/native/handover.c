/* The state that outlives a daemon; handover.h has its layout. */

#define _GNU_SOURCE

#include "handover.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* How many slots after its own place a number may be found. */
#define PROBES 32

/* A kept request with more bytes gives its memory back when it has been answered. */
#define KEPT_SMALL 65536

struct kept { /* a row of the table of requests that are kept whole; 0: free */
    uint64_t unique;
    uint32_t size;
    uint32_t is_old;    /* of a daemon that has ended, and to be read again */
    uint64_t interrupt; /* the number of an INTERRUPT of it that has been read; 0: none */
};

static char *state; /* NULL: nothing is kept */
static uint64_t *words;
static int state_fd = -1;
static int adopted_fd = -1;
static int is_adopted;
static int is_stopped;
static int is_replaying;
static int leaves_resend_out;
static int is_keeping; /* requests are kept whole */
static int in_flight;
static int old_slots;            /* slots of the daemon before that have not come again */
static int first_free_kept;
static int old_kept;             /* requests of the daemon before that are to be read again */
static uint64_t next_interrupt;  /* an INTERRUPT to be read again: its number and its target */
static uint64_t next_interrupted;

static uint64_t *slot_at(unsigned index) {
    return (uint64_t *)(state + STATE_SLOTS_AT) + (size_t)(index % STATE_SLOTS) * SLOT_WORDS;
}

static struct kept *kept_at(unsigned index) { return (struct kept *)(state + STATE_KEPT_AT) + index; }

static size_t bytes_of(const struct kept *kept) {
    return STATE_KEPT_AT + STATE_KEPT_TABLE_BYTES +
           (size_t)(kept - kept_at(0)) * STATE_KEPT_BYTES;
}

uint64_t logfs_state_bytes(void) { return STATE_BYTES; }

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
    return 0;
}

void logfs_adopt(int fd) { adopted_fd = fd; }

int logfs_is_adopted(void) { return is_adopted; }

void logfs_stop_reading(int stopped) { is_stopped = stopped; }

int logfs_in_flight(void) { return in_flight; }

int logfs_keeps_requests(void) { return is_keeping; }

void logfs_without_resend(void) { leaves_resend_out = 1; }

int handover_is_stopped(void) { return is_stopped; }

int handover_is_replaying(void) { return is_replaying; }

int handover_descriptor(void) { return state == NULL ? -1 : adopted_fd; }

static int notify(int fd, int code, const void *data, size_t size) {
    struct reply_header header = {.length = (uint32_t)(sizeof header + size), .error = code};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)data, size}};

    return writev(fd, parts, size > 0 ? 2 : 1) < 0 ? -errno : 0;
}

/* --- Slots --------------------------------------------------------------------------------------- */

/* Find the slot of a number near its place; 0: a free slot. */
static uint64_t *find_slot(uint64_t place, uint64_t number) {
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t *slot = slot_at((unsigned)(place / 2) + i); /* numbers are even */

        if (slot[SLOT_UNIQUE] == number)
            return slot;
    }
    return NULL;
}

static void free_slot(uint64_t *slot) {
    if (slot[SLOT_IS_OLD])
        old_slots--;
    slot[SLOT_STAGE] = SLOT_READ;
    __atomic_store_n(&slot[SLOT_UNIQUE], 0, __ATOMIC_RELEASE);
    slot[SLOT_IS_OLD] = 0;
}

/* Give a WRITE request its slot: one that is sent again has the slot that it had. */
static void take_slot(const struct request_header *header, size_t size) {
    const struct write_request *write = (const void *)(header + 1);
    uint64_t number = header->unique & ~REQUEST_RESENT;
    uint64_t *slot;

    if (size < sizeof *header + sizeof *write)
        return;
    slot = old_slots > 0 ? find_slot(number, number) : NULL;
    if (slot != NULL) {
        if (slot[SLOT_IS_OLD]) {
            slot[SLOT_IS_OLD] = 0;
            old_slots--;
        }
    } else if ((slot = find_slot(number, 0)) != NULL) {
        memset(slot, 0, SLOT_WORDS * sizeof *slot);
        slot[SLOT_FH] = write->fh;
        slot[SLOT_NODE] = header->node;
        slot[SLOT_SIZE] = write->size;
        __atomic_store_n(&slot[SLOT_UNIQUE], number, __ATOMIC_RELEASE);
    } else {
        words[STATE_WORD_WITHOUT_SLOT]++;
        return;
    }
    words[STATE_WORD_CURRENT] =
        1 + (uint64_t)(slot - (uint64_t *)(state + STATE_SLOTS_AT)) / SLOT_WORDS;
}

/* Free the slots of requests that the daemon before had answered: all others have come again. */
static void free_old_slots(void) {
    for (unsigned i = 0; old_slots > 0 && i < STATE_SLOTS; i++)
        if (slot_at(i)[SLOT_UNIQUE] != 0 && slot_at(i)[SLOT_IS_OLD])
            free_slot(slot_at(i));
    old_slots = 0;
}

/* --- Requests that are kept whole ---------------------------------------------------------------- */

static void free_kept(struct kept *kept) {
    int index = (int)(kept - kept_at(0));

    if (kept->is_old)
        old_kept--;
    kept->is_old = 0;
    kept->interrupt = 0;
    __atomic_store_n(&kept->unique, 0, __ATOMIC_RELEASE);
    if (kept->size > KEPT_SMALL)
        fallocate(state_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(bytes_of(kept) + KEPT_SMALL), (off_t)(STATE_KEPT_BYTES - KEPT_SMALL));
    if (index < first_free_kept)
        first_free_kept = index;
}

static struct kept *find_kept(uint64_t number) {
    for (unsigned i = 0; i < STATE_KEPT; i++)
        if (kept_at(i)->unique == number)
            return kept_at(i);
    return NULL;
}

static struct kept *free_place(void) {
    while (first_free_kept < STATE_KEPT && kept_at((unsigned)first_free_kept)->unique != 0)
        first_free_kept++;
    return first_free_kept < STATE_KEPT ? kept_at((unsigned)first_free_kept) : NULL;
}

/* Return an INTERRUPT or the oldest request that the daemon before had read; 0 if none is left. */
static ssize_t read_kept(void *buffer) {
    struct kept *oldest = NULL;

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
    for (unsigned i = 0; old_kept > 0 && i < STATE_KEPT; i++) {
        struct kept *kept = kept_at(i);

        if (kept->unique != 0 && kept->is_old && (oldest == NULL || kept->unique < oldest->unique))
            oldest = kept;
    }
    if (oldest == NULL) {
        old_kept = 0;
        return 0;
    }
    oldest->is_old = 0;
    old_kept--;
    memcpy(buffer, state + bytes_of(oldest), oldest->size);
    next_interrupt = oldest->interrupt;
    next_interrupted = oldest->unique;
    words[STATE_WORD_RESENT]++;
    return (ssize_t)oldest->size;
}

ssize_t handover_read(int fd, void *buffer, size_t size) {
    struct kept *place;
    const struct request_header *header = buffer;
    ssize_t got;

    if (!is_keeping)
        return read(fd, buffer, size);
    if ((old_kept > 0 || next_interrupt != 0) && (got = read_kept(buffer)) > 0)
        return got;
    place = free_place();
    if (place == NULL) { /* more requests in flight than are kept: this one is lost in a crash */
        words[STATE_WORD_WITHOUT_SLOT]++;
        return read(fd, buffer, size);
    }
    got = read(fd, state + bytes_of(place), size < STATE_KEPT_BYTES ? size : STATE_KEPT_BYTES);
    if (got < (ssize_t)sizeof *header)
        return got;
    memcpy(buffer, state + bytes_of(place), (size_t)got);
    if (header->opcode == FUSE_OPCODE_INTERRUPT) {
        uint64_t target;

        memcpy(&target, header + 1, sizeof target);
        if ((place = find_kept(target)) != NULL)
            place->interrupt = header->unique;
    } else if (!is_one_way(header->opcode)) {
        place->size = (uint32_t)got;
        place->is_old = 0;
        place->interrupt = 0;
        __atomic_store_n(&place->unique, header->unique, __ATOMIC_RELEASE);
    }
    return got;
}

/* --- Requests and replies ------------------------------------------------------------------------ */

void handover_note_request(const struct request_header *header, size_t size) {
    if (!is_one_way(header->opcode))
        in_flight++;
    if (state == NULL)
        return;
    if (header->unique & REQUEST_RESENT) {
        if (!is_one_way(header->opcode))
            words[STATE_WORD_RESENT]++;
    } else if (old_slots > 0 && !is_keeping && !is_one_way(header->opcode)) {
        free_old_slots(); /* the kernel sends again before it sends anything new */
    }
    words[STATE_WORD_CURRENT] = 0;
    if (header->opcode == FUSE_OPCODE_WRITE)
        take_slot(header, size);
}

void handover_note_idle(void) {
    if (state != NULL && old_slots > 0 && old_kept == 0)
        free_old_slots();
}

void handover_note_reply(uint64_t unique, int is_counted) {
    uint64_t number = unique & ~REQUEST_RESENT;
    uint64_t *slot;
    struct kept *kept;

    if (is_counted)
        in_flight--;
    if (state == NULL)
        return;
    if ((slot = find_slot(number, number)) != NULL)
        free_slot(slot);
    if (is_keeping && (kept = find_kept(unique)) != NULL)
        free_kept(kept);
}

int logfs_notify_poll(uint64_t poll_handle) {
    return notify(adopted_fd, NOTIFY_POLL, &poll_handle, sizeof poll_handle);
}

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
    unsigned char reply[STATE_REPLY_BYTES];
    size_t size = join(parts, count, reply);

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
    old_slots = 0;
    for (unsigned i = 0; i < STATE_SLOTS; i++)
        if (slot_at(i)[SLOT_UNIQUE] != 0) {
            slot_at(i)[SLOT_IS_OLD] = 1;
            old_slots++;
        }
    for (unsigned i = 0; is_keeping && i < STATE_KEPT; i++)
        if (kept_at(i)->unique != 0) {
            kept_at(i)->is_old = 1;
            old_kept++;
        }
    words[STATE_WORD_ADOPTIONS]++;
    words[STATE_WORD_CURRENT] = 0;
    if (!is_keeping)
        notify(session_fd, NOTIFY_RESEND, NULL, 0);
    return 0;
}
