# Part of _reading.pyx: the records of a batch as Python objects.

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
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

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


def decode_batches(
    buf, Py_ssize_t start, Py_ssize_t stop, int64_t first, int64_t end, decompress, aborted=b"",
    RecordSearch search=None,
):
    """Decode the records that a reader can see, of all whole batches of a part of a log.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        first: Records before this offset are left out.
        end: A batch that begins at or after this offset ends it, and no record from there is taken.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.
        aborted: Transactions whose records the reader does not see, as in ``aborted_ranges``.
        search: Which records to take; None: all.

    Returns:
        ``(records, position, offset)``: a list of :class:`Record`, where the first batch begins that
        was not taken as a whole, and the offset from which on none was.

    Raises:
        CorruptRecordError: The first batch there is damaged; one after it ends the call.
    """
    cdef _View view = window(buf, start, stop)
    cdef _View table = _View(aborted, False)
    cdef list records = []
    cdef Py_ssize_t begin = start
    cdef int64_t offset = first
    cdef int64_t size
    cdef Batch b
    try:
        while True:
            size = whole_batch(view.p + start, stop - start, start, &b)
            if size == 0:
                break
            if max(b.base_offset, offset) >= end:
                offset = max(offset, end)
                break
            if b.last_offset >= first and not is_aborted(view.p + start, &b, table):
                plain = verified_records(view.p + start, size, start, &b, decompress)
                if search is None or search.may_be_in(&b):
                    take_seen(&b, first, end, records, start, search)
            if b.last_offset >= end:
                offset = max(offset, end)
                break
            offset = max(offset, b.last_offset + 1)
            start += size
    except (CorruptRecordError, ExpressionError):
        if start == begin:
            raise
    return records, start, offset


cdef int take_seen(
    Batch *b, int64_t first, int64_t end, list records, Py_ssize_t position, RecordSearch search
) except -1:
    """Append the records of an opened batch from an offset to another one; all of it or none."""
    cdef Py_ssize_t before = len(records)
    cdef tuple headers
    cdef Rec r
    while b.left > 0:
        if next_record(b, &r) < 0:
            del records[before:]
            raise corrupt(f"record {b.count - b.left} of {b.count} does not decode", position)
        if first <= r.offset < end and (search is None or search.takes(&r)):
            headers = () if r.header_count == 0 else header_tuple(&r)
            records.append(_new_tuple(
                Record, (r.offset, r.timestamp, span_bytes(r.key), span_bytes(r.value), headers)
            ))
    if has_trailing_bytes(b):
        del records[before:]
        raise corrupt(f"{b.end - b.p} bytes follow the last of {b.count} records", position)
    return 0
