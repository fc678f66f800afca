/* Requests that are answered natively; see answering.h. */

#define _GNU_SOURCE

#include "answering.h"

#include <fcntl.h>

#include "answered.h"
#include "applying.h"
#include "attributes.h"
#include "calls.h"
#include "handover.h"
#include "naming.h"
#include "openfiles.h"
#include "opening.h"
#include "queue.h"
#include "reading.h"
#include "session.h"
#include "syncing.h"

#define LARGE_BYTES 65535u /* a line does not wait for larger writes */

static int changes = -1;

void answering_start(int event) { changes = event; }

/* --- Writes -------------------------------------------------------------------------------------- */

struct noted_write {
    write_notes notes;
    uint64_t *slot; /* NULL: nothing is kept */
    uint64_t key;
};

static void note_before(write_notes *notes, int64_t log_end, int64_t unfinished) {
    struct noted_write *noted = (void *)notes;

    calls_begin();
    if (noted->slot == NULL)
        return;
    noted->slot[SLOT_LOG_END] = (uint64_t)log_end;
    noted->slot[SLOT_UNFINISHED] = (uint64_t)unfinished;
    noted->slot[SLOT_PARTITION] = noted->key;
    __atomic_store_n(&noted->slot[SLOT_STAGE], SLOT_BEGUN, __ATOMIC_RELEASE);
}

static void note_after(write_notes *notes, int64_t accepted) {
    struct noted_write *noted = (void *)notes;

    if (noted->slot == NULL)
        return;
    noted->slot[SLOT_RESULT] = (uint64_t)accepted;
    __atomic_store_n(&noted->slot[SLOT_STAGE], SLOT_DONE, __ATOMIC_RELEASE);
}

/* Apply a write and answer it, unless that is left to Python. */
static int apply(const struct request_header *header, unsigned slot, const struct borrowed *file) {
    const struct write_request *request = (const void *)(header + 1);
    struct noted_write noted = {{note_before, note_after}, handover_slot(slot), file->key};
    uint32_t written[2] = {0, 0};
    int64_t accepted;

    accepted = openfiles_functions->write(file->writer, (const uint8_t *)(request + 1),
                                          request->size, &noted.notes);
    calls_end();
    if (accepted < 0)
        return 0;
    written[0] = (uint32_t)accepted;
    session_reply(header->unique, 0, written, sizeof written);
    answered_count(FUSE_OPCODE_WRITE);
    reading_note_append(file->partition);
    if (openfiles_functions->is_watched(file->partition))
        queue_wake(changes);
    return 1;
}

/* Whether a request is a write that may be applied here: not one that is sent again. */
static int is_plain_write(const struct request_header *header, size_t size) {
    const struct write_request *request = (const void *)(header + 1);

    return !(header->unique & REQUEST_RESENT) && size >= sizeof *header + sizeof *request &&
           header->length == size && request->size == size - sizeof *header - sizeof *request &&
           !(request->flags & WRITE_FROM_CACHE);
}

/* Whether a write of such a size may be tried by a thread, which the disk may keep. */
static int may_apply(enum answering by, uint32_t size) {
    return by == BY_LANE || (by == BY_READER && size <= LARGE_BYTES);
}

static enum answered write_lines(
    const struct request_header *header, size_t size, unsigned slot, enum answering by) {
    const struct write_request *request = (const void *)(header + 1);
    enum answered answered = LEFT;
    struct borrowed file;

    if (size < sizeof *header + sizeof *request || !openfiles_borrow(request->fh, &file))
        return LEFT;
    if (by != BY_LANE && applying_has(file.partition))
        answered = HAS_TO_WAIT; /* even if it is left to Python then */
    else if (file.writer != NULL && is_plain_write(header, size) &&
             !openfiles_has_left_anywhere() && openfiles_functions->may_write(file.partition))
        answered = !may_apply(by, request->size)    ? HAS_TO_WAIT
                   : apply(header, slot, &file) ? ANSWERED
                                                : LEFT;
    openfiles_put_back(&file);
    return answered;
}

/* --- Fsyncs and closes --------------------------------------------------------------------------- */

