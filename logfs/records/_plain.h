/* Runs of plain records: those of format v2 that have no headers and whose numbers are small.

   Nearly all records are plain, so these loops decide how fast a log is read: ``lf_text_run`` renders
   them, ``lf_measure_run`` says how long their renderings are. Both stop before a record that is
   not plain, which is the caller's, whose rules hold for every record; so a record that is damaged is
   never plain. */

#ifndef LOGFS_PLAIN_H
#define LOGFS_PLAIN_H

#include "_bytes.h"

typedef struct {
    int64_t size; /* of the record, its length field aside */
    int64_t timestamp_delta;
    int64_t offset_delta;
    const uint8_t *fields; /* key, value and headers */
    const uint8_t *key;
    int64_t key_n; /* -1 is null */
    const uint8_t *value;
    int64_t value_n; /* -1 is null */
    const uint8_t *end;
} lf_plain;

/* lf_take_plain needs this number of bytes, of any content: five short numbers and one byte. */
#define LF_SHORT_BYTES 3
#define LF_PLAIN_RECORD_ROOM 16
_Static_assert(LF_PLAIN_RECORD_ROOM >= 5 * LF_SHORT_BYTES + 1, "lf_take_plain reads that much");

/* Read a group of at most 3 bytes, all of them there; NULL if it is longer. */
static inline const uint8_t *lf_get_short(const uint8_t *p, int64_t *raw) {
    if (LF_LIKELY(p[0] < 0x80)) {
        *raw = p[0];
        return p + 1;
    }
    *raw = (p[0] & 0x7f) | (int64_t)(p[1] & 0x7f) << 7;
    if (LF_LIKELY(p[1] < 0x80)) {
        return p + 2;
    }
    *raw |= (int64_t)p[2] << 14;
    return p[2] < 0x80 ? p + 3 : NULL;
}

/* Whether a plain record is at p, where LF_PLAIN_RECORD_ROOM bytes are. */
static inline int lf_take_plain(const uint8_t *p, const uint8_t *end, lf_plain *r) {
    int64_t length, timestamp, delta, key, value;
    if (LF_UNLIKELY((p = lf_get_short(p, &length)) == NULL)) {
        return 0;
    }
    r->size = length >> 1;
    if (LF_UNLIKELY(r->size > end - p)) {
        return 0;
    }
    r->end = p + r->size;
    p++; /* attributes */
    if (LF_UNLIKELY((p = lf_get_short(p, &timestamp)) == NULL) ||
        LF_UNLIKELY((p = lf_get_short(p, &delta)) == NULL)) {
        return 0;
    }
    r->fields = p;
    if (LF_UNLIKELY((p = lf_get_short(p, &key)) == NULL)) {
        return 0;
    }
    r->key = p;
    r->key_n = lf_unzigzag((uint64_t)key);
    if (r->key_n > 0) {
        if (LF_UNLIKELY(r->key_n > end - p - LF_SHORT_BYTES)) {
            return 0;
        }
        p += r->key_n;
    }
    if (LF_UNLIKELY((p = lf_get_short(p, &value)) == NULL)) {
        return 0;
    }
    r->value = p;
    r->value_n = lf_unzigzag((uint64_t)value);
    if (LF_UNLIKELY((length | delta) & 1) || LF_UNLIKELY(r->key_n < -1) ||
        LF_UNLIKELY(r->value_n < -1)) {
        return 0;
    }
    r->timestamp_delta = lf_unzigzag((uint64_t)timestamp);
    r->offset_delta = delta >> 1;
    /* The byte after the value is the number of headers. */
    return LF_LIKELY(r->end - p == (r->value_n > 0 ? r->value_n : 0) + 1 && r->end[-1] == 0);
}

/* Renders records as text as long as they are plain and fit with room to spare. at and left move
   after the last record rendered, last_delta is its offset delta. Returns the bytes written. */
static inline int64_t lf_text_run(
    const uint8_t **at, const uint8_t *end, int64_t *left,
    uint8_t *out, int64_t room, int64_t *last_delta) {
    const uint8_t *p = *at;
    uint8_t *o = out;
    int64_t n = *left, value_n;
    lf_plain r;
    while (n > 0 && end - p >= LF_PLAIN_RECORD_ROOM && lf_take_plain(p, end, &r)) {
        value_n = r.value_n > 0 ? r.value_n : 0;
        if (end - r.value < value_n + 16 || room - (o - out) < value_n + 16) {
            break;
        }
        o = lf_put_wild(o, r.value, value_n);
        *o++ = '\n';
        *last_delta = r.offset_delta;
        p = r.end;
        n--;
    }
    *at = p;
    *left = n;
    return o - out;
}

/* ---- lengths ------------------------------------------------------------------------------- */

typedef struct {
    int64_t text;
    int64_t tsv;
    int64_t jsonl;
} lf_lens;

/* What the deltas of a batch's records are added to; a mask of 0 leaves the timestamp as it is. */
typedef struct {
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t timestamp_mask;
    int64_t stop_offset; /* records from this offset on do not count */
} lf_frame;

/* Numbers that have as many characters as the one before: low, low + 1, ... low + width - 1. */
typedef struct {
    uint64_t low;
    uint64_t width;
    int digits;
} lf_decade;

