# Part of _native.pyx: compaction, its first half. Which record of each key is the last one.

cdef enum:
    GROUP = 32              # records whose slots are fetched together
    MAP_FULL = 1

cdef inline int next_key(Batch *b, Span *key, int64_t *offset) noexcept nogil:
    """Take the next record for its key; -1 if its bytes do not decode."""
    cdef lf_plain plain
    cdef Rec r
    if b.magic == 2 and b.end - b.p >= LF_PLAIN_RECORD_ROOM and lf_take_plain(b.p, b.end, &plain):
        key.p = plain.key
        key.n = plain.key_n
        offset[0] = lf_add(b.base_offset, plain.offset_delta)
        b.p = plain.end
        b.left -= 1
        return 0
    if next_record(b, &r) < 0:
        return -1
    key[0] = r.key
    offset[0] = r.offset
    return 0


@cython.final
cdef class OffsetMap:
    """The last offset of each key: a hash table of 24 bytes a slot, filled to a limit.

    Keys are known by a hash of 128 bits, keyed so that a writer cannot provoke collisions.

    Beside it is a bit for each offset, set for the last record of a key: a second pass over
    the log uses it (``lasts``) and needs neither hash nor table.

    Args:
        memory_bytes: Bounds the table, Kafka's ``log.cleaner.dedupe.buffer.size`` for one thread;
            the bits take up to a sixteenth of it more.
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

    cdef readonly bint is_full
    cdef readonly int64_t latest_offset
    cdef readonly int64_t records_read
    cdef readonly int64_t bytes_read
    cdef _KeyTable table
    cdef _LatestBitmap bits
    cdef bint has_bits          # they say what the table says

    def __init__(self, int64_t memory_bytes, double load_factor, bytes key):
        self.table = _KeyTable(memory_bytes, load_factor, key)
        self.bits = _LatestBitmap(memory_bytes // 2)
        self.has_bits = True
        self.latest_offset = -1

    @property
    def limit(self):
        return self.table.limit

    @property
    def size(self):
        return self.table.size

    cdef inline void put(self, lf_hash hash, int64_t offset) noexcept nogil:
        cdef Slot *slot = self.table.find(hash)
        if slot.next_offset == 0:
            slot.hash = hash
            self.table.size += 1
        else:
            self.bits.put(lf_sub(slot.next_offset, 1), 0)
        self.bits.put(offset, 1)
        self.has_bits &= offset > self.latest_offset
        slot.next_offset = lf_add(offset, 1)
        self.latest_offset = offset

    cdef int fill(self, Batch *b, int64_t start_offset) noexcept nogil:
        cdef lf_hash hashes[GROUP]
        cdef int64_t offsets[GROUP]
        cdef Span key
        cdef int n, i
        while b.left > 0:
            n = 0
            while n < GROUP and b.left > 0:
                if next_key(b, &key, &offsets[n]) < 0:
                    return -1
                self.records_read += 1
                if key.n < 0 or offsets[n] < start_offset:
                    continue
                hashes[n] = self.table.hash_of(key.p, key.n)
                lf_prefetch(self.table.home(hashes[n]))
                n += 1
            for i in range(n):
                if self.table.size >= self.table.room:
                    if self.table.size >= self.table.limit:
                        self.is_full = True
                        return MAP_FULL
                    if not self.table.grow():
                        return NO_MEMORY
                self.put(hashes[i], offsets[i])
        return -1 if has_trailing_bytes(b) else 0

    cdef int add(self, bytes_t p, int64_t size, Py_ssize_t position, Batch *b,
                 int64_t start_offset, decompress) except -1:
        cdef int status
        self.has_bits &= self.bits.begin(start_offset)
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

        Ends before a transactional or control batch, of which the caller knows more, of one
        that is cut, or before the one in which ``is_full`` became true: of that, the records
        up to ``latest_offset`` are noted.

        Args:
            buf: A batch begins at ``start``.
            start: Where to begin.
            stop: Where to end.
            start_offset: Records below it are not noted.
            decompress: ``(codec, payload) -> buffer``, raising CorruptRecordError.

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
        """Note the keys of one batch of any kind; none of them if its records were aborted.

        Returns:
            The position after it, or its own if ``is_full`` became true.

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

    def lasts(self, int64_t base_offset, int64_t next_base):
        """Return a bit for each offset of [base_offset, next_base), the lowest of a byte first.

        It is set for the last record of a key, as far as the map has read; what was not noted, like
        records that were aborted, is none. None if that is not known of each of them.
        """
        return self.bits.of(base_offset, next_base) if self.has_bits else None

    def entries(self):
        """Return what the map holds, for ``merge``: 24 bytes a key, about in the order of the hash.

        Three integers of 64 bits in this machine's order: the half of the hash by which they are
        ordered, the other half, and the last offset + 1.
        """
        cdef _KeyTable table = self.table
        cdef bytes found = PyBytes_FromStringAndSize(NULL, table.size * <Py_ssize_t>sizeof(Slot))
        cdef Slot *out = <Slot *>PyBytes_AS_STRING(found)
        cdef uint64_t i
        with nogil:
            for i in range(table.slot_count):
                if table.slots[i].next_offset:
                    out[0] = table.slots[i]
                    out += 1
        return found

    def merge(self, entries):
        """Take over what another map with the same key holds: of each key the larger offset.

        The table has room for all of it beforehand: entries come in the order of the hash, and
        would crowd together where a small table begins.

        Raises:
            ValueError: They do not fit into the map, or are none.
        """
        cdef _KeyTable table = self.table
        cdef _View view = _View(entries, False)
        cdef Py_ssize_t count = view.n // <Py_ssize_t>sizeof(Slot)
        cdef Slot *found
        cdef Slot entry
        cdef Py_ssize_t i
        cdef bytes_t p = view.p
        if view.n % <Py_ssize_t>sizeof(Slot):
            raise ValueError(f"{view.n} bytes, expected a multiple of {sizeof(Slot)}")
        self.has_bits = False
        while table.size + count > table.room and table.slot_count < table.most_slots:
            if not table.grow():
                raise MemoryError
        for i in range(count):
            memcpy(&entry, p + i * <Py_ssize_t>sizeof(Slot), sizeof(Slot))
            found = table.find(entry.hash)
            if found.next_offset == 0:
                if table.size >= table.room:
                    raise ValueError(f"more than {table.limit} keys")
                found.hash = entry.hash
                table.size += 1
            found.next_offset = max(found.next_offset, entry.next_offset)

    def get(self, bytes key):
        """Return the last offset of a key, -1 if it is not in the map."""
        cdef bytes_t p = <bytes_t>PyBytes_AS_STRING(key)
        return lf_sub(self.table.find(self.table.hash_of(p, len(key))).next_offset, 1)
