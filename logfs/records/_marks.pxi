# Part of _rendering.pyx: places inside a large batch at which its rendering can begin.

cdef struct Mark:
    int64_t at              # where in the batch a record begins
    int64_t before          # length of the rendering of the records before it
    int64_t left            # records from it on
    uint32_t crc            # of the bytes up to the next mark


cdef inline int64_t length_of_run(Batch *b, int view, const lf_frame *frame, bytes_t end) noexcept nogil:
    """Pass over plain records that end before ``end``; returns the length of their rendering."""
    cdef Lens lens = Lens(0, 0, 0)
    if view == TEXT:
        return lf_text_length_run(&b.p, end, &b.left)
    lf_measure_run(&b.p, end, &b.left, frame, &lens)
    return lens.tsv if view == TSV else lens.jsonl


cdef Py_ssize_t mark_records(Batch *b, int view, bytes_t begin, int64_t piece, Mark *marks) noexcept nogil:
    """Fill in marks; returns how many, the last one at the end, -1 if some record does not decode."""
    cdef lf_frame frame = frame_of(b, INT64_LAST)
    cdef int64_t total = 0
    cdef Py_ssize_t n = 0
    cdef bytes_t next_mark = b.p
    cdef Rec r
    while b.left > 0:
        if b.p >= next_mark:
            marks[n] = Mark(b.p - begin, total, b.left, 0)
            next_mark = b.p + min(piece, b.end - b.p)
            n += 1
        total += length_of_run(b, view, &frame, next_mark)
        if b.left > 0 and (b.p < next_mark or b.p == b.end):
            if next_record(b, &r) < 0:
                return -1
            total += rendered_length(view, &r)
    if has_trailing_bytes(b):
        return -1
    marks[n] = Mark(b.end - begin, total, 0, 0)
    return n + 1


@cython.final
cdef class BatchMarks:
    """Places inside a batch of format v2 that is not compressed; from ``mark_batch``.

    Attributes:
        length: Length of the rendering of the batch.
        last: Number of the last mark, which is at the end of the batch.
        memory_bytes: How much memory the object takes.
    """

    cdef bytes header
    cdef bytes data         # the marks
    cdef Mark *marks
    cdef readonly Py_ssize_t last

    @property
    def length(self):
        return self.marks[self.last].before

    @property
    def memory_bytes(self):
        return HEADER + len(self.data)

    def around(self, int64_t length, int64_t wanted):
        """The numbers of two marks, between which bytes of the rendering are.

        Args:
            length: Where in the rendering the bytes begin; inside the batch.
            wanted: How many bytes; fewer are between the marks where the batch ends.
        """
        cdef Py_ssize_t first, last
        if not 0 <= length < self.length or wanted < 0:
            raise ValueError(f"{wanted} bytes at {length} are not in a rendering of {self.length}")
        first = self.last_up_to(length)
        last = self.last_up_to(min(lf_add(length, wanted), self.length))
        if last <= first or (last < self.last and self.marks[last].before < length + wanted):
            last += 1
        return first, last

    cdef Py_ssize_t last_up_to(self, int64_t length) noexcept:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.last
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high + 1) >> 1
            if self.marks[middle].before <= length:
                low = middle
            else:
                high = middle - 1
        return low

    cdef int check(self, Py_ssize_t number, Py_ssize_t last) except -1:
        if not 0 <= number <= last:
            raise ValueError(f"no mark {number} of {self.last + 1}")
        return 0

    def at(self, Py_ssize_t number):
        """Where in the batch a mark is, in bytes."""
        self.check(number, self.last)
        return self.marks[number].at

    def before(self, Py_ssize_t number):
        """Length of the rendering of what is before a mark."""
        self.check(number, self.last)
        return self.marks[number].before

    def make_batch(self, buf, Py_ssize_t first, Py_ssize_t last):
        """Make a batch of the records between two marks.

        Args:
            buf: Writable. What is between the marks in the batch, after room for the header.
            first: Number of the first mark.
            last: Number of the other one.

        Returns:
            Its size in bytes; 0 if they are not the bytes that were marked.
        """
        cdef _View room = _View(buf, True)
        cdef uint8_t *p = room.p + HEADER
        cdef Py_ssize_t number
        cdef int64_t size
        self.check(last, self.last)
        self.check(first, last - 1)
        size = HEADER + self.marks[last].at - self.marks[first].at
        if room.n < size:
            raise ValueError(f"a batch of {size} bytes is not inside a buffer of {room.n} bytes")
        for number in range(first, last):
            if self.crc_of(number, p) != self.marks[number].crc:
                return 0
            p += self.marks[number + 1].at - self.marks[number].at
        memcpy(room.p, PyBytes_AS_STRING(self.header), HEADER)
        lf_put32(room.p + 8, size - LOG_OVERHEAD)
        lf_put32(room.p + 57, self.marks[first].left - self.marks[last].left)
        lf_put32(room.p + 17, checksum(room.p, size))
        return size

    cdef uint32_t crc_of(self, Py_ssize_t number, bytes_t p) except? 0:
        return _crc32c(borrowed(p, self.marks[number + 1].at - self.marks[number].at))


def mark_batch(buf, Py_ssize_t start, Py_ssize_t stop, int view, int64_t piece):
    """Find places inside a batch at which the rendering of a view can begin.

    Args:
        buf: A part of a log.
        start: Where the batch begins.
        stop: Where it ends.
        view: Which rendering: 0 text, 1 tsv, 2 jsonl.
        piece: Bytes between two places at least, > 0.

    Returns:
        ``BatchMarks``; None if it is of another format, compressed, or has no record to show.

    Raises:
        CorruptRecordError: The batch is damaged.
    """
    cdef _View source = window(buf, start, stop)
    cdef BatchMarks marks = BatchMarks()
    cdef bytes_t begin = source.p + start
    cdef Py_ssize_t number, count
    cdef Mark *found
    cdef Batch b
    if not TEXT <= view <= JSONL or piece <= 0:
        raise ValueError(f"no view {view}, or no piece of {piece} bytes")
    cdef int64_t size = whole_batch(begin, stop - start, start, &b)
    if size != stop - start or b.magic != 2 or b.attributes & (CODEC_MASK | CONTROL) or not b.count:
        return None
    verified_records(begin, size, start, &b, None)
    found = <Mark *>malloc((size // piece + 2) * sizeof(Mark))
    if found == NULL:
        raise MemoryError
    try:
        with nogil:
            count = mark_records(&b, view, begin, piece, found)
        if count < 0:
            raise corrupt("a record does not decode", start)
        marks.data = (<char *>found)[: count * sizeof(Mark)]
    finally:
        free(found)
    marks.header = begin[:HEADER]
    marks.marks = <Mark *>PyBytes_AS_STRING(marks.data)
    marks.last = count - 1
    for number in range(count - 1):
        marks.marks[number].crc = marks.crc_of(number, begin + marks.marks[number].at)
    return marks
