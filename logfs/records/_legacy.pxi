# Part of _core.pxi: messages of formats v0 and v1, taken for batches. The layout is in
# ``logfs.records.legacy``.

cdef enum:
    MESSAGE_HEADER = 26     # up to the timestamp of v1; the shortest message of v0
    LZ4 = 3                 # the last codec there was


cdef inline int64_t message_overhead(int magic) noexcept nogil:
    """Smallest size field of a message: CRC to value length."""
    return SHORTEST + 8 * magic


cdef inline bint is_unopened(Batch *b) noexcept nogil:
    """Whether the base offset is unknown: only the last offset is before what is compressed."""
    return b.magic < 2 and b.left == 0 and b.attributes & CODEC_MASK


cdef int read_message_header(bytes_t p, Batch *b) noexcept nogil:
    """Read what is before a top-level message's key."""
    b.last_offset = lf_get64(p)
    b.epoch = -1
    b.attributes = p[17] & (CODEC_MASK | LOG_APPEND_TIME if b.magic else CODEC_MASK)
    b.base_timestamp = b.max_timestamp = lf_get64(p + 18) if b.magic else -1
    b.count = 1
    b.p = b.end = p
    b.left = b.shift = 0
    b.base_offset = 0 if b.attributes & CODEC_MASK else b.last_offset
    return WHOLE if is_offset(b.last_offset) else BAD_FIELDS


cdef bytes_t take_field(bytes_t p, bytes_t end, Span *span) noexcept nogil:
    if end - p < 4:
        return NULL
    span.n = lf_get32(p)
    p += 4
    if span.n < 0:
        span.n = -1
        return p
    span.p = p
    return p + span.n if span.n <= end - p else NULL


cdef int next_message(Batch *b, Rec *r) noexcept nogil:
    """Take the next message as a record; -1 if its bytes do not decode. Source: Kafka LegacyRecord."""
    cdef bytes_t p = b.p
    cdef int magic = p[16]
    r.size = lf_get32(p + 8)
    r.end = p + LOG_OVERHEAD + r.size
    r.offset = lf_add(lf_get64(p), b.shift)
    if magic == 0:
        r.timestamp = -1
    else:
        r.timestamp = b.max_timestamp if b.attributes & LOG_APPEND_TIME else lf_get64(p + 18)
    p = take_field(p + LOG_OVERHEAD + message_overhead(magic) - 8, r.end, &r.key)
    if p == NULL:
        return -1
    p = take_field(p, r.end, &r.value)
    if p == NULL:
        return -1
    r.headers = r.end
    r.header_count = 0
    b.p = r.end
    b.left -= 1
    return 0


cdef object open_messages(bytes_t p, int64_t size, Batch *b, decompress):
    """Do what open_records does; of a compressed message the offsets are known from now on."""
    cdef int codec = b.attributes & CODEC_MASK
    cdef _View plain
    cdef Rec r
    b.p = p
    b.end = p + size
    b.left = 1
    if codec == 0:
        return None
    if next_message(b, &r) < 0 or r.value.n < 0:
        raise CorruptRecordError("a compressed message without a value")
    if codec > LZ4:
        raise CorruptRecordError(f"unknown compression codec {codec} of format v{b.magic}")
    payload = borrowed(r.value.p, r.value.n)
    payload = _mend_lz4(payload) if b.magic == 0 and codec == LZ4 else payload
    plain = _View(decompress(codec, payload), False)
    b.p = b.end = plain.p
    adopt_messages(b, plain.n)
    return plain


cdef int adopt_messages(Batch *b, int64_t available) except -1:
    """Check the messages at b.p that were in a compressed one, and learn from them.

    One that is cut ends them. Source: Kafka AbstractLegacyRecordBatch.DeepRecordsIterator.
    """
    cdef int64_t length, offset
    cdef int64_t first = -1, last = -1
    cdef bytes_t p = b.p
    cdef bytes_t end = p + available
    b.left = 0
    while end - p > UP_TO_MAGIC:
        length = lf_get32(p + 8)
        if length < SHORTEST or p[16] > 1 or length < message_overhead(p[16]):
            raise CorruptRecordError(
                f"message {b.left} in a compressed one has {length} bytes and magic {p[16]}"
            )
        if length > end - p - LOG_OVERHEAD:
            break
        offset = lf_get64(p)
        if p[17] & CODEC_MASK or offset <= last or not is_offset(offset):
            raise CorruptRecordError(
                f"message {b.left} in a compressed one is compressed, or out of order: its offset "
                f"is {offset}, after {last}"
            )
        if b.left == 0:
            first = offset
        last = offset
        b.left += 1
        p += LOG_OVERHEAD + length
    if b.left == 0:
        raise CorruptRecordError("a compressed message holds no message")
    b.end = p
    b.count = b.left
    # Old versions of librdkafka left the offset of the outer message at 0.
    b.shift = b.last_offset - last if b.magic == 1 and b.last_offset else 0
    if b.shift < 0:
        raise CorruptRecordError(
            f"a compressed message at offset {b.last_offset} holds the relative offset {last}"
        )
    b.base_offset = first + b.shift
    b.last_offset = max(b.last_offset, last + b.shift)
    return 0


cdef bint learn_offsets(bytes_t p, Batch *b) except -1:
    """Open a compressed message for its offsets' sake; returns whether it says something."""
    cdef bint is_open = b.attributes & CODEC_MASK != 0
    try:
        if is_open:
            open_messages(p, LOG_OVERHEAD + lf_get32(p + 8), b, _decompress)
    except CorruptRecordError:
        is_open = False
    b.left = 0
    b.p = b.end = p
    return is_open
