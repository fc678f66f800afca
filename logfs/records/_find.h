/* Where in some bytes others are, for queries: memmem(3), several times as fast on x86-64. */

#ifndef LF_FIND_H
#define LF_FIND_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

void *memmem(const void *, size_t, const void *, size_t);

/* Return where a needle of at least one byte begins in p[0..n), NULL if it is not there. */
static const uint8_t *lf_find(const uint8_t *p, size_t n, const uint8_t *needle, size_t m)
{
    if (m > n)
        return NULL;
    if (m == 1)
        return (const uint8_t *)memchr(p, needle[0], n);
#ifdef __SSE2__
    /* 16 places at a time: its first and its last byte are there. */
    const __m128i first = _mm_set1_epi8((char)needle[0]);
    const __m128i last = _mm_set1_epi8((char)needle[m - 1]);
    const uint8_t *const end = p + n;
    while ((size_t)(end - p) >= m + 15) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + m - 1));
        const __m128i both = _mm_and_si128(_mm_cmpeq_epi8(a, first), _mm_cmpeq_epi8(b, last));
        unsigned found = (unsigned)_mm_movemask_epi8(both);
        while (found) {
            const uint8_t *at = p + __builtin_ctz(found);
            if (memcmp(at + 1, needle + 1, m - 2) == 0)
                return at;
            found &= found - 1;
        }
        p += 16;
    }
    n = (size_t)(end - p);
#endif
    return (const uint8_t *)memmem(p, n, needle, m);
}

#endif
