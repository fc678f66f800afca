# Part of _dumping.pyx: batches as kafka-dump-log prints them. What the lines look like is in
# ``logfs.services.dumping``.

cdef enum:
    DUMP_ENOUGH = 1 << 20       # bytes of output after which feed returns
    HEADER_LINE = 640           # more than the longest line of a batch
    RECORD_FRAME = 256          # more than the words and numbers of a record's line


cdef inline uint8_t *put_word(uint8_t *out, const char *word) noexcept nogil:
    return lf_put(out, word, strlen(word))


cdef inline uint8_t *put_number(uint8_t *out, const char *name, int64_t value) noexcept nogil:
    return lf_put_decimal(put_word(out, name), value)


cdef inline const char *boolean(bint value) noexcept nogil:
    return b"true" if value else b"false"


cdef inline const char *time_name(int attributes) noexcept nogil:
    return b"LogAppendTime" if attributes & LOG_APPEND_TIME else b"CreateTime"


cdef inline int64_t sequence_after(int64_t sequence, int64_t delta) noexcept nogil:
    """Number records from a sequence; after 2^31 - 1 comes 0.

    Source: Kafka DefaultRecordBatch.incrementSequence.
    """
    if sequence > lf_sub(INT32_LAST, delta):
        return lf_sub(delta, INT32_LAST - sequence + 1)
    return lf_add(sequence, delta)


cdef uint8_t *put_batch_line(
    uint8_t *out, bytes_t p, int64_t size, int64_t position, bint valid
) noexcept nogil:
    """Write the line of a v2 batch. Source: Kafka DumpLogSegments.printBatchLevel."""
    cdef const char **codecs = [b"none", b"gzip", b"snappy", b"lz4", b"zstd"]
    cdef int attributes = lf_get16(p + 21) & 0xff
    cdef int64_t last_delta = lf_get32(p + 23)
    cdef int64_t sequence = lf_get32(p + 53)
    out = put_number(out, b"baseOffset: ", lf_get64(p))
    out = put_number(out, b" lastOffset: ", lf_add(lf_get64(p), last_delta))
    out = put_number(out, b" count: ", lf_get32(p + 57))
    out = put_number(out, b" baseSequence: ", sequence)
    if sequence != -1:
        sequence = sequence_after(sequence, last_delta)
    out = put_number(out, b" lastSequence: ", sequence)
    out = put_number(out, b" producerId: ", lf_get64(p + 43))
    out = put_number(out, b" producerEpoch: ", lf_get16(p + 51))
    out = put_number(out, b" partitionLeaderEpoch: ", lf_get32(p + 12))
    out = put_word(put_word(out, b" isTransactional: "), boolean(attributes & TRANSACTIONAL))
    out = put_word(put_word(out, b" isControl: "), boolean(attributes & CONTROL))
    out = put_word(out, b" deleteHorizonMs: OptionalLong")
    if attributes & DELETE_HORIZON:
        out = put_word(put_number(out, b"[", lf_get64(p + 27)), b"]")
    else:
        out = put_word(out, b".empty")
    out = put_number(out, b" position: ", position)
    out = put_word(put_word(out, b" "), time_name(attributes))
    out = put_number(out, b": ", lf_get64(p + 35))
    out = put_number(out, b" size: ", size)
    out = put_number(out, b" magic: ", <int8_t>p[16])
    out = put_word(put_word(out, b" compresscodec: "), codecs[attributes & CODEC_MASK])
    out = put_number(out, b" crc: ", <uint32_t>lf_get32(p + 17))
    out = put_word(put_word(out, b" isvalid: "), boolean(valid))
    return put_word(out, b"\n")


cdef uint8_t *put_java_text(uint8_t *out, Span span) noexcept nogil:
    """Write bytes as they come out of a Java string that was made of them as UTF-8.

    What is not UTF-8 becomes U+FFFD, as many as Java makes of it; at most three bytes for one.
    """
    if span.n <= 0:
        return out
    if lf_is_utf8(span.p, span.n):
        return lf_put(out, span.p, span.n)
    return lf_put_java(out, span.p, span.n)


cdef uint8_t *put_header_keys(uint8_t *out, Rec *r) noexcept nogil:
    cdef bytes_t p = r.headers
    cdef Span span
    cdef int64_t i
    for i in range(r.header_count):
        if i:
            out[0] = b","
            out += 1
        p = skip_bytes(p, r.end, &span, 0)
        out = put_java_text(out, span)
        p = skip_bytes(p, r.end, &span, -1)
    return out


