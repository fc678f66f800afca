# Part of _reading.pyx: finding places in a log by offset and by time, and what was aborted.


def header_ok(buf, Py_ssize_t position, Py_ssize_t limit):
    """Whether a batch header that makes sense is at a position: an index entry is a hint.

    Args:
        buf: Bytes that hold at least the header.
        position: Any number.
        limit: Where the whole batch must have ended, as a position; it may lie beyond ``buf``.
    """
    cdef _View view = _View(buf, False)
    cdef int64_t size
    cdef Batch b
    if position < 0 or view.n - position <= UP_TO_MAGIC:
        return False
    peek(view.p + position, view.n - position, &size)
    if size == 0 or limit < position or size > limit - position:
        return False
    if view.n - position < (HEADER if view.p[position + 16] == 2 else MESSAGE_HEADER):
        return False
    if read_header(view.p + position, &b) != WHOLE:
        return False
    return (b.attributes & CODEC_MASK) <= (4 if b.magic == 2 else 3)


def header_last_offset(buf, Py_ssize_t position):
    """Last offset of the batch whose header is at a position and is known to be ``header_ok``.

    Raises:
        ValueError: No whole header of a known format is there.
    """
    cdef _View view = _View(buf, False)
    cdef Batch b
    if position < 0 or view.n - position < MESSAGE_HEADER or (
        view.p[position + 16] >= 2 and view.n - position < HEADER
    ):
        raise ValueError(f"no header fits at {position} into a buffer of {view.n} bytes")
    if view.p[position + 16] > 2:
        raise ValueError(f"a header of format {view.p[position + 16]} at {position}")
    read_header(view.p + position, &b)
    return b.last_offset


def next_batch(buf, Py_ssize_t position, Py_ssize_t stop):
    """Total size in bytes of the batch at a position; 0 if it is not whole before ``stop``.

    Raises:
        CorruptRecordError: No batch can begin like this.
    """
    cdef _View view = window(buf, position, stop)
    cdef Batch b
    return whole_batch(view.p + position, stop - position, position, &b)


def first_offset(buf, Py_ssize_t position, Py_ssize_t stop):
    """Base offset of the whole batch at a position.

    That of a compressed message of format v0 or v1 is in what was compressed.

    Raises:
        CorruptRecordError: No whole batch is there, or it cannot be decompressed.
    """
    cdef _View view = window(buf, position, stop)
    cdef Batch b
    cdef int64_t size = whole_batch(view.p + position, stop - position, position, &b)
    if size == 0:
        raise corrupt("it is cut", position)
    if is_unopened(&b):
        try:
            open_records(view.p + position, size, &b, _decompress)
        except CorruptRecordError as error:
            raise corrupt(str(error), position) from error
    return b.base_offset


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


def batch_run(buf, Py_ssize_t start, Py_ssize_t stop, int64_t limit):
    """Measure the batches of a piece that fit a number of bytes. Headers only: no CRC, no records.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        limit: Bytes that the batches may have; the first one is counted in any case.

    Returns:
        ``(bytes, last offset, max timestamp)`` of them; ``(0, -1, -1)`` if not one is whole.

    Raises:
        CorruptRecordError: The header of the first one makes no sense; later ones end the run.
    """
    cdef _View view = window(buf, start, stop)
    cdef Py_ssize_t position = start
    cdef int64_t size, last = -1, max_timestamp = -1
    cdef Batch b
    while True:
        try:
            size = whole_batch(view.p + position, stop - position, position, &b)
        except CorruptRecordError:
            if position == start:
                raise
            break
        if size == 0 or (position > start and position - start + size > limit):
            break
        last = b.last_offset
        max_timestamp = max(max_timestamp, b.max_timestamp)
        position += size
    return position - start, last, max_timestamp


def last_offset(buf, Py_ssize_t start, Py_ssize_t stop):
    """Last offset of the last whole batch. Headers only: no CRC, no records.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.

    Returns:
        The offset; -1 if there is no whole batch.

    Raises:
        CorruptRecordError: A header makes no sense.
    """
    cdef _View view = window(buf, start, stop)
    cdef int64_t last = -1
    cdef int64_t size
    cdef Batch b
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0:
            return last
        last = b.last_offset
        start += size


