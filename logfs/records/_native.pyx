# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=False, freethreading_compatible=False
"""Every loop over the bytes of records: lines to batches, batches to renderings, the index rules.

Sections: structures - reading records - renderings - buffers and checksums - searching - decoding -
``IndexBuilder`` - ``Renderer`` - encoding. The layout of a batch stands in ``logfs.records.batch``.

Renderings of one record, each ended by one LF:

    text   the value's bytes; nothing for a null value
    tsv    key TAB value; backslash, TAB, LF and CR escaped as \\\\ \\t \\n \\r; null as \\N
    jsonl  {"offset":7,"timestamp":1700000000000,"key":null,"value":"v","headers":[["h","x"]]}
           strings as json.dumps(ensure_ascii=False) writes them; {"base64":"..."} where the bytes
           are not UTF-8

Control batches and batches without records render to nothing. A record's timestamp is the batch's
max timestamp if the LogAppendTime bit is set, else base timestamp + delta.

Bytes that are read must not change during a call, and objects are used by one thread at a time:
longer loops run without the GIL. Whatever the bytes are, the answer is a result or
``CorruptRecordError``.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from crc32c import crc32c as _crc32c

from logfs.errors import CorruptRecordError, RecordTooLargeError, UnparsableLineError
from logfs.records.compression import compress as _compress
from logfs.records.encoded import Encoded, EncodedBatch
from logfs.records.jsonl import parse_line
from logfs.records.record import Record

cdef extern from "Python.h":
    ctypedef struct Py_buffer:
        void *buf
        Py_ssize_t len
    int PyBUF_SIMPLE
    int PyBUF_WRITABLE
    int PyBUF_READ
    int PyObject_GetBuffer(object, Py_buffer *, int) except -1
    void PyBuffer_Release(Py_buffer *)
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *, Py_ssize_t) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject **, Py_ssize_t) except -1
    char *bytes_data "PyBytes_AS_STRING"(PyObject *)

cdef extern from "_bytes.h" nogil:
    ctypedef struct lf_counts:
        int64_t tsv
        int64_t json
        int high
    int lf_get16(const uint8_t *)
    int64_t lf_get32(const uint8_t *)
    int64_t lf_get64(const uint8_t *)
    void lf_put16(uint8_t *, int64_t)
    void lf_put32(uint8_t *, int64_t)
    void lf_put64(uint8_t *, int64_t)
    int64_t lf_add(int64_t, int64_t)
    int64_t lf_sub(int64_t, int64_t)
    int lf_varint_size(int64_t)
    uint8_t *lf_put_varint(uint8_t *, int64_t)
    const uint8_t *lf_get_varint(const uint8_t *, const uint8_t *, int64_t *)
    const uint8_t *lf_get_varlong(const uint8_t *, const uint8_t *, int64_t *)
    int lf_digits(int64_t)
    int64_t lf_digits_of_range(int64_t, int64_t)
    uint8_t *lf_put_decimal(uint8_t *, int64_t)
    lf_counts lf_count(const uint8_t *, size_t)
    bint lf_is_utf8(const uint8_t *, size_t)
    uint8_t *lf_put(uint8_t *, const void *, size_t)
    uint8_t *lf_put_tsv(uint8_t *, const uint8_t *, size_t)
    uint8_t *lf_put_json(uint8_t *, const uint8_t *, size_t)
    uint8_t *lf_put_base64(uint8_t *, const uint8_t *, size_t)

ctypedef const uint8_t *bytes_t

cdef enum:
    LOG_OVERHEAD = 12       # base offset and batch length
    HEADER = 61
    SHORTEST = 14           # smallest batch length of any magic. Source: Kafka RECORD_OVERHEAD_V0
    UP_TO_MAGIC = 17
    TEXT = 0
    TSV = 1
    JSONL = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    CONTROL = 0x20
    RELEASE_GIL_BYTES = 65536   # below, giving up the GIL and taking it back costs more than it frees

cdef int64_t INT32_LAST = 0x7fffffff
cdef int64_t INT64_LAST = 0x7fffffffffffffff

# ---- structures ---------------------------------------------------------------------------------

cdef struct Span:
    bytes_t p
    int64_t n               # -1 is null

cdef struct Rec:
    int64_t offset
    int64_t timestamp
    Span key
    Span value
    bytes_t headers         # behind their count, already checked
    bytes_t end
    int64_t header_count
    int64_t size            # of the record, its length field aside

cdef struct Lens:
    int64_t text
    int64_t tsv
    int64_t jsonl

cdef struct Batch:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t epoch
    int64_t count
    int attributes
    bytes_t p               # next record; records are left while left > 0
    bytes_t end
    int64_t left


# ---- reading records ----------------------------------------------------------------------------

cdef enum:
    WHOLE = 0
    INCOMPLETE = 1
    BAD_SIZE = 2
    BAD_MAGIC = 3
    BAD_FIELDS = 4

cdef int peek(bytes_t p, int64_t available, int64_t *size) noexcept nogil:
    """Judge the first bytes of a batch; size is its total size, 0 while that is not known.

    Source: Kafka FileLogInputStream.nextBatch.
    """
    size[0] = 0
    if available <= UP_TO_MAGIC:
        return INCOMPLETE
    cdef int64_t length = lf_get32(p + 8)
    if length < SHORTEST:
        return BAD_SIZE
    if p[16] != 2:
        return BAD_MAGIC
    if length < HEADER - LOG_OVERHEAD:
        return BAD_SIZE
    size[0] = LOG_OVERHEAD + length
    return INCOMPLETE if size[0] > available else WHOLE


cdef int read_header(bytes_t p, Batch *b) noexcept nogil:
    """Read the 61 bytes of a batch header that peek has accepted."""
    cdef int64_t last_delta = lf_get32(p + 23)
    b.base_offset = lf_get64(p)
    b.epoch = lf_get32(p + 12)
    b.attributes = lf_get16(p + 21)
    b.base_timestamp = lf_get64(p + 27)
    b.max_timestamp = lf_get64(p + 35)
    b.count = lf_get32(p + 57)
    b.last_offset = lf_add(b.base_offset, last_delta)
    b.p = b.end = p
    b.left = 0
    if b.base_offset < 0 or last_delta < 0 or b.last_offset < 0 or b.count < 0:
        return BAD_FIELDS
    return WHOLE


cdef bytes_t skip_bytes(bytes_t p, bytes_t end, Span *span, int64_t least) noexcept nogil:
    p = lf_get_varint(p, end, &span.n)
    if p == NULL or span.n < least or span.n > end - p:
        return NULL
    span.p = p
    return p + span.n if span.n > 0 else p


cdef int next_record(Batch *b, Rec *r) noexcept nogil:
    """Take the next record; -1 if its bytes do not decode. Source: Kafka DefaultRecord.readFrom."""
    cdef int64_t length, number, i
    cdef Span skipped
    cdef bytes_t p = lf_get_varint(b.p, b.end, &length)
    if p == NULL or length < 1 or length > b.end - p:
        return -1
    r.end = p + length
    r.size = length
    p = lf_get_varlong(p + 1, r.end, &number)      # the attributes byte means nothing
    if p == NULL:
        return -1
    r.timestamp = lf_add(b.base_timestamp, number)
    if b.attributes & LOG_APPEND_TIME:
        r.timestamp = b.max_timestamp
    p = lf_get_varint(p, r.end, &number)
    if p == NULL:
        return -1
    r.offset = lf_add(b.base_offset, number)
    p = skip_bytes(p, r.end, &r.key, -1)
    if p == NULL:
        return -1
    p = skip_bytes(p, r.end, &r.value, -1)
    if p == NULL:
        return -1
    p = lf_get_varint(p, r.end, &r.header_count)
    if p == NULL or r.header_count < 0 or r.header_count > r.end - p:
        return -1
    r.headers = p
    for i in range(r.header_count):
        p = skip_bytes(p, r.end, &skipped, 0)
        if p == NULL:
            return -1
        p = skip_bytes(p, r.end, &skipped, -1)
        if p == NULL:
            return -1
    if p != r.end:
        return -1
    b.p = p
    b.left -= 1
    return 0


cdef inline bint has_trailing_bytes(Batch *b) noexcept nogil:
    return b.left == 0 and b.p != b.end


# ---- renderings ---------------------------------------------------------------------------------

cdef inline int64_t json_length(Span span, lf_counts counts) noexcept nogil:
    if span.n < 0:
        return 4                                    # null
    if counts.high and not lf_is_utf8(span.p, span.n):
        return 13 + (span.n + 2) // 3 * 4           # {"base64":""}
    return span.n + 2 + counts.json


cdef int64_t json_headers_length(Rec *r) noexcept nogil:
    cdef int64_t total = r.header_count * 4 - 1     # [ , ] each, and commas between them
    cdef bytes_t p = r.headers
    cdef Span span
    cdef int64_t i
    for i in range(2 * r.header_count):
        p = skip_bytes(p, r.end, &span, -1)
        total += json_length(span, count_span(span))
    return total


cdef inline lf_counts count_span(Span span) noexcept nogil:
    return lf_count(span.p, span.n if span.n > 0 else 0)


cdef inline int64_t json_frame_length(Rec *r) noexcept nogil:
    # {"offset":  ,"timestamp":  ,"key":  ,"value":  ,"headers":[  ]}LF
    cdef int64_t total = 54 + lf_digits(r.offset) + lf_digits(r.timestamp)
    if r.header_count:
        total += json_headers_length(r)
    return total


cdef inline void add_lengths(Rec *r, Lens *lens) noexcept nogil:
    cdef lf_counts of_key
    cdef lf_counts of_value = count_span(r.value)
    lens.text += 1 + (r.value.n if r.value.n > 0 else 0)
    lens.tsv += 2 + (2 if r.value.n < 0 else r.value.n + of_value.tsv)
    lens.jsonl += json_frame_length(r) + json_length(r.value, of_value)
    if r.key.n < 0:
        lens.tsv += 2
        lens.jsonl += 4
    else:
        of_key = count_span(r.key)
        lens.tsv += r.key.n + of_key.tsv
        lens.jsonl += json_length(r.key, of_key)


cdef inline int64_t rendered_length(int view, Rec *r) noexcept nogil:
    cdef Lens lens = Lens(0, 0, 0)
    if view == TEXT:
        return 1 + (r.value.n if r.value.n > 0 else 0)
    add_lengths(r, &lens)
    return lens.tsv if view == TSV else lens.jsonl


cdef int measure_batch(Batch *b, int64_t stop_offset, Lens *lens) noexcept nogil:
    """Add up the lengths of the records before stop_offset; -1 if some record does not decode."""
    cdef Rec r
    while b.left > 0:
        if next_record(b, &r) < 0:
            return -1
        if r.offset >= stop_offset:
            return 0
        add_lengths(&r, lens)
    return -1 if has_trailing_bytes(b) else 0


cdef inline uint8_t *put_literal(uint8_t *out, const char *text, size_t n) noexcept nogil:
    return lf_put(out, text, n)


cdef uint8_t *put_json_span(uint8_t *out, Span span) noexcept nogil:
    cdef lf_counts counts
    if span.n < 0:
        return put_literal(out, b"null", 4)
    counts = lf_count(span.p, span.n)
    if counts.high and not lf_is_utf8(span.p, span.n):
        out = put_literal(out, b'{"base64":"', 11)
        out = lf_put_base64(out, span.p, span.n)
        return put_literal(out, b'"}', 2)
    out[0] = b'"'
    if counts.json:
        out = lf_put_json(out + 1, span.p, span.n)
    else:
        out = lf_put(out + 1, span.p, span.n)
    out[0] = b'"'
    return out + 1


cdef uint8_t *put_json_headers(uint8_t *out, Rec *r) noexcept nogil:
    cdef bytes_t p = r.headers
    cdef Span span
    cdef int64_t i
    for i in range(r.header_count):
        out = put_literal(out, b",[", 2) if i else put_literal(out, b"[", 1)
        p = skip_bytes(p, r.end, &span, 0)
        out = put_json_span(out, span)
        out[0] = b","
        p = skip_bytes(p, r.end, &span, -1)
        out = put_json_span(out + 1, span)
        out[0] = b"]"
        out += 1
    return out


cdef uint8_t *put_jsonl(uint8_t *out, Rec *r) noexcept nogil:
    out = put_literal(out, b'{"offset":', 10)
    out = lf_put_decimal(out, r.offset)
    out = put_literal(out, b',"timestamp":', 13)
    out = lf_put_decimal(out, r.timestamp)
    out = put_literal(out, b',"key":', 7)
    out = put_json_span(out, r.key)
    out = put_literal(out, b',"value":', 9)
    out = put_json_span(out, r.value)
    out = put_literal(out, b',"headers":[', 12)
    out = put_json_headers(out, r)
    return put_literal(out, b"]}\n", 3)


cdef inline uint8_t *put_tsv_span(uint8_t *out, Span span) noexcept nogil:
    if span.n < 0:
        return put_literal(out, b"\\N", 2)
    return lf_put_tsv(out, span.p, span.n)


cdef inline uint8_t *put_rendered(int view, uint8_t *out, Rec *r) noexcept nogil:
    """Write a whole record, for which the caller has made room."""
    if view == TEXT:
        if r.value.n > 0:
            out = lf_put(out, r.value.p, r.value.n)
        out[0] = b"\n"
        return out + 1
    if view == TSV:
        out = put_tsv_span(out, r.key)
        out[0] = b"\t"
        out = put_tsv_span(out + 1, r.value)
        out[0] = b"\n"
        return out + 1
    return put_jsonl(out, r)


cdef inline int64_t longest_rendering(Rec *r) noexcept nogil:
    """A bound that costs nothing: a byte makes at most 6, and a header's frame at most 32."""
    return 6 * r.size + 128 + 32 * r.header_count


