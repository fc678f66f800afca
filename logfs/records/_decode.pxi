# Part of _native.pyx: the records of a batch as Python objects.

cdef object _new_tuple = tuple.__new__


cdef inline object span_bytes(Span span):
    if span.n < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>span.p, span.n)


cdef tuple header_tuple(Rec *r):
    cdef list headers = []
    cdef bytes_t p = r.headers
    cdef Span key, value
    cdef int64_t i
    for i in range(r.header_count):
        p = skip_bytes(p, r.end, &key, 0)
        p = skip_bytes(p, r.end, &value, -1)
        headers.append((span_bytes(key), span_bytes(value)))
    return tuple(headers)


def decode_payload(
    payload, int64_t count, int64_t base_offset, int64_t base_timestamp, log_append_time
):
    """Decode the plain records of a batch, control records included.

    Args:
        payload: Bytes 61 to the end of the batch, decompressed.
        count: Record count of the header.
        base_offset: Base offset of the header.
        base_timestamp: Base timestamp of the header.
        log_append_time: The batch's max timestamp if its LogAppendTime bit is set, else None.

    Returns:
        A list of :class:`Record`.

    Raises:
        CorruptRecordError: A record does not decode, or bytes are left over; no position.
    """
    cdef _View view = _View(payload, False)
    cdef Batch b
    b.magic = 2
    b.base_offset = base_offset
    b.base_timestamp = base_timestamp
    b.attributes = 0
    if log_append_time is not None:
        b.attributes = LOG_APPEND_TIME
        b.max_timestamp = log_append_time
    b.p = view.p
    b.end = view.p + view.n
    b.left = b.count = count
    return take_records(&b)


def decode_messages(batch, decompress):
    """Decode the messages of a top-level message of format v0 or v1.

    Args:
        batch: The whole of it; its CRC was checked.
        decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

    Returns:
        A list of :class:`Record`.

    Raises:
        CorruptRecordError: It does not decode; no position.
    """
    cdef _View view = _View(batch, False)
    cdef Batch b
    cdef int64_t size
    cdef int code = peek(view.p, view.n, &size)
    if code == WHOLE:
        code = read_header(view.p, &b)
    if code != WHOLE or b.magic > 1:
        raise CorruptRecordError("it is cut" if code <= INCOMPLETE else frame_problem(code, view.p))
    plain = open_messages(view.p, size, &b, decompress)
    return take_records(&b)


cdef list take_records(Batch *b):
    """Take all records of a batch that was opened."""
    cdef list records = []
    cdef tuple headers
    cdef Rec r
    while b.left > 0:
        if next_record(b, &r) < 0:
            raise CorruptRecordError(f"record {b.count - b.left} of {b.count} does not decode")
        headers = () if r.header_count == 0 else header_tuple(&r)
        records.append(_new_tuple(
            Record, (r.offset, r.timestamp, span_bytes(r.key), span_bytes(r.value), headers)
        ))
    if has_trailing_bytes(b):
        raise CorruptRecordError(f"{b.end - b.p} bytes follow the last of {b.count} records")
    return records
