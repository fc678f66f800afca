/* The connection to the kernel; see session.h. */

#define _GNU_SOURCE

#include "session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "handover.h"
#include "requests.h"

static int session_fd = -1;

void session_begin(int fd) { session_fd = fd; }

int logfs_session(void) { return session_fd; }

/* --- Replies ------------------------------------------------------------------------------------- */

static int send_message(struct reply_header header, const void *bytes, size_t size) {
    struct iovec parts[] = {{&header, sizeof header}, {(void *)bytes, size}};

    header.length = (uint32_t)(sizeof header + size);
    return writev(session_fd, parts, size > 0 ? 2 : 1) < 0 ? -errno : 0;
}

int session_write(uint64_t unique, int error, const void *bytes, size_t size) {
    return send_message((struct reply_header){.error = -error, .unique = unique}, bytes, size);
}

int session_reply(uint64_t unique, int error, const void *bytes, size_t size) {
    int status = session_write(unique, error, bytes, size);

    session_note_reply(unique, status);
    return status;
}

void session_note_reply(uint64_t unique, int status) {
    if (status >= 0 || status == -ENOENT)
        handover_note_reply(unique, 1);
}

int session_has_ended(void) {
    struct pollfd device = {.fd = session_fd, .events = POLLIN};

    return poll(&device, 1, 0) > 0 && (device.revents & POLLERR) != 0;
}

/* --- Notifications ------------------------------------------------------------------------------- */

int session_notify(int code, const void *data, size_t size) {
    return send_message((struct reply_header){.error = code}, data, size);
}

int logfs_notify_poll(uint64_t poll_handle) {
    return session_notify(NOTIFY_POLL, &poll_handle, sizeof poll_handle);
}

int logfs_knows_node(uint64_t node) {
    const struct invalidate_inode attributes = {.node = node, .offset = -1};

    return session_notify(NOTIFY_INVALIDATE_INODE, &attributes, sizeof attributes) == 0;
}

int logfs_notify_apart(const void *messages, size_t size) {
    const int fd = session_fd;
    sigset_t all, before;
    pid_t child;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    child = fork();
    if (child == 0) {
        const char *at = messages, *end = at + size;

        if (fd > 0)
            close_range(0, (unsigned)fd - 1, 0);
        close_range((unsigned)fd + 1, ~0U, 0);
        while (at < end) {
            uint32_t length;

            memcpy(&length, at, sizeof length);
            if (write(fd, at, length) < 0 && errno == ENODEV)
                break;
            at += length;
        }
        _exit(0);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return child < 0 ? -errno : child;
}
