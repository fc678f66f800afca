/* The renderings of records: what is written before, between and after their numbers, keys and values.

   Renderer (_render.pxi) and the native cursor (log/reading/_cursor.h) write with these
   functions, so that no rule exists twice. A span of -1 bytes is null. */

#ifndef LOGFS_VIEWS_H
#define LOGFS_VIEWS_H

#include "_plain.h"

enum { LF_TEXT_VIEW, LF_TSV_VIEW, LF_JSONL_VIEW }; /* as logfs.types.View */

static inline uint8_t *lf_put_tsv_span(uint8_t *out, const uint8_t *p, int64_t n) {
    return n < 0 ? LF_PUT(out, "\\N") : lf_put_tsv(out, p, (size_t)n);
}

static uint8_t *lf_put_json_span(uint8_t *out, const uint8_t *p, int64_t n) {
    lf_counts counts;

    if (n < 0) {
        return LF_PUT(out, "null");
    }
    counts = lf_count(p, (size_t)n);
    if (counts.high && !lf_is_utf8(p, (size_t)n)) {
        out = LF_PUT(out, "{\"base64\":\"");
        out = lf_put_base64(out, p, (size_t)n);
        return LF_PUT(out, "\"}");
    }
    *out++ = '"';
    out = counts.json ? lf_put_json(out, p, (size_t)n) : lf_put(out, p, (size_t)n);
    *out++ = '"';
    return out;
}

/* The beginning of a line of jsonl, before the key. */
static inline uint8_t *lf_put_jsonl_head(uint8_t *out, int64_t offset, int64_t timestamp) {
    out = LF_PUT(out, "{\"offset\":");
    out = lf_put_decimal(out, offset);
    out = LF_PUT(out, ",\"timestamp\":");
    out = lf_put_decimal(out, timestamp);
    return LF_PUT(out, ",\"key\":");
}

/* A line of tsv without its LF. */
static inline uint8_t *lf_put_tsv_pair(
    uint8_t *out, const uint8_t *key, int64_t key_n, const uint8_t *value, int64_t value_n) {
    out = lf_put_tsv_span(out, key, key_n);
    *out++ = '\t';
    return lf_put_tsv_span(out, value, value_n);
}

/* A line of jsonl up to its headers. */
static inline uint8_t *lf_put_jsonl_fields(
    uint8_t *out, int64_t offset, int64_t timestamp, const uint8_t *key, int64_t key_n,
    const uint8_t *value, int64_t value_n) {
    out = lf_put_jsonl_head(out, offset, timestamp);
    out = lf_put_json_span(out, key, key_n);
    out = LF_PUT(out, ",\"value\":");
    out = lf_put_json_span(out, value, value_n);
    return LF_PUT(out, ",\"headers\":[");
}

/* The most bytes of a rendering, by the size of the record, its length field aside: a byte makes at most
   6, and the frame of a header at most 32. */
static inline int64_t lf_longest_rendering(int64_t size, int64_t header_count) {
    return 6 * size + 128 + 32 * header_count;
}

/* Write a plain record in the view tsv or jsonl, without its LF; there is room for lf_longest_rendering. */
static inline uint8_t *lf_put_plain(
    uint8_t *out, int view, const lf_plain *r, const lf_frame *frame) {
    int64_t timestamp = lf_add(frame->base_timestamp, r->timestamp_delta & frame->timestamp_mask);

    if (view == LF_TSV_VIEW) {
        return lf_put_tsv_pair(out, r->key, r->key_n, r->value, r->value_n);
    }
    out = lf_put_jsonl_fields(out, lf_add(frame->base_offset, r->offset_delta), timestamp, r->key,
                              r->key_n, r->value, r->value_n);
    return LF_PUT(out, "]}");
}

/* Renders records in the view tsv or jsonl as long as they are plain and fit in any case. at and left
   move after the last record rendered. Returns the bytes written. */
static inline int64_t lf_view_run(
    const uint8_t **at, const uint8_t *end, int64_t *left, int view, const lf_frame *frame,
    uint8_t *out, int64_t room) {
    const uint8_t *p = *at;
    uint8_t *o = out;
    int64_t n = *left;
    lf_plain r;

    while (n > 0 && end - p >= LF_PLAIN_RECORD_ROOM && lf_take_plain(p, end, &r) &&
           lf_longest_rendering(r.size, 0) <= room - (o - out)) {
        o = lf_put_plain(o, view, &r, frame);
        *o++ = '\n';
        p = r.end;
        n--;
    }
    *at = p;
    *left = n;
    return o - out;
}

#endif
