/* The connection to the kernel: its descriptor of /dev/fuse, and what is written to it without libfuse.

   Any thread. A message that the kernel takes is written whole. */

#ifndef LOGFS_SESSION_H
#define LOGFS_SESSION_H

#include <stddef.h>
#include <stdint.h>

/* --- For Python ---------------------------------------------------------------------------------- */

/* The descriptor on which requests are read; -1: nothing is mounted through the hooks, because pyfuse3
   was loaded before them, or its libfuse is older than 3.14. */
int logfs_session(void);

/* Wake programs that poll an open file. Returns 0 or -errno. It may be called for a handle that the
   kernel does not know. */
int logfs_notify_poll(uint64_t poll_handle);

/* Send notifications from their own process, and return its number or -errno. The kernel may hold
   them up until it has replies to requests. A daemon that waits for that could not be killed, and its
   successor, which has to reply, waits for its end. messages: as they are written, one after the other. */
int logfs_notify_apart(const void *messages, size_t size);

/* Whether the kernel knows an inode; it then asks for its attributes again at their next use. */
int logfs_knows_node(uint64_t node);

/* --- For the hooks ------------------------------------------------------------------------------- */

/* Begin with a descriptor. */
void session_begin(int fd);

/* Answer a request: with bytes, or with an error (errno; 0: none). It is no longer in flight then.
   Returns 0 or -errno, -ENOENT if the program has gone. */
int session_reply(uint64_t unique, int error, const void *bytes, size_t size);

/* Note that writev has sent a reply, or what it returned instead: the request is no longer in flight if the
   kernel has the reply, or knows the request no more. Otherwise it is sent again to a successor. */
void session_note_reply(uint64_t unique, int status);

/* Whether the kernel has ended the connection, so that no program waits for a reply any more. */
int session_has_ended(void);

/* Write a reply and do no more: the request stays in flight until the caller notes the reply. */
int session_write(uint64_t unique, int error, const void *bytes, size_t size);

/* Send a notification. Returns 0 or -errno. */
int session_notify(int code, const void *data, size_t size);

#endif
