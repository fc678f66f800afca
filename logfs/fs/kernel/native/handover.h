/* The state that outlives a daemon, and the take-over of its connection to the kernel.

   The state is a memory file (memfd_create) that a holder keeps open. It has to survive the process,
   not a power cut: programs that write end with the machine. state.py has the same numbers.

       0         header: words of 8 bytes, see enum state_word
       1024      the INIT request of the connection, up to STATE_INIT_BYTES
       1536      the reply to it, up to STATE_REPLY_BYTES
       4096      STATE_SLOTS slots of SLOT_WORDS words: the WRITE requests in flight, see enum slot_word
       520 KiB   two tables of requests that were under way: see suspects.h
       640 KiB   STATE_OPENED files that were opened natively, of OPENED_WORDS words each, see
                 enum opened_word
       1 MiB     the journal, two halves of STATE_JOURNAL_BYTES each: see handover/journal.py
       1 GiB     requests kept whole, for kernels that do not send requests again: a page of words, the
                 table of large ones, STATE_SMALL small ones, the bytes of STATE_KEPT large ones

   The file is sparse: what has not been written needs no memory.

   A slot is filled when its request has been read, and freed when the reply has been sent. A program
   writes into it where the log ends before it appends. After a kill the kernel sends the request
   again, with the same number and REQUEST_RESENT. So the successor finds the slot. */

#ifndef LOGFS_HANDOVER_H
#define LOGFS_HANDOVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "requests.h"
#include "suspects.h"

#define STATE_MAGIC 0x31484f53464c474full
#define STATE_VERSION 2
#define STATE_INIT_AT 1024
#define STATE_INIT_BYTES 512
#define STATE_REPLY_AT 1536
#define STATE_REPLY_BYTES 256
#define STATE_SLOTS_AT 4096
#define STATE_SLOTS 4096
#define SLOT_WORDS 16
#define STATE_SUSPECTS_AT (520ull << 10)
#define STATE_OPENED_AT (640ull << 10)
#define STATE_OPENED 12288
#define OPENED_WORDS 4
#define STATE_JOURNAL_AT (1ull << 20)
#define STATE_JOURNAL_BYTES (256ull << 20)
#define STATE_KEPT_AT (1ull << 30)
#define STATE_KEPT_TABLE_BYTES 65536ull
#define STATE_SMALL 65536
#define STATE_SMALL_BYTES 128ull
#define STATE_KEPT 1024
#define STATE_KEPT_BYTES ((1ull << 20) + 8192)
#define STATE_LARGE_AT (STATE_KEPT_AT + STATE_KEPT_TABLE_BYTES + STATE_SMALL * STATE_SMALL_BYTES)
#define STATE_BYTES (STATE_LARGE_AT + STATE_KEPT * STATE_KEPT_BYTES)

enum state_word {
    STATE_WORD_MAGIC,
    STATE_WORD_VERSION,
    STATE_WORD_INIT_SIZE,
    STATE_WORD_REPLY_SIZE,
    STATE_WORD_CURRENT,      /* 1 + the slot of the request that was read last; 0: it has none */
    STATE_WORD_ADOPTIONS,    /* how often the connection was taken over */
    STATE_WORD_RESENT,       /* requests that were sent again */
    STATE_WORD_WITHOUT_SLOT, /* WRITE requests for which no slot was free */
    STATE_WORD_PLANNED,      /* 1: the last daemon answered what it had read, and closed the store */
    STATE_WORD_JOURNAL_HALF, /* 0 or 1 */
    STATE_WORD_JOURNAL_USED, /* bytes in the first half; the next word: in the second */
    STATE_WORD_JOURNAL_USED_2,
    STATE_WORD_HANDOVER_NS, /* CLOCK_MONOTONIC when the last daemon stopped reading; 0: a crash */
    STATE_WORD_DEVICE,      /* the minor number of the mount's device; 0: not known */
    STATE_WORD_OPENED,      /* so many of the first notes of open files may be in use */
    STATE_WORDS,
};

enum slot_word {
    SLOT_UNIQUE, /* the number of the request without REQUEST_RESENT; 0: free */
    SLOT_STAGE,  /* see enum slot_stage */
    SLOT_FH,
    SLOT_NODE,
    SLOT_SIZE,
    SLOT_LOG_END,    /* where the log ended before the append */
    SLOT_UNFINISHED, /* bytes of the unfinished line before it */
    SLOT_APPLIED,    /* bytes of the request that had been applied before it */
    SLOT_RESULT,     /* bytes of the request that are applied now */
    SLOT_PARTITION,
    SLOT_IS_OLD, /* 1: of a daemon that has ended; the kernel has not sent it again yet */
    SLOT_LINES,      /* lines of the request that a successor has found in the log */
    SLOT_KEPT_BYTES, /* bytes of the unfinished line that it has found */
};

