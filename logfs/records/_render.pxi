# Part of _rendering.pyx: batches to the bytes of a view.

cdef enum:
    LARGE_RECORD = 1 << 20      # bytes; a longer rendering is made block by block
    BLOCK_SOURCE = 48 * 1024    # bytes of a key or value in a block; base64 makes 4 bytes of 3
    BLOCK_BYTES = 6 * BLOCK_SOURCE + 128

cdef enum:
    NO_SPAN = 0
    TSV_SPAN = 1
    JSON_SPAN = 2
    BASE64_SPAN = 3


cdef struct Blocks:
    int part            # what follows the span
    int mode            # how the span is written; NO_SPAN: all of it is
    Span span           # the key, value or header that is being written
    int64_t at          # its bytes that are written
    bytes_t header      # the next header
    int64_t headers     # headers that are written
    int64_t begin       # where in the rendering the block begins
    int64_t end         # and ends


cdef uint8_t *begin_span(Blocks *s, int view, uint8_t *out, Span span) noexcept nogil:
    """Write what is before a key, value or header."""
    s.span, s.at, s.mode = span, 0, NO_SPAN
    if span.n < 0:
        return put_tsv_span(out, span) if view == TSV else put_json_span(out, span)
    if view == TSV:
        s.mode = TSV_SPAN
        return out
    if lf_count(span.p, span.n).high and not lf_is_utf8(span.p, span.n):
        s.mode = BASE64_SPAN
        return put_literal(out, b'{"base64":"', 11)
    s.mode = JSON_SPAN
    return put_literal(out, b'"', 1)


cdef uint8_t *put_part_of_span(Blocks *s, uint8_t *out) noexcept nogil:
    """Write the next bytes of a key, value or header, and what is after its last byte."""
    cdef bytes_t p = s.span.p + s.at
    cdef int64_t n = min(BLOCK_SOURCE, s.span.n - s.at)
    cdef int mode = s.mode
    s.at += n
    if s.at == s.span.n:
        s.mode = NO_SPAN
    if mode == TSV_SPAN:
        return lf_put_tsv(out, p, n)
    if mode == BASE64_SPAN:
        out = lf_put_base64(out, p, n)
        return put_literal(out, b'"}', 2) if s.mode == NO_SPAN else out
    out = lf_put_json(out, p, n)
    return put_literal(out, b'"', 1) if s.mode == NO_SPAN else out


cdef uint8_t *put_tsv_part(Blocks *s, uint8_t *out, Rec *r) noexcept nogil:
    s.part += 1
    if s.part == 1:
        return begin_span(s, TSV, out, r.key)
    if s.part == 2:
        return begin_span(s, TSV, put_literal(out, b"\t", 1), r.value)
    return put_literal(out, b"\n", 1)


cdef uint8_t *put_jsonl_part(Blocks *s, uint8_t *out, Rec *r) noexcept nogil:
    cdef Span span
    s.part += 1
    if s.part == 1:
        out = lf_put_jsonl_head(out, r.offset, r.timestamp)
        return begin_span(s, JSONL, out, r.key)
    if s.part == 2:
        return begin_span(s, JSONL, put_literal(out, b',"value":', 9), r.value)
    if s.part == 3:
        s.header = r.headers
        out = put_literal(out, b',"headers":[', 12)
    elif s.part == 5:
        s.headers += 1
        s.header = skip_bytes(s.header, r.end, &span, -1)
        return begin_span(s, JSONL, put_literal(out, b",", 1), span)
    else:
        out = put_literal(out, b"]", 1)
    if s.headers == r.header_count:
        return put_literal(out, b"]}\n", 3)
    s.part = 4
    out = put_literal(out, b",[", 2) if s.headers else put_literal(out, b"[", 1)
    s.header = skip_bytes(s.header, r.end, &span, 0)
    return begin_span(s, JSONL, out, span)


cdef bint decodes(Batch *rest) noexcept nogil:
    """Whether the records that are left of a batch do."""
    cdef Rec r
    while rest.left > 0:
        if next_record(rest, &r) < 0:
            return False
    return not has_trailing_bytes(rest)