cdef int open_all(bytes_t p, int64_t size, Batch *b, decompress, list keep) except -1:
    """Point b at all records of a v2 batch, those of control batches too; the CRC is not checked.

    Raises CorruptRecordError without a position.
    """
    cdef _View plain
    cdef int code
    if size < HEADER:
        raise CorruptRecordError(f"batch length {size - LOG_OVERHEAD} is too small")
    code = read_header(p, b)
    if b.count < 0:
        raise CorruptRecordError(frame_problem(code, p))
    if b.count == 0:
        return 0
    if b.attributes & CODEC_MASK:
        plain = _View(
            decompress(b.attributes & CODEC_MASK, borrowed(p + HEADER, size - HEADER)), False
        )
        keep.append(plain)
        b.p = plain.p
        b.end = plain.p + plain.n
    else:
        b.p = p + HEADER
        b.end = p + size
    b.left = b.count
    return 0


def java_text(text):
    """Return bytes as Java prints a string that was made of them as UTF-8; None stays None."""
    cdef _View view
    cdef bytes out
    if text is None:
        return None
    view = _View(text, False)
    if lf_is_utf8(view.p, view.n):
        return bytes(text)
    out = PyBytes_FromStringAndSize(NULL, 3 * view.n)
    return out[: lf_put_java(<uint8_t *>PyBytes_AS_STRING(out), view.p, view.n)
               - <uint8_t *>PyBytes_AS_STRING(out)]


def largest_timestamp(buf, Py_ssize_t start, Py_ssize_t stop, decompress):
    """Return the largest timestamp of the records of the v2 batch ``buf[start:stop]``.

    Control records count; -1 without records. The CRC is not checked.

    Raises:
        CorruptRecordError: It is no batch of format v2, or a record does not decode; no position.
    """
    cdef _View view = window(buf, start, stop)
    cdef int64_t largest = -1
    cdef Batch b
    cdef Rec r
    cdef list keep = []
    if stop - start <= UP_TO_MAGIC or view.p[start + 16] < 2:
        raise CorruptRecordError("it is no batch of format v2")
    open_all(view.p + start, stop - start, &b, decompress, keep)
    while b.left > 0:
        if next_record(&b, &r) < 0 or has_trailing_bytes(&b):
            raise CorruptRecordError("a record does not decode")
        largest = max(largest, r.timestamp)
    return largest