enum slot_stage { SLOT_READ, SLOT_BEGUN, SLOT_DONE, SLOT_SETTLED };

enum opened_word { OPENED_FH, OPENED_NODE, OPENED_FLAGS, OPENED_USER }; /* OPENED_FH: 0: free */

_Static_assert(STATE_SLOTS_AT + STATE_SLOTS * SLOT_WORDS * 8 <= STATE_SUSPECTS_AT, "the slots fit");
_Static_assert(STATE_SUSPECTS_AT + 2 * SUSPECTS * 8 <= STATE_OPENED_AT, "the suspects fit");
_Static_assert(STATE_OPENED_AT + STATE_OPENED * OPENED_WORDS * 8 <= STATE_JOURNAL_AT, "these, too");

/* --- For Python; the thread of the event loop only ---------------------------------------------- */

/* The size of a memory file for the state. */
uint64_t logfs_state_bytes(void);

/* Keep the state of this session in a memory file of that size. fd may be closed afterwards. Before
   the mount. Returns 0 or -errno. */
int logfs_keep(int fd);

/* Take over the connection of a descriptor of /dev/fuse instead of mounting. After logfs_keep. */
void logfs_adopt(int fd);

/* 1: the connection was taken over. -1: it was not, because this libfuse, pyfuse3 or daemon would
   have answered INIT in another way than the kernel was answered. 0: there was nothing to take over. */
int logfs_is_adopted(void);

/* Whether this kernel does not send requests again, so that they are kept here. Requests of the daemon
   before are read when the kernel has any request to read. */
int logfs_keeps_requests(void);

/* The poll handle of the POLL request that was read last: in its handler, before its first await. */
uint64_t logfs_poll_handle(void);

/* Do as on a kernel that does not send requests again: for tests. Before the mount. */
void logfs_without_resend(void);

/* --- For the hooks ------------------------------------------------------------------------------- */

/* Requests must not be read from now on. */
void handover_stop(void);
int handover_is_stopped(void);

/* How many requests have been read and not been answered. */
int handover_in_flight(void);

/* read(2), keeping the request where the kernel does not send requests again. */
ssize_t handover_read(int fd, void *buffer, size_t size);

/* The functions about slots, and that for no request, may be called by any thread. */

/* A request has been read. Returns 1 + the slot that it has; 0: it has none. */
unsigned handover_note_read(const struct request_header *header, size_t size);

/* A request that has been read, and has that slot, goes to Python. */
void handover_begin_request(const struct request_header *header, size_t size, unsigned slot);

/* What is known of the request that went to Python last, in two words; have it be the last one again. */
void handover_hold(uint64_t *held);
void handover_resume(const uint64_t *held);

/* The words of a slot, by the number that handover_note_read has returned; NULL for 0. */
uint64_t *handover_slot(unsigned slot);

/* Note a file that is opened natively, before the reply; Python has the notes of the daemon before
   in its journal by then. Returns 0 if there is no room. place: of the note, for its end; 0: nothing is
   kept. */
int handover_note_opened(uint64_t fh, uint64_t node, uint32_t flags, uint32_t uid, unsigned *place);
void handover_note_closed(unsigned place);

/* Get memory into which requests can be read: its pages stay in memory. NULL: there is none. */
void *handover_resident(size_t size);

/* No request is left to read. */
void handover_note_idle(void);

/* A reply has been sent to the request; is_counted: it was given to Python. */
void handover_note_reply(uint64_t unique, int is_counted);

/* Save INIT and its reply. */
void handover_save_init(const struct request_header *header, size_t size);
void handover_save_reply(const struct iovec *parts, int count);

/* Whether the reply to a replayed INIT is being sent: it goes to handover_compare_reply only. */
int handover_is_replaying(void);
void handover_compare_reply(const struct iovec *parts, int count);

/* The descriptor to take over, or -1; the saved INIT, NULL if there is none. */
int handover_descriptor(void);
const void *handover_begin_replay(size_t *size);
int handover_end_replay(int session_fd);

#endif
