# Part of _native.pyx: finding places in a log by offset and by time.

def header_ok(buf, Py_ssize_t position, Py_ssize_t limit):
    """Whether a batch header that makes sense stands at a position: an index entry is a hint.

    Args:
        buf: Bytes that hold at least the header.
        position: Any number.
        limit: Where the whole batch must have ended, as a position; it may lie beyond ``buf``.
    """
    cdef _View view = _View(buf, False)
    cdef int64_t size
    cdef Batch b
    if position < 0 or view.n - position < HEADER:
        return False
    peek(view.p + position, view.n - position, &size)
    if size == 0 or size > limit - position:
        return False
    return read_header(view.p + position, &b) == WHOLE and (b.attributes & CODEC_MASK) <= 4


def next_batch(buf, Py_ssize_t position, Py_ssize_t stop):
    """Total size in bytes of the batch at a position; 0 if it is not whole before ``stop``.

    Raises:
        CorruptRecordError: No batch can begin like this.
    """
    cdef _View view = window(buf, position, stop)
    cdef Batch b
    return whole_batch(view.p + position, stop - position, position, &b)


def find_offset(buf, Py_ssize_t start, Py_ssize_t stop, int64_t offset):
    """Find the batch an offset is in. Headers only: no CRC, no records.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        offset: The offset looked for.

    Returns:
        Position of the first whole batch whose last offset is >= ``offset``; where the whole
        batches end if there is none.

    Raises:
        CorruptRecordError: A header before it makes no sense.
    """
    cdef _View view = window(buf, start, stop)
    cdef Batch b
    cdef int64_t size
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0 or b.last_offset >= offset:
            return start
        start += size


def measure(buf, Py_ssize_t start, Py_ssize_t stop, int64_t offset, decompress):
    """Lengths of the three renderings of the records before an offset.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        offset: Records with this offset or a larger one are not counted.
        decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

    Returns:
        ``(text, tsv, jsonl)`` in bytes.

    Raises:
        CorruptRecordError: A batch before the offset is damaged.
    """
    cdef _View view = window(buf, start, stop)
    cdef Lens lens = Lens(0, 0, 0)
    cdef Batch b
    cdef int64_t size
    cdef int status
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0 or b.base_offset >= offset:
            return lens.text, lens.tsv, lens.jsonl
        plain = verified_records(view.p + start, size, start, &b, decompress)
        with nogil:
            status = measure_batch(&b, offset, &lens)
        if status < 0:
            raise corrupt("a record does not decode", start)
        start += size


def find_timestamp(buf, Py_ssize_t start, Py_ssize_t stop, int64_t timestamp, decompress):
    """Find the first record at or after a moment that a reader can see.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        timestamp: Epoch milliseconds.
        decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

    Returns:
        ``(offset, timestamp)`` of the first record whose timestamp is >= ``timestamp``, control
        batches aside; None if there is none.

    Raises:
        CorruptRecordError: A header makes no sense, or a batch that had to be opened is damaged.

    Source: Kafka FileRecords.searchForTimestamp, which counts control batches as well.
    """
    cdef _View view = window(buf, start, stop)
    cdef Batch b
    cdef Rec r
    cdef int64_t size
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0:
            return None
        if b.max_timestamp >= timestamp:
            plain = verified_records(view.p + start, size, start, &b, decompress)
            while b.left > 0:
                if next_record(&b, &r) < 0:
                    raise corrupt("a record does not decode", start)
                if r.timestamp >= timestamp:
                    return r.offset, r.timestamp
        start += size
