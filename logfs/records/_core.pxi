# Part of each module of native code: how one batch and one record are read, measured and rendered.
# The modules include it, so that their loops are compiled with it.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython cimport PyCapsule_New, PyObject, Py_XDECREF
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from logfs.records._headers cimport *

from zlib import crc32 as _crc32

from logfs.errors import CorruptRecordError, ExpressionError, RecordTooLargeError, UnparsableLineError
from logfs.records.checksum import native_crc32c as _crc32c
from logfs.records.compression import (
    compress as _compress,
    decompress as _decompress,
    decompressed_limit as _decompressed_limit,
)
from logfs.records.encoded import Encoded, EncodedBatch
from logfs.records.jsonl import parse_line
from logfs.records.legacy import mend_lz4 as _mend_lz4
from logfs.records.produced import ProducedBatch
from logfs.records.record import Record

from logfs.records._structures cimport *

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

cdef int64_t INT32_LAST = 0x7fffffff
cdef int64_t INT64_LAST = 0x7fffffffffffffff
cdef object _new_tuple = tuple.__new__


# ---- reading records ----------------------------------------------------------------------------

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
    if p[16] > 2:
        return BAD_MAGIC
    if length < (HEADER - LOG_OVERHEAD if p[16] == 2 else message_overhead(p[16])):
        return BAD_SIZE
    size[0] = LOG_OVERHEAD + length
    return INCOMPLETE if size[0] > available else WHOLE


cdef inline bint is_offset(int64_t offset) noexcept nogil:
    """Whether a number can be an offset: after the largest number there would be no next one."""
    return 0 <= offset < INT64_LAST


cdef int read_header(bytes_t p, Batch *b) noexcept nogil:
    """Read the header of a batch that peek has accepted."""
    cdef int64_t last_delta
    b.magic = p[16]
    if b.magic < 2:
        return read_message_header(p, b)
    last_delta = lf_get32(p + 23)
    b.base_offset = lf_get64(p)
    b.epoch = lf_get32(p + 12)
    b.attributes = lf_get16(p + 21)
    b.base_timestamp = lf_get64(p + 27)
    b.max_timestamp = lf_get64(p + 35)
    b.count = lf_get32(p + 57)
    b.last_offset = lf_add(b.base_offset, last_delta)
    b.p = b.end = p
    b.left = 0
    if b.base_offset < 0 or last_delta < 0 or b.count < 0 or not is_offset(b.last_offset):
        return BAD_FIELDS
    return WHOLE


cdef bytes_t skip_bytes(bytes_t p, bytes_t end, Span *span, int64_t least) noexcept nogil:
    p = lf_get_varint(p, end, &span.n)
    if p == NULL or span.n < least or span.n > end - p:
        return NULL
    span.p = p
    return p + span.n if span.n > 0 else p


cdef inline bint next_plain(Batch *b, Rec *r) noexcept nogil:
    """Take the next record if it is a plain one, for which there is a quick way."""
    cdef lf_plain plain
    if not lf_take_plain(b.p, b.end, &plain):
        return False
    r.size = plain.size
    r.timestamp = lf_add(b.base_timestamp, plain.timestamp_delta)
    if b.attributes & LOG_APPEND_TIME:
        r.timestamp = b.max_timestamp
    r.offset = lf_add(b.base_offset, plain.offset_delta)
    r.fields = plain.fields
    r.key.p = plain.key
    r.key.n = plain.key_n
    r.value.p = plain.value
    r.value.n = plain.value_n
    r.header_count = 0
    r.headers = r.end = b.p = plain.end
    b.left -= 1
    return True


cdef int next_record(Batch *b, Rec *r) noexcept nogil:
    """Take the next record; -1 if its bytes do not decode. Source: Kafka DefaultRecord.readFrom."""
    cdef int64_t length, number, i
    cdef Span skipped
    cdef bytes_t p
    if b.magic < 2:
        return next_message(b, r)
    if b.end - b.p >= LF_PLAIN_RECORD_ROOM and next_plain(b, r):
        return 0
    p = lf_get_varint(b.p, b.end, &length)
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
    r.fields = p
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
    return lf_json_length(span.p, span.n, counts)


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
    cdef int64_t total = LF_JSON_FRAME + lf_digits(r.offset) + lf_digits(r.timestamp)
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


cdef inline lf_frame frame_of(Batch *b, int64_t stop_offset) noexcept nogil:
    cdef bint is_append_time = b.attributes & LOG_APPEND_TIME
    return lf_frame(
        b.base_offset,
        b.max_timestamp if is_append_time else b.base_timestamp,
        0 if is_append_time else -1,
        stop_offset,
    )


cdef inline void add_lens(Lens *sum, const Lens *more) noexcept nogil:
    """Add lengths. Those of a damaged index may be any numbers, so this wraps around."""
    sum.text = lf_add(sum.text, more.text)
    sum.tsv = lf_add(sum.tsv, more.tsv)
    sum.jsonl = lf_add(sum.jsonl, more.jsonl)


cdef inline Lens lens_of_entry(bytes_t p, const Lens *bases) noexcept nogil:
    """The lengths in an entry of a text index, counted from where ``bases`` are."""
    cdef Lens lens = Lens(lf_get64(p + 8), lf_get64(p + 16), lf_get64(p + 24))
    add_lens(&lens, bases)
    return lens


