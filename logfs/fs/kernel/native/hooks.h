/* The hooks: a small library between pyfuse3 and libfuse.

   Loaded with RTLD_GLOBAL before pyfuse3, it defines functions of libfuse. pyfuse3 calls these, and
   they call the real ones. So Python gets four things that neither pyfuse3 nor the libfuse of most
   systems has:

     passthrough   Reads of an open file go to a file on the disk, inside the kernel, without the
                   daemon. (Linux 6.9 or newer, CAP_SYS_ADMIN.)
     interrupts    A signal was sent to a program that waits for a reply.
     read-ahead    Small reads are answered from bytes that Python has rendered before.
     replies       A waiting read is answered before its handler runs again.

   The library is not linked with libfuse: it finds the libfuse that its caller, pyfuse3, uses. If
   it does not find the functions it needs, it does nothing: see logfs_session().

   Read-ahead is in ahead.h, the native thread that applies writes of lines in serving.h, the
   hand-over to another daemon in handover.h, and what is written to the kernel without libfuse in
   session.h.

   All functions are for the thread of the event loop, where pyfuse3 reads requests and sends
   replies. pyfuse3 starts the handler of a request in the step in which it has read the request,
   and sends the reply in the step in which the handler returns. logfs_request() and
   logfs_pass_through() rely on that. Other threads may send notifications meanwhile; the hooks let
   those pass. */

#ifndef LOGFS_HOOKS_H
#define LOGFS_HOOKS_H

#include <stddef.h>
#include <stdint.h>

/* The version of this interface; hooks.py has the same number. */
#define LOGFS_HOOKS_VERSION 17
int logfs_version(void);

/* --- Passthrough ------------------------------------------------------------------------------ */

/* Whether passthrough is wanted; called before the mount. The default is 1. */
void logfs_want_passthrough(int wanted);

/* Whether the kernel agreed to passthrough. 1: yes; -1: the kernel does not support it; 0: it was
   not asked for, or the kernel has not replied yet. */
int logfs_has_passthrough(void);

/* Register a file as a backing file, which the kernel can read instead of an inode of the mount.

   fd: open for reading; it may be closed afterwards.
   Returns its number, > 0, until logfs_backing_close; or -errno: EPERM without CAP_SYS_ADMIN, ELOOP
   if the file lies on a file system that is stacked on another one, as overlayfs is. */
int logfs_backing_open(int fd);

/* Close a backing file. Open files continue. Returns 0 or -errno. */
int logfs_backing_close(int backing_id);

/* Let the open file with the handle fh read from a backing file. Called in the handler of OPEN,
   directly before it returns. All open files of an inode must have the same number, and none of
   them may be cached: the kernel refuses others with EIO. */
void logfs_pass_through(uint64_t fh, int backing_id);

/* --- Interrupts ------------------------------------------------------------------------------- */

/* The number of the request that was read last: in a handler, before its first await, its own. */
uint64_t logfs_request(void);

/* The thread that waits for its reply; 0 if it is in another pid namespace. */
uint32_t logfs_request_thread(void);

/* The bytes that a reply to that request may have, if it lists a directory; else 0. */
uint32_t logfs_listing_room(void);

/* What is known of that request, in HELD_WORDS words, for a handler that has to await before it does
   anything; and have it be the one that was read last again. */
#define HELD_WORDS 5
void logfs_hold(uint64_t *words);
void logfs_resume(const uint64_t *words);

/* Free the memory of the buffer of that request, except its first page. pyfuse3 keeps a buffer of a
   MiB for every running request, and an earlier request may have filled it. For a small request
   that may wait long, wherever logfs_request() may be called. */
void logfs_drop_buffer(void);

/* Set a function that is called, in the thread that reads requests, with the number of each request
   whose program was sent a signal. The request still needs a reply, usually EINTR; it may have been
   answered already. NULL: no function. */
void logfs_on_interrupt(void (*interrupted)(uint64_t request));

/* --- Replies ---------------------------------------------------------------------------------- */

/* Answer a listing. Called in its handler, directly before it returns: its own reply is dropped.

   request: its number, see logfs_request.
   Returns 1; 0 if the handler has to reply: the program has gone. */
int logfs_reply(uint64_t request, const void *data, size_t size);

/* --- The native thread -------------------------------------------------------------------------- */

/* End it. pyfuse3 must not read requests any more, and may be closed then. */
void logfs_serving_stop(void);

#endif
