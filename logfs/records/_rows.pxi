# Part of _encoding.pyx: rows of Arrow columns to batches. The layout of what comes in is in
# ``logfs.records.columns``.

cdef enum:                  # after those of _lines.pxi
    MISTIMED = 9
    NO_HEADER_KEY = 10
    BROKEN_COLUMN = 11

cdef enum:
    FIRST_BATCH_BYTES = 1 << 16


cdef struct Slots:          # where the values of a column are
    bint given              # else all are null
    bytes_t valid           # NULL: none is null
    bytes_t values          # int32 ends of byte strings and of lists; or numbers
    int64_t first           # slot of row 0
    int64_t rows


cdef struct Strings:
    Slots slots
    bytes_t data
    int64_t size


cdef struct Inputs:
    Strings keys
    Strings values
    Slots timestamps
    Slots headers
    Strings header_keys
    Strings header_values


cdef inline bint is_there(Slots *slots, int64_t row) noexcept nogil:
    row += slots.first
    return slots.given and (slots.valid == NULL or slots.valid[row >> 3] >> (row & 7) & 1)


cdef inline int string_at(Strings *column, int64_t row, Span *span) noexcept nogil:
    """Find a byte string, n = -1 for null; -1 if the buffers do not hold it."""
    cdef const int32_t *ends = <const int32_t *>column.slots.values + column.slots.first + row
    span.p = column.data
    span.n = -1
    if not is_there(&column.slots, row):
        return 0
    if not 0 <= ends[0] <= ends[1] <= column.size:
        return -1
    span.p += ends[0]
    span.n = ends[1] - ends[0]
    return 0


cdef inline int64_t span_size(Span *span) noexcept nogil:
    return 1 if span.n < 0 else lf_varint_size(span.n) + span.n


cdef inline uint8_t *put_string(uint8_t *out, Span *span) noexcept nogil:
    out = lf_put_varint(out, span.n)
    return out if span.n < 0 else lf_put(out, span.p, span.n)


cdef Slots slots_of(list views, parts, int64_t width, bint is_list) except *:
    """Look into a column: ``(valid, values, ..., first)``; the views keep its buffers alive."""
    cdef Slots slots = Slots(False, NULL, NULL, 0, INT64_LAST)
    cdef _View view
    if parts is None:
        return slots
    slots.given = True
    slots.first = parts[len(parts) - 1]
    if slots.first < 0:
        raise ValueError(f"a column that begins at slot {slots.first}")
    view = _View(parts[1], False)
    views.append(view)
    slots.values = view.p
    slots.rows = view.n // width - is_list - slots.first
    if parts[0] is not None:
        view = _View(parts[0], False)
        views.append(view)
        slots.valid = view.p
        slots.rows = min(slots.rows, 8 * view.n - slots.first)
    return slots


cdef Strings strings_of(list views, parts) except *:
    cdef Strings column
    cdef _View view
    column.slots = slots_of(views, parts, 4, True)
    column.data = NULL
    column.size = 0
    if parts is not None:
        view = _View(parts[2], False)
        views.append(view)
        column.data = view.p
        column.size = view.n
    return column


cdef int check_rows(const int32_t *chosen, int64_t count, int64_t rows) except -1:
    """Make sure that every row is in the columns."""
    cdef int64_t i
    cdef bint sound = chosen != NULL or count <= max(rows, 0)    # no slots need no ends
    if chosen != NULL:
        for i in range(count):
            sound = sound and 0 <= chosen[i] < rows
    if not sound:
        raise ValueError(f"a row is outside of columns of {rows} rows")
    return 0