cdef int measure_batch(Batch *b, int64_t stop_offset, Lens *lens) noexcept nogil:
    """Add up the lengths of the records before stop_offset; -1 if some record does not decode."""
    cdef Rec r
    cdef lf_frame frame = frame_of(b, stop_offset)
    while b.left > 0:
        if b.magic == 2:
            lf_measure_run(&b.p, b.end, &b.left, &frame, lens)
            if b.left == 0:
                break
        if next_record(b, &r) < 0:
            return -1
        if r.offset >= stop_offset:
            return 0
        add_lengths(&r, lens)
    return -1 if has_trailing_bytes(b) else 0


cdef inline uint8_t *put_literal(uint8_t *out, const char *text, size_t n) noexcept nogil:
    return lf_put(out, text, n)


cdef inline uint8_t *put_json_span(uint8_t *out, Span span) noexcept nogil:
    return lf_put_json_span(out, span.p, span.n)


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


cdef inline uint8_t *put_jsonl(uint8_t *out, Rec *r) noexcept nogil:
    out = lf_put_jsonl_fields(
        out, r.offset, r.timestamp, r.key.p, r.key.n, r.value.p, r.value.n
    )
    out = put_json_headers(out, r)
    return put_literal(out, b"]}\n", 3)


cdef inline uint8_t *put_tsv_span(uint8_t *out, Span span) noexcept nogil:
    return lf_put_tsv_span(out, span.p, span.n)


cdef inline uint8_t *put_rendered(int view, uint8_t *out, Rec *r) noexcept nogil:
    """Write a whole record, for which the caller has made room."""
    if view == TEXT:
        if r.value.n > 0:
            out = lf_put(out, r.value.p, r.value.n)
        out[0] = b"\n"
        return out + 1
    if view == TSV:
        out = lf_put_tsv_pair(out, r.key.p, r.key.n, r.value.p, r.value.n)
        out[0] = b"\n"
        return out + 1
    return put_jsonl(out, r)


cdef inline int64_t longest_rendering(Rec *r) noexcept nogil:
    """A bound that costs nothing."""
    return lf_longest_rendering(r.size, r.header_count)


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
    """CRC-32C of a whole v2 batch: from its attributes to its end."""
    return _crc32c(borrowed(p + 21, size - 21))


cdef object corrupt(str problem, Py_ssize_t position):
    return CorruptRecordError(f"batch at position {position}: {problem}", position)


cdef inline bint point_at_records(bytes_t p, int64_t size, Batch *b) noexcept nogil:
    """Point b at its records as they stand there; False if none of them is rendered."""
    if b.count == 0 or b.attributes & CONTROL:
        return False
    b.p = p + HEADER
    b.end = p + size
    b.left = b.count
    return True


cdef object open_records(bytes_t p, int64_t size, Batch *b, decompress):
    """Point b at its records, decompressed if need be; returns what keeps those bytes alive.

    Raises CorruptRecordError without a position.
    """
    cdef int codec = b.attributes & CODEC_MASK
    cdef _View plain
    if b.magic < 2:
        return open_messages(p, size, b, decompress)
    if not point_at_records(p, size, b) or codec == 0:
        return None
    plain = _View(decompress(codec, borrowed(p + HEADER, size - HEADER)), False)
    b.p = plain.p
    b.end = plain.p + plain.n
    return plain


cdef int64_t whole_batch(bytes_t p, int64_t available, Py_ssize_t position, Batch *b) except -1:
    """Read the header of the batch at p; its size, 0 if it is not all there."""
    cdef int64_t size
    cdef str problem = judge(p, available, 0, &size, b)
    if problem is not None:
        raise corrupt(problem, position)
    if size > available:
        return 0
    if size and b.magic == 1 and b.last_offset == 0:
        learn_offsets(p, b)
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


cdef inline object span_bytes(Span span):
    if span.n < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>span.p, span.n)


cdef bint is_aborted(bytes_t p, Batch *b, _View table) noexcept:
    """Whether a batch, whose header b is, belongs to one of the transactions of a table."""
    cdef const int64_t *rows = <const int64_t *>table.p
    cdef Py_ssize_t low = 0, high = table.n // (3 * sizeof(int64_t)), middle
    cdef int64_t producer
    if high == 0 or b.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
        return False
    producer = lf_get64(p + 43)
    while low < high:       # transactions of one producer follow one another
        middle = (low + high) // 2
        if rows[3 * middle] < producer or (
            rows[3 * middle] == producer and rows[3 * middle + 1] <= b.base_offset
        ):
            low = middle + 1
        else:
            high = middle
    return low > 0 and rows[3 * low - 3] == producer and b.last_offset < rows[3 * low - 1]


# ---- writing a header ---------------------------------------------------------------------------

cdef int finish(uint8_t *begin, Batch *b, int64_t size) except -1:
    """Complete a header that was copied from the old batch."""
    lf_put32(begin + 8, size - LOG_OVERHEAD)
    lf_put16(begin + 21, b.attributes & KNOWN_ATTRIBUTES)
    lf_put64(begin + 27, b.base_timestamp)
    lf_put64(begin + 35, b.max_timestamp)
    lf_put32(begin + 57, b.count)
    lf_put32(begin + 17, checksum(begin, size))
    return 0


include "_legacy.pxi"
include "_verdict.pxi"
