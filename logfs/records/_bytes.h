/* The innermost loops of logfs.records: numbers, varints, and runs of text.

   A run is counted before it is written: how much longer it gets with tsv escapes and with JSON
   escapes, and whether it is all ASCII. Vectors are the compiler's own (16 bytes, any target). */

#ifndef LOGFS_BYTES_H
#define LOGFS_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "logfs supports little-endian machines"
#endif

#define LF_LIKELY(x) __builtin_expect(!!(x), 1)
#define LF_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- big-endian numbers ------------------------------------------------------------------- */

static inline int16_t lf_get16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return (int16_t)__builtin_bswap16(v);
}

static inline int32_t lf_get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return (int32_t)__builtin_bswap32(v);
}

static inline int64_t lf_get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return (int64_t)__builtin_bswap64(v);
}

static inline void lf_put16(uint8_t *p, int64_t value) {
    uint16_t v = __builtin_bswap16((uint16_t)value);
    memcpy(p, &v, 2);
}

static inline void lf_put32(uint8_t *p, int64_t value) {
    uint32_t v = __builtin_bswap32((uint32_t)value);
    memcpy(p, &v, 4);
}

static inline void lf_put64(uint8_t *p, int64_t value) {
    uint64_t v = __builtin_bswap64((uint64_t)value);
    memcpy(p, &v, 8);
}

/* Offsets and timestamps of damaged batches may overflow; Java wraps, C must not guess. */
static inline int64_t lf_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t lf_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* ---- zig-zag varints, at most 5 (int32) or 10 (int64) bytes. Source: Kafka ByteUtils ------- */

static inline uint64_t lf_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static inline int64_t lf_unzigzag(uint64_t v) { return (int64_t)((v >> 1) ^ (0 - (v & 1))); }

static inline int lf_varint_size(int64_t value) {
    uint64_t v = lf_zigzag(value);
    return (70 - __builtin_clzll(v | 1)) / 7;
}