/* Answer an fsync, now or after a flush, unless that is left to Python. */
static enum answered sync_file(const struct request_header *header, size_t size) {
    const struct fsync_request *request = (const void *)(header + 1);
    struct borrowed file;
    int64_t offset = 0;
    int answer = SYNC_LEFT;

    if (size != sizeof *header + sizeof *request || header->length != size ||
        openfiles_has_left_anywhere() || !openfiles_borrow(request->fh, &file))
        return LEFT;
    if (file.writer != NULL)
        answer = openfiles_functions->needs_sync(file.writer, &offset);
    if (answer == SYNC_NEEDED && !syncing_add(file.partition, offset, header, size))
        answer = SYNC_LEFT;
    openfiles_put_back(&file);
    if (answer == SYNC_DONE)
        session_reply(header->unique, 0, NULL, 0);
    if (answer == SYNC_LEFT)
        return LEFT;
    answered_count(FUSE_OPCODE_FSYNC);
    return ANSWERED;
}

/* Answer a close that has nothing to report. */
static enum answered close_file(const struct request_header *header, size_t size) {
    const struct flush_request *request = (const void *)(header + 1);
    struct borrowed file;
    int is_done;

    if (size != sizeof *header + sizeof *request || header->length != size ||
        !openfiles_borrow(request->fh, &file))
        return LEFT;
    is_done = file.writer != NULL && openfiles_functions->may_close(file.writer);
    openfiles_put_back(&file);
    if (!is_done)
        return LEFT;
    session_reply(header->unique, 0, NULL, 0);
    answered_count(FUSE_OPCODE_FLUSH);
    return ANSWERED;
}

/* --- Attributes ---------------------------------------------------------------------------------- */

static enum answered get_attributes(const struct request_header *header, size_t size) {
    struct attributes_reply found;

    if (size != sizeof *header + sizeof(struct attributes_request) || header->length != size ||
        openfiles_has_left_anywhere() || !attributes_find(header->node, &found))
        return LEFT;
    session_reply(header->unique, 0, &found, sizeof found);
    answered_count(FUSE_OPCODE_GETATTR);
    return ANSWERED;
}

/* --- All of them --------------------------------------------------------------------------------- */

static enum answered read_file(const struct request_header *header, size_t size) {
    static const enum answered meanings[] = {
        [READING_LEFT] = LEFT, [READING_ANSWERED] = ANSWERED, [READING_WAITS] = WAITS};

    return meanings[reading_answer(header, size)];
}

enum answered answering_try(
    const struct request_header *header, size_t size, unsigned slot, enum answering by) {
    if (header->unique & REQUEST_RESENT)
        return LEFT; /* Python asks whether it has ended the daemons before */
    switch (header->opcode) {
    case FUSE_OPCODE_OPEN:
        return opening_open(header, size) ? ANSWERED : LEFT;
    case FUSE_OPCODE_RELEASE:
        if (!opening_release(header, size))
            return LEFT;
        session_reply(header->unique, 0, NULL, 0);
        return ANSWERED;
    case FUSE_OPCODE_LOOKUP:
        return naming_look_up(header, size) ? ANSWERED : LEFT;
    case FUSE_OPCODE_GETATTR:
        return get_attributes(header, size);
    case FUSE_OPCODE_INTERRUPT:
        return reading_interrupt(header, size) ? ANSWERED : LEFT;
    case FUSE_OPCODE_READ:
        return read_file(header, size);
    case FUSE_OPCODE_WRITE:
        return write_lines(header, size, slot, by);
    case FUSE_OPCODE_FSYNC:
        return sync_file(header, size);
    case FUSE_OPCODE_FLUSH:
        return close_file(header, size);
    default:
        return LEFT;
    }
}

void answering_note_left(const struct request_header *header, size_t size) {
    const struct write_request *write = (const void *)(header + 1);
    const struct release_request *release = (const void *)(header + 1);

    if (header->opcode == FUSE_OPCODE_WRITE && size >= sizeof *header + sizeof *write)
        openfiles_note_left(header->unique, write->fh, 1);
    else if (header->opcode == FUSE_OPCODE_RELEASE && size >= sizeof *header + sizeof *release)
        openfiles_note_left(header->unique, release->fh,
                            (release->flags & O_ACCMODE) != O_RDONLY);
}
