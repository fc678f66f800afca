# Part of _encoding.pyx: lines and records to batches.

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
    cdef tuple headers      # of every line
    cdef bytes header_bytes # what d.headers points into
    cdef bytes delimiter

    def __cinit__(self, int64_t base_offset, int64_t now_ms, options, tuple headers=()):
        self.options = options
        self.headers = headers
        self.header_bytes = encode_headers(headers)
        self.d.headers = span_of(self.header_bytes)
        self.delimiter = options.key_delimiter
        self.d.delimiter = span_of(self.delimiter)
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
        self.d.counted = not self.headers

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
        cdef lines_t take = tsv_lines
        if view == JSONL:
            return self.jsonl_lines(at, end, needed)
        if view == TEXT:
            take = keyed_lines if self.d.delimiter.n else text_lines
        if end - at[0] < RELEASE_GIL_BYTES:
            return take(&self.d, at, end, needed)
        with nogil:
            return take(&self.d, at, end, needed)

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
                    self.d.now if timestamp is None else timestamp,
                    key, value, headers + self.headers, needed,
                )
            except UnparsableLineError as error:
                self.refusal = UnparsableLineError(f"line {self.line()}: {error}")
                return UNPARSABLE
            if status != AREA_END:
                return status
            at[0] = lf + 1
        return AREA_END

    cdef int64_t line(self):
        """Number of the line or record at which encoding is, from 1."""
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
        elif status == NO_DELIMITER:
            reason = f"no {self.delimiter.decode(errors='replace')!r} between a key and a value"
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

    cdef object earliest(self):
        """The limits of timestamps; they may not fit 64 bits."""
        return self.d.now - self.options.timestamp_before_max_ms

    cdef object latest(self):
        return self.d.now + self.options.timestamp_after_max_ms

    cdef int check(self, timestamp, key) except -1:
        if key is None and self.d.require_key:
            raise UnparsableLineError(NO_KEY_REASON)
        if timestamp == -1 or self.log_append_time:
            return 0
        earliest, latest = self.earliest(), self.latest()
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
        cdef int attributes = LOG_APPEND_TIME if self.log_append_time else 0
        cdef int status
        with nogil:
            status = measure_draft(&self.d, attributes, max_timestamp)
        if status < 0:
            raise AssertionError("the encoder wrote what the decoder cannot read")
        return 0

    cdef bytes batch(self, int64_t max_timestamp):
        """The finished batch, compressed if asked for and if that does not make it too large.

        Nor is one compressed that would be too large to be decompressed.
        """
        cdef int codec = self.options.compression
        cdef int64_t size = self.d.size
        cdef bytes packed
        if codec and size - HEADER > _decompressed_limit():
            codec = 0
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
        cdef int attributes = codec | (LOG_APPEND_TIME if self.log_append_time else 0)
        put_draft_header(&self.d, size, attributes, max_timestamp, self.options.leader_epoch)
        if self.options.producer is not None:
            self.put_producer(self.d.p)
        return 0

    cdef int put_producer(self, uint8_t *p) except -1:
        producer = self.options.producer
        if producer is None:
            put_no_producer(p)
            return 0
        lf_put64(p + 43, producer.producer_id)
        lf_put16(p + 51, producer.epoch)
        lf_put32(p + 53, (producer.base_sequence + self.taken) & INT32_LAST)
        if producer.is_transactional:
            p[22] |= TRANSACTIONAL
        return 0


    # -- batches that others have encoded

    cdef object rebase(
        self, bytes_t p, int64_t size, Py_ssize_t position, Batch *b, decompress
    ):
        """Copy a batch to where the log ends; see rebase_batches."""
        cdef bytes data
        if b.magic != 2 or b.attributes & (CONTROL | LOG_APPEND_TIME) or b.count == 0:
            raise corrupt("expected records of format v2 with their own timestamps", position)
        plain = verified_records(p, size, position, b, decompress)
        b.base_offset = self.d.base_offset
        b.last_offset = b.base_offset + b.count - 1
        if lf_get32(p + 23) != b.count - 1 or lf_add(b.base_offset, b.count) < 0:
            raise corrupt(f"{b.count} records, last offset delta {lf_get32(p + 23)}", position)
        self.check_records(b, position)
        data = PyBytes_FromStringAndSize(<const char *>p, size)
        self.put_rebased(<uint8_t *>PyBytes_AS_STRING(data), size, b)
        self.taken += b.count
        self.d.base_offset += b.count
        return _new_tuple(EncodedBatch, (
            data, b.base_offset, b.last_offset, b.max_timestamp,
            self.d.lens.text, self.d.lens.tsv, self.d.lens.jsonl,
        ))

    cdef int check_records(self, Batch *b, Py_ssize_t position) except -1:
        """Look at every record: find the largest timestamp, add up the lengths."""
        cdef Batch left = b[0]
        cdef Rec r
        cdef int64_t expected = b.base_offset
        cdef int64_t earliest = max(-INT64_LAST - 1, self.earliest())
        cdef int64_t latest = min(INT64_LAST, self.latest())
        cdef bint keyless = False
        cdef bint mistimed = False
        self.d.max_timestamp = -1
        with nogil:
            while left.left > 0:
                if next_record(&left, &r) < 0 or r.offset != expected:
                    break
                keyless = self.d.require_key and r.key.n < 0
                mistimed = not self.log_append_time and r.timestamp != -1 and not (
                    earliest <= r.timestamp <= latest
                )
                if keyless or mistimed:
                    break
                self.d.max_timestamp = max(self.d.max_timestamp, r.timestamp)
                expected += 1
        if keyless or mistimed:
            self.taken += expected - b.base_offset
            try:
                self.check(r.timestamp, None if keyless else b"")
            except UnparsableLineError as error:
                raise UnparsableLineError(f"record {self.line()}: {error}") from None
        if expected != b.base_offset + b.count or has_trailing_bytes(&left):
            raise corrupt(f"its record {expected - b.base_offset} does not decode", position)
        b.max_timestamp = self.d.now if self.log_append_time else self.d.max_timestamp
        b.attributes &= CODEC_MASK
        if self.log_append_time:
            b.attributes |= LOG_APPEND_TIME
        self.d.lens = Lens(0, 0, 0)
        left = b[0]
        with nogil:
            measure_batch(&left, INT64_LAST, &self.d.lens)
        return 0

    cdef int put_rebased(self, uint8_t *p, int64_t size, Batch *b) except -1:
        lf_put64(p, b.base_offset)
        lf_put32(p + 12, self.options.leader_epoch)
        lf_put16(p + 21, b.attributes)
        lf_put64(p + 35, b.max_timestamp)
        self.put_producer(p)
        lf_put32(p + 17, checksum(p, size))
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
        :class:`Encoded`. A line that cannot become a record ends the call: what is before it is
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
    builder = _Builder(base_offset, now_ms, options, options.headers)
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
        :class:`Encoded`; ``ends`` are numbers of records, and a refusal names the record, from 1.
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