@cython.final
cdef class RowEncoder:
    """Turns rows of columns into as few batches as ``max_batch_bytes`` allows.

    Offsets begin at 0. Batches continue from one ``put`` to the next.

    Args:
        now_ms: Timestamp of rows that have none, and for the limits of timestamps.
        options: :class:`EncodeOptions`.
    """

    cdef _Builder b
    cdef int64_t earliest
    cdef int64_t latest

    def __init__(self, int64_t now_ms, options):
        self.b = _Builder(0, now_ms, options)
        self.earliest = max(-INT64_LAST - 1, self.b.earliest())
        self.latest = min(INT64_LAST, self.b.latest())
        if options.log_append_time:
            self.earliest = -INT64_LAST - 1
            self.latest = INT64_LAST

    def put(self, keys, values, timestamps, headers, rows, int64_t count):
        """Encode rows in their order.

        Args:
            keys: A :class:`Strings` of ``logfs.records.columns``, or None: all are null.
            values: The same.
            timestamps: A :class:`Numbers`, int64, microseconds since the epoch.
            headers: A :class:`Lists`.
            rows: int32 buffer with the numbers of the rows; None: the first ``count``.
            count: How many rows.

        Raises:
            RecordTooLargeError, UnparsableLineError: A row is refused; its number among all that
                were put, from 1, is in the message. The rows before it are encoded.
            ValueError: The buffers do not hold what they should.
        """
        cdef list views = []
        cdef Inputs columns
        cdef const int32_t *chosen = NULL
        cdef _View view
        cdef int64_t at = 0, needed = 0
        cdef int status
        columns.keys = strings_of(views, keys)
        columns.values = strings_of(views, values)
        columns.timestamps = slots_of(views, timestamps, 8, False)
        columns.headers = slots_of(
            views, None if headers is None else (headers[0], headers[1], headers[4]), 4, True
        )
        columns.header_keys = strings_of(views, None if headers is None else headers[2])
        columns.header_values = strings_of(views, None if headers is None else headers[3])
        if rows is not None:
            view = _View(rows, False)
            chosen = <const int32_t *>view.p
            if view.n < 4 * count:
                raise ValueError(f"{view.n} bytes are not the numbers of {count} rows")
        check_rows(chosen, count, min(
            columns.keys.slots.rows, columns.values.slots.rows, columns.timestamps.rows,
            columns.headers.rows,
        ))
        while at < count:
            self.b.reserve(max(needed, FIRST_BATCH_BYTES, self.b.d.capacity))
            with nogil:
                status = self.run(&columns, chosen, &at, count, &needed)
            if status == BATCH_FULL:
                self.b.mark = at
                self.b.finish()
            elif status == NO_ROOM:
                self.b.reserve(max(needed, self.b.d.capacity))
            elif status != AREA_END:
                self.refuse(status, needed)

    def take(self, *, bint last):
        """Return the :class:`EncodedBatch` es that are full; with ``last`` also one that is not."""
        if last and self.b.d.count:
            self.b.finish()
        taken = self.b.batches
        self.b.batches = []
        self.b.ends = []
        return taken

    cdef int run(
        self, Inputs *columns, const int32_t *chosen, int64_t *at, int64_t count, int64_t *needed
    ) noexcept nogil:
        cdef int status
        while at[0] < count:
            status = self.put_row(columns, at[0] if chosen == NULL else chosen[at[0]], needed)
            if status != AREA_END:
                return status
            at[0] += 1
        return AREA_END

    cdef int put_row(self, Inputs *columns, int64_t row, int64_t *needed) noexcept nogil:
        cdef Draft *d = &self.b.d
        cdef Span key, value
        cdef int64_t timestamp = d.now, delta, body, size, first = 0, last = 0, headers_size
        cdef int status
        cdef uint8_t *out
        if string_at(&columns.keys, row, &key) < 0 or string_at(&columns.values, row, &value) < 0:
            return BROKEN_COLUMN
        if key.n < 0 and d.require_key:
            return NO_KEY
        if is_there(&columns.timestamps, row):
            timestamp = milliseconds(
                (<const int64_t *>columns.timestamps.values)[columns.timestamps.first + row]
            )
        if timestamp != -1 and not self.earliest <= timestamp <= self.latest:
            needed[0] = timestamp
            return MISTIMED
        if is_there(&columns.headers, row):
            first = (<const int32_t *>columns.headers.values)[columns.headers.first + row]
            last = (<const int32_t *>columns.headers.values)[columns.headers.first + row + 1]
        status = measure_headers(columns, first, last, &headers_size)
        if status != AREA_END:
            return status
        delta = 0 if d.count == 0 else lf_sub(timestamp, d.base_timestamp)
        body = (
            1 + lf_varint_size(delta) + lf_varint_size(d.count) + span_size(&key)
            + span_size(&value) + headers_size
        )
        size = lf_varint_size(body) + body
        status = judge_room(d, d.size, size)
        if status != AREA_END:
            needed[0] = size
            return status
        if d.count == 0:
            d.base_timestamp = d.max_timestamp = timestamp
        out = lf_put_varint(d.p + d.size, body)
        out[0] = 0                              # attributes
        out = lf_put_varint(lf_put_varint(out + 1, delta), d.count)
        out = put_string(put_string(out, &key), &value)
        put_row_headers(out, columns, first, last)
        d.size += size
        d.count += 1
        d.max_timestamp = max(d.max_timestamp, timestamp)
        d.counted = False
        return AREA_END

    cdef int refuse(self, int status, int64_t needed) except -1:
        cdef int64_t number = self.b.line()
        if status == BROKEN_COLUMN:
            raise ValueError(f"record {number}: a column's buffers are not as long as they say")
        if status == TOO_LARGE:
            raise RecordTooLargeError(
                f"record {number}: alone it makes a batch of {needed + HEADER} bytes; "
                f"max.message.bytes is {self.b.d.limit}",
                needed + HEADER,
                self.b.d.limit,
            )
        if status == MISTIMED:
            try:
                self.b.check(needed, b"")
            except UnparsableLineError as error:
                raise UnparsableLineError(f"record {number}: {error}") from None
        reason = "this topic needs a key (cleanup.policy=compact)"
        if status == NO_HEADER_KEY:
            reason = "a header needs a key"
        raise UnparsableLineError(f"record {number}: {reason}")


