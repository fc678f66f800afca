/* Many lines of text at once, for logfs.records._encoding: counted, and turned into records. */

#ifndef LOGFS_LINES_H
#define LOGFS_LINES_H

#include "_bytes.h"

/* ---- counting ------------------------------------------------------------------------------ */

LF_DEFINE_COUNT(lf_count_lines_16, lf_count_any)

#if defined(__x86_64__) && defined(__GNUC__)
#define LF_HAS_32

typedef uint8_t lf_v32 __attribute__((vector_size(32)));

static inline void lf_split32(const lf_v32 *v, lf_v16 halves[2]) { memcpy(halves, v, 32); }

static inline int lf_any32(const lf_v32 *v) {
    lf_v16 halves[2];
    lf_split32(v, halves);
    return lf_any16(halves[0] | halves[1]);
}

static inline int64_t lf_sum32(const lf_v32 *v) {
    lf_v16 halves[2];
    lf_split32(v, halves);
    return lf_sum16(halves[0]) + lf_sum16(halves[1]);
}

/* The same with vectors of 32 bytes, for processors that have them: elsewhere compilers take such
   vectors apart, byte by byte. What is looked for is what lf_count_lanes looks for. */
__attribute__((target("avx2"))) static lf_counts lf_count_lines_32(const uint8_t *p, size_t n) {
    lf_counts counts = {0, 0, 0};
    while (n >= 32) {
        size_t size = n < LF_BLOCK ? n & ~(size_t)31 : LF_BLOCK, i;
        lf_v32 both = {0}, quote = {0}, rare = {0}, seen = {0};
        for (i = 0; i < size; i += 32) {
            lf_v32 v, white;
            memcpy(&v, p + i, 32);
            white = (lf_v32)((v == '\t') | (v == '\n') | (v == '\r'));
            both -= white | (lf_v32)(v == '\\');
            quote -= (lf_v32)(v == '"');
            rare |= (lf_v32)(v < 0x20) ^ white;
            seen |= v;
        }
        if (LF_UNLIKELY(lf_any32(&rare))) {
            lf_count_scalar(p, size, &counts);
        } else {
            int64_t more = lf_sum32(&both);
            counts.tsv += more;
            counts.json += more + lf_sum32(&quote);
            seen &= 0x80;
            counts.high |= lf_any32(&seen);
        }
        p += size;
        n -= size;
    }
    lf_count_scalar(p, n, &counts);
    return counts;
}
#endif

/* Count many lines with their LFs. */
static inline lf_counts lf_count_lines(const uint8_t *p, size_t n) {
#ifdef LF_HAS_32
    if (__builtin_cpu_supports("avx2")) {
        return lf_count_lines_32(p, n);
    }
#endif
    return lf_count_lines_16(p, n);
}

/* ---- lines to records ---------------------------------------------------------------------- */

#define LF_PLAIN_LINE 8000 /* the length of a record up to here takes two bytes at most */
#define LF_PLAIN_COUNT (1 << 20)
#define LF_LINE_COPY 32 /* a line is copied in pieces of so many bytes, the last one whole */
#define LF_LINE_ROOM 64 /* what is written besides a line, and what copying it writes too much */
_Static_assert(LF_LINE_ROOM >= 2 + 2 + 3 + 1 + 2 + 1 + LF_LINE_COPY, "lf_line_run writes that much");

/* A zig-zag varint of one or two bytes; writes two. */
static inline uint8_t *lf_put_short(uint8_t *out, uint32_t value) {
    uint32_t v = value << 1, more = v >= 0x80;
    uint16_t both = (uint16_t)((v & 0x7f) | more << 7 | (v >> 7) << 8);
    memcpy(out, &both, 2);
    return out + 1 + more;
}

/* Turns whole lines into records (null key, no headers, timestamp delta 0) as long as they are of
 * usual length and fit with room to spare, and until some bytes of them are taken; the caller's slow
 * path takes the one it stops at. at moves after the last line taken, count is the offset delta of
 * the next record. Returns the bytes written. */
static int64_t lf_line_run(
    const uint8_t **at, const uint8_t *end, int64_t some, uint8_t *out, int64_t room,
    int64_t *count) {
    const uint8_t *p = *at, *until = end - p > some ? p + some : end;
    uint8_t *o = out, *last;
    uint32_t delta = (uint32_t)*count;
    if (*count >= LF_PLAIN_COUNT || room < LF_LINE_ROOM) {
        return 0;
    }
    last = out + room - LF_LINE_ROOM;
    while (p < until && delta < LF_PLAIN_COUNT) {
        int64_t n = (const uint8_t *)memchr(p, '\n', (size_t)(end - p)) - p, i;
        uint32_t delta_bytes = delta < 64 ? 1 : delta < 8192 ? 2 : 3;
        if (n >= LF_PLAIN_LINE || n > last - o || end - p - n < LF_LINE_COPY) {
            break;
        }
        o = lf_put_short(o, (uint32_t)n + 4 + delta_bytes + (n < 64 ? 1 : 2));
        *o++ = 0; /* attributes */
        *o++ = 0; /* timestamp delta */
        if (delta_bytes == 3) {
            uint32_t v = delta << 1;
            *o++ = (uint8_t)(v | 0x80);
            *o++ = (uint8_t)(v >> 7 | 0x80);
            *o++ = (uint8_t)(v >> 14);
        } else {
            o = lf_put_short(o, delta);
        }
        *o++ = 1; /* null key */
        o = lf_put_short(o, (uint32_t)n);
        for (i = 0; i < n; i += LF_LINE_COPY) {
            memcpy(o + i, p + i, LF_LINE_COPY);
        }
        o += n;
        *o++ = 0; /* no headers */
        p += n + 1;
        delta++;
    }
    *at = p;
    *count = delta;
    return o - out;
}

#endif
