# Part of _columnar.pyx: batches to the buffers of Arrow columns. The layout of what comes out is in
# ``logfs.records.columns``.

cdef enum:                  # as in logfs.records.columns
    WANT_KEY = 1
    WANT_VALUE = 2
    WANT_OFFSET = 4
    WANT_TIMESTAMP = 8
    WANT_TIMESTAMP_TYPE = 16
    WANT_HEADERS = 32
    LONGEST_REPLACEMENT = 3  # bytes of U+FFFD, for one that is no UTF-8
    FIRST_ROOM = 4096

cdef int64_t MOST_MS = INT64_LAST // 1000


cdef struct Room:
    PyObject *raw           # bytes without another reference yet
    uint8_t *p
    int64_t size
    int64_t capacity


cdef inline bint has_room(Room *room, int64_t more) noexcept nogil:
    return room.size + more <= room.capacity


cdef int make_room(Room *room, int64_t more) except -1:
    cdef int64_t wanted = room.size + more
    if wanted <= room.capacity:
        return 0
    wanted = max(wanted, 2 * room.capacity, FIRST_ROOM)
    if room.raw == NULL:
        room.raw = new_bytes(NULL, wanted)
    else:
        resize_bytes(&room.raw, wanted)
    room.p = <uint8_t *>bytes_data(room.raw)
    room.capacity = wanted
    return 0


cdef int drop_room(Room *room) noexcept:
    Py_XDECREF(room.raw)
    room.raw = NULL
    room.p = NULL
    room.size = room.capacity = 0
    return 0