static inline int lf_digits_like(int64_t value, lf_decade *d) {
    if (LF_UNLIKELY((uint64_t)value - d->low >= d->width)) {
        d->digits = lf_digits(value);
        d->low = d->width = 0;
        if (value >= 0 && d->digits < 19) {
            d->low = d->digits > 1 ? LF_POWERS[d->digits - 1] : 0;
            d->width = LF_POWERS[d->digits] - d->low;
        }
    }
    return d->digits;
}

/* lf_count of a run after which 16 more bytes may be read. */
static inline lf_counts lf_count_wild(const uint8_t *p, int64_t n) {
    static const uint8_t KEEP[32] = {255, 255, 255, 255, 255, 255, 255, 255,
                                     255, 255, 255, 255, 255, 255, 255, 255};
    lf_counts counts = {0, 0, 0};
    lf_v16 odd = {0}, quote = {0}, v, keep;
    int64_t i;
    if (LF_UNLIKELY(n > LF_BLOCK)) {
        return lf_count(p, (size_t)n);
    }
    for (i = 0; i + 16 <= n; i += 16) {
        v = lf_load16(p + i);
        odd |= (lf_v16)((lf_s16)v < 0x20) | (lf_v16)(v == '\\'); /* bytes >= 0x80 are negative */
        quote -= (lf_v16)(v == '"');
    }
    keep = lf_load16(KEEP + 16 - (n - i));
    v = (lf_load16(p + i) & keep) | (~keep & 'a');
    odd |= (lf_v16)((lf_s16)v < 0x20) | (lf_v16)(v == '\\');
    quote -= (lf_v16)(v == '"');
    if (LF_UNLIKELY(lf_any16(odd))) {
        return lf_count(p, (size_t)n);
    }
    if (LF_UNLIKELY(lf_any16(quote))) {
        counts.json = lf_sum16(quote);
    }
    return counts;
}

/* The length of a value or key in jsonl. */
static inline int64_t lf_json_length(const uint8_t *p, int64_t n, lf_counts counts) {
    if (n < 0) {
        return 4; /* null */
    }
    if (LF_UNLIKELY(counts.high) && !lf_is_utf8(p, (size_t)n)) {
        return 13 + (n + 2) / 3 * 4; /* {"base64":""} */
    }
    return n + 2 + counts.json;
}

static inline void lf_add_span(const uint8_t *p, int64_t n, const uint8_t *end, lf_lens *lens) {
    lf_counts counts;
    if (n < 0) {
        lens->tsv += 2;
        lens->jsonl += 4;
        return;
    }
    counts = LF_LIKELY(end - p >= n + 16) ? lf_count_wild(p, n) : lf_count(p, (size_t)n);
    lens->tsv += n + counts.tsv;
    lens->jsonl += lf_json_length(p, n, counts);
}

/* Characters of a line of jsonl but its numbers, key and value:
   {"offset":  ,"timestamp":  ,"key":  ,"value":  ,"headers":[  ]}LF */
#define LF_JSON_FRAME 54

/* What the numbers of the record before had for a length. */
typedef struct {
    lf_decade offsets;
    lf_decade timestamps;
} lf_decades;

/* Adds the lengths of the renderings of a plain record, after which the bytes go up to end. */
static inline void lf_add_plain(
    const lf_plain *r, const uint8_t *end, int64_t offset, int64_t timestamp,
    lf_decades *decades, lf_lens *lens) {
    lens->text += 1 + (r->value_n > 0 ? r->value_n : 0);
    lens->tsv += 2;
    lens->jsonl += LF_JSON_FRAME + lf_digits_like(offset, &decades->offsets) +
                   lf_digits_like(timestamp, &decades->timestamps);
    lf_add_span(r->key, r->key_n, end, lens);
    lf_add_span(r->value, r->value_n, end, lens);
}

/* Passes over records as long as they are plain; at and left move after the last of them. Returns the
   length of their rendering as text. */
static inline int64_t lf_text_length_run(const uint8_t **at, const uint8_t *end, int64_t *left) {
    const uint8_t *p = *at;
    int64_t n = *left, sum = 0;
    lf_plain r;
    while (n > 0 && end - p >= LF_PLAIN_RECORD_ROOM && lf_take_plain(p, end, &r)) {
        sum += 1 + (r.value_n > 0 ? r.value_n : 0);
        p = r.end;
        n--;
    }
    *at = p;
    *left = n;
    return sum;
}

/* Adds up the lengths of the renderings of records as long as they are plain and lie before
   stop_offset. at and left move after the last of them. */
static inline void lf_measure_run(
    const uint8_t **at, const uint8_t *end, int64_t *left, const lf_frame *frame, lf_lens *lens) {
    const uint8_t *p = *at;
    int64_t n = *left, offset, timestamp;
    lf_decades decades = {{0, 0, 0}, {0, 0, 0}};
    lf_lens sum = *lens;
    lf_plain r;
    while (n > 0 && end - p >= LF_PLAIN_RECORD_ROOM && lf_take_plain(p, end, &r)) {
        offset = lf_add(frame->base_offset, r.offset_delta);
        if (offset >= frame->stop_offset) {
            break;
        }
        timestamp = lf_add(frame->base_timestamp, r.timestamp_delta & frame->timestamp_mask);
        lf_add_plain(&r, end, offset, timestamp, &decades, &sum);
        p = r.end;
        n--;
    }
    *at = p;
    *left = n;
    *lens = sum;
}

#endif
