# Part of _native.pyx: compaction. Which key stands where last, and what is left of a batch.

cdef enum:
    DELETE_HORIZON = 0x40
    KNOWN_ATTRIBUTES = 0x7f
    GROUP = 32              # records whose slots are fetched together
    FIRST_SLOTS = 8192
    MAP_FULL = 1
    SHORTEST_RECORD = 7
    LONGER_DELTA = 16       # bytes by which new deltas may lengthen a record
    TEXT_ENTRY = 32

# ---- the last offset of each key ----------------------------------------------------------------

cdef struct Slot:
    lf_hash hash
    int64_t behind          # the offset + 1; 0 is an empty slot


@cython.final
cdef class OffsetMap:
    """The last offset of each key: a hash table of 24 bytes a slot, filled to a limit.

    Keys are known by a hash of 128 bits, keyed so that nobody can make two of them meet. The table
    begins small, since a small one stays in the caches; it is ordered by the hash, so that a larger
    one is filled from it from begin to end.

    Args:
        memory_bytes: Bounds the table, Kafka's ``log.cleaner.dedupe.buffer.size`` for one thread;
            while it grows the last time, there is one of a quarter beside it.
        load_factor: The share of it that may be filled, (0, 1].
        key: 16 random bytes.

    Attributes:
        limit: Keys that it takes.
        size: Keys that it holds.
        is_full: A keyed record came when it held as many as it takes; whether it held the key of
            that one is not asked.
        latest_offset: The map speaks of the records up to this offset, -1 before the first.
        records_read, bytes_read: How much went by.

    Source: Kafka SkimpyOffsetMap, Cleaner.buildOffsetMapForSegment.
    """

    cdef readonly int64_t limit
    cdef readonly int64_t size
    cdef readonly bint is_full
    cdef readonly int64_t latest_offset
    cdef readonly int64_t records_read
    cdef readonly int64_t bytes_read
    cdef Slot *slots
    cdef uint64_t slot_count
    cdef uint64_t most_slots
    cdef int64_t room           # keys that fit before the table grows, or that it takes at all
    cdef uint64_t k0
    cdef uint64_t k1

    def __init__(self, int64_t memory_bytes, double load_factor, bytes key):
        cdef int64_t count = memory_bytes // <int64_t>sizeof(Slot)
        if len(key) != 16:
            raise ValueError(f"a key of {len(key)} bytes, expected 16")
        self.limit = <int64_t>(count * load_factor)
        if self.limit < 1 or load_factor > 1:
            raise ValueError(f"{memory_bytes} bytes filled to {load_factor} hold no key")
        self.most_slots = count + 1         # one is always empty: there every search ends
        self.k0 = <uint64_t>lf_get64(<bytes_t>PyBytes_AS_STRING(key))
        self.k1 = <uint64_t>lf_get64(<bytes_t>PyBytes_AS_STRING(key) + 8)
        self.latest_offset = -1
        if not self.grow():
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)

    cdef bint grow(self) noexcept nogil:
        """Go on with a larger table, the first time with one at all; False without memory."""
        cdef Slot *old = self.slots
        cdef uint64_t old_count = self.slot_count
        cdef uint64_t count = max(<uint64_t>FIRST_SLOTS, 2 * old_count)
        cdef Slot *slot
        cdef uint64_t i
        if count > self.most_slots // 4:
            count = self.most_slots
        slot = <Slot *>lf_zeroed(count * sizeof(Slot))
        if slot == NULL:
            return False
        self.slots = slot
        self.slot_count = count
        self.room = self.limit if count == self.most_slots else <int64_t>(count - count // 4)
        for i in range(old_count):
            if old[i].behind:
                slot = self.find(old[i].hash)
                slot[0] = old[i]
        free(old)
        return True

    cdef inline Slot *home(self, lf_hash hash) noexcept nogil:
        return self.slots + lf_share_of(hash.low, self.slot_count)

    cdef inline Slot *find(self, lf_hash hash) noexcept nogil:
        """The slot of a key: its own, or the empty one where it belongs."""
        cdef Slot *slot = self.home(hash)
        while slot.behind and not (slot.hash.low == hash.low and slot.hash.high == hash.high):
            slot += 1
            if slot == self.slots + self.slot_count:
                slot = self.slots
        return slot

    cdef inline void put(self, lf_hash hash, int64_t offset) noexcept nogil:
        cdef Slot *slot = self.find(hash)
        if slot.behind == 0:
            slot.hash = hash
            self.size += 1
        slot.behind = offset + 1
        self.latest_offset = offset

    cdef int fill(self, Batch *b, int64_t start_offset) noexcept nogil:
        cdef lf_hash hashes[GROUP]
        cdef int64_t offsets[GROUP]
        cdef Rec r
        cdef int n, i
        while b.left > 0:
            n = 0
            while n < GROUP and b.left > 0:
                if next_record(b, &r) < 0:
                    return -1
                self.records_read += 1
                if r.key.n < 0 or r.offset < start_offset:
                    continue
                hashes[n] = lf_hash_bytes(r.key.p, r.key.n, self.k0, self.k1)
                offsets[n] = r.offset
                lf_prefetch(self.home(hashes[n]))
                n += 1
            for i in range(n):
                if self.size >= self.room:
                    if self.size >= self.limit:
                        self.is_full = True
                        return MAP_FULL
                    if not self.grow():
                        return NO_MEMORY
                self.put(hashes[i], offsets[i])
        return -1 if has_trailing_bytes(b) else 0

    cdef int add(self, bytes_t p, int64_t size, Py_ssize_t position, Batch *b,
                 int64_t start_offset, decompress) except -1:
        cdef int status
        if b.last_offset >= start_offset:
            plain = verified_records(p, size, position, b, decompress)
            if b.end - b.p >= RELEASE_GIL_BYTES:
                with nogil:
                    status = self.fill(b, start_offset)
            else:
                status = self.fill(b, start_offset)
            if status < 0:
                raise corrupt("a record does not decode", position)
            if status == NO_MEMORY:
                raise MemoryError
            if status == MAP_FULL:
                return 0
            self.latest_offset = b.last_offset
        self.bytes_read += size
        return 0

    def put_batches(self, buf, Py_ssize_t start, Py_ssize_t stop, int64_t start_offset, decompress):
        """Note the keys of the batches of a piece of a log.

        Ends in front of a transactional or control batch, of which the caller knows more, of one
        that is cut, or in front of the one in which ``is_full`` became true: of that, the records
        up to ``latest_offset`` are noted.

        Args:
            buf: A batch begins at ``start``.
            start: Where to begin.
            stop: Where to end.
            start_offset: Records below it are not noted.
            decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

        Returns:
            The position where it ended.

        Raises:
            CorruptRecordError: A batch is damaged.
        """
        cdef _View view = window(buf, start, stop)
        cdef int64_t size
        cdef Batch b
        while not self.is_full:
            size = whole_batch(view.p + start, stop - start, start, &b)
            if size == 0 or b.attributes & (TRANSACTIONAL | CONTROL):
                break
            self.add(view.p + start, size, start, &b, start_offset, decompress)
            if not self.is_full:
                start += size
        return start

    def put_batch(
        self, buf, Py_ssize_t start, Py_ssize_t stop, int64_t start_offset, decompress, bint aborted
    ):
        """Note the keys of one batch, whatever it is; none of them if its records were aborted.

        Returns:
            The position behind it, or its own if ``is_full`` became true.

        Raises:
            CorruptRecordError: It is damaged, or not whole.
        """
        cdef _View view = window(buf, start, stop)
        cdef Batch b
        cdef int64_t size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0:
            raise corrupt("it is cut", start)
        if aborted:
            b.count = 0
        self.add(view.p + start, size, start, &b, start_offset, decompress)
        return start if self.is_full else start + size

    def pass_to(self, int64_t offset):
        """Have the map speak of everything up to an offset: no record lies in between."""
        self.latest_offset = offset

    def entries(self):
        """Return what the map holds, for ``merge``: 24 bytes a key, about in the order of the hash.

        Three integers of 64 bits in this machine's order: the half of the hash by which they are
        ordered, the other half, and the last offset + 1.
        """
        cdef bytes found = PyBytes_FromStringAndSize(NULL, self.size * <Py_ssize_t>sizeof(Slot))
        cdef Slot *out = <Slot *>PyBytes_AS_STRING(found)
        cdef uint64_t i
        with nogil:
            for i in range(self.slot_count):
                if self.slots[i].behind:
                    out[0] = self.slots[i]
                    out += 1
        return found

    def merge(self, entries):
        """Take over what another map with the same key holds: of each key the larger offset.

        The table has room for all of it beforehand: entries come in the order of the hash, and
        would crowd together where a small table begins.

        Raises:
            ValueError: They do not fit into the map, or are none.
        """
        cdef _View view = _View(entries, False)
        cdef Py_ssize_t count = view.n // <Py_ssize_t>sizeof(Slot)
        cdef Slot *found
        cdef Slot entry
        cdef Py_ssize_t i
        cdef bytes_t p = view.p
        if view.n % <Py_ssize_t>sizeof(Slot):
            raise ValueError(f"{view.n} bytes, expected a multiple of {sizeof(Slot)}")
        while self.size + count > self.room and self.slot_count < self.most_slots:
            if not self.grow():
                raise MemoryError
        for i in range(count):
            memcpy(&entry, p + i * <Py_ssize_t>sizeof(Slot), sizeof(Slot))
            found = self.find(entry.hash)
            if found.behind == 0:
                if self.size >= self.room:
                    raise ValueError(f"more than {self.limit} keys")
                found.hash = entry.hash
                self.size += 1
            found.behind = max(found.behind, entry.behind)

    def get(self, bytes key):
        """Return the last offset of a key, -1 if it is not in the map."""
        cdef bytes_t p = <bytes_t>PyBytes_AS_STRING(key)
        return self.find(lf_hash_bytes(p, len(key), self.k0, self.k1)).behind - 1


def find_special(buf, Py_ssize_t start, Py_ssize_t stop):
    """Find the first batch that is transactional or holds a control record. Headers only.

    Returns:
        Its position; where the whole batches end if there is none.

    Raises:
        CorruptRecordError: A header before it makes no sense.
    """
    cdef _View view = window(buf, start, stop)
    cdef int64_t size
    cdef Batch b
    while True:
        size = whole_batch(view.p + start, stop - start, start, &b)
        if size == 0 or b.attributes & (TRANSACTIONAL | CONTROL):
            return start
        start += size


# ---- what is left -------------------------------------------------------------------------------

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


cdef inline int64_t fields_size(Rec *r) noexcept nogil:
    """Size of key, value and no headers in a record of format v2."""
    return (
        lf_varint_size(r.key.n) + max(r.key.n, 0) + lf_varint_size(r.value.n) + max(r.value.n, 0) + 1
    )


cdef inline uint8_t *put_fields(uint8_t *out, Rec *r) noexcept nogil:
    out = lf_put_varint(out, r.key.n)
    out = lf_put(out, r.key.p, max(r.key.n, 0))
    out = lf_put_varint(out, r.value.n)
    out = lf_put(out, r.value.p, max(r.value.n, 0))
    out[0] = 0
    return out + 1


@cython.final
cdef class BatchFilter:
    """Writes the segment that compaction leaves of one or several: its log and its indexes.

    A record survives if it lies behind what the map speaks of, or if it has a key, the map knows no
    later offset of that key, and it is no tombstone whose time is over. A batch of which all
    survive is copied; otherwise it is encoded anew with its base offset, last offset, sequence and
    codec. One without survivors goes, unless something depends on its header. Messages of formats
    v0 and v1 become batches of format v2.

    Positions of survivors do not change: the text index gets a pair of entries for every gap.

    Args:
        offsets: The last offset of each key.
        builder: The index rules of the new segment.
        now_ms: The clock.
        delete_retention_ms: How long tombstones and transaction markers stay, once they are seen.
        upper_bound: First offset that is not cleaned: the batch in front of it keeps its header.
        retained: Last offset of a batch -> the producer id whose last batch it is: it keeps its
            header, too.
        decompress: ``(codec, payload) -> bytes``, raising CorruptRecordError.

    Attributes:
        messages_read, bytes_read, messages_written, bytes_written: How much went by.
        invalid: Records without a key, which go.
        changes: Batches that are gone or were encoded anew; 0: what was written is what was read.
        has_gaps: Whether the text index holds gaps.

    Source: Kafka Cleaner.cleanInto and shouldRetainRecord, MemoryRecords.filterTo.
    """

    cdef OffsetMap map
    cdef IndexBuilder builder
    cdef int64_t now_ms
    cdef int64_t new_horizon
    cdef int64_t upper_bound
    cdef dict retained
    cdef object decompress
    cdef uint8_t *out
    cdef int64_t out_size
    cdef int64_t out_capacity
    cdef uint8_t *keeps         # for each record of the batch whether it survives
    cdef int64_t keeps_capacity
    cdef uint8_t *pairs         # entries for the gaps of the batch
    cdef int64_t pairs_size
    cdef int64_t pairs_capacity
    cdef _View old_entries      # of the text index of the segment that is read
    cdef bytes_t old_entry      # where to look for the next pair
    cdef bytes_t old_entries_end
    cdef _View lasts            # of the segment that is read, if they are known: see begin_segment
    cdef int64_t lasts_count
    cdef int64_t old_base_offset
    cdef Lens old_bases
    cdef int64_t old_gap        # offset of the record behind the next old gap
    cdef Lens old_gap_end
    cdef Lens at                # behind the record that was measured last
    cdef Lens end               # behind the last survivor
    cdef Lens kept
    cdef int64_t kept_count
    cdef bint has_tombstone
    cdef bint begins_in_gap
    cdef readonly int64_t messages_read
    cdef readonly int64_t bytes_read
    cdef readonly int64_t messages_written
    cdef readonly int64_t bytes_written
    cdef readonly int64_t invalid
    cdef readonly int64_t changes
    cdef bint drops_tombstones  # of formats v0 and v1, which have no delete horizon
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
        self.map = offsets
        self.builder = builder
        self.now_ms = now_ms
        self.new_horizon = lf_add(now_ms, delete_retention_ms)
        if self.new_horizon < now_ms:
            self.new_horizon = INT64_LAST
        self.upper_bound = upper_bound
        self.retained = retained
        self.decompress = decompress
        self.old_gap = INT64_LAST

    def __dealloc__(self):
        free(self.out)
        free(self.keeps)
        free(self.pairs)

    @property
    def ends(self):
        """Lengths up to behind the last survivor."""
        return self.end.text, self.end.tsv, self.end.jsonl

    @property
    def kept_lengths(self):
        """Lengths of the survivors."""
        return self.kept.text, self.kept.tsv, self.kept.jsonl

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
        """Go on with the next segment that is to be cleaned.

        Args:
            base_offset: Its base offset.
            text: Length from where the new segment begins to where this one does.
            tsv: As ``text``.
            jsonl: As ``text``.
            entries: Its text index if that holds gaps, else None.
            drops_tombstones: Whether tombstones of formats v0 and v1 go; others have a time of
                their own.
            lasts: A bit for each offset from ``base_offset`` on, the lowest of a byte first: it is
                the last one of its key. Instead of what the map knows.
        """
        self.drops_tombstones = drops_tombstones
        self.lasts = None if lasts is None else _View(lasts, False)
        self.lasts_count = 0 if lasts is None else 8 * self.lasts.n
        self.old_base_offset = base_offset
        self.old_bases = self.at = Lens(text, tsv, jsonl)
        self.old_entries = None if entries is None else _View(entries, False)
        self.old_entry = self.old_entries_end = NULL
        if entries is not None:
            self.old_entry = self.old_entries.p
            self.old_entries_end = self.old_entry + self.old_entries.n
        self.find_old_gap()

    cdef void find_old_gap(self) noexcept nogil:
        """Look for the next pair of entries with the same offset and file position."""
        cdef bytes_t p
        self.old_gap = INT64_LAST
        while self.old_entries_end - self.old_entry >= 2 * TEXT_ENTRY:
            p = self.old_entry
            self.old_entry += TEXT_ENTRY
            if lf_get64(p) == lf_get64(p + TEXT_ENTRY):
                p += TEXT_ENTRY
                self.old_gap = self.old_base_offset + lf_get32(p)
                self.old_gap_end.text = self.old_bases.text + lf_get64(p + 8)
                self.old_gap_end.tsv = self.old_bases.tsv + lf_get64(p + 16)
                self.old_gap_end.jsonl = self.old_bases.jsonl + lf_get64(p + 24)
                return

    def filter_batches(self, buf, Py_ssize_t start, Py_ssize_t stop):
        """Filter the batches of a piece of the log.

        Ends in front of a transactional or control batch, of which the caller knows more, or of one
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
        """Filter one batch, whatever it is.

        Args:
            buf: Holds the batch.
            start: Where it begins.
            stop: Where the bytes end.
            discard: None of its records survives.
            is_empty: It is the marker of a transaction of which no records are left: from now on
                its time runs.
            retain: It keeps its header, even without records.

        Returns:
            The position behind it.

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
        cdef int64_t producer_id = lf_get64(p + 43) if b.magic == 2 else -1
        cdef Batch records
        cdef bint set_horizon
        cdef str problem = checksum_problem(p, size)
        if problem is None:
            plain = self.open(p, size, position, b)
        if problem is None and b.base_offset < self.builder.next_offset:
            problem = f"base offset {b.base_offset} is below {self.builder.next_offset}"
        if problem is None and b.last_offset - self.builder.base_offset > INT32_LAST:
            problem = f"last offset {b.last_offset} is too far from {self.builder.base_offset}"
        if problem is not None:
            raise corrupt(problem, position)
        if b.last_offset + 1 == self.upper_bound:
            retain = True
        elif producer_id >= 0 and self.retained:
            retain = retain or self.retained.get(b.last_offset, -1) == producer_id
        records = b[0]
        self.bytes_read += size
        self.messages_read += b.count
        self.sift(b, position, discard)
        if self.kept_count:
            set_horizon = (
                (self.has_tombstone or is_empty) and not b.attributes & DELETE_HORIZON
            )
            if self.kept_count == b.count and b.magic == 2 and not set_horizon:
                self.reserve(size)
                memcpy(self.out + self.out_size, p, size)
            else:
                size = self.rebuild(p, b, &records, set_horizon)
                self.changes += 1
        elif retain:
            self.changes += b.count > 0
            size = self.put_empty(p, b)
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

    cdef int sift(self, Batch *b, Py_ssize_t position, bint discard) except -1:
        """Decide for each record whether it survives, and note the gaps."""
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
        cdef Rec r
        cdef bint is_control = b.attributes & CONTROL
        cdef bint drop_tombstones = b.attributes & DELETE_HORIZON and b.base_timestamp <= self.now_ms
        if b.magic < 2:
            drop_tombstones = self.drops_tombstones
        cdef int64_t number = 0
        cdef int n, i
        while b.left > 0:
            n = 0
            while n < GROUP and b.left > 0:
                if next_record(b, &r) < 0:
                    return DAMAGED
                placed = &group[n]
                n += 1
                if r.offset >= self.old_gap:
                    self.at = self.old_gap_end
                    self.find_old_gap()
                placed.offset = r.offset
                placed.has_key = r.key.n >= 0
                placed.has_value = r.value.n >= 0
                placed.begin = self.at
                if is_control:
                    placed.end = self.at
                    continue
                add_lengths(&r, &self.at)
                placed.end = self.at
                if placed.has_key and not discard and not self.lasts_count:
                    placed.hash = lf_hash_bytes(r.key.p, r.key.n, self.map.k0, self.map.k1)
                    lf_prefetch(self.map.home(placed.hash))
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

    cdef inline bint survives(self, Placed *placed, bint drop_tombstones) noexcept nogil:
        if placed.offset > self.map.latest_offset:
            return True
        if not placed.has_key:
            self.invalid += 1
            return False
        if self.lasts_count:
            if not self.is_last(placed.offset - self.old_base_offset):
                return False
        elif placed.offset < self.map.find(placed.hash).behind - 1:
            return False
        return placed.has_value or not drop_tombstones

    cdef inline bint is_last(self, int64_t n) noexcept nogil:
        """Whether the n-th offset of the segment is the last one of its key; or nobody knows."""
        return n < 0 or n >= self.lasts_count or self.lasts.p[n >> 3] >> (n & 7) & 1

    cdef inline bint keep(self, Placed *placed) noexcept nogil:
        """Count a survivor, and note the gap in front of it."""
        cdef void *larger
        cdef uint8_t *pair
        cdef int64_t relative_offset = placed.offset - self.builder.base_offset
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
            put_text_entry(pair, relative_offset, self.builder.file_position, &self.end)
            put_text_entry(
                pair + TEXT_ENTRY, relative_offset, self.builder.file_position, &placed.begin
            )
            self.pairs_size += 2 * TEXT_ENTRY
        self.kept_count += 1
        self.has_tombstone |= not placed.has_value
        self.end = placed.end
        self.kept.text += placed.end.text - placed.begin.text
        self.kept.tsv += placed.end.tsv - placed.begin.tsv
        self.kept.jsonl += placed.end.jsonl - placed.begin.jsonl
        return True

    cdef int reserve(self, int64_t more) except -1:
        cdef int64_t wanted = self.out_size + more
        cdef void *larger
        if wanted <= self.out_capacity:
            return 0
        wanted = max(wanted, 2 * self.out_capacity)
        larger = realloc(self.out, wanted)
        if larger == NULL:
            raise MemoryError
        self.out = <uint8_t *>larger
        self.out_capacity = wanted
        return 0

    cdef int64_t rebuild(self, bytes_t p, Batch *b, Batch *records, bint set_horizon) except -1:
        """Encode the survivors of a batch; its size. b becomes what is in the new header."""
        cdef int codec = b.attributes & CODEC_MASK
        cdef int64_t size
        cdef uint8_t *begin
        cdef bytes packed
        if set_horizon:
            b.attributes |= DELETE_HORIZON
            b.base_timestamp = self.new_horizon
        self.reserve(HEADER + (records.end - records.p) + LONGER_DELTA * self.kept_count)
        begin = self.out + self.out_size
        self.begin_header(begin, p, b, records)
        if records.end - records.p >= RELEASE_GIL_BYTES:
            with nogil:
                size = self.put_survivors(begin + HEADER, b, records)
        else:
            size = self.put_survivors(begin + HEADER, b, records)
        if codec:
            packed = _compress(codec, borrowed(begin + HEADER, size), None)
            size = PyBytes_GET_SIZE(packed)
            self.reserve(HEADER + size)
            begin = self.out + self.out_size
            memcpy(begin + HEADER, PyBytes_AS_STRING(packed), size)
        size += HEADER
        b.count = self.kept_count
        self.finish(begin, b, size)
        return size

    cdef int64_t put_survivors(self, uint8_t *out, Batch *b, Batch *records) noexcept nogil:
        """Write the records that survive, which were decoded once already; returns their size."""
        cdef uint8_t *begin = out
        cdef bint is_first = True
        cdef int64_t max_timestamp = -1
        cdef int64_t number, delta, offset_delta, body
        cdef Rec r
        cdef bytes_t rest
        for number in range(b.count):
            next_record(records, &r)
            if not self.keeps[number]:
                continue
            if is_first and not b.attributes & DELETE_HORIZON:
                b.base_timestamp = r.timestamp
            is_first = False
            max_timestamp = max(max_timestamp, r.timestamp)
            delta = lf_sub(r.timestamp, b.base_timestamp)
            offset_delta = r.offset - b.base_offset
            rest = r.fields
            body = 1 + lf_varint_size(delta) + lf_varint_size(offset_delta)
            body += r.end - rest if b.magic == 2 else fields_size(&r)
            out = lf_put_varint(out, body)
            out[0] = 0
            out = lf_put_varint(out + 1, delta)
            out = lf_put_varint(out, offset_delta)
            out = lf_put(out, rest, r.end - rest) if b.magic == 2 else put_fields(out, &r)
        if not b.attributes & LOG_APPEND_TIME:
            b.max_timestamp = max_timestamp
        return out - begin

    cdef int64_t put_empty(self, bytes_t p, Batch *b) except -1:
        """Write a batch without records. Source: Kafka DefaultRecordBatch.writeEmptyHeader."""
        cdef uint8_t *begin
        self.reserve(HEADER)
        begin = self.out + self.out_size
        self.begin_header(begin, p, b, NULL)
        b.attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
        b.base_timestamp = -1
        b.count = 0
        self.finish(begin, b, HEADER)
        return HEADER

    cdef void begin_header(self, uint8_t *begin, bytes_t p, Batch *b, Batch *records) noexcept:
        """Write what a header keeps of the old batch; a message becomes one of the survivors."""
        cdef Batch rest
        cdef Rec r
        cdef int64_t number, first = -1
        if b.magic == 2:
            memcpy(begin, p, HEADER)
            return
        if records != NULL:
            rest = records[0]
            for number in range(b.count):
                next_record(&rest, &r)
                if self.keeps[number]:
                    first = r.offset if first < 0 else first
                    b.last_offset = r.offset
            b.base_offset = first
        lf_put64(begin, b.base_offset)
        lf_put32(begin + 12, -1)                # leader epoch: none
        begin[16] = 2
        lf_put32(begin + 23, b.last_offset - b.base_offset)
        lf_put64(begin + 43, -1)                # producer id, epoch, base sequence: none
        lf_put16(begin + 51, -1)
        lf_put32(begin + 53, -1)

    cdef int finish(self, uint8_t *begin, Batch *b, int64_t size) except -1:
        """Complete a header that was copied from the old batch."""
        lf_put32(begin + 8, size - LOG_OVERHEAD)
        lf_put16(begin + 21, b.attributes & KNOWN_ATTRIBUTES)
        lf_put64(begin + 27, b.base_timestamp)
        lf_put64(begin + 35, b.max_timestamp)
        lf_put32(begin + 57, b.count)
        lf_put32(begin + 17, checksum(begin, size))
        return 0

    cdef int account(self, Batch *b, int64_t size) except -1:
        cdef IndexBuilder builder = self.builder
        cdef Lens nothing = Lens(0, 0, 0)
        if builder.file_position + size > INT32_LAST:
            raise corrupt("what is kept does not fit into a segment", builder.file_position)
        builder.skips_text = self.begins_in_gap
        builder.account(b, size, &nothing)
        if self.pairs_size:
            builder.text_entries += PyBytes_FromStringAndSize(<char *>self.pairs, self.pairs_size)
            self.has_gaps = True
        builder.text, builder.tsv, builder.jsonl = self.end.text, self.end.tsv, self.end.jsonl
        self.out_size += size
        self.messages_written += b.count
        self.bytes_written += size
        return 0

    def take(self):
        """Take what was written since the last call.

        Returns:
            ``(log, offset index, time index, text index)``, whole batches and entries.
        """
        log = PyBytes_FromStringAndSize(<char *>self.out, self.out_size)
        self.out_size = 0
        return (log, *self.builder.take())
