/* A keyed hash of 128 bits for the keys of a compaction: SipHash with 128 bits of output.

   One round a block and three at the end, as in the hash tables of Python and Rust: the writer
   of the records does not know the key of the hash, and cannot provoke collisions.
   Source: Aumasson and Bernstein, SipHash: a fast short-input PRF. */

#ifndef LOGFS_HASH_H
#define LOGFS_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct {
    uint64_t low;
    uint64_t high;
} lf_hash;

#define LF_LARGE_PAGE ((size_t)2 << 20)
#define LF_ROTATE(x, n) (((x) << (n)) | ((x) >> (64 - (n))))

#define LF_SIP_ROUND          \
    do {                      \
        v0 += v1;             \
        v1 = LF_ROTATE(v1, 13); \
        v1 ^= v0;             \
        v0 = LF_ROTATE(v0, 32); \
        v2 += v3;             \
        v3 = LF_ROTATE(v3, 16); \
        v3 ^= v2;             \
        v0 += v3;             \
        v3 = LF_ROTATE(v3, 21); \
        v3 ^= v0;             \
        v2 += v1;             \
        v1 = LF_ROTATE(v1, 17); \
        v1 ^= v2;             \
        v2 = LF_ROTATE(v2, 32); \
    } while (0)

static inline lf_hash lf_hash_bytes(const uint8_t *p, size_t n, uint64_t k0, uint64_t k1) {
    uint64_t v0 = k0 ^ 0x736f6d6570736575u, v1 = k1 ^ 0x646f72616e646f6du ^ 0xee;
    uint64_t v2 = k0 ^ 0x6c7967656e657261u, v3 = k1 ^ 0x7465646279746573u;
    uint64_t block = 0;
    const uint8_t *end = p + (n & ~(size_t)7);
    lf_hash hash;
    for (; p != end; p += 8) {
        memcpy(&block, p, 8);
        v3 ^= block;
        LF_SIP_ROUND;
        v0 ^= block;
    }
    block = (uint64_t)n << 56;
    switch (n & 7) {
    case 7: block |= (uint64_t)p[6] << 48; /* fall through */
    case 6: block |= (uint64_t)p[5] << 40; /* fall through */
    case 5: block |= (uint64_t)p[4] << 32; /* fall through */
    case 4: block |= (uint64_t)p[3] << 24; /* fall through */
    case 3: block |= (uint64_t)p[2] << 16; /* fall through */
    case 2: block |= (uint64_t)p[1] << 8; /* fall through */
    case 1: block |= (uint64_t)p[0]; /* fall through */
    default: break;
    }
    v3 ^= block;
    LF_SIP_ROUND;
    v0 ^= block;
    v2 ^= 0xee;
    LF_SIP_ROUND;
    LF_SIP_ROUND;
    LF_SIP_ROUND;
    hash.low = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    LF_SIP_ROUND;
    LF_SIP_ROUND;
    LF_SIP_ROUND;
    hash.high = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

/* Where a hash falls in [0, count). */
static inline uint64_t lf_share_of(uint64_t hash, uint64_t count) {
    return (uint64_t)(((unsigned __int128)hash * count) >> 64);
}

/* Memory of zeros of which only what is touched is taken, in large pages where the system has them:
   a table is read all over the place. NULL if there is not so much. */
static inline void *lf_reserve(size_t n) {
    void *p = mmap(
        NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return NULL;
    }
    if (n >= LF_LARGE_PAGE) {
        madvise(p, n, MADV_HUGEPAGE);
    }
    return p;
}

static inline void lf_release(void *p, size_t n) {
    if (p != NULL) {
        munmap(p, n);
    }
}

/* Have the first slots of a search in the cache: it continues where it begins. */
static inline void lf_prefetch(const void *p) {
    __builtin_prefetch(p, 1);
    __builtin_prefetch((const uint8_t *)p + 64, 1);
}

#endif
