# Part of _compaction.pyx and _packing.pyx: compaction. What is left of a batch is written.

cdef enum:
    LONGER_DELTA = 16       # bytes by which new deltas may lengthen a record

cdef int64_t NO_HORIZON = -INT64_LAST - 1


cdef inline int64_t fields_size(Rec *r) noexcept nogil:
    """Size of key, value and no headers in a record of format v2."""
    return (
        lf_varint_size(r.key.n) + max(r.key.n, 0) + lf_varint_size(r.value.n) + max(r.value.n, 0) + 1
    )


cdef inline uint8_t *put_fields(uint8_t *out, Rec *r) noexcept nogil:
    out = lf_put_varint(out, r.key.n)
    out = lf_put(out, r.key.p, max(r.key.n, 0))
    out = lf_put_varint(out, r.value.n)
    out = lf_put(out, r.value.p, max(r.value.n, 0))
    out[0] = 0
    return out + 1


cdef int64_t put_kept(
    uint8_t *out, Batch *b, Batch *records, uint8_t *keeps
) noexcept nogil:
    """Write the records that survive, which were decoded once already; returns their size."""
    cdef uint8_t *begin = out
    cdef bint is_first = True
    cdef int64_t max_timestamp = -1
    cdef int64_t number, delta, offset_delta, body
    cdef Rec r
    cdef bytes_t rest
    for number in range(b.count):
        next_record(records, &r)
        if not keeps[number]:
            continue
        if is_first and not b.attributes & DELETE_HORIZON:
            b.base_timestamp = r.timestamp
        is_first = False
        max_timestamp = max(max_timestamp, r.timestamp)
        delta = lf_sub(r.timestamp, b.base_timestamp)
        offset_delta = lf_sub(r.offset, b.base_offset)
        rest = r.fields
        body = 1 + lf_varint_size(delta) + lf_varint_size(offset_delta)
        body += r.end - rest if b.magic == 2 else fields_size(&r)
        out = lf_put_varint(out, body)
        out[0] = 0
        out = lf_put_varint(out + 1, delta)
        out = lf_put_varint(out, offset_delta)
        out = lf_put(out, rest, r.end - rest) if b.magic == 2 else put_fields(out, &r)
    if not b.attributes & LOG_APPEND_TIME:
        b.max_timestamp = max_timestamp
    return out - begin


cdef void begin_header(
    uint8_t *begin, bytes_t p, Batch *b, Batch *records, uint8_t *keeps
) noexcept:
    """Write what a header keeps of the old batch; a message becomes one of the survivors."""
    cdef Batch rest
    cdef Rec r
    cdef int64_t number, first = -1
    if b.magic == 2:
        memcpy(begin, p, HEADER)
        return
    if records != NULL:
        rest = records[0]
        for number in range(b.count):
            next_record(&rest, &r)
            if keeps[number]:
                first = r.offset if first < 0 else first
                b.last_offset = r.offset
        b.base_offset = first
    lf_put64(begin, b.base_offset)
    lf_put32(begin + 12, -1)                # leader epoch: none
    begin[16] = 2
    lf_put32(begin + 23, lf_sub(b.last_offset, b.base_offset))
    lf_put64(begin + 43, -1)                # producer id, epoch, base sequence: none
    lf_put16(begin + 51, -1)
    lf_put32(begin + 53, -1)


@cython.final
cdef class _Rewriter:
    """Writes batches one after the other: as they were, what is left of them, or headers alone."""

    cdef uint8_t *out
    cdef int64_t out_size       # of the batches that are finished
    cdef int64_t out_capacity

    def __dealloc__(self):
        free(self.out)

    cdef bytes take(self):
        found = PyBytes_FromStringAndSize(<char *>self.out, self.out_size)
        self.out_size = 0
        return found

    cdef int64_t put_whole(self, bytes_t p, int64_t size) except -1:
        """Write a batch as it is; returns its size, as the others do."""
        self.reserve(size)
        memcpy(self.out + self.out_size, p, size)
        return size

    cdef int64_t put_left(
        self, bytes_t p, Batch *b, Batch *records, uint8_t *keeps, int64_t kept_count,
        int64_t new_horizon
    ) except -1:
        """Encode what is left of a batch; returns its size.

        Args:
            p: The batch.
            b: What is in its header; becomes what is in the new one.
            records: All records, from the first.
            keeps: For each of them whether it survives.
            kept_count: How many do.
            new_horizon: The delete horizon that it gets, or ``NO_HORIZON``.
        """
        cdef int codec = b.attributes & CODEC_MASK
        cdef int64_t size
        cdef uint8_t *begin
        cdef bytes packed
        if new_horizon != NO_HORIZON:
            b.attributes |= DELETE_HORIZON
            b.base_timestamp = new_horizon
        self.reserve(HEADER + (records.end - records.p) + LONGER_DELTA * kept_count)
        begin = self.out + self.out_size
        begin_header(begin, p, b, records, keeps)
        if records.end - records.p >= RELEASE_GIL_BYTES:
            with nogil:
                size = put_kept(begin + HEADER, b, records, keeps)
        else:
            size = put_kept(begin + HEADER, b, records, keeps)
        if codec:
            packed = _compress(codec, borrowed(begin + HEADER, size), None)
            size = PyBytes_GET_SIZE(packed)
            self.reserve(HEADER + size)
            begin = self.out + self.out_size
            memcpy(begin + HEADER, PyBytes_AS_STRING(packed), size)
        size += HEADER
        b.count = kept_count
        finish(begin, b, size)
        return size

    cdef int64_t put_empty(self, bytes_t p, Batch *b) except -1:
        """Write a batch without records. Source: Kafka DefaultRecordBatch.writeEmptyHeader."""
        cdef uint8_t *begin
        self.reserve(HEADER)
        begin = self.out + self.out_size
        begin_header(begin, p, b, NULL, NULL)
        b.attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
        b.base_timestamp = -1
        b.count = 0
        finish(begin, b, HEADER)
        return HEADER

    cdef int reserve(self, int64_t more) except -1:
        cdef int64_t wanted = self.out_size + more
        cdef void *larger
        if wanted <= self.out_capacity:
            return 0
        wanted = max(wanted, 2 * self.out_capacity)
        larger = realloc(self.out, wanted)
        if larger == NULL:
            raise MemoryError
        self.out = <uint8_t *>larger
        self.out_capacity = wanted
        return 0