# ---- buffers and checksums ----------------------------------------------------------------------

@cython.final
@cython.freelist(8)
cdef class _View:
    """The bytes of any contiguous buffer, held for as long as this object lives."""

    cdef Py_buffer view
    cdef bint held
    cdef uint8_t *p
    cdef Py_ssize_t n

    def __cinit__(self, source, bint writable):
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        self.p = <uint8_t *>self.view.buf
        self.n = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef _View window(buf, Py_ssize_t start, Py_ssize_t stop):
    cdef _View view = _View(buf, False)
    if not 0 <= start <= stop <= view.n:
        raise ValueError(f"[{start}, {stop}) is not inside a buffer of {view.n} bytes")
    return view


cdef inline object borrowed(bytes_t p, Py_ssize_t n):
    return PyMemoryView_FromMemory(<char *>p, n, PyBUF_READ)


cdef inline uint32_t checksum(bytes_t p, int64_t size) except? 0:
    """CRC-32C of a whole batch: from its attributes to its end."""
    return _crc32c(borrowed(p + 21, size - 21))


cdef str frame_problem(int code, bytes_t p):
    if code == BAD_MAGIC:
        return f"unsupported magic {p[16]}"
    if code == BAD_SIZE:
        return f"batch length {lf_get32(p + 8)} is too small"
    return (
        f"batch header is impossible: base offset {lf_get64(p)}, last offset delta "
        f"{lf_get32(p + 23)}, {lf_get32(p + 57)} records"
    )