# ---- batches that others have encoded -------------------------------------------------------------

def rebase_batches(
    payload, int64_t base_offset, int64_t now_ms, options, decompress
):
    """Take whole batches as they are, except the fields that the appending log decides.

    These are the base offset, the leader epoch, the producer, the type of the timestamps with the
    largest of them, and the CRC.

    Args:
        payload: Buffer with whole batches of format v2, one after the other.
        base_offset: Offset of the first record; the others follow without gaps.
        now_ms: For the limits of timestamps, and the timestamp under LogAppendTime.
        options: :class:`EncodeOptions`.
        decompress: ``logfs.records.compression.decompress``.

    Returns:
        A list of :class:`EncodedBatch`. None if a batch is to be encoded again: it is larger than
        ``max_batch_bytes``, or the topic compresses with another codec.

    Raises:
        CorruptRecordError: The payload does not decode.
        UnparsableLineError: A record is refused; its number, from 1, is in the message.

    Source: Kafka LogValidator.validateMessagesAndAssignOffsetsNonCompressed,
    validateMessagesAndAssignOffsetsCompressed.
    """
    cdef _View view = _View(payload, False)
    cdef _Builder builder = _Builder(base_offset, now_ms, options)
    cdef list batches = []
    cdef Py_ssize_t position = 0
    cdef int64_t size
    cdef Batch b
    while position < view.n:
        size = whole_batch(view.p + position, view.n - position, position, &b)
        if size == 0:
            raise corrupt("it is cut off", position)
        if size > builder.d.limit or (
            options.compression and b.attributes & CODEC_MASK != options.compression
        ):
            return None
        batches.append(builder.rebase(view.p + position, size, position, &b, decompress))
        position += size
    return batches