def measure(buf, Py_ssize_t start, Py_ssize_t stop, int64_t offset, decompress):
    """Lengths of the three renderings of the records before an offset.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        offset: Records with this offset or a larger one are not counted.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

    Returns:
        ``(text, tsv, jsonl)`` in bytes.

    Raises:
        CorruptRecordError: A batch before the offset is damaged.
    """
    cdef _View view = window(buf, start, stop)
    cdef Lens lens = Lens(0, 0, 0)
    cdef Batch b
    cdef int64_t size
    cdef int64_t behind = 0
    cdef int status
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0 or max(b.base_offset, behind) >= offset:
            return lens.text, lens.tsv, lens.jsonl
        plain = verified_records(view.p + start, size, start, &b, decompress)
        with nogil:
            status = measure_batch(&b, offset, &lens)
        if status < 0:
            raise corrupt("a record does not decode", start)
        behind = b.last_offset + 1
        start += size


def find_timestamp(
    buf, Py_ssize_t start, Py_ssize_t stop, int64_t timestamp, decompress, aborted=b""
):
    """Find the first record at or after a moment that a reader can see.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        timestamp: Epoch milliseconds.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.
        aborted: Transactions whose records the reader does not see, as in ``aborted_ranges``.

    Returns:
        ``(offset, timestamp)`` of the first record whose timestamp is >= ``timestamp``, control
        and aborted batches aside; None if there is none.

    Raises:
        CorruptRecordError: A header makes no sense, or a batch that had to be opened is damaged.

    Source: Kafka FileRecords.searchForTimestamp, which includes control batches.
    """
    cdef _View view = window(buf, start, stop)
    cdef _View table = _View(aborted, False)
    cdef Batch b
    cdef Rec r
    cdef int64_t size
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0:
            return None
        if b.max_timestamp >= timestamp and not is_aborted(view.p + start, &b, table):
            plain = verified_records(view.p + start, size, start, &b, decompress)
            while b.left > 0:
                if next_record(&b, &r) < 0:
                    raise corrupt("a record does not decode", start)
                if r.timestamp >= timestamp:
                    return r.offset, r.timestamp
        start += size


def aborted_ranges(buf, Py_ssize_t start, Py_ssize_t stop, aborted):
    """Find the batches of aborted transactions. Headers only: no CRC, no records.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        aborted: The transactions: (producer id, first offset, offset of the marker) each, as int64
            of this machine, 8-byte aligned (``array("q")``), in ascending order.

    Returns:
        ``(start, stop, base offset, last offset)`` of each run of batches that hold nothing but
        aborted records; batches without records do not end one.

    Raises:
        CorruptRecordError: A header makes no sense.
    """
    cdef _View view = window(buf, start, stop)
    cdef _View table = _View(aborted, False)
    cdef Batch b
    cdef int64_t size, base_offset = 0, last_offset = 0
    cdef Py_ssize_t begin = -1, end = -1
    cdef list found = []
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size and (b.count == 0 or b.attributes & CONTROL):
            pass
        elif size and is_aborted(view.p + start, &b, table):
            if begin < 0:
                begin = start
                base_offset = b.base_offset
            end = start + size
            last_offset = b.last_offset
        elif begin >= 0:
            found.append((begin, end, base_offset, last_offset))
            begin = -1
        if size == 0:
            return found
        start += size


def whole_batches(buf, Py_ssize_t start, Py_ssize_t stop, int64_t after, bint verify=False):
    """Find out how far batches go that may be where they are.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        after: The offset after the batches before; 0 if it is not known.
        verify: Whether their checksums have to be right. Records are not decoded.

    Returns:
        ``(end, after, problem)``: where the last of them ends, the offset after it, and why the next
        one cannot be used; None if it is only not whole.
    """
    cdef _View view = window(buf, start, stop)
    cdef Batch b
    cdef int64_t size
    cdef str problem
    while True:
        problem = judge(view.p + start, stop - start, after, &size, &b)
        if problem is None and 0 < size <= stop - start:
            if is_unopened(&b) and learn_offsets(view.p + start, &b) and b.base_offset < after:
                problem = f"base offset {b.base_offset} is below {after}"
            elif verify:
                problem = checksum_problem(view.p + start, size)
        elif problem is None:
            return start, after, None
        if problem is not None:
            return start, after, problem
        after = b.last_offset + 1
        start += size


def has_right_checksum(buf, Py_ssize_t start, Py_ssize_t stop):
    """Whether a whole batch of a known format with the right checksum is at a place."""
    cdef _View view = window(buf, start, stop)
    cdef int64_t size
    cdef int code = peek(view.p + start, stop - start, &size)
    return code == WHOLE and checksum_problem(view.p + start, size) is None
