/* What logfs/records/_plain.h and _lines.h promise of the ends of buffers. Built with sanitizers: the
   buffers are exactly as long as they may be. Prints what is wrong and ends with status 1. */

#include <stdio.h>
#include <stdlib.h>

#include "_lines.h"
#include "_plain.h"

static int wrong = 0;

static void expect(int holds, const char *what, int64_t n) {
    if (!holds) {
        fprintf(stderr, "%s: %lld bytes\n", what, (long long)n);
        wrong = 1;
    }
}

/* Encode a record with a null key, a value of n bytes and no headers. */
static uint8_t *encode(int64_t n, int64_t *size) {
    int64_t body = 5 + lf_varint_size(n) + n;
    uint8_t *begin, *p;
    *size = lf_varint_size(body) + body;
    begin = p = malloc((size_t)*size);
    p = lf_put_varint(p, body);
    *p++ = 0;                  /* attributes */
    *p++ = 0;                  /* timestamp delta */
    *p++ = 0;                  /* offset delta */
    p = lf_put_varint(p, -1); /* null key */
    p = lf_put_varint(p, n);
    memset(p, 'v', (size_t)n);
    p[n] = 0; /* no headers */
    return begin;
}

/* A batch of one record is read without a slow path as soon as it has room for the numbers. */
static void one_small_record(int64_t n) {
    int64_t size, left = 1, last_delta = 0;
    uint8_t *p = encode(n, &size), *out = malloc((size_t)n + 1);
    const uint8_t *at = p;
    lf_plain record;
    if (size >= 16) {
        expect(lf_take_plain(p, p + size, &record), "a plain record is not taken", size);
        expect(record.value_n == n && record.end == p + size, "it is read wrongly", size);
        lf_lens lens = {0, 0, 0};
        lf_frame frame = {0, 0, -1, INT64_MAX};
        lf_measure_run(&at, p + size, &left, &frame, &lens);
        expect(left == 0 && lens.text == n + 1, "it is not measured", size);
    }
    at = p;
    left = 1;
    (void)lf_text_run(&at, p + size, &left, out, n + 1, &last_delta);
    free(out);
    free(p);
}

/* Lines become records that never go beyond the room there is. */
static void lines_in_a_room(int64_t length, int64_t room) {
    int64_t size = 20 * (length + 1), count = 0, got, i;
    uint8_t *text = malloc((size_t)size), *out = malloc((size_t)room);
    const uint8_t *at = text;
    memset(text, 'l', (size_t)size);
    for (i = 0; i < 20; i++) {
        text[i * (length + 1) + length] = '\n';
    }
    got = lf_line_run(&at, text + size, size, out, room, &count);
    expect(got <= room, "records go beyond their room", room);
    free(out);
    free(text);
}

int main(void) {
    int64_t n, room;
    for (n = 0; n < 300; n++) {
        one_small_record(n);
        for (room = 1; room < 400; room += 3) {
            lines_in_a_room(n, room);
        }
    }
    return wrong;
}
