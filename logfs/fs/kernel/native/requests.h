/* What the kernel sends and gets: the parts of its structs that the hooks use.

   Source: include/uapi/linux/fuse.h of Linux 6.18. The headers of Debian 12 are older. */

#ifndef LOGFS_REQUESTS_H
#define LOGFS_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

enum {
    FUSE_OPCODE_LOOKUP = 1,
    FUSE_OPCODE_FORGET = 2,
    FUSE_OPCODE_GETATTR = 3,
    FUSE_OPCODE_OPEN = 14,
    FUSE_OPCODE_READ = 15,
    FUSE_OPCODE_WRITE = 16,
    FUSE_OPCODE_RELEASE = 18,
    FUSE_OPCODE_FSYNC = 20,
    FUSE_OPCODE_FLUSH = 25,
    FUSE_OPCODE_INIT = 26,
    FUSE_OPCODE_INTERRUPT = 36,
    FUSE_OPCODE_POLL = 40,
    FUSE_OPCODE_BATCH_FORGET = 42,
    FUSE_OPCODE_READDIRPLUS = 44,
};

enum { NOTIFY_POLL = 1, NOTIFY_INVALIDATE_INODE = 2, NOTIFY_RESEND = 7 };

/* Set in the number of a request that the kernel sends again, and needed in its reply. */
#define REQUEST_RESENT (1ull << 63)

#define INIT_ASYNC_DIO (1u << 15)
#define INIT_PARALLEL_DIROPS (1u << 18)
#define INIT_EXT (1u << 30)
#define INIT2_PASSTHROUGH (1u << 5) /* bit 37 of the flags */
#define INIT2_HAS_RESEND (1u << 7)  /* bit 39 */
#define OPEN_DIRECT_IO (1u << 0)
#define OPEN_KEEP_CACHE (1u << 1)
#define OPEN_NO_FLUSH (1u << 5)
#define OPEN_PASSTHROUGH (1u << 7)

struct request_header {
    uint32_t length, opcode;
    uint64_t unique, node;
    uint32_t uid, gid, pid, padding;
};

struct reply_header {
    uint32_t length;
    int32_t error;
    uint64_t unique;
};

struct attributes_request {
    uint32_t flags, padding;
    uint64_t fh;
};

struct attributes_reply {
    uint64_t valid_s;
    uint32_t valid_ns, padding;
    uint64_t node, size, blocks; /* blocks: of 512 bytes */
    uint64_t accessed_s, modified_s, changed_s;
    uint32_t accessed_ns, modified_ns, changed_ns;
    uint32_t mode, links, uid, gid, device, block_bytes, attribute_flags;
};

struct entry_reply {
    uint64_t node, generation, valid_s, attributes_valid_s;
    uint32_t valid_ns, attributes_valid_ns;
    uint8_t attributes[88]; /* struct attributes_reply from its node on */
};

struct open_request {
    uint32_t flags, open_flags; /* flags: those of open(2) */
};

struct read_request {
    uint64_t fh, offset;
    uint32_t size, read_flags;
    uint64_t lock_owner;
    uint32_t open_flags, padding;
};

struct write_request { /* the bytes follow */
    uint64_t fh, offset;
    uint32_t size, flags;
    uint64_t lock_owner;
    uint32_t open_flags, padding;
};

#define WRITE_FROM_CACHE (1u << 0) /* in flags: from the page cache, at the offset */

struct release_request {
    uint64_t fh;
    uint32_t flags, release_flags; /* the first ones are those of open(2) */
};

struct fsync_request {
    uint64_t fh;
    uint32_t fsync_flags, padding;
};

struct flush_request {
    uint64_t fh;
    uint32_t unused, padding;
    uint64_t lock_owner;
};

struct poll_request {
    uint64_t fh, poll_handle;
    uint32_t flags, events;
};

struct invalidate_inode { /* a notification */
    uint64_t node;
    int64_t offset, length; /* of the bytes to drop; an offset below 0: none, only the attributes */
};

struct init_request {
    uint32_t major, minor, max_readahead, flags, flags2;
};

struct init_reply { /* up to what is changed here */
    uint32_t major, minor, max_readahead, flags;
    uint16_t max_background, congestion_threshold;
    uint32_t max_write, time_granularity;
    uint16_t max_pages, map_alignment;
    uint32_t flags2, max_stack_depth;
};

struct open_reply {
    uint64_t fh;
    uint32_t open_flags;
    int32_t backing_id;
};

_Static_assert(sizeof(struct request_header) == 40, "fuse_in_header");
_Static_assert(sizeof(struct reply_header) == 16, "fuse_out_header");
_Static_assert(sizeof(struct attributes_request) == 16, "fuse_getattr_in");
_Static_assert(sizeof(struct attributes_reply) == 104, "fuse_attr_out");
_Static_assert(sizeof(struct entry_reply) == 128, "fuse_entry_out");
_Static_assert(sizeof(struct attributes_reply) - offsetof(struct attributes_reply, node) == 88,
               "fuse_attr");
_Static_assert(sizeof(struct open_request) == 8, "fuse_open_in");
_Static_assert(sizeof(struct read_request) == 40, "fuse_read_in");
_Static_assert(sizeof(struct write_request) == 40, "fuse_write_in");
_Static_assert(sizeof(struct fsync_request) == 16, "fuse_fsync_in");
_Static_assert(sizeof(struct flush_request) == 24, "fuse_flush_in");
_Static_assert(sizeof(struct init_reply) == 40, "fuse_init_out, its first 40 bytes");
_Static_assert(sizeof(struct open_reply) == 16, "fuse_open_out");

/* Whether a request gets no reply. */
static inline int is_one_way(uint32_t opcode) {
    return opcode == FUSE_OPCODE_FORGET || opcode == FUSE_OPCODE_BATCH_FORGET ||
           opcode == FUSE_OPCODE_INTERRUPT;
}

#endif