@cython.final
cdef class Dumper:
    """Prints v2 batches, and their records, as kafka-dump-log does.

    Feed whole batches, drain what they print. An error leaves what is before it to be drained.

    Args:
        records: Print a line for every record.
        metadata: Print offset, time, sizes, sequence and header keys of a record.
        payloads: Print key and value of a record.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.
        control: ``(key, value) -> bytes``: what a control record says.
        parse: ``(offset, key, value) -> (bytes | None, bytes | None)``: key and value as they are
            printed; None for text, which is done here.

    Attributes:
        position: File position of the next batch.
        last_offset: Offset of the last record; -1 before the first.
        gaps: (offset, next offset) of neighbours that do not follow each other.
        invalid: Batches whose checksum differs.
    """

    cdef bint records
    cdef bint metadata
    cdef bint payloads
    cdef object decompress
    cdef object control
    cdef object parse
    cdef uint8_t *out
    cdef int64_t n
    cdef int64_t room
    cdef public int64_t position
    cdef public int64_t last_offset
    cdef readonly list gaps
    cdef public int64_t invalid

    def __init__(
        self, *, bint records, bint metadata, bint payloads, decompress, control, parse=None
    ):
        self.records = records
        self.metadata = metadata
        self.payloads = payloads
        self.decompress = decompress
        self.control = control
        self.parse = parse
        self.last_offset = -1
        self.gaps = []

    def __dealloc__(self):
        free(self.out)

    def feed(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Print the whole v2 batches at the beginning of ``buf[start:stop]``.

        Returns:
            Position in ``buf`` after the last one printed: of a batch that is not all there or no
            v2 batch, or just far enough because there is much to drain.

        Raises:
            CorruptRecordError: A record of the batch at ``position`` does not decode, or its codec
                is unknown.
        """
        cdef _View view = window(buf, start, stop)
        cdef int64_t size
        cdef bytes_t p
        while stop - start >= HEADER and self.n < DUMP_ENOUGH:
            p = view.p + start
            size = <int64_t>LOG_OVERHEAD + lf_get32(p + 8)
            if <int8_t>p[16] < 2 or size < LOG_OVERHEAD + SHORTEST or size > stop - start:
                break
            self.dump_batch(p, size)
            start += size
            self.position = lf_add(self.position, size)
        return start

    def drain(self, write):
        """Hand what has been printed since the last call to ``write``, which must not keep it."""
        cdef int64_t n = self.n
        self.n = 0
        if n:
            write(borrowed(self.out, n))

    cdef int reserve(self, int64_t more) except -1:
        cdef int64_t wanted = self.n + more
        cdef void *larger
        if wanted > self.room:
            wanted = max(wanted + wanted // 2, 2 * DUMP_ENOUGH)
            larger = realloc(self.out, wanted)
            if larger == NULL:
                raise MemoryError
            self.out = <uint8_t *>larger
            self.room = wanted
        return 0

    cdef int dump_batch(self, bytes_t p, int64_t size) except -1:
        cdef bint valid = size >= HEADER and checksum_problem(p, size) is None
        cdef int codec = lf_get16(p + 21) & CODEC_MASK
        cdef int64_t before
        cdef Batch b
        cdef list keep = []
        if codec > 4:
            raise CorruptRecordError(f"unknown compression codec {codec}")
        self.invalid += not valid
        self.reserve(HEADER_LINE)
        self.n = put_batch_line(self.out + self.n, p, size, self.position, valid) - self.out
        if not self.records:
            return 0
        open_all(p, size, &b, self.decompress, keep)
        before = self.n
        try:
            self.dump_records(p, &b)
        except CorruptRecordError:
            if codec:       # Kafka decodes all records of a compressed batch before the first
                self.n = before
            raise
        return 0

    cdef int dump_records(self, bytes_t p, Batch *b) except -1:
        cdef int64_t sequence = lf_get32(p + 53)
        cdef Rec r
        while b.left > 0:
            if next_record(b, &r) < 0:
                raise CorruptRecordError(f"record {b.count - b.left} of {b.count} does not decode")
            if has_trailing_bytes(b):
                raise CorruptRecordError(f"bytes follow the last of {b.count} records")
            self.note_offset(r.offset)
            self.reserve(RECORD_FRAME + 4 * r.size)
            self.dump_record(b, &r, sequence)
        return 0

    cdef inline int note_offset(self, int64_t offset) except -1:
        if offset != lf_add(self.last_offset, 1) and self.last_offset != -1:
            self.gaps.append((self.last_offset, offset))
        self.last_offset = offset
        return 0

    cdef int dump_record(self, Batch *b, Rec *r, int64_t sequence) except -1:
        cdef uint8_t *out = self.out + self.n
        cdef bint is_control = b.attributes & CONTROL
        if self.metadata:
            out = put_number(out, b"| offset: ", r.offset)
            out = put_word(put_word(out, b" "), time_name(b.attributes))
            out = put_number(out, b": ", r.timestamp)
            out = put_number(out, b" keySize: ", r.key.n)
            out = put_number(out, b" valueSize: ", r.value.n)
            if sequence >= 0:
                sequence = sequence_after(sequence, lf_sub(r.offset, b.base_offset))
            out = put_number(out, b" sequence: ", sequence if sequence >= 0 else -1)
            out = put_word(out, b" headerKeys: [")
            out = put_header_keys(out, r)
            out = put_word(out, b"]")
        if self.payloads and not is_control and self.parse is None:
            if r.key.n >= 0:
                out = put_word(out, b" key: " if self.metadata else b"| key: ")
                out = put_java_text(out, r.key)
            if r.value.n >= 0:
                out = put_java_text(put_word(out, b" payload: "), r.value)
        self.n = out - self.out
        if is_control and self.metadata:
            self.append(self.control(span_bytes(r.key), span_bytes(r.value)))
        elif self.payloads and not is_control and self.parse is not None:
            self.append_parsed(r)
        return self.append(b"\n")

    cdef int append_parsed(self, Rec *r) except -1:
        key, value = self.parse(r.offset, span_bytes(r.key), span_bytes(r.value))
        if key is not None:
            self.append(b" key: " if self.metadata else b"| key: ")
            self.append(key)
        if value is not None:
            self.append(b" payload: ")
            self.append(value)
        return 0

    cdef int append(self, bytes text) except -1:
        self.reserve(PyBytes_GET_SIZE(text) + 1)
        memcpy(self.out + self.n, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        self.n += PyBytes_GET_SIZE(text)
        return 0
