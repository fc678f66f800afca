/* The hooks: a small library between pyfuse3 and libfuse.

   Loaded with RTLD_GLOBAL before pyfuse3, it defines functions of libfuse, so that pyfuse3 calls
   these, and calls the real ones. With what it learns so it gives Python three things that neither
   pyfuse3 nor the libfuse of most systems has:

     passthrough   Reads of an open file go to a file of the disk, in the kernel; the daemon is not
                   asked. (Linux 6.9 or newer, CAP_SYS_ADMIN.)
     interrupts    A program that waits for an answer was sent a signal.
     read-ahead    Small reads are answered from bytes that Python has rendered before.
     replies       A read that waits is answered before its handler runs again.

   It is not linked with libfuse: it finds the one that its caller, pyfuse3, uses. Where it does not
   find what it needs, it does nothing and says so: see logfs_session().

   All functions are for the thread of the event loop, where pyfuse3 reads requests and sends
   replies. pyfuse3 starts the handler of a request in the same step in which it has read it, and
   sends the reply in the step in which the handler returns: logfs_request() and logfs_pass_through()
   count on that. Other threads may send notifications meanwhile; the hooks let those pass. */

#ifndef LOGFS_HOOKS_H
#define LOGFS_HOOKS_H

#include <stddef.h>
#include <stdint.h>

/* Of the version of this interface; hooks.py has the same number. */
#define LOGFS_HOOKS_VERSION 3
int logfs_version(void);

/* The descriptor of the session, on which requests are read; -1: nothing is mounted through these
   hooks, because pyfuse3 was loaded before them, or its libfuse is older than 3.14. */
int logfs_session(void);

/* --- Passthrough ------------------------------------------------------------------------------ */

/* Say, before the mount, that passthrough is not wanted (0). It is if nothing is said. */
void logfs_want_passthrough(int wanted);

/* Whether it was agreed on with the kernel. 0: it was not asked for, or the kernel has not said
   anything yet; 1: yes; -1: the kernel does not know it. */
int logfs_has_passthrough(void);

/* Whether libfuse does it in its own way (1, from libfuse 3.17 on, if this library was compiled with
   its headers); 0: the hooks change the bytes of the replies. */
int logfs_uses_own_way(void);

/* Have the kernel keep a file as one that can be read instead of an inode of the mount.

   fd: open for reading; it may be closed afterwards.
   Returns its number, > 0, until logfs_backing_close; or -errno: EPERM without CAP_SYS_ADMIN, ELOOP
   if the file lies on a file system that is stacked on another one, as overlayfs is. */
int logfs_backing_open(int fd);

/* Have the kernel forget the number. Files that are open go on. Returns 0 or -errno. */
int logfs_backing_close(int backing_id);

/* Have the open file that gets the handle fh read from a backing file. Called in the handler of
   OPEN, as the last thing before it returns. All open files of an inode, at any time, have to have
   the same number, and none of them may be cached: the kernel refuses others with EIO. */
void logfs_pass_through(uint64_t fh, int backing_id);

/* --- Interrupts ------------------------------------------------------------------------------- */

/* The number of the request that was read last; in a handler, before its first await, its own. */
uint64_t logfs_request(void);

/* Give back what the buffer into which that request was read takes of memory, but for its first
   page: pyfuse3 keeps a buffer of a MiB for every request that is under way, and the one before may
   have filled it. Called where logfs_request() may be, for a small request that may wait long. */
void logfs_drop_buffer(void);

/* Have a function called, in the thread that reads requests, with the number of each request for
   whose answer a program waits that got a signal. It is answered as any other one, EINTR is usual;
   it may have been answered already. NULL: nobody. */
void logfs_on_interrupt(void (*interrupted)(uint64_t request));

/* --- Read-ahead ------------------------------------------------------------------------------- */

/* How many open files may have bytes ahead at the same time. */
#define LOGFS_AHEAD_FILES 32

/* Have reads of an open file answered from bytes in memory, without Python: each read that begins
   where the last one ended, first at an offset, and lies in them as a whole. Any other read goes to
   Python, which takes back what is left before it does anything else with the file.

   data: stays the caller's; it has to stay where it is, unchanged, until logfs_ahead_take. What was
   put before is replaced; no bytes keep a place for more.
   Returns 1, or 0: as many files have bytes ahead as may. */
int logfs_ahead_put(uint64_t fh, uint64_t offset, const void *data, size_t size);

/* Take back what is ahead of an open file; returns how many bytes, the last of those that were put,
   nobody has read. 0 if there was nothing. */
size_t logfs_ahead_take(uint64_t fh);

/* How many reads were answered so. */
uint64_t logfs_ahead_reads(void);

/* --- Replies ---------------------------------------------------------------------------------- */

/* How many requests may have been answered before their handlers have answered them. */
#define LOGFS_REPLIES 64

/* Have a function called once for each logfs_expect_reply, after the reply that pyfuse3 sends next,
   when it has been sent. NULL: none. */
void logfs_on_reply(void (*replied)(void));
void logfs_expect_reply(void);

/* Answer a read that waits. What its handler answers later is dropped.

   request: its number, see logfs_request.
   Returns 1, or 0 if it is left to its handler: nobody waits any more, or too many were answered. */
int logfs_reply(uint64_t request, const void *data, size_t size);

#endif
