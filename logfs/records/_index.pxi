# Part of _indexing.pyx: what one segment's indexes hold.

cdef enum:
    AHEAD = 256             # batches that are measured in one go, without the GIL
    UNMEASURED = 1          # beside 0 and -1, which measure_batch returns




cdef int measure_ahead(bytes_t p, int64_t available, Measured *ahead) noexcept nogil:
    """Measure batches one after the other, those that are not compressed; returns how many it met."""
    cdef int64_t size
    cdef Batch b
    cdef int n = 0
    while n < AHEAD and peek(p, available, &size) == WHOLE and read_header(p, &b) == WHOLE:
        ahead[n].status = UNMEASURED
        if b.magic == 2 and not b.attributes & CODEC_MASK:
            point_at_records(p, size, &b)
            ahead[n].lens = Lens(0, 0, 0)
            ahead[n].status = measure_batch(&b, INT64_LAST, &ahead[n].lens)
            ahead[n].left = b.left
        p += size
        available -= size
        n += 1
    return n


cdef int look_ahead(bytes_t p, int64_t available, Measured *ahead) noexcept:
    if available < RELEASE_GIL_BYTES:
        return measure_ahead(p, available, ahead)
    with nogil:
        return measure_ahead(p, available, ahead)


@cython.final
cdef class IndexBuilder:
    """The index rules of one segment, one batch after the other.

    ``_logend.h`` has the rules: when a batch has an entry in each index, and with what timestamp.

        index       8 bytes: int32 last offset - base, int32 position of the batch
        timeindex  12 bytes: int64 max timestamp so far, int32 offset of it - base; only if the
                   timestamp is larger than the last entry's
        textindex  32 bytes: int32 base offset - base, int32 position, and the lengths of the text,
                   tsv and jsonl renderings of the segment before this batch, int64 each

    Args:
        base_offset: Base offset of the segment.
        index_interval_bytes: Kafka's ``index.interval.bytes``.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

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
        fed_epochs: The smallest and the largest leader epoch of the batches that the last ``feed``
            has used up.
        produced: What ``feed`` has met of batches that have a producer id.
        batches, records: How many were accounted for by this object.
        problem: Why the last ``feed`` stopped; None if it used everything up. "incomplete" is a
            batch cut by ``stop`` and says nothing against it; ``wanted`` is then its total size in
            bytes, 0 if even its header is cut. All else is damage.
        stops_at_far: Whether ``feed`` stops at a batch that no index entry can point at, since its
            offset is too far from the base. Otherwise it is accounted for without entries.
        far_position: File position of the first such batch, -1 if none was met.

    Source: Kafka LogSegment.append and LogSegment.recover (per batch, KAFKA-806).
    """

    def __init__(self, int64_t base_offset, int64_t index_interval_bytes, decompress):
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
        lf_end_begin(&self.end, base_offset, index_interval_bytes)
        self.decompress = decompress
        self.max_leader_epoch = self.far_position = -1
        self.leader_epochs = []
        self.produced = []
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.text_entries = bytearray()

    @property
    def base_offset(self):
        return self.end.base_offset

    @property
    def index_interval_bytes(self):
        return self.end.index_interval_bytes

    @property
    def file_position(self):
        return self.end.file_position

    @property
    def next_offset(self):
        return self.end.next_offset

    @property
    def max_timestamp(self):
        return self.end.max_timestamp

    @property
    def offset_of_max_timestamp(self):
        return self.end.offset_of_max_timestamp

    @property
    def first_timestamp(self):
        return self.end.first_timestamp

    @property
    def last_time_entry(self):
        return self.end.last_time_entry

    @property
    def bytes_since_entry(self):
        return self.end.bytes_since_entry

    @property
    def text(self):
        return self.end.text

    @property
    def tsv(self):
        return self.end.tsv

    @property
    def jsonl(self):
        return self.end.jsonl

    @property
    def batches(self):
        return self.end.batches

    @property
    def records(self):
        return self.end.records

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
        """Continue from a batch border inside the segment instead of from its start.

        The arguments are the attributes as they were there. Kafka forgets the counter at a
        restart, hence its default. Leader epochs up to ``max_leader_epoch`` are not listed again.
        """
        self.end.file_position = file_position
        self.end.next_offset = next_offset
        self.end.max_timestamp = max_timestamp
        self.end.offset_of_max_timestamp = offset_of_max_timestamp
        self.end.first_timestamp = first_timestamp
        self.end.last_time_entry = last_time_entry
        self.end.text = text
        self.end.tsv = tsv
        self.end.jsonl = jsonl
        self.end.bytes_since_entry = bytes_since_entry
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
            max_timestamp: The max timestamp of its header, -1 if none.
            leader_epoch: The leader epoch of its header, -1 if none.
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
        b.count = lf_add(lf_sub(last_offset, base_offset), 1)
        self.account(&b, batch_bytes_len, &lens)
        return len(self.offset_entries) > 0

    def pass_over(
        self, int64_t size, int64_t next_offset, int64_t text, int64_t tsv, int64_t jsonl
    ):
        """Reserve a place for bytes at ``file_position`` that are not read; they have no entries.

        Args:
            size: How many.
            next_offset: The offset after them, >= the present one.
            text, tsv, jsonl: Length of the place in each rendering.
        """
        lf_end_pass_over(&self.end, size, next_offset)
        self.end.text = lf_add(self.end.text, text)
        self.end.tsv = lf_add(self.end.tsv, tsv)
        self.end.jsonl = lf_add(self.end.jsonl, jsonl)

    cdef int account(self, Batch *b, int64_t size, Lens *lens) except -1:
        cdef lf_entries entries
        cdef lf_added batch
        batch.size = size
        batch.base_offset = b.base_offset
        batch.last_offset = b.last_offset
        batch.max_timestamp = b.max_timestamp
        batch.count = b.count
        batch.text = lens.text
        batch.tsv = lens.tsv
        batch.jsonl = lens.jsonl
        lf_end_add(&self.end, &batch, &entries)
        if entries.is_due:
            self.keep_entries(&entries)
        if b.epoch > self.max_leader_epoch:
            self.max_leader_epoch = b.epoch
            self.leader_epochs.append((b.epoch, b.base_offset))
        return 0

    cdef int keep_entries(self, lf_entries *entries) except -1:
        self.offset_entries += PyBytes_FromStringAndSize(<char *>entries.offset, LF_OFFSET_ENTRY)
        if not self.skips_text:
            self.text_entries += PyBytes_FromStringAndSize(<char *>entries.text, LF_TEXT_ENTRY)
        if entries.has_time:
            self.time_entries += PyBytes_FromStringAndSize(<char *>entries.time, LF_TIME_ENTRY)
        return 0

    def feed(self, buf, Py_ssize_t start, Py_ssize_t stop, bint verify):
        """Account for the whole batches of a piece of the segment.

        Stops before a batch that is cut, damaged or out of order; see ``problem``.

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
        cdef Measured ahead[AHEAD]
        cdef int met = 0, number = 0
        cdef int64_t size
        cdef Batch b
        self.problem = None
        self.wanted = 0
        self.lowest_fed_epoch, self.highest_fed_epoch = INT32_LAST, -1
        while position < stop:
            if number == met:
                number, met = 0, look_ahead(view.p + position, stop - position, ahead)
            size = self.check_frame(view.p + position, stop - position, &b)
            if size == 0:
                break
            if verify:
                self.problem = checksum_problem(view.p + position, size)
                if self.problem is not None:
                    break
            if ahead[number].status == UNMEASURED:
                self.measure_opened(view.p + position, size, &b, &ahead[number])
            if ahead[number].status < 0:
                if self.problem is None:
                    self.problem = f"undecodable: record {b.count - ahead[number].left} of {b.count}"
                break
            if not self.may_be_here(&b, size):
                break
            if is_produced(view.p + position):
                self.produced.append(produced(view.p + position, size, self.end.file_position))
            self.account(&b, size, &ahead[number].lens)
            self.lowest_fed_epoch = min(self.lowest_fed_epoch, b.epoch)
            self.highest_fed_epoch = max(self.highest_fed_epoch, b.epoch)
            position += size
            number += 1
        return position - start

    @property
    def fed_epochs(self):
        """The smallest and the largest leader epoch that the last ``feed`` has met."""
        return self.lowest_fed_epoch, self.highest_fed_epoch

    cdef int64_t check_frame(self, bytes_t p, int64_t available, Batch *b) except -1:
        """Size of the batch at p if it is whole and may be here, else 0 and the problem."""
        cdef int64_t size
        self.problem = judge(p, available, self.end.next_offset, &size, b)
        if self.problem is not None:
            return 0
        if size == 0 or size > available:
            self.problem = "incomplete"
            self.wanted = size
            return 0
        return size

    cdef bint may_be_here(self, Batch *b, int64_t size) except -1:
        """Note a batch that no index entry can point at; False if the caller stops at it."""
        if lf_has_entries(&self.end, b.last_offset, size):
            return True
        if self.far_position < 0:
            self.far_position = self.end.file_position
        if self.stops_at_far:
            self.problem = f"last offset {b.last_offset} is too far from {self.end.base_offset}"
        return not self.stops_at_far

    cdef int measure_opened(self, bytes_t p, int64_t size, Batch *b, Measured *m) except -1:
        """Measure a batch that has to be decompressed; what is wrong may be in the problem."""
        m.status = -1
        try:
            plain = open_records(p, size, b, self.decompress)
        except CorruptRecordError as error:
            self.problem = f"undecodable: {error}"
            return 0
        if goes_back(b, self.end.next_offset):
            self.problem = order_problem(b, self.end.next_offset)
            return 0
        m.lens = Lens(0, 0, 0)
        if b.end - b.p >= RELEASE_GIL_BYTES:
            with nogil:
                m.status = measure_batch(b, INT64_LAST, &m.lens)
        else:
            m.status = measure_batch(b, INT64_LAST, &m.lens)
        m.left = b.left
        return 0

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
        cdef uint8_t entry[LF_TIME_ENTRY]
        if not lf_final_time_entry(&self.end, entry):
            return b""
        return PyBytes_FromStringAndSize(<char *>entry, LF_TIME_ENTRY)


def first_out_of_order(entries):
    """Find the first entry of a text index with a number below that of the entry before it.

    Args:
        entries: Whole 32-byte entries; a fragment after them is left out.

    Returns:
        The number of the entry, from 0; -1 if none is. Before the first entry all numbers are 0.
    """
    cdef _View view = _View(entries, False)
    cdef Py_ssize_t count = view.n // 32, number, field
    cdef const uint8_t *p = view.p
    cdef int64_t before[3]
    cdef int64_t offset = 0, position = 0
    before[:] = [0, 0, 0]
    for number in range(count):
        if lf_get32(p) < offset or lf_get32(p + 4) < position:
            return number
        for field in range(3):
            if lf_get64(p + 8 + 8 * field) < before[field]:
                return number
            before[field] = lf_get64(p + 8 + 8 * field)
        offset, position = lf_get32(p), lf_get32(p + 4)
        p += 32
    return -1
