# Part of _reading.pyx: the records that a query wants as the lines of a view.

cdef struct Lines:
    uint8_t *p
    int64_t n
    int64_t room

# How far a search has come.
cdef struct Place:
    Py_ssize_t start        # a batch begins there
    int64_t offset          # no record before it is left

cdef enum:
    LEAST_ROOM = 1 << 16


cdef bint put_line(Lines *lines, int view, Rec *r) noexcept nogil:
    """Append a record; False if there is no memory for it."""
    cdef int64_t size = longest_rendering(r)
    cdef void *larger
    if size > lines.room - lines.n:
        size = rendered_length(view, r)
        if size > lines.room - lines.n:
            size = max(LEAST_ROOM, 2 * lines.room, lines.n + size)
            larger = realloc(lines.p, size)
            if larger == NULL:
                return False
            lines.p, lines.room = <uint8_t *>larger, size
    lines.n = put_rendered(view, lines.p + lines.n, r) - lines.p
    return True


cdef inline bint has_checksum(bytes_t p, int64_t size) noexcept nogil:
    return <uint32_t>lf_get32(p + 17) == lf_crc32c(0, p + 21, size - 21)


cdef bint put_wanted(
    Batch *b, int64_t first, int64_t end, RecordSearch search, int view, Lines *lines
) noexcept nogil:
    """Append the wanted records of a batch; False, and no change, if that needs Python."""
    cdef int64_t before = lines.n
    cdef void *match = search.begin()
    cdef bint is_done = False
    cdef int answer
    cdef Rec r
    while b.left > 0:
        if next_record(b, &r) < 0:
            break
        if not first <= r.offset < end:
            continue
        answer = search.judge(&r, match)
        if answer == UNSURE or answer == GAVE_UP or (answer == WANTED and not put_line(lines, view, &r)):
            break
    else:
        is_done = not has_trailing_bytes(b)
    lf_pcre_end(match)
    if is_done:
        return True
    lines.n = before
    return False


cdef void put_plain_batches(
    bytes_t p, Py_ssize_t stop, int64_t first, int64_t end, RecordSearch search, int view,
    Place *at, Lines *lines,
) noexcept nogil:
    """Go through batches as long as nothing of them needs Python: no error either."""
    cdef bytes_t batch
    cdef int64_t size
    cdef Batch b
    while True:
        batch = p + at.start
        if (
            peek(batch, stop - at.start, &size) != WHOLE or batch[16] != 2
            or read_header(batch, &b) != WHOLE or b.last_offset >= end or at.offset >= end
        ):
            return
        if b.last_offset >= first:
            if b.attributes & CODEC_MASK or not has_checksum(batch, size):
                return
            if (
                point_at_records(batch, size, &b) and search.may_be_in(&b)
                and not put_wanted(&b, first, end, search, view, lines)
            ):
                return
        at.offset = max(at.offset, b.last_offset + 1)
        at.start += size


cdef int put_batch(
    Batch *b, int64_t first, int64_t end, RecordSearch search, int view, Lines *lines,
    Py_ssize_t position,
) except -1:
    """Append the wanted records of an opened batch; all of it or none."""
    cdef int64_t before = lines.n
    cdef Rec r
    while b.left > 0:
        if next_record(b, &r) < 0:
            lines.n = before
            raise corrupt(f"record {b.count - b.left} of {b.count} does not decode", position)
        if first <= r.offset < end and search.takes(&r) and not put_line(lines, view, &r):
            raise MemoryError
    if has_trailing_bytes(b):
        lines.n = before
        raise corrupt(f"{b.end - b.p} bytes follow the last of {b.count} records", position)
    return 0


def matched_lines(
    buf, Py_ssize_t start, Py_ssize_t stop, int64_t first, int64_t end, decompress, aborted,
    RecordSearch search not None, int view,
):
    """Return the wanted records of a part of a log as the lines of a view.

    Without the GIL, except for batches that are compressed, of an old format or damaged, and for
    what ``confirm`` of the search decides.

    Args:
        view: Which rendering: 0 text, 1 tsv, 2 jsonl.

    The other arguments, the numbers that are returned after the lines, and the errors are those of
    ``decode_batches``.
    """
    cdef _View window_view = window(buf, start, stop)
    cdef _View table = _View(aborted, False)
    cdef Py_ssize_t begin = start
    cdef Place at = Place(start, first)
    cdef Lines lines = Lines(NULL, 0, 0)
    cdef int64_t size
    cdef Batch b
    if not TEXT <= view <= JSONL:
        raise ValueError(f"no view {view}")
    try:
        while True:
            if table.n == 0:
                with nogil:
                    put_plain_batches(window_view.p, stop, first, end, search, view, &at, &lines)
            size = whole_batch(window_view.p + at.start, stop - at.start, at.start, &b)
            if size == 0:
                break
            if max(b.base_offset, at.offset) >= end:
                at.offset = max(at.offset, end)
                break
            if b.last_offset >= first and not is_aborted(window_view.p + at.start, &b, table):
                plain = verified_records(window_view.p + at.start, size, at.start, &b, decompress)
                if search.may_be_in(&b):
                    put_batch(&b, first, end, search, view, &lines, at.start)
            if b.last_offset >= end:
                at.offset = max(at.offset, end)
                break
            at.offset = max(at.offset, b.last_offset + 1)
            at.start += size
        return PyBytes_FromStringAndSize(<char *>lines.p, lines.n), at.start, at.offset
    except (CorruptRecordError, ExpressionError):
        if at.start == begin:
            raise
        return PyBytes_FromStringAndSize(<char *>lines.p, lines.n), at.start, at.offset
    finally:
        free(lines.p)
