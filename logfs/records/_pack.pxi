# Part of _packing.pyx: packing. Neighbouring batches of a sealed segment become one, compressed.

@cython.final
cdef class BatchPacker:
    """Writes a segment with fewer batches, which are compressed: its log and its indexes.

    Every record keeps its offset, timestamp, key, value and headers, so positions stay as they are.
    *Plain* batches are merged until their records have ``most_bytes``, and then compressed. A batch
    is plain if it is of format v2, has its own timestamps, no gap between its offsets, no
    producer id, and is neither transactional nor a control batch. All others are copied. Plain
    batches are copied, too, where the new batch would not be smaller.

    Args:
        builder: The index rules of the new segment.
        codec: A ``Compression`` number, not NONE.
        level: Its level; None is Kafka's default.
        most_bytes: Records of a merged batch, uncompressed, at most; a larger batch is compressed
            alone.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

    Attributes:
        batches_read, bytes_read: What was fed.
        bytes_written: What was written.
        changes: How many of the written batches are new ones.
    """

    cdef _Rewriter rewriter
    cdef IndexBuilder builder
    cdef _Rewriter merged       # the records of the batch in the making, not compressed
    cdef _Rewriter originals    # the batches that they are from
    cdef Batch head             # header of the batch in the making; valid if it has records
    cdef Lens lens
    cdef int codec
    cdef object level
    cdef int64_t most_bytes
    cdef object decompress
    cdef readonly int64_t batches_read
    cdef readonly int64_t bytes_read
    cdef readonly int64_t bytes_written
    cdef readonly int64_t changes

    def __init__(
        self, IndexBuilder builder, int codec, level, int64_t most_bytes, decompress
    ):
        self.builder = builder
        self.rewriter, self.merged, self.originals = _Rewriter(), _Rewriter(), _Rewriter()
        self.codec = codec
        self.level = level
        self.most_bytes = most_bytes
        self.decompress = decompress
        self.head.count = 0

    def feed(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Take the whole batches of a piece of the log.

        Returns:
            The position after the last one.

        Raises:
            CorruptRecordError: A batch is damaged or out of order.
        """
        cdef _View view = window(buf, start, stop)
        cdef int64_t size
        cdef Batch b
        while True:
            size = whole_batch(view.p + start, stop - start, start, &b)
            if size == 0:
                return start
            self.take_batch(view.p + start, size, start, &b)
            start += size

    def finish(self):
        """Write the batch in the making; call it after the last ``feed``."""
        self.write_merged()

    def take(self):
        """Take what was written since the last call.

        Returns:
            ``(log, offset index, time index, text index)``, whole batches and entries.
        """
        return (self.rewriter.take(), *self.builder.take())

    cdef int take_batch(self, bytes_t p, int64_t size, Py_ssize_t position, Batch *b) except -1:
        cdef Batch records
        cdef Lens lens = Lens(0, 0, 0)
        cdef int64_t raw
        plain = verified_records(p, size, position, b, self.decompress)
        if b.base_offset < self.next_offset():
            raise corrupt(f"base offset {b.base_offset} is below {self.next_offset()}", position)
        if b.last_offset - self.builder.base_offset > INT32_LAST:
            problem = f"last offset {b.last_offset} is too far from {self.builder.base_offset}"
            raise corrupt(problem, position)
        records = b[0]
        measure_opened_batch(b, position, &lens)
        self.batches_read += 1
        self.bytes_read += size
        raw = records.end - records.p
        if not is_plain(p, &records) or raw > (
            self.most_bytes if records.attributes & CODEC_MASK else <int64_t>_decompressed_limit()
        ):
            self.write_merged()
            self.copy(p, size, &records, &lens)
            return 0
        if self.head.count and not self.continues(&records, raw):
            self.write_merged()
        if self.merge(&records):
            self.originals.put_whole(p, size)
            self.originals.out_size += size
            add_lens(&self.lens, &lens)
        else:
            self.write_merged()
            self.copy(p, size, &records, &lens)
        return 0

    cdef int64_t next_offset(self) noexcept:
        return lf_add(self.head.last_offset, 1) if self.head.count else self.builder.next_offset

    cdef bint continues(self, Batch *b, int64_t raw) noexcept:
        """Whether the records of a plain batch go into the batch in the making."""
        return (
            b.base_offset == lf_add(self.head.last_offset, 1)
            and b.epoch == self.head.epoch
            and self.merged.out_size + raw <= self.most_bytes
            and lf_add(self.head.count, b.count) <= INT32_LAST
        )

    cdef bint merge(self, Batch *b) except -1:
        """Append the records of a plain batch; False if its offsets are not one after the other."""
        cdef int64_t base_offset = self.head.base_offset if self.head.count else b.base_offset
        cdef int64_t base_timestamp = self.head.base_timestamp if self.head.count else b.base_timestamp
        cdef int64_t written
        cdef uint8_t *out
        self.merged.reserve((b.end - b.p) + LONGER_DELTA * b.count)
        out = self.merged.out + self.merged.out_size
        if b.end - b.p >= RELEASE_GIL_BYTES:
            with nogil:
                written = put_merged(out, b, base_offset, base_timestamp)
        else:
            written = put_merged(out, b, base_offset, base_timestamp)
        if written < 0:
            return False
        self.merged.out_size += written
        if self.head.count == 0:
            self.head = b[0]
            self.lens = Lens(0, 0, 0)
            return True
        self.head.last_offset = b.last_offset
        self.head.max_timestamp = max(self.head.max_timestamp, b.max_timestamp)
        self.head.count += b.count
        return True

    cdef int write_merged(self) except -1:
        """Write the batch in the making, or the originals if they are not larger."""
        cdef bytes_t records = self.merged.out
        cdef int64_t size = self.merged.out_size
        cdef int codec = 0
        cdef bytes packed
        if self.head.count == 0:
            return 0
        packed = _compress(self.codec, borrowed(records, size), self.level)
        if PyBytes_GET_SIZE(packed) < size:
            records, size, codec = <bytes_t>PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed), self.codec
        if HEADER + size < self.originals.out_size:
            self.write_new(records, size, codec)
        else:
            self.copy_originals()
        self.merged.out_size = self.originals.out_size = 0
        self.head.count = 0
        return 0

    cdef int write_new(self, bytes_t records, int64_t size, int codec) except -1:
        cdef uint8_t *p
        self.rewriter.reserve(HEADER + size)
        p = self.rewriter.out + self.rewriter.out_size
        self.head.attributes = codec
        put_plain_header(p, &self.head)
        memcpy(p + HEADER, records, size)
        finish(p, &self.head, HEADER + size)
        self.changes += 1
        return self.account(&self.head, HEADER + size, &self.lens)

    cdef int copy_originals(self) except -1:
        cdef bytes_t p = self.originals.out
        cdef int64_t left = self.originals.out_size
        cdef int64_t size
        cdef Batch b
        cdef Lens lens
        while left:
            size = whole_batch(p, left, 0, &b)
            lens = Lens(0, 0, 0)
            plain = open_records(p, size, &b, self.decompress)
            measure_opened_batch(&b, 0, &lens)
            self.copy(p, size, &b, &lens)
            p += size
            left -= size
        return 0

    cdef int copy(self, bytes_t p, int64_t size, Batch *b, Lens *lens) except -1:
        self.rewriter.put_whole(p, size)
        return self.account(b, size, lens)

    cdef int account(self, Batch *b, int64_t size, Lens *lens) except -1:
        cdef IndexBuilder builder = self.builder
        builder.account(b, size, lens)
        self.rewriter.out_size += size
        self.bytes_written += size
        return 0


cdef bint is_plain(bytes_t p, Batch *b) noexcept:
    """Whether a batch may be merged with others; see BatchPacker."""
    return (
        b.magic == 2
        and b.attributes & ~CODEC_MASK == 0
        and lf_get64(p + 43) == -1
        and b.count > 0
        and b.count == lf_sub(b.last_offset, b.base_offset) + 1
    )


cdef int measure_opened_batch(Batch *b, Py_ssize_t position, Lens *lens) except -1:
    """Add up the lengths of the records of a batch that was opened; ``b`` is used up."""
    cdef int status
    if b.end - b.p >= RELEASE_GIL_BYTES:
        with nogil:
            status = measure_batch(b, INT64_LAST, lens)
    else:
        status = measure_batch(b, INT64_LAST, lens)
    if status < 0:
        raise corrupt(f"record {b.count - b.left} of {b.count} does not decode", position)
    return 0


cdef int64_t put_merged(
    uint8_t *out, const Batch *b, int64_t base_offset, int64_t base_timestamp
) noexcept nogil:
    """Write records, which were decoded once already, with other bases.

    Returns their size, -1 if the offset of one is not that of its place.
    """
    cdef uint8_t *begin = out
    cdef Batch left = b[0]
    cdef int64_t expected = b.base_offset
    cdef int64_t delta, offset_delta
    cdef Rec r
    while left.left > 0:
        next_record(&left, &r)
        if r.offset != expected:
            return -1
        expected += 1
        delta = lf_sub(r.timestamp, base_timestamp)
        offset_delta = r.offset - base_offset
        out = lf_put_varint(
            out, 1 + lf_varint_size(delta) + lf_varint_size(offset_delta) + (r.end - r.fields)
        )
        out[0] = 0
        out = lf_put_varint(out + 1, delta)
        out = lf_put_varint(out, offset_delta)
        out = lf_put(out, r.fields, r.end - r.fields)
    return out - begin


cdef void put_plain_header(uint8_t *begin, Batch *b) noexcept:
    """Write what ``finish`` does not write of the header of a batch without a producer."""
    lf_put64(begin, b.base_offset)
    lf_put32(begin + 12, b.epoch)
    begin[16] = 2
    lf_put32(begin + 23, lf_sub(b.last_offset, b.base_offset))
    lf_put64(begin + 43, -1)                # producer id, epoch, base sequence: none
    lf_put16(begin + 51, -1)
    lf_put32(begin + 53, -1)
