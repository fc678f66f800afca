# Part of _compaction.pyx: compaction, its second half: a segment out of what is left of others.

cdef enum:
    SHORTEST_RECORD = 7


@cython.final
cdef class BatchFilter:
    """Writes the segment that compaction leaves of one or several: its log and its indexes.

    A record survives if it lies after what the map speaks of, or if it has a key, the map knows no
    later offset of that key, and it is no tombstone whose time is over. A batch of which all
    survive is copied; otherwise it is encoded again with its base offset, last offset, sequence and
    codec. One without survivors goes, unless something depends on its header. Messages of formats
    v0 and v1 become batches of format v2.

    Positions of survivors do not change: the text index gets a pair of entries for every gap.

    Args:
        offsets: The last offset of each key.
        builder: The index rules of the new segment.
        now_ms: The clock.
        delete_retention_ms: How long tombstones and transaction markers stay, once they are seen.
        upper_bound: First offset that is not cleaned: the batch before it keeps its header.
        retained: Last offset of a batch -> the producer id whose last batch it is: it keeps its
            header, too.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

    Attributes:
        messages_read, bytes_read, messages_written, bytes_written: How much went by.
        invalid: Records without a key, which go.
        changes: Becomes more than 0 with the first batch that is gone or encoded again: 0 says that
            what was written is what was read, byte for byte.
        has_gaps: Whether the text index holds gaps.

    Source: Kafka Cleaner.cleanInto and shouldRetainRecord, MemoryRecords.filterTo.
    """

    cdef _KeyFilter key_filter
    cdef _Rewriter rewriter
    cdef IndexBuilder builder
    cdef int64_t new_horizon
    cdef int64_t upper_bound
    cdef dict retained
    cdef object decompress
    cdef readonly int64_t messages_read
    cdef readonly int64_t bytes_read
    cdef readonly int64_t messages_written
    cdef readonly int64_t bytes_written
    cdef readonly int64_t changes
    cdef readonly bint has_gaps

    def __init__(
        self,
        OffsetMap offsets,
        IndexBuilder builder,
        *,
        int64_t now_ms,
        int64_t delete_retention_ms,
        int64_t upper_bound,
        dict retained,
        decompress,
    ):
        self.key_filter = _KeyFilter(offsets, builder, now_ms)
        self.rewriter = _Rewriter()
        self.builder = builder
        self.new_horizon = lf_add(now_ms, delete_retention_ms)
        if self.new_horizon < now_ms:
            self.new_horizon = INT64_LAST
        self.upper_bound = upper_bound
        self.retained = retained
        self.decompress = decompress

    @property
    def invalid(self):
        return self.key_filter.invalid

    @property
    def ends(self):
        """Lengths up to after the last survivor."""
        return self.key_filter.end.text, self.key_filter.end.tsv, self.key_filter.end.jsonl

    @property
    def kept_lengths(self):
        """Lengths of the survivors."""
        return self.key_filter.kept.text, self.key_filter.kept.tsv, self.key_filter.kept.jsonl

    def begin_segment(
        self,
        int64_t base_offset,
        int64_t text,
        int64_t tsv,
        int64_t jsonl,
        entries,
        bint drops_tombstones=False,
        lasts=None,
    ):
        """Continue with the next segment that is to be cleaned.

        Args:
            base_offset: Its base offset.
            text: Length from where the new segment begins to where this one does.
            tsv: As ``text``.
            jsonl: As ``text``.
            entries: Its text index if that holds gaps, else None.
            drops_tombstones: Whether tombstones of formats v0 and v1 go; others have their
                own time.
            lasts: A bit for each offset from ``base_offset`` on, the lowest of a byte first: it is
                the last one of its key. Instead of what the map knows.
        """
        self.key_filter.begin_segment(
            base_offset, Lens(text, tsv, jsonl), entries, drops_tombstones, lasts
        )

    def filter_batches(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Filter the batches of a piece of the log.

        Ends before a transactional or control batch, of which the caller knows more, or of one
        that is cut.

        Returns:
            The position where it ended.

        Raises:
            CorruptRecordError: A batch is damaged or out of order.
        """
        cdef _View view = window(buf, start, stop)
        cdef int64_t size
        cdef Batch b
        while True:
            size = whole_batch(view.p + start, stop - start, start, &b)
            if size == 0 or b.attributes & (TRANSACTIONAL | CONTROL):
                return start
            self.filter(view.p + start, size, start, &b, False, False)
            start += size

    def filter_batch(
        self, buf, Py_ssize_t start, Py_ssize_t stop, *, bint discard, bint is_empty, bint retain
    ):
        """Filter one batch of any kind.

        Args:
            buf: Holds the batch.
            start: Where it begins.
            stop: Where the bytes end.
            discard: None of its records survives.
            is_empty: It is the marker of a transaction of which no records are left: from now on
                its time runs.
            retain: It keeps its header, even without records.

        Returns:
            The position after it.

        Raises:
            CorruptRecordError: It is damaged, or not whole.
        """
        cdef _View view = window(buf, start, stop)
        cdef Batch b
        cdef int64_t size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0:
            raise corrupt("it is cut", start)
        self.filter(view.p + start, size, start, &b, discard | (is_empty << 1), retain)
        return start + size

    cdef int filter(
        self, bytes_t p, int64_t size, Py_ssize_t position, Batch *b, int mode, bint retain
    ) except -1:
        cdef bint discard = mode & 1
        cdef bint is_empty = mode >> 1
        cdef bint was_empty
        cdef int64_t producer_id = lf_get64(p + 43) if b.magic == 2 else -1
        cdef Batch records
        cdef int64_t new_horizon = NO_HORIZON
        cdef str problem = checksum_problem(p, size)
        if problem is None:
            plain = self.open(p, size, position, b)
        if problem is None and goes_back(b, self.builder.end.next_offset):
            problem = order_problem(b, self.builder.end.next_offset)
        if problem is None and b.last_offset - self.builder.end.base_offset > INT32_LAST:
            problem = f"last offset {b.last_offset} is too far from {self.builder.end.base_offset}"
        if problem is not None:
            raise corrupt(problem, position)
        if b.last_offset + 1 == self.upper_bound:
            retain = True
        elif producer_id >= 0 and self.retained:
            retain = retain or self.retained.get(b.last_offset, -1) == producer_id
        records = b[0]
        self.bytes_read += size
        self.messages_read += b.count
        self.key_filter.sift(b, position, discard)
        if self.key_filter.kept_count:
            if (self.key_filter.has_tombstone or is_empty) and not b.attributes & DELETE_HORIZON:
                new_horizon = self.new_horizon
            if self.key_filter.kept_count == b.count and b.magic == 2 and new_horizon == NO_HORIZON:
                self.rewriter.put_whole(p, size)
            else:
                size = self.rewriter.put_left(
                    p, b, &records, self.key_filter.keeps, self.key_filter.kept_count, new_horizon
                )
                self.changes += 1
        elif retain:
            was_empty = size == HEADER
            size = self.rewriter.put_empty(p, b)
            # What is not as long as a header, like a message of format v0, may end before it.
            if not was_empty or memcmp(self.rewriter.out + self.rewriter.out_size, p, size) != 0:
                self.changes += 1
        else:
            self.changes += 1
            return 0
        self.account(b, size)
        return 0

    cdef object open(self, bytes_t p, int64_t size, Py_ssize_t position, Batch *b):
        """Open the records, those of control batches too."""
        cdef int attributes = b.attributes
        b.attributes &= ~CONTROL
        try:
            plain = open_records(p, size, b, self.decompress)
        except CorruptRecordError as error:
            raise corrupt(str(error), position) from error
        b.attributes = attributes
        if b.count > (b.end - b.p) // SHORTEST_RECORD:
            raise corrupt(f"{b.count} records in {b.end - b.p} bytes", position)
        return plain

    cdef int account(self, Batch *b, int64_t size) except -1:
        cdef IndexBuilder builder = self.builder
        cdef _KeyFilter key_filter = self.key_filter
        cdef Lens nothing = Lens(0, 0, 0)
        if builder.end.file_position > INT32_LAST - size:
            raise corrupt("what is kept does not fit into a segment", builder.end.file_position)
        builder.skips_text = key_filter.begins_in_gap
        builder.account(b, size, &nothing)
        if key_filter.pairs_size:
            builder.text_entries += PyBytes_FromStringAndSize(<char *>key_filter.pairs, key_filter.pairs_size)
            self.has_gaps = True
        builder.end.text, builder.end.tsv, builder.end.jsonl = key_filter.end.text, key_filter.end.tsv, key_filter.end.jsonl
        self.rewriter.out_size += size
        self.messages_written += b.count
        self.bytes_written += size
        return 0

    def take(self):
        """Take what was written since the last call.

        Returns:
            ``(log, offset index, time index, text index)``, whole batches and entries.
        """
        return (self.rewriter.take(), *self.builder.take())
