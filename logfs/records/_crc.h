/* CRC-32C for native code without the interpreter; elsewhere the package crc32c is used.

   With SSE 4.2 three streams are computed at the same time, since the instruction takes three cycles
   and a new one can begin in each; their sums are then joined by multiplication with powers of x.
   Source: Mark Adler's crc32c.c for the method; RFC 3720, B.4 for the test vectors. */

#ifndef LOGFS_CRC_H
#define LOGFS_CRC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LF_CRC_POLYNOMIAL 0x82f63b78u

static uint32_t lf_crc_table[8][256];

/* How a checksum changes by LF_CRC_LONG or LF_CRC_SHORT zero bytes, for each byte of it. */
#define LF_CRC_LONG 8192
#define LF_CRC_SHORT 256
static uint32_t lf_crc_long[4][256], lf_crc_short[4][256];

static uint32_t lf_crc_by_table(uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= crc;
        crc = lf_crc_table[7][word & 0xff] ^ lf_crc_table[6][(word >> 8) & 0xff] ^
              lf_crc_table[5][(word >> 16) & 0xff] ^ lf_crc_table[4][(word >> 24) & 0xff] ^
              lf_crc_table[3][(word >> 32) & 0xff] ^ lf_crc_table[2][(word >> 40) & 0xff] ^
              lf_crc_table[1][(word >> 48) & 0xff] ^ lf_crc_table[0][word >> 56];
        p += 8;
        n -= 8;
    }
    while (n-- > 0) {
        crc = lf_crc_table[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
    }
    return crc;
}

static void lf_crc_fill_shift(uint32_t shift[4][256], size_t zeros) {
    static const uint8_t none[256];
    for (int place = 0; place < 4; place++) {
        uint32_t of_bit[8];
        for (int bit = 0; bit < 8; bit++) {
            uint32_t crc = (uint32_t)1 << (8 * place + bit);
            for (size_t done = 0; done < zeros; done += sizeof none) {
                crc = lf_crc_by_table(crc, none, sizeof none);
            }
            of_bit[bit] = crc;
        }
        for (int value = 0; value < 256; value++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++) {
                crc ^= value >> bit & 1 ? of_bit[bit] : 0;
            }
            shift[place][value] = crc;
        }
    }
}

__attribute__((constructor)) static void lf_crc_fill(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ LF_CRC_POLYNOMIAL : crc >> 1;
        }
        lf_crc_table[0][value] = crc;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int value = 0; value < 256; value++) {
            uint32_t crc = lf_crc_table[slice - 1][value];
            lf_crc_table[slice][value] = lf_crc_table[0][crc & 0xff] ^ (crc >> 8);
        }
    }
    lf_crc_fill_shift(lf_crc_long, LF_CRC_LONG);
    lf_crc_fill_shift(lf_crc_short, LF_CRC_SHORT);
}

#if defined(__x86_64__)
#include <immintrin.h>

static inline uint32_t lf_crc_shifted(const uint32_t shift[4][256], uint32_t crc) {
    return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^
           shift[3][crc >> 24];
}

static inline uint64_t lf_crc_word(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

__attribute__((target("sse4.2"))) static uint32_t lf_crc_streams(
    uint32_t crc, const uint8_t **p, size_t *n, size_t stream, const uint32_t shift[4][256]) {
    uint64_t first = crc;
    while (*n >= 3 * stream) {
        uint64_t second = 0, third = 0;
        const uint8_t *at = *p, *end = at + stream;
        for (; at < end; at += 8) {
            first = _mm_crc32_u64(first, lf_crc_word(at));
            second = _mm_crc32_u64(second, lf_crc_word(at + stream));
            third = _mm_crc32_u64(third, lf_crc_word(at + 2 * stream));
        }
        first = lf_crc_shifted(shift, (uint32_t)first) ^ second;
        first = lf_crc_shifted(shift, (uint32_t)first) ^ third;
        *p += 3 * stream;
        *n -= 3 * stream;
    }
    return (uint32_t)first;
}

__attribute__((target("sse4.2"))) static uint32_t lf_crc_by_instruction(
    uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t sum;
    crc = lf_crc_streams(crc, &p, &n, LF_CRC_LONG, lf_crc_long);
    sum = lf_crc_streams(crc, &p, &n, LF_CRC_SHORT, lf_crc_short);
    for (; n >= 8; n -= 8, p += 8) {
        sum = _mm_crc32_u64(sum, lf_crc_word(p));
    }
    for (; n > 0; n--, p++) {
        sum = _mm_crc32_u8((uint32_t)sum, *p);
    }
    return (uint32_t)sum;
}
#endif

/* The CRC-32C of bytes after others, whose CRC-32C is crc; 0 if there are none. */
static inline uint32_t lf_crc32c(uint32_t crc, const uint8_t *p, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return ~lf_crc_by_instruction(~crc, p, n);
    }
#endif
    return ~lf_crc_by_table(~crc, p, n);
}

#endif
