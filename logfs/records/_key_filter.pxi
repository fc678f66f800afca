# Part of _compaction.pyx: compaction, its second half. Which records of a batch survive, and where they
# stand.

cdef enum:
    TEXT_ENTRY = 32

cdef struct Placed:
    int64_t offset
    bint has_key
    bint has_value
    lf_hash hash
    Lens begin
    Lens end


cdef inline bint same_lens(Lens *a, Lens *b) noexcept nogil:
    return a.text == b.text and a.tsv == b.tsv and a.jsonl == b.jsonl


cdef inline void put_text_entry(
    uint8_t *p, int64_t relative_offset, int64_t file_position, Lens *lens
) noexcept nogil:
    lf_put32(p, relative_offset)
    lf_put32(p + 4, file_position)
    lf_put64(p + 8, lens.text)
    lf_put64(p + 16, lens.tsv)
    lf_put64(p + 24, lens.jsonl)


@cython.final
cdef class _KeyFilter:
    """Decides for each record of a batch whether it survives, and notes the gaps before those.

    After ``sift``, ``keeps`` has a byte for each record of the batch, and ``pairs`` the entries of
    the text index for its gaps.
    """

    cdef OffsetMap map
    cdef IndexBuilder builder
    cdef int64_t now_ms
    cdef uint8_t *keeps
    cdef int64_t keeps_capacity
    cdef uint8_t *pairs
    cdef int64_t pairs_size
    cdef int64_t pairs_capacity
    cdef _View old_entries      # of the text index of the segment that is read
    cdef bytes_t old_entry      # where to look for the next pair
    cdef bytes_t old_entries_end
    cdef _View lasts            # of the segment that is read, if they are known: see begin_segment
    cdef int64_t lasts_count
    cdef int64_t old_base_offset
    cdef Lens old_bases
    cdef int64_t old_gap        # offset of the record after the next old gap
    cdef Lens old_gap_end
    cdef Lens at                # after the record that was measured last
    cdef Lens end               # after the last survivor
    cdef Lens kept
    cdef int64_t kept_count
    cdef int64_t invalid
    cdef bint has_tombstone
    cdef bint begins_in_gap
    cdef bint drops_tombstones  # of formats v0 and v1, which have no delete horizon

    def __cinit__(self, OffsetMap offsets, IndexBuilder builder, int64_t now_ms):
        self.map = offsets
        self.builder = builder
        self.now_ms = now_ms
        self.old_gap = INT64_LAST

    def __dealloc__(self):
        free(self.keeps)
        free(self.pairs)

    cdef int begin_segment(
        self, int64_t base_offset, Lens begin, entries, bint drops_tombstones, lasts
    ) except -1:
        """See ``BatchFilter.begin_segment``."""
        self.drops_tombstones = drops_tombstones
        self.lasts = None if lasts is None else _View(lasts, False)
        self.lasts_count = 0 if lasts is None else 8 * self.lasts.n
        self.old_base_offset = base_offset
        self.old_bases = self.at = begin
        self.old_entries = None if entries is None else _View(entries, False)
        self.old_entry = self.old_entries_end = NULL
        if entries is not None:
            self.old_entry = self.old_entries.p
            self.old_entries_end = self.old_entry + self.old_entries.n
        self.find_old_gap()
        return 0

    cdef void find_old_gap(self) noexcept nogil:
        """Look for the next pair of entries with the same offset and file position."""
        cdef bytes_t p
        self.old_gap = INT64_LAST
        while self.old_entries_end - self.old_entry >= 2 * TEXT_ENTRY:
            p = self.old_entry
            self.old_entry += TEXT_ENTRY
            if lf_get64(p) == lf_get64(p + TEXT_ENTRY):
                p += TEXT_ENTRY
                self.old_gap = lf_add(self.old_base_offset, lf_get32(p))
                self.old_gap_end = lens_of_entry(p, &self.old_bases)
                return

    cdef int sift(self, Batch *b, Py_ssize_t position, bint discard) except -1:
        """Go through the records of a batch; with ``discard`` none of them survives."""
        cdef int status
        cdef void *larger
        self.kept_count = self.pairs_size = 0
        self.has_tombstone = self.begins_in_gap = False
        if b.count > self.keeps_capacity:
            larger = realloc(self.keeps, b.count)
            if larger == NULL:
                raise MemoryError
            self.keeps = <uint8_t *>larger
            self.keeps_capacity = b.count
        if b.end - b.p >= RELEASE_GIL_BYTES:
            with nogil:
                status = self.sift_records(b, discard)
        else:
            status = self.sift_records(b, discard)
        if status == NO_MEMORY:
            raise MemoryError
        if status:
            raise corrupt("a record does not decode", position)
        return 0

    cdef int sift_records(self, Batch *b, bint discard) noexcept nogil:
        cdef Placed group[GROUP]
        cdef Placed *placed
        cdef lf_frame frame = frame_of(b, INT64_LAST)
        cdef lf_decades decades
        cdef Span key
        cdef bint is_control = b.attributes & CONTROL
        cdef bint needs_hash = not (discard or is_control or self.lasts_count)
        cdef bint drop_tombstones = b.attributes & DELETE_HORIZON and b.base_timestamp <= self.now_ms
        cdef int64_t number = 0
        cdef int n, i
        if b.magic < 2:
            drop_tombstones = self.drops_tombstones
        memset(&decades, 0, sizeof(decades))
        while b.left > 0:
            n = 0
            while n < GROUP and b.left > 0:
                placed = &group[n]
                n += 1
                if not self.place(b, &frame, &decades, is_control, placed, &key):
                    return DAMAGED
                if needs_hash and placed.has_key:
                    placed.hash = self.map.table.hash_of(key.p, key.n)
                    lf_prefetch(self.map.table.home(placed.hash))
            for i in range(n):
                placed = &group[i]
                self.keeps[number] = 0
                number += 1
                if discard or not (is_control or self.survives(placed, drop_tombstones)):
                    continue
                self.keeps[number - 1] = 1
                if not self.keep(placed):
                    return NO_MEMORY
        return DAMAGED if has_trailing_bytes(b) else 0

    cdef inline bint place(
        self, Batch *b, lf_frame *frame, lf_decades *decades, bint is_control, Placed *placed,
        Span *key,
    ) noexcept nogil:
        """Take the next record and say where it is; False if its bytes do not decode."""
        cdef lf_plain plain
        cdef int64_t timestamp
        cdef Lens lens = Lens(0, 0, 0)
        cdef Rec r
        if b.magic == 2 and b.end - b.p >= LF_PLAIN_RECORD_ROOM and lf_take_plain(b.p, b.end, &plain):
            placed.offset = lf_add(frame.base_offset, plain.offset_delta)
            timestamp = lf_add(
                frame.base_timestamp, plain.timestamp_delta & frame.timestamp_mask
            )
            placed.has_value = plain.value_n >= 0
            key.p = plain.key
            key.n = plain.key_n
            b.p = plain.end
            b.left -= 1
            lf_add_plain(&plain, b.end, placed.offset, timestamp, decades, &lens)
        else:
            if next_record(b, &r) < 0:
                return False
            placed.offset = r.offset
            placed.has_value = r.value.n >= 0
            key[0] = r.key
            add_lengths(&r, &lens)
        if placed.offset >= self.old_gap:
            self.at = self.old_gap_end
            self.find_old_gap()
        placed.has_key = key.n >= 0
        placed.begin = self.at
        if not is_control:
            add_lens(&self.at, &lens)
        placed.end = self.at
        return True

    cdef inline bint survives(self, Placed *placed, bint drop_tombstones) noexcept nogil:
        if placed.offset > self.map.latest_offset:
            return True
        if not placed.has_key:
            self.invalid += 1
            return False
        if self.lasts_count:
            if not self.is_last(lf_sub(placed.offset, self.old_base_offset)):
                return False
        elif placed.offset < lf_sub(self.map.table.find(placed.hash).next_offset, 1):
            return False
        return placed.has_value or not drop_tombstones

    cdef inline bint is_last(self, int64_t n) noexcept nogil:
        """Whether the n-th offset of the segment is the last one of its key, or unknown."""
        return n < 0 or n >= self.lasts_count or self.lasts.p[n >> 3] >> (n & 7) & 1

    cdef inline bint keep(self, Placed *placed) noexcept nogil:
        """Count a survivor, and note the gap before it."""
        cdef void *larger
        cdef uint8_t *pair
        cdef int64_t relative_offset = lf_sub(placed.offset, self.builder.end.base_offset)
        if not same_lens(&placed.begin, &self.end):
            if self.pairs_size + 2 * TEXT_ENTRY > self.pairs_capacity:
                larger = realloc(self.pairs, 2 * self.pairs_capacity + 64 * TEXT_ENTRY)
                if larger == NULL:
                    return False
                self.pairs = <uint8_t *>larger
                self.pairs_capacity = 2 * self.pairs_capacity + 64 * TEXT_ENTRY
            if self.kept_count == 0:
                self.begins_in_gap = True
            pair = self.pairs + self.pairs_size
            put_text_entry(pair, relative_offset, self.builder.end.file_position, &self.end)
            put_text_entry(
                pair + TEXT_ENTRY, relative_offset, self.builder.end.file_position, &placed.begin
            )
            self.pairs_size += 2 * TEXT_ENTRY
        self.kept_count += 1
        self.has_tombstone |= not placed.has_value
        self.end = placed.end
        self.kept.text = lf_add(self.kept.text, lf_sub(placed.end.text, placed.begin.text))
        self.kept.tsv = lf_add(self.kept.tsv, lf_sub(placed.end.tsv, placed.begin.tsv))
        self.kept.jsonl = lf_add(self.kept.jsonl, lf_sub(placed.end.jsonl, placed.begin.jsonl))
        return True