static inline uint8_t *lf_put_varint(uint8_t *p, int64_t value) {
    uint64_t v = lf_zigzag(value);
    while (LF_UNLIKELY(v >= 0x80)) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* Read a group of 7-bit bytes, at most max_bytes; NULL if it is longer or runs beyond end. */
static inline const uint8_t *lf_get_groups(
    const uint8_t *p, const uint8_t *end, int max_bytes, uint64_t *value) {
    int shift = 0;
    *value = 0;
    if (LF_LIKELY(end - p >= 2)) {
        if (LF_LIKELY(p[0] < 0x80)) {
            *value = p[0];
            return p + 1;
        }
        if (LF_LIKELY(p[1] < 0x80)) {
            *value = (uint64_t)(p[0] & 0x7f) | ((uint64_t)p[1] << 7);
            return p + 2;
        }
    }
    for (; max_bytes > 0 && p < end; max_bytes--, shift += 7) {
        uint8_t byte = *p++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *lf_get_varlong(
    const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t raw;
    p = lf_get_groups(p, end, 10, &raw);
    *value = lf_unzigzag(raw);
    return p;
}

static inline const uint8_t *lf_get_varint(
    const uint8_t *p, const uint8_t *end, int64_t *value) {
    uint64_t raw;
    p = lf_get_groups(p, end, 5, &raw);
    *value = lf_unzigzag(raw & 0xffffffffu); /* the fifth byte may carry more; Java drops it */
    return p;
}

/* ---- decimal numbers ----------------------------------------------------------------------- */

static const uint64_t LF_POWERS[20] = {
    0, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u,
    10000000000u, 100000000000u, 1000000000000u, 10000000000000u, 100000000000000u,
    1000000000000000u, 10000000000000000u, 100000000000000000u, 1000000000000000000u,
    10000000000000000000u};

static inline int lf_udigits(uint64_t v) {
    int guess = ((64 - __builtin_clzll(v | 1)) * 1233) >> 12;
    return guess + (v >= LF_POWERS[guess]);
}

/* Characters of a number in decimal, sign included. */
static inline int lf_digits(int64_t value) {
    uint64_t v = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    return lf_udigits(v) + (value < 0);
}

/* Characters of the numbers first .. first + count - 1 written one after another; first >= 0. */
static inline int64_t lf_digits_of_range(int64_t first, int64_t count) {
    int64_t total = 0;
    while (count > 0) {
        int digits = lf_digits(first);
        uint64_t room = digits >= 19 ? (uint64_t)count : LF_POWERS[digits] - (uint64_t)first;
        int64_t take = room < (uint64_t)count ? (int64_t)room : count;
        total += take * digits;
        first += take;
        count -= take;
    }
    return total;
}

static inline uint8_t *lf_put_decimal(uint8_t *p, int64_t value) {
    uint64_t v = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint8_t *end;
    if (value < 0) {
        *p++ = '-';
    }
    p += lf_udigits(v);
    end = p;
    do {
        *--p = (uint8_t)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    return end;
}

/* ---- counting escapes ---------------------------------------------------------------------- */

typedef struct {
    int64_t tsv;  /* bytes that tsv escapes add: one for each \ TAB LF CR */
    int64_t json; /* bytes that JSON escapes add */
    int high;     /* some byte is >= 0x80 */
} lf_counts;

typedef uint8_t lf_v16 __attribute__((vector_size(16)));
typedef int8_t lf_s16 __attribute__((vector_size(16)));

/* One byte's share, packed so that a sum over up to 2^16 bytes cannot carry. */
#define LF_SHARE(tsv, json, high) \
    ((uint64_t)(tsv) | ((uint64_t)(json) << 20) | ((uint64_t)(high) << 44))

static inline uint64_t lf_share(uint8_t byte) {
    if (LF_UNLIKELY(byte >= 0x80)) {
        return LF_SHARE(0, 0, 1);
    }
    if (LF_LIKELY(byte >= 0x20)) {
        return byte == '\\' ? LF_SHARE(1, 1, 0) : byte == '"' ? LF_SHARE(0, 1, 0) : 0;
    }
    if (byte == '\t' || byte == '\n' || byte == '\r') {
        return LF_SHARE(1, 1, 0);
    }
    return byte == '\b' || byte == '\f' ? LF_SHARE(0, 1, 0) : LF_SHARE(0, 5, 0);
}

static inline void lf_count_scalar(const uint8_t *p, size_t n, lf_counts *counts) {
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        sum += lf_share(p[i]);
    }
    counts->tsv += (int64_t)(sum & 0xfffff);
    counts->json += (int64_t)((sum >> 20) & 0xffffff);
    counts->high |= (sum >> 44) != 0;
}

static inline lf_v16 lf_load16(const uint8_t *p) {
    lf_v16 v;
    memcpy(&v, p, 16);
    return v;
}

static inline int lf_any16(lf_v16 v) {
    uint64_t halves[2];
    memcpy(halves, &v, 16);
    return (halves[0] | halves[1]) != 0;
}

static inline int64_t lf_sum16(lf_v16 v) {
    uint64_t halves[2], pairs;
    memcpy(halves, &v, 16);
    pairs = (halves[0] & 0x00ff00ff00ff00ffu) + ((halves[0] >> 8) & 0x00ff00ff00ff00ffu) +
            (halves[1] & 0x00ff00ff00ff00ffu) + ((halves[1] >> 8) & 0x00ff00ff00ff00ffu);
    return (int64_t)((pairs * 0x0001000100010001u) >> 48);
}

typedef struct {
    lf_v16 both;  /* \ TAB LF CR: one more byte in tsv and in JSON */
    lf_v16 quote; /* " : one more in JSON */
    lf_v16 rare;  /* another control character was seen */
    lf_v16 seen;  /* all bytes or-ed */
} lf_lanes;

static inline void lf_count_lanes(lf_v16 v, lf_lanes *lanes) {
    lf_v16 white = (lf_v16)((v == '\t') | (v == '\n') | (v == '\r'));
    lanes->both -= white | (lf_v16)(v == '\\');
    lanes->quote -= (lf_v16)(v == '"');
    lanes->rare |= (lf_v16)(v < 0x20) ^ white;
    lanes->seen |= v;
}

static inline void lf_add_lanes(
    const lf_lanes *lanes, const uint8_t *p, size_t n, lf_counts *counts) {
    if (LF_UNLIKELY(lf_any16(lanes->rare))) {
        lf_count_scalar(p, n, counts);
        return;
    }
    if (lf_any16(lanes->both | lanes->quote)) {
        int64_t both = lf_sum16(lanes->both);
        counts->tsv += both;
        counts->json += both + lf_sum16(lanes->quote);
    }
    counts->high |= lf_any16(lanes->seen & 0x80);
}

#define LF_BLOCK 2048 /* 128 vectors: a lane of 8 bits cannot overflow */

/* The last 16 bytes of a run, those that whole vectors have covered turned into a harmless letter. */
static inline lf_v16 lf_load_tail(const uint8_t *p, size_t n) {
    static const uint8_t MASK[32] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255,
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    lf_v16 mask = lf_load16(MASK + n % 16);
    return (lf_load16(p + n - 16) & mask) | (~mask & 'a');
}

/* Count a block of 16 to LF_BLOCK bytes of any content. */
static inline void lf_count_any(const uint8_t *p, size_t n, lf_counts *counts) {
    lf_lanes lanes = {{0}, {0}, {0}, {0}};
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        lf_count_lanes(lf_load16(p + i), &lanes);
    }
    if (i != n) {
        lf_count_lanes(lf_load_tail(p, n), &lanes);
    }
    lf_add_lanes(&lanes, p, n, counts);
}

/* Count a block that most likely needs no escapes but quotes: half the work if that is so. */
static inline void lf_count_plain(const uint8_t *p, size_t n, lf_counts *counts) {
    lf_v16 odd = {0}, quote = {0}, v;
    size_t i;
    for (i = 0; i + 16 <= n; i += 16) {
        v = lf_load16(p + i);
        odd |= (lf_v16)((lf_s16)v < 0x20) | (lf_v16)(v == '\\'); /* bytes >= 0x80 are negative */
        quote -= (lf_v16)(v == '"');
    }
    if (i != n) {
        v = lf_load_tail(p, n);
        odd |= (lf_v16)((lf_s16)v < 0x20) | (lf_v16)(v == '\\');
        quote -= (lf_v16)(v == '"');
    }
    if (LF_UNLIKELY(lf_any16(odd))) {
        lf_count_any(p, n, counts);
    } else if (lf_any16(quote)) {
        counts->json += lf_sum16(quote);
    }
}

#define LF_DEFINE_COUNT(name, count_block)                      \
    static inline lf_counts name(const uint8_t *p, size_t n) {  \
        lf_counts counts = {0, 0, 0};                           \
        while (n >= 16) {                                       \
            size_t size = n < LF_BLOCK ? n : LF_BLOCK;          \
            count_block(p, size, &counts);                      \
            p += size;                                          \
            n -= size;                                          \
        }                                                       \
        lf_count_scalar(p, n, &counts);                         \
        return counts;                                          \
    }

LF_DEFINE_COUNT(lf_count, lf_count_plain) /* one key, value or header */

/* Whether a run is UTF-8 as in Python's strict decoder: shortest forms, no surrogates. */
static int lf_is_utf8(const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    while (p < end) {
        uint64_t eight;
        uint8_t a = *p;
        size_t more;
        uint8_t low = 0x80, high = 0xbf;
        if (a < 0x80) {
            p++;
            while (end - p >= 8) {
                memcpy(&eight, p, 8);
                if (eight & 0x8080808080808080u) {
                    break;
                }
                p += 8;
            }
            continue;
        }
        if (a < 0xc2 || a > 0xf4) {
            return 0;
        }
        if (a < 0xe0) {
            more = 1;
        } else if (a < 0xf0) {
            more = 2;
            low = a == 0xe0 ? 0xa0 : 0x80;
            high = a == 0xed ? 0x9f : 0xbf;
        } else {
            more = 3;
            low = a == 0xf0 ? 0x90 : 0x80;
            high = a == 0xf4 ? 0x8f : 0xbf;
        }
        if ((size_t)(end - p) <= more || p[1] < low || p[1] > high) {
            return 0;
        }
        if (more >= 2 && (p[2] & 0xc0) != 0x80) {
            return 0;
        }
        if (more == 3 && (p[3] & 0xc0) != 0x80) {
            return 0;
        }
        p += more + 1;
    }
    return 1;
}

/* ---- writing runs -------------------------------------------------------------------------- */

static inline uint8_t *lf_put(uint8_t *out, const void *p, size_t n) {
    memcpy(out, p, n);
    return out + n;
}

/* Copies 16 bytes at a time: writes and reads up to 15 bytes more than n. */
static inline uint8_t *lf_put_wild(uint8_t *out, const uint8_t *p, int64_t n) {
    int64_t i;
    for (i = 0; i < n; i += 16) {
        memcpy(out + i, p + i, 16);
    }
    return out + n;
}

#define LF_PUT(out, literal) lf_put((out), (literal), sizeof(literal) - 1)

static inline uint8_t *lf_put_tsv_byte(uint8_t *out, uint8_t byte) {
    uint8_t letter;
    switch (byte) {
        case '\\': letter = '\\'; break;
        case '\t': letter = 't'; break;
        case '\n': letter = 'n'; break;
        case '\r': letter = 'r'; break;
        default: *out++ = byte; return out;
    }
    *out++ = '\\';
    *out++ = letter;
    return out;
}

static inline uint8_t *lf_put_json_byte(uint8_t *out, uint8_t byte) {
    static const char HEX[] = "0123456789abcdef";
    uint8_t letter;
    if (LF_LIKELY(byte >= 0x20 && byte != '"' && byte != '\\')) {
        *out++ = byte;
        return out;
    }
    switch (byte) {
        case '"': letter = '"'; break;
        case '\\': letter = '\\'; break;
        case '\b': letter = 'b'; break;
        case '\f': letter = 'f'; break;
        case '\n': letter = 'n'; break;
        case '\r': letter = 'r'; break;
        case '\t': letter = 't'; break;
        default:
            out = LF_PUT(out, "\\u00");
            *out++ = (uint8_t)HEX[byte >> 4];
            *out++ = (uint8_t)HEX[byte & 15];
            return out;
    }
    *out++ = '\\';
    *out++ = letter;
    return out;
}

/* Write a run with its escapes. 16 bytes of input make at least 16 of output, so copying 16 whole
   ones stays inside a buffer that holds the counted length. */
#define LF_DEFINE_PUT(name, needs_escape, put_byte)                           \
    static uint8_t *name(uint8_t *out, const uint8_t *p, size_t n) {          \
        const uint8_t *end = p + n;                                           \
        while (end - p >= 16) {                                               \
            lf_v16 v = lf_load16(p);                                          \
            if (LF_LIKELY(!lf_any16((lf_v16)(needs_escape)))) {               \
                memcpy(out, &v, 16);                                          \
                out += 16;                                                    \
                p += 16;                                                      \
            } else {                                                          \
                int i;                                                        \
                for (i = 0; i < 16; i++) {                                    \
                    out = put_byte(out, *p++);                                \
                }                                                             \
            }                                                                 \
        }                                                                     \
        if (p < end && n >= 16) {                                             \
            /* If the last 16 bytes are clean, all of them stand in out as they are. */ \
            lf_v16 v = lf_load16(end - 16);                                   \
            if (LF_LIKELY(!lf_any16((lf_v16)(needs_escape)))) {               \
                out += end - p;                                               \
                memcpy(out - 16, &v, 16);                                     \
                return out;                                                   \
            }                                                                 \
        }                                                                     \
        while (p < end) {                                                     \
            out = put_byte(out, *p++);                                        \
        }                                                                     \
        return out;                                                           \
    }

LF_DEFINE_PUT(
    lf_put_tsv, (v == '\\') | (v == '\t') | (v == '\n') | (v == '\r'), lf_put_tsv_byte)
LF_DEFINE_PUT(lf_put_json, (v < 0x20) | (v == '"') | (v == '\\'), lf_put_json_byte)

static uint8_t *lf_put_base64(uint8_t *out, const uint8_t *p, size_t n) {
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; n >= 3; n -= 3, p += 3) {
        uint32_t v = ((uint32_t)p[0] << 16) | ((uint32_t)p[1] << 8) | p[2];
        *out++ = (uint8_t)DIGITS[v >> 18];
        *out++ = (uint8_t)DIGITS[(v >> 12) & 63];
        *out++ = (uint8_t)DIGITS[(v >> 6) & 63];
        *out++ = (uint8_t)DIGITS[v & 63];
    }
    if (n != 0) {
        uint32_t v = ((uint32_t)p[0] << 16) | (n == 2 ? (uint32_t)p[1] << 8 : 0);
        *out++ = (uint8_t)DIGITS[v >> 18];
        *out++ = (uint8_t)DIGITS[(v >> 12) & 63];
        *out++ = n == 2 ? (uint8_t)DIGITS[(v >> 6) & 63] : (uint8_t)'=';
        *out++ = '=';
    }
    return out;
}

/* Write a run as Java prints a string made of it: what is no UTF-8 becomes U+FFFD, a byte or a
 * sequence that breaks off at a time. Up to 3 bytes for one. Source: Java String, decoding UTF-8. */
static uint8_t *lf_put_java(uint8_t *out, const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    while (p < end) {
        uint8_t a = *p;
        size_t left = (size_t)(end - p), size = 1;
        uint8_t b = left > 1 ? p[1] : 0, c = left > 2 ? p[2] : 0, d = left > 3 ? p[3] : 0;
        int good = 0;
        if (a < 0x80) {
            good = 1;
        } else if (a >= 0xc2 && a < 0xe0) {
            good = (b & 0xc0) == 0x80;
            size = good ? 2 : 1;
        } else if (a >= 0xe0 && a < 0xf0) {
            if ((b & 0xc0) == 0x80 && !(a == 0xe0 && b < 0xa0)) {
                good = (c & 0xc0) == 0x80 && !(a == 0xed && b >= 0xa0);
                size = (c & 0xc0) == 0x80 ? 3 : 2; /* a surrogate goes as a whole */
            }
        } else if (a >= 0xf0 && a <= 0xf4) {
            if ((b & 0xc0) == 0x80 && !(a == 0xf0 && b < 0x90) && !(a == 0xf4 && b >= 0x90)) {
                size = (c & 0xc0) != 0x80 ? 2 : (d & 0xc0) != 0x80 ? 3 : 4;
                good = size == 4;
            }
        }
        out = good ? lf_put(out, p, size) : LF_PUT(out, "\xef\xbf\xbd");
        p += size;
    }
    return out;
}

#endif
