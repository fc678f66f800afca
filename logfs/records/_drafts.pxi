# Part of _encoding.pyx: drafts of batches, and plain lines to batches for native threads.

# glibc returns freed blocks as large as a batch to the kernel, and getting the pages back costs more
# than filling them, until it has seen one larger block freed. Show it one.
PyBytes_FromStringAndSize(NULL, 8 << 20)

cdef inline int64_t field_size(bytes field) except -1:
    return 1 if field is None else lf_varint_size(len(field)) + len(field)


cdef inline uint8_t *put_field(uint8_t *out, bytes field) except NULL:
    if field is None:
        out[0] = 1
        return out + 1
    out = lf_put_varint(out, PyBytes_GET_SIZE(field))
    return lf_put(out, PyBytes_AS_STRING(field), PyBytes_GET_SIZE(field))


cdef int64_t body_size(
    int64_t timestamp_delta, int64_t offset_delta, bytes key, bytes value, tuple headers
) except -1:
    """Length of a record, without its length field."""
    cdef int64_t size = 1 + lf_varint_size(timestamp_delta) + lf_varint_size(offset_delta)
    cdef bytes name, content
    size += field_size(key) + field_size(value) + lf_varint_size(len(headers))
    for name, content in headers:
        if name is None:
            raise ValueError("a header key must not be None")
        size += field_size(name) + field_size(content)
    return size


cdef uint8_t *put_record(
    uint8_t *out, int64_t body, int64_t timestamp_delta, int64_t offset_delta,
    bytes key, bytes value, tuple headers
) except NULL:
    cdef bytes name, content
    out = lf_put_varint(out, body)
    out[0] = 0
    out = lf_put_varint(out + 1, timestamp_delta)
    out = lf_put_varint(out, offset_delta)
    out = put_field(put_field(out, key), value)
    out = lf_put_varint(out, len(headers))
    for name, content in headers:
        out = put_field(put_field(out, name), content)
    return out


cdef bytes encode_headers(tuple headers):
    """The headers of a record: their count, then their fields."""
    cdef int64_t size = lf_varint_size(len(headers))
    cdef bytes name, content
    for name, content in headers:
        if name is None:
            raise ValueError("a header key must not be None")
        size += field_size(name) + field_size(content)
    cdef bytes encoded = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *out = lf_put_varint(<uint8_t *>PyBytes_AS_STRING(encoded), len(headers))
    for name, content in headers:
        out = put_field(put_field(out, name), content)
    return encoded


cdef inline Span span_of(bytes text):
    return Span(<bytes_t>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef int measure_draft(Draft *d, int attributes, int64_t max_timestamp) noexcept nogil:
    """Find the lengths of the renderings of the records in a batch; -1 if one does not decode."""
    cdef Batch b
    b.magic = 2
    b.base_offset = d.base_offset
    b.base_timestamp = d.base_timestamp
    b.max_timestamp = max_timestamp
    b.attributes = attributes
    b.p = d.p + HEADER
    b.end = d.p + d.size
    b.left = d.count
    d.lens.text = d.lens.tsv = d.lens.jsonl = 0
    return measure_batch(&b, INT64_LAST, &d.lens)


cdef void put_no_producer(uint8_t *p) noexcept nogil:
    lf_put64(p + 43, -1)                        # producer id, epoch, base sequence
    lf_put16(p + 51, -1)
    lf_put32(p + 53, -1)


cdef void put_draft_header(
    Draft *d, int64_t size, int attributes, int64_t max_timestamp, int64_t leader_epoch
) noexcept nogil:
    """Write the header of a finished batch without a producer, all but its CRC."""
    cdef uint8_t *p = d.p
    lf_put64(p, d.base_offset)
    lf_put32(p + 8, size - LOG_OVERHEAD)
    lf_put32(p + 12, leader_epoch)
    p[16] = 2
    lf_put16(p + 21, attributes)
    lf_put32(p + 23, d.count - 1)
    lf_put64(p + 27, d.base_timestamp)
    lf_put64(p + 35, max_timestamp)
    put_no_producer(p)
    lf_put32(p + 57, d.count)


# -- lines to batches for native threads: see lf_encode in _logend.h

cdef uint8_t NO_HEADERS[1]
NO_HEADERS[0] = 0


cdef bint begin_draft(lf_encoded *out, Draft *d) noexcept nogil:
    """Begin a batch after those that are there; False if it has no room."""
    if out.count == LF_ENCODED_BATCHES or out.capacity - out.size < HEADER:
        return False
    d.p = out.p + out.size
    d.capacity = out.capacity - out.size
    d.size = HEADER
    d.count = 0
    d.base_timestamp = d.max_timestamp = d.now
    d.lens.text = d.lens.tsv = d.lens.jsonl = 0
    d.counted = True
    return True


cdef bint end_draft(lf_encoded *out, Draft *d, int64_t leader_epoch) noexcept nogil:
    """Finish a batch, and begin the next one with the offset after it."""
    cdef lf_added *added = &out.batches[out.count]
    if not d.counted and measure_draft(d, 0, d.max_timestamp) < 0:
        return False
    put_draft_header(d, d.size, 0, d.max_timestamp, leader_epoch)
    lf_put32(d.p + 17, lf_crc32c(0, d.p + 21, d.size - 21))
    added.size = d.size
    added.base_offset = d.base_offset
    added.last_offset = d.base_offset + d.count - 1
    added.max_timestamp = d.max_timestamp
    added.count = d.count
    added.text = d.lens.text
    added.tsv = d.lens.tsv
    added.jsonl = d.lens.jsonl
    out.size += d.size
    out.count += 1
    d.base_offset += d.count
    d.count = 0
    return True


cdef bint draft_lines(
    lf_encoded *out, Draft *d, int view, bytes_t p, bytes_t end, int64_t leader_epoch
) noexcept nogil:
    cdef int64_t needed
    cdef int status
    while p < end:
        status = text_lines(d, &p, end, &needed) if view == TEXT else tsv_lines(d, &p, end, &needed)
        if status == BATCH_FULL:
            if not end_draft(out, d, leader_epoch) or not begin_draft(out, d):
                return False
        elif status != AREA_END:
            return False
    return True


cdef bint encode_plain(
    lf_encoded *out, int view, bytes_t first, int64_t first_bytes, bytes_t rest, int64_t rest_bytes,
    int64_t base_offset, int64_t now_ms, int64_t limit, int64_t leader_epoch
) noexcept nogil:
    cdef Draft d
    if view != TEXT and view != TSV:
        return False
    memset(&d, 0, sizeof(d))
    d.headers.p = NO_HEADERS
    d.headers.n = 1
    d.limit = min(limit, INT32_LAST)
    d.base_offset = base_offset
    d.now = now_ms
    out.size = 0
    out.count = 0
    return (
        begin_draft(out, &d)
        and draft_lines(out, &d, view, first, first + first_bytes, leader_epoch)
        and draft_lines(out, &d, view, rest, rest + rest_bytes, leader_epoch)
        and d.count > 0
        and end_draft(out, &d, leader_epoch)
    )


encode_function = PyCapsule_New(<void *>encode_plain, "logfs.encode", NULL)


ctypedef int (*lines_t)(Draft *, bytes_t *, bytes_t, int64_t *) noexcept nogil
