# Part of _indexing.pyx: batches that have a producer id.

cdef inline bint is_produced(bytes_t p) noexcept nogil:
    """Whether the batch at p has a producer id."""
    return p[16] == 2 and lf_get64(p + 43) >= 0


cdef object produced(bytes_t p, int64_t size, int64_t file_position):
    """Describe the batch at p, whose header makes sense; a marker that does not decode is none.

    Source: Kafka EndTransactionMarker.deserialize, ControlRecordType.parse.
    """
    cdef Batch b
    cdef Rec r
    cdef int64_t coordinator_epoch = -1
    cdef int64_t control = DATA_BATCH
    read_header(p, &b)
    cdef int64_t timestamp = b.max_timestamp
    if b.attributes & CONTROL:
        control = NO_MARKER
        b.p = p + HEADER
        b.end = p + size
        b.left = b.count
        if (
            b.left > 0 and not b.attributes & CODEC_MASK and next_record(&b, &r) == 0
            and r.key.n >= 4 and r.value.n >= 6 and 0 <= lf_get16(r.key.p + 2) <= 1
        ):
            control = lf_get16(r.key.p + 2)
            coordinator_epoch = lf_get32(r.value.p + 2)
            timestamp = r.timestamp
    return _new_tuple(ProducedBatch, (
        file_position,
        b.base_offset,
        b.last_offset,
        timestamp,
        lf_get64(p + 43),
        lf_get16(p + 51),
        lf_get32(p + 53),
        bool(b.attributes & TRANSACTIONAL),
        control,
        coordinator_epoch,
    ))


def find_produced(buf, Py_ssize_t start, Py_ssize_t stop, int64_t file_position):
    """List the batches that have a producer id. Headers and markers only: no CRC.

    Args:
        buf: A part of a log; a batch begins at ``start``.
        start: Where to begin.
        stop: Where to end; a batch cut there is left out.
        file_position: The file position of ``buf[start]`` in the ``.log``.

    Returns:
        A list of :class:`ProducedBatch`.

    Raises:
        CorruptRecordError: A header before it makes no sense.
    """
    cdef _View view = window(buf, start, stop)
    cdef Py_ssize_t position = start
    cdef list found = []
    cdef int64_t size
    cdef Batch b
    while True:
        size = whole_batch(view.p + position, stop - position, position, &b)
        if size == 0:
            return found
        if is_produced(view.p + position):
            found.append(
                produced(view.p + position, size, lf_add(file_position, position - start))
            )
        position += size
