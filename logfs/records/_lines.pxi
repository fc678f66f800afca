# Part of _encoding.pyx: lines of text and tsv to records, without the GIL.

cdef enum:
    COUNT_BYTES = 16384     # how much is copied before it is counted, while it is in the cache

cdef str NO_KEY_REASON = "this topic needs a key: write KEY<TAB>VALUE, as in >> FILE.tsv"

cdef struct Draft:
    uint8_t *p              # the batch being filled
    int64_t capacity        # of its buffer
    int64_t size
    int64_t limit
    int64_t count
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t now
    bint require_key
    Span headers            # of every line: their count and fields, as they stand in a record
    Span delimiter          # between key and value of text, if n > 0
    Lens lens               # of lines counted on the way in, if counted
    bint counted


cdef inline int judge_room(Draft *d, int64_t used, int64_t size) noexcept nogil:
    """Whether a record of a size, its length field included, goes after the bytes used."""
    if used + size <= min(d.capacity, d.limit):
        return AREA_END
    if used + size <= d.limit:
        return NO_ROOM
    return BATCH_FULL if d.count else TOO_LARGE


cdef int text_lines(Draft *d, bytes_t *at, bytes_t end, int64_t *needed) noexcept nogil:
    """Turn lines into records until the batch is full; at moves after the last one taken."""
    cdef bytes_t p = at[0]
    cdef bytes_t uncounted = p
    cdef uint8_t *out = d.p + d.size
    cdef int64_t first = d.count
    cdef int64_t n, body, size
    cdef int status = AREA_END
    if d.require_key and p < end:
        return NO_KEY
    while p < end:
        if d.headers.n == 1:
            # Some at a time: they are counted while they are in the cache.
            out += lf_line_run(
                &p, end, COUNT_BYTES, out, min(d.capacity, d.limit) - (out - d.p), &d.count
            )
            count_text(d, uncounted, p, d.count - first)
            uncounted = p
            first = d.count
        n = <bytes_t>memchr(p, 10, end - p) - p
        body = 3 + lf_varint_size(d.count) + lf_varint_size(n) + n + d.headers.n
        size = lf_varint_size(body) + body
        status = judge_room(d, out - d.p, size)
        if status != AREA_END:
            needed[0] = size
            break
        out = lf_put_varint(out, body)
        out[0] = 0                              # attributes
        out[1] = 0                              # timestamp delta: all were written now
        out = lf_put_varint(out + 2, d.count)
        out[0] = 1                              # null key
        out = lf_put_varint(out + 1, n)
        if d.capacity - (out - d.p) - n >= 16 and end - p - n >= 16:
            out = lf_put_wild(out, p, n)
        else:
            out = lf_put(out, p, n)
        out = put_headers(out, d)
        p += n + 1
        d.count += 1
        if p - uncounted >= COUNT_BYTES:
            count_text(d, uncounted, p, d.count - first)
            uncounted = p
            first = d.count
    count_text(d, uncounted, p, d.count - first)
    d.size = out - d.p
    at[0] = p
    return status


cdef inline uint8_t *put_headers(uint8_t *out, Draft *d) noexcept nogil:
    if d.headers.n == 1:
        out[0] = 0                              # none
        return out + 1
    return lf_put(out, d.headers.p, d.headers.n)


cdef void count_text(Draft *d, bytes_t p, bytes_t end, int64_t lines) noexcept nogil:
    """Add the lengths of lines that became records of text: null key, no headers, written now."""
    cdef int64_t n = end - p
    cdef lf_counts counts
    if n == 0 or not d.counted:
        return
    counts = lf_count_lines(p, n)                     # each LF adds one to both
    if counts.high and not lf_is_utf8(p, n):    # a run of lines is UTF-8 if every line is
        d.counted = False
        return
    d.lens.text += n
    d.lens.tsv += n + 3 * lines + counts.tsv - lines
    d.lens.jsonl += (
        n - lines + counts.json - lines
        + lines * (54 + 4 + 2 + lf_digits(d.now))
        + lf_digits_of_range(d.base_offset + d.count - lines, lines)
    )


cdef bytes_t split_tsv(bytes_t p, bytes_t lf, Span *key, Span *value) noexcept nogil:
    """Cut a line at its TAB; NULL if it has two."""
    cdef bytes_t tab = <bytes_t>memchr(p, 9, lf - p)
    key.p = p
    key.n = -1
    value.p = p
    if tab != NULL:
        key.n = tab - p
        value.p = tab + 1
        if memchr(value.p, 9, lf - value.p) != NULL:
            return NULL
    value.n = lf - value.p
    return lf