cdef str checksum_problem(bytes_t p, int64_t size):
    """Why the checksum does not fit, None if it does."""
    cdef uint32_t stored = <uint32_t>lf_get32(p + 17)
    cdef uint32_t computed = checksum(p, size)
    if stored == computed:
        return None
    return f"checksum differs: stored {stored:#010x}, computed {computed:#010x}"


cdef object corrupt(str problem, Py_ssize_t position):
    return CorruptRecordError(f"batch at position {position}: {problem}", position)


cdef object open_records(bytes_t p, int64_t size, Batch *b, decompress):
    """Point b at its records, decompressed if need be; returns what keeps those bytes alive.

    Raises CorruptRecordError without a position.
    """
    cdef int codec = b.attributes & CODEC_MASK
    cdef bytes plain
    if b.count == 0 or b.attributes & CONTROL:
        return None
    if codec == 0:
        plain = None
        b.p = p + HEADER
        b.end = p + size
    else:
        plain = decompress(codec, borrowed(p + HEADER, size - HEADER))
        b.p = <bytes_t>PyBytes_AS_STRING(plain)
        b.end = b.p + PyBytes_GET_SIZE(plain)
    b.left = b.count
    return plain


cdef int64_t whole_batch(bytes_t p, int64_t available, Py_ssize_t position, Batch *b) except -1:
    """Read the header of the batch at p; its size, 0 if it is not all there."""
    cdef int64_t size
    cdef int code = peek(p, available, &size)
    if code == INCOMPLETE:
        return 0
    if code == WHOLE:
        code = read_header(p, b)
    if code != WHOLE:
        raise corrupt(frame_problem(code, p), position)
    return size


cdef object verified_records(bytes_t p, int64_t size, Py_ssize_t position, Batch *b, decompress):
    """Check the CRC and open the records; every error carries the position."""
    cdef str problem = checksum_problem(p, size)
    if problem is not None:
        raise corrupt(problem, position)
    try:
        return open_records(p, size, b, decompress)
    except CorruptRecordError as error:
        raise corrupt(str(error), position) from error


# ---- searching ----------------------------------------------------------------------------------

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


# ---- decoding -----------------------------------------------------------------------------------

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
    cdef list records = []
    cdef tuple headers
    cdef Batch b
    cdef Rec r
    b.base_offset = base_offset
    b.base_timestamp = base_timestamp
    b.attributes = 0
    if log_append_time is not None:
        b.attributes = LOG_APPEND_TIME
        b.max_timestamp = log_append_time
    b.p = view.p
    b.end = view.p + view.n
    b.left = count
    while b.left > 0:
        if next_record(&b, &r) < 0:
            raise CorruptRecordError(f"record {count - b.left} of {count} does not decode")
        headers = () if r.header_count == 0 else header_tuple(&r)
        records.append(_new_tuple(
            Record, (r.offset, r.timestamp, span_bytes(r.key), span_bytes(r.value), headers)
        ))
    if has_trailing_bytes(&b):
        raise CorruptRecordError(f"{b.end - b.p} bytes follow the last of {count} records")
    return records


# ---- IndexBuilder -------------------------------------------------------------------------------