cdef inline int64_t milliseconds(int64_t microseconds) noexcept nogil:
    """Round down, as Spark does. Source: Spark DateTimeUtils.microsToMillis."""
    return microseconds // 1000 - (microseconds % 1000 < 0)


cdef int measure_headers(
    Inputs *columns, int64_t first, int64_t last, int64_t *size
) noexcept nogil:
    cdef Span key, value
    cdef int64_t i
    if not 0 <= first <= last <= min(
        columns.header_keys.slots.rows, columns.header_values.slots.rows
    ):
        return BROKEN_COLUMN
    size[0] = lf_varint_size(last - first)
    for i in range(first, last):
        if (
            string_at(&columns.header_keys, i, &key) < 0
            or string_at(&columns.header_values, i, &value) < 0
        ):
            return BROKEN_COLUMN
        if key.n < 0:
            return NO_HEADER_KEY
        size[0] += span_size(&key) + span_size(&value)
    return AREA_END


cdef uint8_t *put_row_headers(
    uint8_t *out, Inputs *columns, int64_t first, int64_t last
) noexcept nogil:
    cdef Span part
    cdef int64_t i
    out = lf_put_varint(out, last - first)
    for i in range(first, last):
        string_at(&columns.header_keys, i, &part)
        out = put_string(out, &part)
        string_at(&columns.header_values, i, &part)
        out = put_string(out, &part)
    return out


def spread_rows(keys, given, rows, int64_t count, int32_t partitions, int32_t unkeyed):
    """Sort rows by the partitions that are given, or that Kafka's default partitioner gives.

    Args:
        keys: A :class:`Strings` of ``logfs.records.columns``, or None: all are null.
        given: A :class:`Numbers`, int32, with the partitions of rows; null: by the key.
        rows: int32 buffer with the numbers of the rows; None: the first ``count``.
        count: How many rows.
        partitions: How many there are, at least 1.
        unkeyed: Where rows go that have neither a partition nor a key.

    Returns:
        For each partition an int32 buffer with the numbers of its rows, in their order.

    Raises:
        ValueError: A partition is none of them; or the buffers do not hold what they should.

    Source: Spark KafkaRowWriter, Kafka BuiltInPartitioner.partitionForKey.
    """
    cdef list views = [], parts
    cdef Strings key_column = strings_of(views, keys)
    cdef Slots given_column = slots_of(views, given, 4, False)
    cdef const int32_t *chosen = NULL
    cdef _View view
    cdef Span key
    cdef int64_t i, row
    cdef int32_t place
    cdef bytes places = PyBytes_FromStringAndSize(NULL, 4 * max(count, 0))
    cdef int32_t *place_of_row = <int32_t *>PyBytes_AS_STRING(places)
    cdef bytes of_partition
    if not 0 <= unkeyed < partitions:
        raise ValueError(f"{unkeyed} is none of {partitions} partitions")
    if rows is not None:
        view = _View(rows, False)
        chosen = <const int32_t *>view.p
        if view.n < 4 * count:
            raise ValueError(f"{view.n} bytes are not the numbers of {count} rows")
    check_rows(chosen, count, min(key_column.slots.rows, given_column.rows))
    cdef list sizes = [0] * partitions
    for i in range(count):
        row = i if chosen == NULL else chosen[i]
        place = unkeyed
        if is_there(&given_column, row):
            place = (<const int32_t *>given_column.values)[given_column.first + row]
            if not 0 <= place < partitions:
                raise ValueError(
                    f"partition {place}: expected one of the topic's {partitions}, from 0"
                )
        else:
            if string_at(&key_column, row, &key) < 0:
                raise ValueError(f"row {row}: a column's buffers are not as long as they say")
            if key.n >= 0:
                place = place_of(key.p, key.n, partitions)
        place_of_row[i] = place
        sizes[place] += 1
    return gather(places, sizes, chosen, count)


cdef list gather(bytes places, list sizes, const int32_t *chosen, int64_t count):
    """Write the rows of each partition one after the other."""
    cdef const int32_t *place_of_row = <const int32_t *>PyBytes_AS_STRING(places)
    cdef list parts = [PyBytes_FromStringAndSize(NULL, 4 * size) for size in sizes]
    cdef bytes cursors = bytes(8 * len(parts))
    cdef int32_t **cursor = <int32_t **>PyBytes_AS_STRING(cursors)
    cdef int64_t i
    for i in range(len(parts)):
        cursor[i] = <int32_t *>PyBytes_AS_STRING(<bytes>parts[i])
    for i in range(count):
        cursor[place_of_row[i]][0] = <int32_t>i if chosen == NULL else chosen[i]
        cursor[place_of_row[i]] += 1
    return parts