cdef int64_t plain_length(Span *span) noexcept nogil:
    """Length without escapes, -2 if one is not known; backslash N alone makes the span null."""
    cdef bytes_t p = span.p
    cdef bytes_t end = p + span.n
    cdef int64_t n = span.n
    if n == 2 and p[0] == b"\\" and p[1] == b"N":
        span.n = -1
    if span.n < 0:
        return -1
    while True:
        p = <bytes_t>memchr(p, b"\\", end - p)
        if p == NULL:
            return n
        if end - p < 2 or p[1] not in (b"\\", b"t", b"n", b"r"):
            return -2
        n -= 1
        p += 2


cdef uint8_t *put_plain(uint8_t *out, Span span, int64_t n) noexcept nogil:
    """Write a length and n bytes: the span without its escapes."""
    cdef bytes_t p = span.p
    cdef bytes_t end = p + span.n
    cdef bytes_t escape
    cdef uint8_t letter
    out = lf_put_varint(out, n)
    if n < 0:
        return out
    if n == span.n:
        return lf_put(out, p, n)
    while True:
        escape = <bytes_t>memchr(p, b"\\", end - p)
        if escape == NULL:
            return lf_put(out, p, end - p)
        out = lf_put(out, p, escape - p)
        letter = escape[1]
        out[0] = 9 if letter == b"t" else 10 if letter == b"n" else 13 if letter == b"r" else letter
        out += 1
        p = escape + 2


cdef int tsv_lines(Draft *d, bytes_t *at, bytes_t end, int64_t *needed) noexcept nogil:
    """As text_lines, for lines of the tsv view."""
    cdef Span key, value
    cdef int64_t key_bytes, value_bytes
    cdef bytes_t lf
    cdef int status
    d.counted = False
    while at[0] < end:
        lf = <bytes_t>memchr(at[0], 10, end - at[0])
        if split_tsv(at[0], lf, &key, &value) == NULL:
            return SECOND_TAB
        key_bytes = plain_length(&key)
        value_bytes = plain_length(&value)
        if key_bytes == -2 or value_bytes == -2:
            return BAD_ESCAPE
        if d.require_key and key_bytes < 0:
            return NO_KEY
        status = put_pair(d, key, key_bytes, value, value_bytes, needed)
        if status != AREA_END:
            return status
        at[0] = lf + 1
    return AREA_END


cdef int keyed_lines(Draft *d, bytes_t *at, bytes_t end, int64_t *needed) noexcept nogil:
    """As text_lines, for lines of a key, a delimiter and a value, nothing escaped."""
    cdef Span key, value
    cdef bytes_t lf
    cdef int status
    d.counted = False
    while at[0] < end:
        lf = <bytes_t>memchr(at[0], 10, end - at[0])
        if not split_keyed(at[0], lf, d.delimiter, &key, &value):
            return NO_DELIMITER
        status = put_pair(d, key, key.n, value, value.n, needed)
        if status != AREA_END:
            return status
        at[0] = lf + 1
    return AREA_END


cdef inline bint split_keyed(
    bytes_t p, bytes_t lf, Span delimiter, Span *key, Span *value
) noexcept nogil:
    """Cut a line at the first delimiter; False if it has none."""
    cdef bytes_t found = <bytes_t>memmem(p, lf - p, delimiter.p, delimiter.n)
    if found == NULL:
        return False
    key.p = p
    key.n = found - p
    value.p = found + delimiter.n
    value.n = lf - value.p
    return True


cdef int put_pair(
    Draft *d, Span key, int64_t key_bytes, Span value, int64_t value_bytes, int64_t *needed
) noexcept nogil:
    """Write the record of a key and a value, their lengths without escapes, if it has room."""
    cdef int64_t body, size
    cdef uint8_t *out
    cdef int status
    body = 2 + lf_varint_size(d.count) + d.headers.n
    body += lf_varint_size(key_bytes) + max(key_bytes, 0)
    body += lf_varint_size(value_bytes) + max(value_bytes, 0)
    size = lf_varint_size(body) + body
    status = judge_room(d, d.size, size)
    if status != AREA_END:
        needed[0] = size
        return status
    out = lf_put_varint(d.p + d.size, body)
    out[0] = 0
    out[1] = 0
    out = lf_put_varint(out + 2, d.count)
    out = put_plain(put_plain(out, key, key_bytes), value, value_bytes)
    d.size = put_headers(out, d) - d.p
    d.count += 1
    return AREA_END