@cython.final
cdef class IndexBuilder:
    """The index rules of one segment, one batch after the other.

    Per batch, in this order: the max timestamp (only a larger one counts, and remembers this
    batch's last offset); if more than ``index_interval_bytes`` lie since the last entry, an entry
    in each index, and the counter starts anew; then the counter grows by the batch's size. So the
    first batch never has an entry.

        index       8 bytes: int32 last offset - base, int32 position of the batch
        timeindex  12 bytes: int64 max timestamp so far, int32 offset of it - base; only if the
                   timestamp is larger than the last entry's
        textindex  32 bytes: int32 base offset - base, int32 position, and the lengths of the text,
                   tsv and jsonl renderings of the segment before this batch, int64 each

    Args:
        base_offset: Base offset of the segment.
        index_interval_bytes: Kafka's ``index.interval.bytes``.
        decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

    Attributes:
        file_position: Bytes accounted for; where the next batch begins.
        next_offset: Last offset + 1; the segment's base offset while it is empty.
        max_timestamp: Largest so far, -1 if none.
        offset_of_max_timestamp: Last offset of the earliest batch that had it; the base offset if
            none had one.
        first_timestamp: Max timestamp of the first batch, -1 if none.
        last_time_entry: Timestamp of the last time index entry, -1 if none.
        bytes_since_entry: The counter.
        text, tsv, jsonl: Running lengths of the renderings, from the segment's first byte.
        leader_epochs: ``(epoch, first offset)``, epochs increasing.
        max_leader_epoch: The largest, -1 if none.
        batches, records: How many were accounted for by this object.
        problem: Why the last ``feed`` stopped; None if it used everything up. "incomplete" is a
            batch cut by ``stop`` and says nothing against it; ``wanted`` is then its total size in
            bytes, 0 if even its header is cut. All else is damage.

    Source: Kafka LogSegment.append and LogSegment.recover (per batch, KAFKA-806).
    """

    cdef readonly int64_t base_offset
    cdef readonly int64_t index_interval_bytes
    cdef readonly int64_t file_position
    cdef readonly int64_t next_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t last_time_entry
    cdef readonly int64_t bytes_since_entry
    cdef readonly int64_t text
    cdef readonly int64_t tsv
    cdef readonly int64_t jsonl
    cdef readonly int64_t max_leader_epoch
    cdef readonly list leader_epochs
    cdef readonly int64_t batches
    cdef readonly int64_t records
    cdef readonly str problem
    cdef readonly int64_t wanted
    cdef object decompress
    cdef bytearray offset_entries
    cdef bytearray time_entries
    cdef bytearray text_entries

    def __init__(self, int64_t base_offset, int64_t index_interval_bytes, decompress):
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.decompress = decompress
        self.next_offset = base_offset
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset
        self.first_timestamp = -1
        self.last_time_entry = -1
        self.max_leader_epoch = -1
        self.leader_epochs = []
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.text_entries = bytearray()

    def restore(
        self,
        *,
        int64_t file_position,
        int64_t next_offset,
        int64_t max_timestamp,
        int64_t offset_of_max_timestamp,
        int64_t first_timestamp,
        int64_t last_time_entry,
        int64_t text,
        int64_t tsv,
        int64_t jsonl,
        int64_t bytes_since_entry=0,
        int64_t max_leader_epoch=-1,
    ):
        """Go on from a batch border inside the segment instead of from its start.

        The arguments are the attributes as they were there. Kafka forgets the counter at a
        restart, hence its default. Leader epochs up to ``max_leader_epoch`` are not listed again.
        """
        self.file_position = file_position
        self.next_offset = next_offset
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.first_timestamp = first_timestamp
        self.last_time_entry = last_time_entry
        self.text = text
        self.tsv = tsv
        self.jsonl = jsonl
        self.bytes_since_entry = bytes_since_entry
        self.max_leader_epoch = max_leader_epoch

    def add(
        self,
        int64_t batch_bytes_len,
        int64_t base_offset,
        int64_t last_offset,
        int64_t max_timestamp,
        int64_t leader_epoch,
        int64_t text,
        int64_t tsv,
        int64_t jsonl,
    ):
        """Account for one batch that begins at ``file_position``.

        Args:
            batch_bytes_len: Its total size.
            base_offset: Its base offset, >= ``next_offset``.
            last_offset: Its last offset.
            max_timestamp: Of its header, -1 if none.
            leader_epoch: Of its header, -1 if none.
            text: Length of its text rendering.
            tsv: Length of its tsv rendering.
            jsonl: Length of its jsonl rendering.

        Returns:
            Whether ``take`` has something to give.
        """
        cdef Lens lens = Lens(text, tsv, jsonl)
        cdef Batch b
        b.base_offset = base_offset
        b.last_offset = last_offset
        b.max_timestamp = max_timestamp
        b.epoch = leader_epoch
        b.count = last_offset - base_offset + 1
        self.account(&b, batch_bytes_len, &lens)
        return len(self.offset_entries) > 0

    cdef int account(self, Batch *b, int64_t size, Lens *lens) except -1:
        if self.file_position == 0:
            self.first_timestamp = b.max_timestamp
        if b.max_timestamp > self.max_timestamp:
            self.max_timestamp = b.max_timestamp
            self.offset_of_max_timestamp = b.last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.add_entries(b)
            self.bytes_since_entry = 0
        if b.epoch > self.max_leader_epoch:
            self.max_leader_epoch = b.epoch
            self.leader_epochs.append((b.epoch, b.base_offset))
        self.bytes_since_entry += size
        self.file_position += size
        self.next_offset = b.last_offset + 1
        self.text += lens.text
        self.tsv += lens.tsv
        self.jsonl += lens.jsonl
        self.batches += 1
        self.records += b.count
        return 0

    cdef int add_entries(self, Batch *b) except -1:
        cdef uint8_t entry[32]
        lf_put32(entry, b.last_offset - self.base_offset)
        lf_put32(entry + 4, self.file_position)
        self.offset_entries += PyBytes_FromStringAndSize(<char *>entry, 8)
        lf_put32(entry, b.base_offset - self.base_offset)
        lf_put64(entry + 8, self.text)
        lf_put64(entry + 16, self.tsv)
        lf_put64(entry + 24, self.jsonl)
        self.text_entries += PyBytes_FromStringAndSize(<char *>entry, 32)
        self.time_entries += self.final_time_entry()
        return 0

    def feed(self, buf, Py_ssize_t start, Py_ssize_t stop, bint verify):
        """Account for the whole batches of a piece of the segment.

        Stops before a batch that is cut, damaged, out of order or out of the segment's range; see
        ``problem``.

        Args:
            buf: ``buf[start]`` is the byte at ``file_position``.
            start: Where to begin.
            stop: Where to end.
            verify: Whether to check the CRCs; records are decoded either way.

        Returns:
            Bytes used up.
        """
        cdef _View view = window(buf, start, stop)
        cdef Py_ssize_t position = start
        cdef int64_t size
        cdef Lens lens
        cdef Batch b
        self.problem = None
        self.wanted = 0
        while position < stop:
            size = self.check_frame(view.p + position, stop - position, &b)
            if size == 0:
                break
            if verify:
                self.problem = checksum_problem(view.p + position, size)
                if self.problem is not None:
                    break
            lens = Lens(0, 0, 0)
            if self.lengths(view.p + position, size, &b, &lens) < 0:
                break
            self.account(&b, size, &lens)
            position += size
        return position - start

    cdef int64_t check_frame(self, bytes_t p, int64_t available, Batch *b) except -1:
        """Size of the batch at p if it is whole and may stand here, else 0 and the problem."""
        cdef int64_t size
        cdef int code = peek(p, available, &size)
        if code == INCOMPLETE:
            self.problem = "incomplete"
            self.wanted = size
            return 0
        if code == WHOLE:
            code = read_header(p, b)
        if code != WHOLE:
            self.problem = frame_problem(code, p)
        elif b.base_offset < self.next_offset:
            self.problem = f"base offset {b.base_offset} is below {self.next_offset}"
        elif b.last_offset - self.base_offset > INT32_LAST:
            self.problem = f"last offset {b.last_offset} is too far from {self.base_offset}"
        elif self.file_position + size > INT32_LAST:
            self.problem = f"batch of {size} bytes ends beyond the largest segment"
        else:
            return size
        return 0

    cdef int lengths(self, bytes_t p, int64_t size, Batch *b, Lens *lens) except? -1:
        cdef int status
        try:
            plain = open_records(p, size, b, self.decompress)
        except CorruptRecordError as error:
            self.problem = f"undecodable: {error}"
            return -1
        if b.end - b.p >= RELEASE_GIL_BYTES:
            with nogil:
                status = measure_batch(b, INT64_LAST, lens)
        else:
            status = measure_batch(b, INT64_LAST, lens)
        if status < 0:
            self.problem = f"undecodable: record {b.count - b.left} of {b.count}"
        return status

    def take(self):
        """Take the entries since the last call.

        Returns:
            ``(offset index, time index, text index)``, whole entries each.
        """
        taken = bytes(self.offset_entries), bytes(self.time_entries), bytes(self.text_entries)
        self.offset_entries.clear()
        self.time_entries.clear()
        self.text_entries.clear()
        return taken

    def final_time_entry(self):
        """The time index entry of a roll, a close or the end of recovery.

        Returns:
            12 bytes; ``b""`` if the last entry has this timestamp already.
        """
        cdef uint8_t entry[12]
        if self.max_timestamp <= self.last_time_entry:
            return b""
        self.last_time_entry = self.max_timestamp
        lf_put64(entry, self.max_timestamp)
        lf_put32(entry + 8, self.offset_of_max_timestamp - self.base_offset)
        return PyBytes_FromStringAndSize(<char *>entry, 12)


