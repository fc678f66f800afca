/* Opening and closing files that append natively; see opening.h. */

#define _GNU_SOURCE

#include "opening.h"

#include <errno.h>
#include <fcntl.h>

#include "answered.h"
#include "attributes.h"
#include "handover.h"
#include "naming.h"
#include "openfiles.h"
#include "session.h"
#include "watching.h"

#define USERS 4 /* that may open files: root and that of the daemon */

static uint32_t users[USERS];
static unsigned user_count;

void logfs_opening_allow(uint32_t uid) {
    unsigned count = __atomic_load_n(&user_count, __ATOMIC_ACQUIRE);

    if (count == USERS)
        return;
    users[count] = uid;
    __atomic_store_n(&user_count, count + 1, __ATOMIC_RELEASE);
}

static int may_open(uint32_t uid, uint32_t flags) {
    unsigned count = __atomic_load_n(&user_count, __ATOMIC_ACQUIRE);

    if ((flags & O_ACCMODE) != O_WRONLY || !(flags & O_APPEND) ||
        flags & (O_TRUNC | O_NONBLOCK | O_DSYNC))
        return 0;
    while (count > 0)
        if (users[--count] == uid)
            return 1;
    return 0;
}

/* Open a file of an inode; returns 0 if that is left to Python. */
static int add_file(const struct request_header *header, uint32_t flags) {
    struct open_file file = {.fh = header->unique, .is_own = 1, .node = header->node,
                             .flags = flags, .uid = header->uid};
    int64_t changes;
    int view;

    if (!attributes_find_partition(header->node, &file.partition, &changes, &view, &file.key))
        return 0;
    file.writer = openfiles_functions->open(file.partition, view, changes);
    if (file.writer != NULL) {
        if (handover_note_opened(file.fh, file.node, flags, file.uid, &file.place)) {
            if (openfiles_add(&file))
                return 1;
            handover_note_closed(file.place);
        }
        openfiles_functions->close(file.writer);
    }
    openfiles_functions->release(file.partition);
    return 0;
}

/* Close a file; returns 0 if it is not one that was opened natively. */
static int remove_file(uint64_t fh) {
    uint64_t node;

    if (!openfiles_remove(fh, &node))
        return 0;
    naming_give_back(node);
    return 1;
}

int opening_open(const struct request_header *header, size_t size) {
    const struct open_request *wanted = (const void *)(header + 1);
    struct open_reply opened = {.fh = header->unique, .open_flags = OPEN_DIRECT_IO | OPEN_KEEP_CACHE};

    if (size != sizeof *header + sizeof *wanted || header->length != size ||
        header->unique & REQUEST_RESENT || !may_open(header->uid, wanted->flags) ||
        logfs_keeps_requests() || openfiles_has_left_anywhere() || !add_file(header, wanted->flags))
        return 0;
    if (session_reply(header->unique, 0, &opened, sizeof opened) == -ENOENT)
        remove_file(opened.fh); /* the program has gone, and will not close it */
    answered_count(FUSE_OPCODE_OPEN);
    return 1;
}

int opening_release(const struct request_header *header, size_t size) {
    const struct release_request *closed = (const void *)(header + 1);

    /* While programs are watched, Python notes each file that is closed. */
    if (size < sizeof *header + sizeof *closed || header->length != size ||
        __atomic_load_n(&watching_is_on, __ATOMIC_RELAXED) || !remove_file(closed->fh))
        return 0;
    answered_count(FUSE_OPCODE_RELEASE);
    return 1;
}
