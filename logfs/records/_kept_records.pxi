# Part of _compaction.pyx: positions of the records that a compaction by another process has kept.

cdef enum:
    NEW_USED_UP = 0
    OLD_USED_UP = 1


cdef class _Cursor:
    """Record after record of a window of whole batches."""

    cdef _View view
    cdef Py_ssize_t at
    cdef Py_ssize_t stop
    cdef Py_ssize_t batch_at        # of the record's batch
    cdef bint is_first              # the record is the first one in its batch
    cdef Batch batch
    cdef Rec record
    cdef object plain
    cdef object decompress

    def __cinit__(self, decompress):
        self.decompress = decompress
        self.batch.left = 0

    cdef int load(self, buf, Py_ssize_t start, Py_ssize_t stop) except -1:
        self.view = window(buf, start, stop)
        self.at = start
        self.stop = stop
        self.batch.left = 0
        return 0

    cdef bint next(self) except? -1:
        """Take the next record; False at the end of the window."""
        cdef int64_t size
        if self.view is None:
            return False
        self.is_first = False
        while self.batch.left == 0:
            size = whole_batch(self.view.p + self.at, self.stop - self.at, self.at, &self.batch)
            if size == 0:
                return False
            self.plain = verified_records(
                self.view.p + self.at, size, self.at, &self.batch, self.decompress
            )
            self.batch_at = self.at
            self.at += size
            self.is_first = True
        if next_record(&self.batch, &self.record) < 0:
            raise corrupt("a record does not decode", self.batch_at)
        return True


@cython.final
cdef class KeptRecords:
    """Walks a rewritten segment beside those it was made of, and writes its text index.

    Every record of the new segment keeps the position that the record with its offset had. The
    windows of both sides hold whole batches and are loaded in order, as ``run`` asks for them.

    Args:
        base_offset: The base offset of the new segment and of the first old one.
        index_interval_bytes: About how far apart entries are where nothing was removed.
        decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

    Attributes:
        text, tsv, jsonl: Where the last record ends that was kept, from the start of the segment.
        kept_text, kept_tsv, kept_jsonl: Lengths of what was kept.
    """

    cdef readonly int64_t base_offset
    cdef readonly int64_t index_interval_bytes
    cdef Lens lens              # where the present old record is
    cdef Lens end               # where the last kept record ends
    cdef Lens kept
    cdef _Cursor old
    cdef _Cursor new
    cdef bint has_old
    cdef bint has_new
    cdef int64_t new_position   # file position of the new window
    cdef int64_t entry_position
    cdef _View entries
    cdef Py_ssize_t entry_at
    cdef int64_t entry_base     # base offset of the old segment
    cdef Lens entry_lens        # where it begins
    cdef bytearray found

    def __init__(self, int64_t base_offset, int64_t index_interval_bytes, decompress):
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.old = _Cursor(decompress)
        self.new = _Cursor(decompress)
        self.found = bytearray()
        self.lens = self.end = self.kept = Lens(0, 0, 0)

    @property
    def lengths(self):
        """``(text, tsv, jsonl)`` up to the end of the last record that was kept."""
        return self.end.text, self.end.tsv, self.end.jsonl

    @property
    def kept_lengths(self):
        """``(text, tsv, jsonl)`` of what was kept."""
        return self.kept.text, self.kept.tsv, self.kept.jsonl

    def begin_old(self, entries, int64_t base_offset, int64_t text, int64_t tsv, int64_t jsonl):
        """Begin an old segment.

        Args:
            entries: Its text index; positions after its gaps are taken from there.
            base_offset: Its base offset.
            text: Where it begins, counted from the first old segment.
            tsv: As ``text``.
            jsonl: As ``text``.
        """
        self.entries = _View(entries, False)
        self.entry_at = 0
        self.entry_base = base_offset
        self.entry_lens = self.lens = Lens(text, tsv, jsonl)

    def load_old(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Continue with a window of the old segment."""
        self.old.load(buf, start, stop)

    def load_new(self, buf, Py_ssize_t start, Py_ssize_t stop, int64_t file_position):
        """Continue with a window of the new segment; ``buf[start]`` is at a file position."""
        self.new.load(buf, start, stop)
        self.new_position = lf_sub(file_position, start)

    def run(self):
        """Walk until a window is used up.

        Returns:
            0 if it is the new one's turn to be loaded, 1 if it is the old one's.

        Raises:
            CorruptRecordError: A batch does not decode, or the new segment has a record that is not
                in the old ones.
        """
        while True:
            if not self.has_new:
                if not self.new.next():
                    return NEW_USED_UP
                self.has_new = True
            while True:
                if not self.has_old:
                    if not self.old.next():
                        return OLD_USED_UP
                    self.has_old = True
                    self.pass_entries()
                if self.old.record.offset >= self.new.record.offset:
                    break
                add_lengths(&self.old.record, &self.lens)
                self.has_old = False
            if self.old.record.offset != self.new.record.offset:
                raise corrupt(
                    f"no record had offset {self.new.record.offset}", self.new.batch_at
                )
            self.place()

    def take(self):
        """Take the entries of the text index since the last call."""
        taken = bytes(self.found)
        self.found.clear()
        return taken

    cdef int pass_entries(self) except -1:
        """Take the position of the old record from the text index, where that has an entry."""
        cdef bytes_t p
        while self.entry_at + 32 <= self.entries.n:
            p = self.entries.p + self.entry_at
            if lf_add(self.entry_base, lf_get32(p)) > self.old.record.offset:
                break
            self.lens = lens_of_entry(p, &self.entry_lens)
            self.entry_at += 32
        return 0

    cdef int place(self) except -1:
        """Both sides stand at the same record: it is kept."""
        cdef int64_t position = lf_add(self.new_position, self.new.batch_at)
        cdef Lens length = Lens(0, 0, 0)
        if self.lens.text != self.end.text or self.lens.jsonl != self.end.jsonl:
            self.add_entry(position, &self.end)
            self.add_entry(position, &self.lens)
            self.entry_position = position
        elif self.new.is_first and lf_sub(position, self.entry_position) > self.index_interval_bytes:
            self.add_entry(position, &self.lens)
            self.entry_position = position
        add_lengths(&self.new.record, &length)
        add_lens(&self.kept, &length)
        add_lens(&self.lens, &length)
        self.end = self.lens
        self.has_old = self.has_new = False
        return 0

    cdef int add_entry(self, int64_t position, Lens *lens) except -1:
        cdef uint8_t entry[32]
        lf_put32(entry, lf_sub(self.new.record.offset, self.base_offset))
        lf_put32(entry + 4, position)
        lf_put64(entry + 8, lens.text)
        lf_put64(entry + 16, lens.tsv)
        lf_put64(entry + 24, lens.jsonl)
        self.found += PyBytes_FromStringAndSize(<char *>entry, 32)
        return 0