@cython.final
cdef class Renderer:
    """Delivers the records of a window of the log as the bytes of one view, in pieces of any size.

    Load a window, then ``skip`` and ``render`` to its end; a piece may end inside a record. The CRC
    of a batch is checked on entering it, and nothing of a batch is delivered of which a record does
    not decode. What is before a damaged batch is delivered first; the call that could deliver nothing
    else raises, and raises again. The window must not change, and its buffer is held, until the next
    ``load`` or ``release``.

    Args:
        view: Which rendering: 0 text, 1 tsv, 2 jsonl.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

    Attributes:
        stop_offset: Nothing of a record with this offset or a larger one is delivered.
        at_stop: Whether the next record is such a one.
        exhausted: Whether no whole batch is left; one that is cut by the window's end stays.
        batch_position: Where in the buffer the batch of the next byte begins.
        batch_delivered: Bytes of that batch that were delivered or skipped; those of the one before
            it where it has not been entered yet.
        next_offset: Offset of the record that the next byte belongs to. Where that is the first of
            a batch not entered yet: the batch's base offset, which is smaller if compaction took
            the first records. After the last batch: its last offset + 1.

    ``at_stop`` and ``exhausted`` may come late by one call where a piece ended at the border of a
    batch exactly: the next call then delivers nothing.
    """

    cdef public int64_t stop_offset
    cdef readonly int view
    cdef object decompress
    cdef _View window
    cdef _View plain        # keeps decompressed records alive
    cdef Py_ssize_t cursor  # position of the next batch
    cdef Py_ssize_t stop
    cdef Py_ssize_t position
    cdef Batch b
    cdef Rec r
    cdef bint entered       # b is a batch that was not left yet
    cdef bint checked       # all of its records decode
    cdef int64_t delivered_before   # the value of batch_delivered before it
    cdef int64_t behind_before
    cdef bint have          # r is the next record
    cdef int64_t length     # of r's rendering, -1 if not known yet
    cdef readonly int64_t batch_delivered
    cdef int64_t within     # bytes of it already delivered
    cdef int64_t behind     # last offset left behind, + 1
    cdef uint8_t *scratch   # rendering of a record that is delivered in pieces, or a block of it
    cdef Py_ssize_t scratch_bytes
    cdef Blocks blocks      # the block of a long one
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
            limit: How many bytes at most; none after them is touched, those not needed may be.

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
            ValueError: ``n`` is negative.
        """
        if n < 0:
            raise ValueError(f"cannot skip {n} bytes")
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

        Damage after the first byte is left to the next call if the caller is tolerant.
        """
        cdef int64_t done = 0
        cdef int64_t before
        cdef int64_t begun = 0      # what had been delivered when the batch was entered
        cdef int status = FULL
        while True:
            before = done
            if self.b.end - self.b.p >= RELEASE_GIL_BYTES and room - done >= RELEASE_GIL_BYTES:
                with nogil:
                    status = self.run(out, room, &done)
            else:
                status = self.run(out, room, &done)
            self.batch_delivered += done - before
            if status == NO_MEMORY:
                raise MemoryError
            if status == DAMAGED or (status != BATCH_END and not self.is_checked()):
                self.leave_damaged()
                if begun and tolerant:
                    return begun
                raise corrupt("a record does not decode", self.position)
            if status != BATCH_END or (done == room and room):
                return done
            try:
                if not self.enter():
                    return done
                begun = done
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
        self.checked = False
        self.delivered_before, self.behind_before = self.batch_delivered, self.behind
        self.batch_delivered = 0
        self.position = self.cursor
        self.cursor += size
        return True

    cdef bint is_checked(self) noexcept:
        """Whether all records of the batch decode; a call must not end inside of it before that."""
        cdef Batch rest
        if not self.checked and self.in_batch():
            rest = self.b
            if rest.end - rest.p >= RELEASE_GIL_BYTES:
                with nogil:
                    self.checked = decodes(&rest)
            else:
                self.checked = decodes(&rest)
            return self.checked
        return True

    cdef void leave_damaged(self) noexcept:
        """Go back to the start of a batch of which nothing was returned to the caller."""
        self.cursor = self.position
        self.entered = self.have = False
        self.b.left = 0
        self.b.p = self.b.end = NULL
        self.batch_delivered, self.behind = self.delivered_before, self.behind_before

    cdef int run(self, uint8_t *out, int64_t room, int64_t *done) noexcept nogil:
        """Deliver records of the batch that was entered."""
        cdef int64_t n
        cdef int64_t last_delta = 0
        cdef bint plain_runs = (
            self.view == TEXT and out != NULL and self.b.last_offset < self.stop_offset
            and self.b.magic == 2 and not self.b.attributes & CONTROL
        )
        while True:
            if not self.have:
                if plain_runs:
                    n = lf_text_run(
                        &self.b.p, self.b.end, &self.b.left, out + done[0], room - done[0],
                        &last_delta,
                    )
                    if n > 0:
                        done[0] += n
                        self.behind = lf_add(self.b.base_offset, last_delta + 1)
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
        self.behind = lf_add(self.r.offset, 1)

    cdef bint deliver_part(self, uint8_t *out, int64_t room, int64_t *done) noexcept nogil:
        cdef int64_t part = min(self.length - self.within, room - done[0])
        if out != NULL and self.view == TEXT:
            self.copy_text(out + done[0], part)
        elif out != NULL and self.length > LARGE_RECORD:
            if not self.copy_blocks(out + done[0], part):
                return False
        elif out != NULL:
            if not self.prepare_scratch():
                return False
            memcpy(out + done[0], self.scratch + self.within, part)
        done[0] += part
        self.within += part
        if self.within == self.length:
            self.leave_record()
        return True

    cdef inline void copy_text(self, uint8_t *out, int64_t part) noexcept nogil:
        """Write a part of a record's text, which needs no rendering: its value and a LF."""
        cdef int64_t of_value = min(part, self.length - 1 - self.within)
        if of_value > 0:
            memcpy(out, self.r.value.p + self.within, of_value)
        if self.within + part == self.length:
            out[part - 1] = b"\n"

    cdef bint copy_blocks(self, uint8_t *out, int64_t part) noexcept nogil:
        """Write a part of a long rendering, of which a block at a time is in memory."""
        cdef int64_t n
        cdef int64_t at = self.within
        cdef int64_t stop = at + part
        if not self.scratch_ready:
            memset(&self.blocks, 0, sizeof(Blocks))
            if not self.have_scratch(BLOCK_BYTES):
                return False
            self.scratch_ready = True
        while at < stop:
            while self.blocks.end <= at:
                self.next_block()
            n = min(stop, self.blocks.end) - at
            memcpy(out, self.scratch + (at - self.blocks.begin), n)
            out += n
            at += n
        return True

    cdef void next_block(self) noexcept nogil:
        cdef Blocks *s = &self.blocks
        cdef uint8_t *end
        if s.mode != NO_SPAN:
            end = put_part_of_span(s, self.scratch)
        elif self.view == TSV:
            end = put_tsv_part(s, self.scratch, &self.r)
        else:
            end = put_jsonl_part(s, self.scratch, &self.r)
        s.begin = s.end
        s.end += end - self.scratch

    cdef bint have_scratch(self, Py_ssize_t size) noexcept nogil:
        cdef void *larger
        if size > self.scratch_bytes:
            larger = realloc(self.scratch, size)
            if larger == NULL:
                return False
            self.scratch = <uint8_t *>larger
            self.scratch_bytes = size
        return True

    cdef bint prepare_scratch(self) noexcept nogil:
        if self.scratch_ready:
            return True
        if not self.have_scratch(self.length):
            return False
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
    def buffer_bytes(self):
        """How much memory is held beside the window: decompressed records, a rendered record or block."""
        return self.scratch_bytes + (0 if self.plain is None else self.plain.n)

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
    def is_in_batch(self):
        """Whether the batch of the next byte has been entered."""
        return self.in_batch()

    @property
    def batch_position(self):
        """Where in the buffer the batch of the next byte begins."""
        return self.position if self.in_batch() else self.cursor

    @property
    def delivered(self):
        """Bytes of the next byte's record that were delivered; 0 where a record begins."""
        return self.within if self.have else 0

    @property
    def undelivered(self):
        """Bytes left of a record that was delivered in part; 0 where a record begins."""
        return self.length - self.within if self.have and self.within else 0

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
            if is_unopened(&b):
                learn_offsets(self.window.p + self.cursor, &b)
            return max(behind, b.base_offset)
        return behind