cdef object take_room(Room *room):
    """Give away what was written, and the memory after it; the room is as large again next time."""
    cdef int64_t size = room.size
    if room.raw == NULL:
        return b""
    data = <object>room.raw
    drop_room(room)
    make_room(room, size + size // 8)
    return data


cdef inline void put_bit(Room *room, int64_t number, bint is_set) noexcept nogil:
    cdef uint8_t *p = room.p + (number >> 3)
    if number & 7 == 0:
        p[0] = 0
    p[0] |= is_set << (number & 7)


cdef struct Spans:          # a column of byte strings
    bint wanted
    bint has_nulls
    Room valid
    Room ends               # int32, the first is 0
    Room data


cdef inline bint spans_have_room(Spans *column, int64_t rows, int64_t more) noexcept nogil:
    return not column.wanted or (
        4 * (rows + 2) <= column.ends.capacity
        and rows // 8 < column.valid.capacity
        and has_room(&column.data, more)
    )


cdef int make_spans_room(Spans *column, int64_t rows, int64_t more) except -1:
    if column.wanted:
        column.ends.size = 4 * (rows + 1)
        make_room(&column.ends, 4)
        (<int32_t *>column.ends.p)[0] = 0
        column.valid.size = (rows + 7) // 8
        make_room(&column.valid, 1)
        make_room(&column.data, more)
    return 0


cdef inline void put_span(Spans *column, int64_t row, Span span) noexcept nogil:
    if span.n > 0:
        memcpy(column.data.p + column.data.size, span.p, span.n)
        column.data.size += span.n
    elif span.n < 0:
        column.has_nulls = True
    (<int32_t *>column.ends.p)[row + 1] = <int32_t>column.data.size
    put_bit(&column.valid, row, span.n >= 0)


cdef object take_spans(Spans *column, int64_t rows):
    if not column.wanted:
        return None
    make_spans_room(column, rows, 0)    # at least the first 0
    valid = take_room(&column.valid)
    taken = (valid if column.has_nulls else None, take_room(&column.ends), take_room(&column.data))
    column.has_nulls = False
    return taken


cdef int drop_spans(Spans *column) noexcept:
    drop_room(&column.valid)
    drop_room(&column.ends)
    return drop_room(&column.data)


@cython.final
cdef class ColumnBuilder:
    """Collects the records of windows of a log in columns.

    Load a window, then ``fill`` until it answers ``WINDOW_END``; take the columns whenever it
    answers ``FULL``, and what is left at the end. The CRC of a batch is checked on entering it.
    Control batches, and those of the aborted transactions, are passed over.

    Args:
        columns: Which are wanted, see ``logfs.records.columns``; others cost nothing.
        max_rows: Records of one set of columns at most.
        max_bytes: Bytes of keys, values and headers at most; a larger record comes alone.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.
        aborted: The transactions that are not seen, as in ``aborted_ranges``.
        max_column_bytes: Bytes of one column at most; more do not fit the int32 offsets of Arrow.
        contains: Records whose value does not have these bytes are passed over.

    Attributes:
        start_offset: Records with smaller offsets are passed over.
        stop_offset: Nothing of a record with this offset or a larger one is taken.
        next_offset: Offset after all that was taken or passed over; 0 at first.
        rows: Records in the columns.
    """

    cdef public int64_t start_offset
    cdef public int64_t stop_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t rows
    cdef int columns
    cdef int64_t max_rows
    cdef int64_t max_bytes
    cdef int64_t max_column_bytes
    cdef object decompress
    cdef _View aborted
    cdef bytes contains
    cdef _View window
    cdef object plain       # keeps decompressed records alive
    cdef Py_ssize_t cursor  # position of the next batch
    cdef Py_ssize_t stop
    cdef Py_ssize_t position
    cdef Batch b
    cdef Rec r
    cdef bytes_t needle     # what ``contains`` holds
    cdef Py_ssize_t needle_size
    cdef bint entered       # b is a batch that was not left yet
    cdef bint have          # r is the next record
    cdef int64_t bytes_taken
    cdef int64_t headers    # in the columns
    cdef bint has_no_headers
    cdef Spans keys
    cdef Spans values
    cdef Spans header_keys
    cdef Spans header_values
    cdef Room offsets
    cdef Room timestamps
    cdef Room types
    cdef Room header_ends   # int32, the first is 0
    cdef Room header_valid

    def __init__(
        self, int columns, int64_t max_rows, int64_t max_bytes, decompress, aborted=b"",
        int64_t max_column_bytes=INT32_LAST, bytes contains=b"",
    ):
        if not (0 < max_rows <= 1 << 24 and 0 < max_bytes <= 1 << 30):
            raise ValueError(f"{max_rows} rows or {max_bytes} bytes at most")
        self.columns = columns
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.max_column_bytes = max_column_bytes
        self.decompress = decompress
        self.aborted = _View(aborted, False)
        self.contains = contains
        self.needle, self.needle_size = contains, len(contains)
        self.stop_offset = INT64_LAST
        self.keys.wanted = columns & WANT_KEY != 0
        self.values.wanted = columns & WANT_VALUE != 0
        self.header_keys.wanted = self.header_values.wanted = columns & WANT_HEADERS != 0

    def __dealloc__(self):
        drop_spans(&self.keys)
        drop_spans(&self.values)
        drop_spans(&self.header_keys)
        drop_spans(&self.header_values)
        drop_room(&self.offsets)
        drop_room(&self.timestamps)
        drop_room(&self.types)
        drop_room(&self.header_ends)
        drop_room(&self.header_valid)

    def load(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Continue with the batches of ``buf[start:stop]``; a batch begins at ``start``."""
        cdef _View view = window(buf, start, stop)
        self.plain = None
        self.window = view
        self.cursor = start
        self.stop = stop
        self.entered = self.have = False
        self.b.left = 0
        self.b.p = self.b.end = NULL

    def fill(self):
        """Take records until something has to be done.

        Returns:
            0, FULL: the columns are full; 1, AT_STOP: the next record has ``stop_offset`` or more;
            2, WINDOW_END: no whole batch is left in the window.

        Raises:
            CorruptRecordError: The next batch is damaged; its position in the window's buffer is in
                the error, and what was taken before stays.
        """
        cdef int status
        while True:
            if self.b.end - self.b.p >= RELEASE_GIL_BYTES:
                with nogil:
                    status = self.run()
            else:
                status = self.run()
            if status == NO_ROOM:
                self.widen()
            elif status == DAMAGED:
                raise corrupt("a record does not decode", self.position)
            elif status != BATCH_END:
                return status
            else:
                status = self.enter()
                if status != FULL:
                    return status

    def take(self):
        """Return what was collected, ``None`` for columns that are not wanted, and start again.

        Returns:
            ``(rows, keys, values, offsets, timestamps, timestamp types, headers)``.
        """
        cdef int64_t rows = self.rows
        keys = take_spans(&self.keys, rows)
        values = take_spans(&self.values, rows)
        offsets = take_room(&self.offsets) if self.columns & WANT_OFFSET else None
        timestamps = take_room(&self.timestamps) if self.columns & WANT_TIMESTAMP else None
        types = take_room(&self.types) if self.columns & WANT_TIMESTAMP_TYPE else None
        headers = self.take_headers() if self.columns & WANT_HEADERS else None
        self.rows = self.bytes_taken = 0
        return rows, keys, values, offsets, timestamps, types, headers

    cdef object take_headers(self):
        self.widen_headers()    # at least the first 0
        valid = take_room(&self.header_valid)
        ends = take_room(&self.header_ends)
        taken = (
            valid if self.has_no_headers else None, ends, self.headers,
            take_spans(&self.header_keys, self.headers),
            take_spans(&self.header_values, self.headers),
        )
        self.headers = 0
        self.has_no_headers = False
        return taken

    cdef int enter(self) except -1:
        """Enter the next batch that is seen; BATCH_END (WINDOW_END) or AT_STOP if there is none."""
        cdef int64_t size
        cdef Batch b
        if self.entered:
            self.next_offset = max(self.next_offset, self.b.last_offset + 1)
            self.entered = False
        while self.window is not None:
            size = whole_batch(self.window.p + self.cursor, self.stop - self.cursor, self.cursor, &b)
            if size == 0:
                break
            if b.base_offset >= self.stop_offset:
                return AT_STOP
            self.position = self.cursor
            if b.last_offset < self.start_offset or self.is_hidden(&b):
                self.cursor += size
                self.next_offset = max(self.next_offset, b.last_offset + 1)
                continue
            self.plain = verified_records(
                self.window.p + self.cursor, size, self.cursor, &b, self.decompress
            )
            self.cursor += size
            if not self.has_needle(b.p, b.end - b.p):
                self.next_offset = max(self.next_offset, b.last_offset + 1)
                continue
            self.b = b
            self.entered = True
            return FULL
        return BATCH_END

    cdef inline bint has_needle(self, bytes_t p, int64_t n) noexcept nogil:
        if self.needle_size == 0:
            return True
        return n > 0 and lf_find(p, n, self.needle, self.needle_size) != NULL

    cdef bint is_hidden(self, Batch *b) noexcept:
        if b.magic == 2 and b.attributes & CONTROL:
            return True
        return is_aborted(self.window.p + self.cursor, b, self.aborted)

    cdef int run(self) noexcept nogil:
        """Take records of the batch that was entered."""
        while True:
            if not self.have:
                if self.b.left == 0:
                    return DAMAGED if has_trailing_bytes(&self.b) else BATCH_END
                if next_record(&self.b, &self.r) < 0:
                    return DAMAGED
                if self.r.offset < self.start_offset:
                    continue
                if not self.has_needle(self.r.value.p, self.r.value.n):
                    continue
                self.have = True
            if self.r.offset >= self.stop_offset:
                return AT_STOP
            if self.rows == self.max_rows or self.rows and (
                self.bytes_taken + self.r.size > self.max_bytes or self.header_keys_may_be_full()
            ):
                return FULL
            if not self.has_room_for_record():
                return NO_ROOM
            self.put()
            self.have = False
            self.next_offset = lf_add(self.r.offset, 1)

    cdef inline int64_t header_bytes(self) noexcept nogil:
        """Bytes of the next record's headers."""
        return self.r.end - self.r.headers if self.r.header_count > 0 else 0

    cdef bint header_keys_may_be_full(self) noexcept nogil:
        """Whether the keys of the next record's headers may be too many for their column."""
        return (
            self.header_keys.wanted and self.r.header_count > 0
            and self.header_keys.data.size
            > self.max_column_bytes - LONGEST_REPLACEMENT * self.header_bytes()
        )

    cdef bint has_room_for_record(self) noexcept nogil:
        cdef int64_t rows = self.rows
        if not spans_have_room(&self.keys, rows, self.r.key.n):
            return False
        if not spans_have_room(&self.values, rows, self.r.value.n):
            return False
        if self.columns & WANT_OFFSET and 8 * (rows + 1) > self.offsets.capacity:
            return False
        if self.columns & WANT_TIMESTAMP and 8 * (rows + 1) > self.timestamps.capacity:
            return False
        if self.columns & WANT_TIMESTAMP_TYPE and 4 * (rows + 1) > self.types.capacity:
            return False
        return not self.columns & WANT_HEADERS or (
            4 * (rows + 2) <= self.header_ends.capacity
            and rows // 8 < self.header_valid.capacity
            and (self.r.header_count == 0 or self.has_room_for_headers())
        )

    cdef bint has_room_for_headers(self) noexcept nogil:
        cdef int64_t last = self.headers + self.r.header_count - 1, size = self.header_bytes()
        return (
            not self.header_keys_may_be_full()
            and spans_have_room(&self.header_keys, last, LONGEST_REPLACEMENT * size)
            and spans_have_room(&self.header_values, last, size)
        )

    cdef int widen(self) except -1:
        """Make room for the next record; CorruptRecordError if its header keys fit into no column."""
        cdef int64_t rows = self.rows
        if self.header_keys_may_be_full():
            raise corrupt(
                f"the record at offset {self.r.offset} has {self.header_bytes()} bytes of headers; "
                f"expected at most {self.max_column_bytes // LONGEST_REPLACEMENT} in a column",
                self.position,
            )
        make_spans_room(&self.keys, rows, max(self.r.key.n, 0))
        make_spans_room(&self.values, rows, max(self.r.value.n, 0))
        if self.columns & WANT_OFFSET:
            self.offsets.size = 8 * rows
            make_room(&self.offsets, 8)
        if self.columns & WANT_TIMESTAMP:
            self.timestamps.size = 8 * rows
            make_room(&self.timestamps, 8)
        if self.columns & WANT_TIMESTAMP_TYPE:
            self.types.size = 4 * rows
            make_room(&self.types, 4)
        if self.columns & WANT_HEADERS:
            self.widen_headers()
            last = self.headers + max(self.r.header_count, 1) - 1
            make_spans_room(&self.header_keys, last, LONGEST_REPLACEMENT * self.header_bytes())
            make_spans_room(&self.header_values, last, self.header_bytes())
        return 0

    cdef int widen_headers(self) except -1:
        self.header_ends.size = 4 * (self.rows + 1)
        make_room(&self.header_ends, 4)
        (<int32_t *>self.header_ends.p)[0] = 0
        self.header_valid.size = (self.rows + 7) // 8
        return make_room(&self.header_valid, 1)

    cdef void put(self) noexcept nogil:
        cdef int64_t row = self.rows
        if self.keys.wanted:
            put_span(&self.keys, row, self.r.key)
        if self.values.wanted:
            put_span(&self.values, row, self.r.value)
        if self.columns & WANT_OFFSET:
            (<int64_t *>self.offsets.p)[row] = self.r.offset
            self.offsets.size = 8 * (row + 1)
        if self.columns & WANT_TIMESTAMP:
            (<int64_t *>self.timestamps.p)[row] = microseconds(self.r.timestamp)
            self.timestamps.size = 8 * (row + 1)
        if self.columns & WANT_TIMESTAMP_TYPE:
            (<int32_t *>self.types.p)[row] = timestamp_type(&self.b)
            self.types.size = 4 * (row + 1)
        if self.columns & WANT_HEADERS:
            self.put_headers()
        self.rows = row + 1
        self.bytes_taken += self.r.size

    cdef void put_headers(self) noexcept nogil:
        cdef bytes_t p = self.r.headers
        cdef Span key, value
        cdef int64_t i
        for i in range(self.r.header_count):
            p = skip_bytes(p, self.r.end, &key, 0)
            p = skip_bytes(p, self.r.end, &value, -1)
            put_text(&self.header_keys, self.headers, key)
            put_span(&self.header_values, self.headers, value)
            self.headers += 1
        put_bit(&self.header_valid, self.rows, self.r.header_count > 0)
        if self.r.header_count == 0:
            self.has_no_headers = True
        (<int32_t *>self.header_ends.p)[self.rows + 1] = <int32_t>self.headers


cdef inline void put_text(Spans *column, int64_t row, Span span) noexcept nogil:
    """Put what has to be UTF-8: what is not becomes U+FFFD, as in a Java String."""
    cdef uint8_t *end
    if span.n > 0 and not lf_is_utf8(span.p, span.n):
        end = lf_put_java(column.data.p + column.data.size, span.p, span.n)
        column.data.size = end - column.data.p
        span.n = 0
    put_span(column, row, span)


cdef inline int64_t microseconds(int64_t timestamp_ms) noexcept nogil:
    return 1000 * min(max(timestamp_ms, -MOST_MS), MOST_MS)


cdef inline int32_t timestamp_type(Batch *b) noexcept nogil:
    """Source: Kafka TimestampType."""
    if b.magic == 0:
        return -1
    return 1 if b.attributes & LOG_APPEND_TIME else 0