# ---- Renderer -----------------------------------------------------------------------------------

cdef enum:
    FULL = 0                # the room is used up
    AT_STOP = 1
    BATCH_END = 2
    DAMAGED = 3
    NO_MEMORY = 4


@cython.final
cdef class Renderer:
    """Delivers the records of a window of the log as the bytes of one view, in pieces of any size.

    Load a window, then ``skip`` and ``render`` to its end; a piece may end inside a record. The CRC
    of a batch is checked on entering it. What stands before a damaged batch is delivered first; the
    call that could deliver nothing else raises, and raises again. The window must not change, and
    its buffer is held, until the next ``load`` or ``release``.

    Args:
        view: Which rendering: 0 text, 1 tsv, 2 jsonl.
        decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

    Attributes:
        stop_offset: Nothing of a record with this offset or a larger one is delivered.
        at_stop: Whether the next record is such a one.
        exhausted: Whether no whole batch is left; one that is cut by the window's end stays.
        batch_position: Where in the buffer the batch of the next byte begins.
        next_offset: Offset of the record that the next byte belongs to. Where that is the first of
            a batch not entered yet: the batch's base offset, which is smaller if compaction took
            the first records. Behind the last batch: its last offset + 1.

    ``at_stop`` and ``exhausted`` may come late by one call where a piece ended at the border of a
    batch exactly: the next call then delivers nothing.
    """

    cdef public int64_t stop_offset
    cdef readonly int view
    cdef object decompress
    cdef _View window
    cdef object plain       # keeps decompressed records alive
    cdef Py_ssize_t cursor  # position of the next batch
    cdef Py_ssize_t stop
    cdef Py_ssize_t position
    cdef Batch b
    cdef Rec r
    cdef bint entered       # b is a batch that was not left yet
    cdef bint have          # r is the next record
    cdef int64_t length     # of r's rendering, -1 if not known yet
    cdef int64_t within     # bytes of it already delivered
    cdef int64_t behind     # last offset left behind, + 1
    cdef uint8_t *scratch   # rendering of a record that is delivered in pieces
    cdef Py_ssize_t scratch_bytes
    cdef bint scratch_ready

    def __init__(self, int view, decompress):
        if not TEXT <= view <= JSONL:
            raise ValueError(f"no view {view}")
        self.view = view
        self.decompress = decompress
        self.stop_offset = INT64_LAST

    def __dealloc__(self):
        free(self.scratch)

    def load(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Begin at the first record of ``buf[start:stop]``; a batch begins at ``start``."""
        cdef _View view = window(buf, start, stop)
        self.release()
        self.window = view
        self.cursor = start
        self.stop = stop

    def release(self):
        """Let go of the window; nothing is left to deliver."""
        self.window = None
        self.plain = None
        self.cursor = self.stop = self.position = 0
        self.entered = self.have = False
        self.b.left = 0
        self.b.p = self.b.end = NULL

    def render(self, out, Py_ssize_t start, Py_ssize_t limit):
        """Write the next bytes.

        Args:
            out: Writable buffer.
            start: Where in it to begin.
            limit: How many bytes at most.

        Returns:
            How many were written; fewer than ``limit`` only at the end of the window, at
            ``stop_offset`` or before a damaged batch.

        Raises:
            CorruptRecordError: The next byte belongs to a damaged batch; its position in the
                window's buffer is in the error.
        """
        cdef _View room = _View(out, True)
        if start < 0 or limit < 0 or limit > room.n - start:
            raise ValueError(f"{limit} bytes at {start} are not inside a buffer of {room.n} bytes")
        return self.drive(room.p + start, limit, True)

    def skip(self, int64_t n):
        """Move on over ``n`` bytes; returns how many, fewer in the cases of ``render``.

        Raises:
            CorruptRecordError: As ``render``.
        """
        return self.drive(NULL, n, True)

    def skip_to_offset(self, int64_t offset):
        """Move on to the first record whose offset is >= ``offset``, or to ``stop_offset``.

        Returns:
            The bytes passed over; 0 and no movement if the next record is such a one already.

        Raises:
            CorruptRecordError: A damaged batch lies before it.
        """
        cdef int64_t stop_offset = self.stop_offset
        if offset < stop_offset:
            self.stop_offset = offset
        try:
            return self.drive(NULL, INT64_LAST, False)
        finally:
            self.stop_offset = stop_offset

    cdef int64_t drive(self, uint8_t *out, int64_t room, bint tolerant) except -1:
        """Deliver (or skip, if out is NULL) up to room bytes.

        Damage behind the first byte is left to the next call if the caller is tolerant.
        """
        cdef int64_t done = 0
        cdef int status = FULL
        while True:
            if self.b.end - self.b.p >= RELEASE_GIL_BYTES and room - done >= RELEASE_GIL_BYTES:
                with nogil:
                    status = self.run(out, room, &done)
            else:
                status = self.run(out, room, &done)
            if status == NO_MEMORY:
                raise MemoryError
            if status == DAMAGED:
                if done and tolerant:
                    return done
                raise corrupt("a record does not decode", self.position)
            if status != BATCH_END or (done == room and room):
                return done
            try:
                if not self.enter():
                    return done
            except CorruptRecordError:
                if done and tolerant:
                    return done
                raise

    cdef bint enter(self) except -1:
        """Enter the next batch; False if there is none or it lies at stop_offset."""
        cdef int64_t size
        cdef Batch b
        if self.entered:
            self.behind = self.b.last_offset + 1
            self.entered = False
        if self.window is None:
            return False
        size = whole_batch(self.window.p + self.cursor, self.stop - self.cursor, self.cursor, &b)
        if size == 0 or b.base_offset >= self.stop_offset:
            return False
        self.plain = verified_records(
            self.window.p + self.cursor, size, self.cursor, &b, self.decompress
        )
        self.b = b
        self.entered = True
        self.position = self.cursor
        self.cursor += size
        return True

    cdef int run(self, uint8_t *out, int64_t room, int64_t *done) noexcept nogil:
        """Deliver records of the batch that was entered."""
        while True:
            if not self.have:
                if self.b.left == 0:
                    return DAMAGED if has_trailing_bytes(&self.b) else BATCH_END
                if next_record(&self.b, &self.r) < 0:
                    return DAMAGED
                self.have = True
                self.within = 0
                self.length = -1
            if self.r.offset >= self.stop_offset:
                return AT_STOP
            if done[0] == room:
                return FULL
            if out != NULL and self.within == 0 and longest_rendering(&self.r) <= room - done[0]:
                done[0] = put_rendered(self.view, out + done[0], &self.r) - out
                self.leave_record()
                continue
            if self.length < 0:
                self.length = rendered_length(self.view, &self.r)
                self.scratch_ready = False
            if self.within == 0 and self.length <= room - done[0]:
                if out != NULL:
                    put_rendered(self.view, out + done[0], &self.r)
                done[0] += self.length
                self.leave_record()
            elif not self.deliver_part(out, room, done):
                return NO_MEMORY

    cdef inline void leave_record(self) noexcept nogil:
        self.have = False
        self.behind = self.r.offset + 1

    cdef bint deliver_part(self, uint8_t *out, int64_t room, int64_t *done) noexcept nogil:
        cdef int64_t part = min(self.length - self.within, room - done[0])
        if out != NULL:
            if not self.prepare_scratch():
                return False
            memcpy(out + done[0], self.scratch + self.within, part)
        done[0] += part
        self.within += part
        if self.within == self.length:
            self.leave_record()
        return True

    cdef bint prepare_scratch(self) noexcept nogil:
        cdef void *larger
        if self.scratch_ready:
            return True
        if self.length > self.scratch_bytes:
            larger = realloc(self.scratch, self.length)
            if larger == NULL:
                return False
            self.scratch = <uint8_t *>larger
            self.scratch_bytes = self.length
        put_rendered(self.view, self.scratch, &self.r)
        self.scratch_ready = True
        return True

    cdef bint in_batch(self) noexcept:
        return self.have or self.b.p != self.b.end

    cdef int peek_next(self, Batch *b) noexcept:
        """Judge the header of the next batch."""
        cdef int64_t size
        cdef int code = INCOMPLETE
        if self.window is not None:
            code = peek(self.window.p + self.cursor, self.stop - self.cursor, &size)
        if code == WHOLE:
            code = read_header(self.window.p + self.cursor, b)
        return code

    @property
    def exhausted(self):
        """Whether no whole batch is left."""
        cdef Batch b
        return not self.in_batch() and self.peek_next(&b) == INCOMPLETE

    @property
    def at_stop(self):
        """Whether the next record's offset is >= ``stop_offset``."""
        cdef Batch b
        if self.have:
            return self.r.offset >= self.stop_offset
        return (
            not self.in_batch()
            and self.peek_next(&b) == WHOLE
            and b.base_offset >= self.stop_offset
        )

    @property
    def batch_position(self):
        """Where in the buffer the batch of the next byte begins."""
        return self.position if self.in_batch() else self.cursor

    @property
    def next_offset(self):
        """Offset of the record that the next byte belongs to."""
        cdef Batch b
        if self.have:
            return self.r.offset
        if self.in_batch():
            return max(self.behind, self.b.base_offset)
        behind = max(self.behind, self.b.last_offset + 1) if self.entered else self.behind
        if self.peek_next(&b) == WHOLE:
            return max(behind, b.base_offset)
        return behind


# ---- encoding -----------------------------------------------------------------------------------

# glibc returns freed blocks as large as a batch to the kernel, and getting the pages back costs more
# than filling them, until it has seen one larger block freed. Show it one.
PyBytes_FromStringAndSize(NULL, 8 << 20)

cdef enum:
    AREA_END = 0            # every line is in the batch
    BATCH_FULL = 1          # the next line needs a new batch
    TOO_LARGE = 2
    BAD_ESCAPE = 3
    SECOND_TAB = 4
    NO_KEY = 5
    UNPARSABLE = 6          # the refusal is set already
    NO_ROOM = 7             # the buffer has to grow

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
    Lens lens               # of lines counted on the way in, if counted
    bint counted


cdef inline int judge_room(Draft *d, int64_t used, int64_t size) noexcept nogil:
    """Whether a record of a size, its length field included, goes behind the bytes used."""
    if used + size <= min(d.capacity, d.limit):
        return AREA_END
    if used + size <= d.limit:
        return NO_ROOM
    return BATCH_FULL if d.count else TOO_LARGE


cdef int text_lines(Draft *d, bytes_t *at, bytes_t end, int64_t *needed) noexcept nogil:
    """Turn lines into records until the batch is full; at moves behind the last one taken."""
    cdef bytes_t p = at[0]
    cdef bytes_t uncounted = p
    cdef uint8_t *out = d.p + d.size
    cdef int64_t first = d.count
    cdef int64_t n, body, size
    cdef int status = AREA_END
    if d.require_key and p < end:
        return NO_KEY
    while p < end:
        n = <bytes_t>memchr(p, 10, end - p) - p
        body = 4 + lf_varint_size(d.count) + lf_varint_size(n) + n
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
        out = lf_put(lf_put_varint(out + 1, n), p, n)
        out[0] = 0                              # no headers
        out += 1
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


cdef void count_text(Draft *d, bytes_t p, bytes_t end, int64_t lines) noexcept nogil:
    """Add the lengths of lines that became records of text: null key, no headers, written now."""
    cdef int64_t n = end - p
    cdef lf_counts counts
    if n == 0 or not d.counted:
        return
    counts = lf_count(p, n)                     # each LF adds one to both
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
    cdef int64_t key_bytes, value_bytes, body, size
    cdef bytes_t lf
    cdef uint8_t *out
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
        body = 3 + lf_varint_size(d.count)
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
        out[0] = 0
        d.size = out + 1 - d.p
        d.count += 1
        at[0] = lf + 1
    return AREA_END


cdef inline int64_t field_size(object field) except -1:
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
    """Length of a record as its own length field counts it."""
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


@cython.final
cdef class _Builder:
    """Fills batches one after the other and keeps what Encoded needs."""

    cdef Draft d
    cdef PyObject *raw      # the bytes object that d.p points into
    cdef list batches
    cdef list ends
    cdef object refusal
    cdef object options
    cdef bint log_append_time
    cdef int64_t mark       # the input up to here is in batches
    cdef int64_t taken      # lines or records up to here

    def __cinit__(self, int64_t base_offset, int64_t now_ms, options):
        self.options = options
        self.d.limit = min(<int64_t>options.max_batch_bytes, INT32_LAST)
        self.d.require_key = options.require_key
        self.log_append_time = options.log_append_time
        self.d.base_offset = base_offset
        self.d.now = now_ms
        self.batches = []
        self.ends = []
        self.begin()

    def __dealloc__(self):
        Py_XDECREF(self.raw)

    cdef void begin(self) noexcept:
        self.d.size = HEADER
        self.d.count = 0
        self.d.base_timestamp = self.d.now
        self.d.max_timestamp = self.d.now
        self.d.lens = Lens(0, 0, 0)
        self.d.counted = True

    cdef int reserve(self, int64_t more) except -1:
        """Make room for more bytes, or for all that the limit allows."""
        cdef int64_t wanted = max(min(self.d.size + more, self.d.limit), HEADER)
        if self.raw == NULL:
            self.raw = new_bytes(NULL, wanted)
        elif wanted <= self.d.capacity:
            return 0
        else:
            wanted = max(wanted, min(2 * self.d.capacity, self.d.limit))
            resize_bytes(&self.raw, wanted)
        self.d.p = <uint8_t *>bytes_data(self.raw)
        self.d.capacity = wanted
        return 0

    cdef object encoded(self):
        if self.d.count:
            self.finish()
        return _new_tuple(Encoded, (self.batches, self.ends, self.refusal))

    # -- lines

    cdef int area(self, int view, bytes_t p, bytes_t end, int64_t mark_at_end) except -1:
        """Encode whole lines; marks are counted back from the one at the end."""
        cdef bytes_t at = p
        cdef int64_t needed = 0
        cdef int status
        while at < end:
            self.reserve((end - at) * 5 // 4 + 64)
            status = self.lines(view, &at, end, &needed)
            self.mark = mark_at_end - (end - at)
            if status == BATCH_FULL:
                self.finish()
            elif status == NO_ROOM:
                self.reserve(max(needed, self.d.capacity))
            elif status != AREA_END:
                self.refuse(status, needed)
                return 0
        return 0

    cdef int lines(self, int view, bytes_t *at, bytes_t end, int64_t *needed) except -1:
        if view == JSONL:
            return self.jsonl_lines(at, end, needed)
        if end - at[0] < RELEASE_GIL_BYTES:
            return (text_lines if view == TEXT else tsv_lines)(&self.d, at, end, needed)
        with nogil:
            return (text_lines if view == TEXT else tsv_lines)(&self.d, at, end, needed)

    cdef int jsonl_lines(self, bytes_t *at, bytes_t end, int64_t *needed) except -1:
        cdef bytes_t lf
        cdef int status
        while at[0] < end:
            lf = <bytes_t>memchr(at[0], 10, end - at[0])
            try:
                timestamp, key, value, headers = parse_line(
                    PyBytes_FromStringAndSize(<const char *>at[0], lf - at[0])
                )
                status = self.put(
                    self.d.now if timestamp is None else timestamp, key, value, headers, needed
                )
            except UnparsableLineError as error:
                self.refusal = UnparsableLineError(f"line {self.line()}: {error}")
                return UNPARSABLE
            if status != AREA_END:
                return status
            at[0] = lf + 1
        return AREA_END

    cdef int64_t line(self):
        """Number of the line or record at which encoding stands, from 1."""
        return self.taken + self.d.count + 1

    cdef int refuse(self, int status, int64_t needed) except -1:
        if status == UNPARSABLE:
            return 0
        if status == TOO_LARGE:
            needed += HEADER
            self.refusal = RecordTooLargeError(
                f"line {self.line()}: its record alone makes a batch of {needed} bytes; "
                f"max.message.bytes is {self.d.limit}",
                needed,
                self.d.limit,
            )
            return 0
        reason = NO_KEY_REASON
        if status == BAD_ESCAPE:
            reason = "a backslash must be followed by t, n, r or a backslash, or be \\N alone"
        elif status == SECOND_TAB:
            reason = "more than one TAB; write a TAB inside a key or value as \\t"
        self.refusal = UnparsableLineError(f"line {self.line()}: {reason}")
        return 0

    # -- records

    cdef int put(
        self, int64_t timestamp, bytes key, bytes value, tuple headers, int64_t *needed
    ) except -1:
        """Append one record if the batch has room."""
        cdef int64_t delta, body, size
        self.check(timestamp, key)
        if self.d.count == 0:
            self.d.base_timestamp = timestamp
            self.d.max_timestamp = timestamp
        delta = lf_sub(timestamp, self.d.base_timestamp)
        body = body_size(delta, self.d.count, key, value, headers)
        size = lf_varint_size(body) + body
        if self.d.size + size > self.d.limit:
            needed[0] = size
            return BATCH_FULL if self.d.count else TOO_LARGE
        self.reserve(size)
        put_record(self.d.p + self.d.size, body, delta, self.d.count, key, value, headers)
        self.d.size += size
        self.d.count += 1
        self.d.max_timestamp = max(self.d.max_timestamp, timestamp)
        self.d.counted = False
        return AREA_END

    cdef int check(self, timestamp, key) except -1:
        if key is None and self.d.require_key:
            raise UnparsableLineError(NO_KEY_REASON)
        if timestamp == -1 or self.log_append_time:
            return 0
        earliest = self.d.now - self.options.timestamp_before_max_ms
        latest = self.d.now + self.options.timestamp_after_max_ms
        if not earliest <= timestamp <= latest:
            raise UnparsableLineError(
                f"timestamp {timestamp} is outside [{earliest}, {latest}], which "
                "message.timestamp.before.max.ms and message.timestamp.after.max.ms allow"
            )
        return 0

    cdef int records(self, records) except -1:
        cdef int64_t needed = 0
        cdef int status
        for record in records:
            timestamp = -1 if record.timestamp is None else record.timestamp
            while True:
                try:
                    status = self.put(
                        timestamp, record.key, record.value, record.headers, &needed
                    )
                except UnparsableLineError as error:
                    self.refusal = UnparsableLineError(f"record {self.line()}: {error}")
                    return 0
                if status != BATCH_FULL:
                    break
                self.finish()
            if status != AREA_END:
                self.refuse(status, needed)
                return 0
            self.mark += 1
        return 0

    # -- batches

    cdef int finish(self) except -1:
        """Close the batch and begin the next one."""
        cdef int64_t last_offset = self.d.base_offset + self.d.count - 1
        cdef int64_t max_timestamp = self.d.max_timestamp
        cdef bytes data
        if self.log_append_time:
            max_timestamp = self.d.now
        if not self.d.counted:
            self.count_records(max_timestamp)
        data = self.batch(max_timestamp)
        self.batches.append(_new_tuple(EncodedBatch, (
            data, self.d.base_offset, last_offset, max_timestamp,
            self.d.lens.text, self.d.lens.tsv, self.d.lens.jsonl,
        )))
        self.ends.append(self.mark)
        self.taken += self.d.count
        self.d.base_offset = last_offset + 1
        self.begin()
        return 0

    cdef int count_records(self, int64_t max_timestamp) except -1:
        """Measure what was written: one definition of the lengths for all ways in."""
        cdef Batch b
        cdef int status
        b.base_offset = self.d.base_offset
        b.base_timestamp = self.d.base_timestamp
        b.max_timestamp = max_timestamp
        b.attributes = LOG_APPEND_TIME if self.log_append_time else 0
        b.p = self.d.p + HEADER
        b.end = self.d.p + self.d.size
        b.left = self.d.count
        self.d.lens = Lens(0, 0, 0)
        with nogil:
            status = measure_batch(&b, INT64_LAST, &self.d.lens)
        if status < 0:
            raise AssertionError("the encoder wrote what the decoder cannot read")
        return 0

    cdef bytes batch(self, int64_t max_timestamp):
        """The finished batch, compressed if asked for and if that does not make it too large."""
        cdef int codec = self.options.compression
        cdef int64_t size = self.d.size
        cdef bytes packed
        if codec:
            packed = _compress(
                codec, borrowed(self.d.p + HEADER, size - HEADER), self.options.compression_level
            )
            if HEADER + PyBytes_GET_SIZE(packed) <= self.d.limit:
                size = HEADER + PyBytes_GET_SIZE(packed)
                self.reserve(size - self.d.size)
                memcpy(self.d.p + HEADER, PyBytes_AS_STRING(packed), size - HEADER)
            else:
                codec = 0
        self.put_header(size, codec, max_timestamp)
        lf_put32(self.d.p + 17, checksum(self.d.p, size))
        if size != self.d.capacity:
            resize_bytes(&self.raw, size)
        data = <object>self.raw
        Py_XDECREF(self.raw)
        self.raw = NULL
        return data

    cdef int put_header(self, int64_t size, int codec, int64_t max_timestamp) except -1:
        cdef uint8_t *p = self.d.p
        lf_put64(p, self.d.base_offset)
        lf_put32(p + 8, size - LOG_OVERHEAD)
        lf_put32(p + 12, self.options.leader_epoch)
        p[16] = 2
        lf_put16(p + 21, codec | (LOG_APPEND_TIME if self.log_append_time else 0))
        lf_put32(p + 23, self.d.count - 1)
        lf_put64(p + 27, self.d.base_timestamp)
        lf_put64(p + 35, max_timestamp)
        lf_put64(p + 43, -1)                    # producer id, epoch, base sequence: none
        lf_put16(p + 51, -1)
        lf_put32(p + 53, -1)
        lf_put32(p + 57, self.d.count)
        return 0


def encode_lines(
    int view,
    head,
    body,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t base_offset,
    int64_t now_ms,
    options,
):
    """Turn complete lines into as few batches as ``max_batch_bytes`` allows.

    Args:
        view: What the lines are: 0 text, 1 tsv, 2 jsonl.
        head: The beginning of the first line, without LF; may be empty.
        body: Buffer with the rest.
        start: Where in ``body`` to begin.
        stop: Where to end; the byte before it is a LF unless the range is empty.
        base_offset: Offset of the first record; the others follow without gaps.
        now_ms: Timestamp of the records, where a line does not give one.
        options: :class:`EncodeOptions`.

    Returns:
        :class:`Encoded`. A line that cannot become a record ends the call: what stands before it is
        in ``batches``, the reason with the number of the line, from 1, in ``refusal``.

    Raises:
        ValueError: The range is not inside ``body``, does not end with a line, or begins with a
            head and nothing else.
    """
    cdef _View lines = window(body, start, stop)
    cdef _Builder builder
    cdef bytes_t lf
    cdef bytes first
    if not TEXT <= view <= JSONL:
        raise ValueError(f"no view {view}")
    if start == stop:
        if len(head):
            raise ValueError("the first line has no end")
        return Encoded([], [], None)
    if lines.p[stop - 1] != 10:
        raise ValueError("the last line has no end")
    builder = _Builder(base_offset, now_ms, options)
    if len(head):
        lf = <bytes_t>memchr(lines.p + start, 10, stop - start)
        first = bytes(head) + PyBytes_FromStringAndSize(
            <const char *>lines.p + start, lf + 1 - (lines.p + start)
        )
        start = lf + 1 - lines.p
        builder.area(
            view,
            <bytes_t>PyBytes_AS_STRING(first),
            <bytes_t>PyBytes_AS_STRING(first) + PyBytes_GET_SIZE(first),
            start,
        )
    if builder.refusal is None:
        builder.area(view, lines.p + start, lines.p + stop, stop)
    return builder.encoded()


def encode_records(records, int64_t base_offset, int64_t now_ms, options):
    """Turn records into as few batches as ``max_batch_bytes`` allows.

    Args:
        records: Iterable of :class:`Record`; offsets are ignored, a timestamp of -1 or None is
            kept as "none".
        base_offset: Offset of the first record; the others follow without gaps.
        now_ms: For the limits of timestamps, and the timestamp under LogAppendTime.
        options: :class:`EncodeOptions`.

    Returns:
        :class:`Encoded`; ``ends`` counts records, and a refusal names the record, from 1.
    """
    cdef _Builder builder = _Builder(base_offset, now_ms, options)
    builder.records(records)
    return builder.encoded()


def encode_payload(records, int64_t base_offset, int64_t base_timestamp):
    """Encode records as bytes 61 to the end of a batch, keeping their own offsets.

    Args:
        records: Iterable of :class:`Record`.
        base_offset: What offset deltas count from.
        base_timestamp: What timestamp deltas count from.
    """
    cdef list parts = []
    cdef int64_t body, size, timestamp_delta, offset_delta
    cdef bytes part
    for record in records:
        timestamp_delta = lf_sub(record.timestamp, base_timestamp)
        offset_delta = record.offset - base_offset
        body = body_size(
            timestamp_delta, offset_delta, record.key, record.value, record.headers
        )
        size = lf_varint_size(body) + body
        part = PyBytes_FromStringAndSize(NULL, size)
        put_record(
            <uint8_t *>PyBytes_AS_STRING(part), body, timestamp_delta, offset_delta,
            record.key, record.value, record.headers,
        )
        parts.append(part)
    return b"".join(parts)


def unfinished_fits(int view, int64_t length, options):
    """Whether the beginning of a line may still become a record.

    Args:
        view: What the line is.
        length: Bytes of it so far.
        options: :class:`EncodeOptions`.

    Returns:
        For text exactly that. For tsv, escapes may make the record half as long. For jsonl, six
        times the limit and a little: no line that the view prints is longer; white space could be.
    """
    cdef int64_t limit = options.max_batch_bytes
    cdef int64_t value = length
    cdef int64_t body
    if view == JSONL:
        return length <= 6 * limit + 4096
    if view == TSV:
        value = max(0, (length - 4) // 2)
    body = 5 + lf_varint_size(value) + value
    return HEADER + lf_varint_size(body) + body <= limit
