# Part of _compaction.pyx: which record of each key is the last one: the first half of compaction.
# A table of keys, and a bit for each offset that is set for the last record of a key.

@cython.final
cdef class _LatestBitmap:
    """Bits of so many offsets from a first one on; those of others are not kept."""

    cdef uint8_t *bits
    cdef uint64_t count
    cdef int64_t first          # -1 as long as that is open

    def __cinit__(self, int64_t count):
        self.count = count
        self.first = -1
        self.bits = <uint8_t *>lf_reserve(self.size())
        if self.bits == NULL:
            raise MemoryError

    def __dealloc__(self):
        lf_release(self.bits, self.size())

    cdef inline size_t size(self) noexcept nogil:
        return self.count // 8 + 8

    cdef inline bint begin(self, int64_t first) noexcept nogil:
        """Keep the bits from an offset on; False if it is another one than before."""
        if self.first < 0:
            self.first = first
        return self.first == first

    cdef inline void put(self, int64_t offset, int bit) noexcept nogil:
        cdef uint64_t n = <uint64_t>lf_sub(offset, self.first)
        if n < self.count:
            self.bits[n >> 3] = (self.bits[n >> 3] & ~(1 << (n & 7))) | bit << (n & 7)

    cdef bytes of(self, int64_t base_offset, int64_t next_base):
        """The bits of the offsets of [base_offset, next_base), None if some are not kept."""
        cdef int64_t n = lf_sub(base_offset, self.first)
        cdef int64_t size
        cdef bytes found
        cdef uint8_t *out
        cdef bytes_t p
        cdef int64_t i
        if self.first < 0 or not 0 <= n <= <int64_t>self.count:
            return None
        size = lf_sub(next_base, base_offset)
        if not 0 <= size <= <int64_t>self.count - n:
            return None
        size = (size + 7) // 8
        found = PyBytes_FromStringAndSize(NULL, size)
        out = <uint8_t *>PyBytes_AS_STRING(found)
        p = self.bits + (n >> 3)
        for i in range(size):
            out[i] = (p[i] | <int>p[i + 1] << 8) >> (n & 7)
        return found


cdef enum:
    FIRST_SLOTS = 8192

cdef struct Slot:
    lf_hash hash
    int64_t next_offset     # the offset + 1; 0 is an empty slot


@cython.final
cdef class _KeyTable:
    """A hash table of 24 bytes a slot, filled to a limit: see OffsetMap, whose arguments these are.

    It begins small, since a small one stays in the caches and memory that was never touched is
    dear; it is ordered by the hash, so that it grows where it is, from its end to its start.
    """

    cdef int64_t limit
    cdef int64_t size
    cdef int64_t room           # keys that fit before the table grows, or that it takes at all
    cdef Slot *slots            # room for most_slots
    cdef uint64_t slot_count
    cdef uint64_t most_slots
    cdef uint64_t k0
    cdef uint64_t k1

    def __cinit__(self, int64_t memory_bytes, double load_factor, bytes key):
        cdef int64_t count = memory_bytes // <int64_t>sizeof(Slot)
        if len(key) != 16:
            raise ValueError(f"a key of {len(key)} bytes, expected 16")
        self.limit = <int64_t>(count * load_factor)
        if self.limit < 1 or load_factor > 1:
            raise ValueError(f"{memory_bytes} bytes filled to {load_factor} hold no key")
        self.most_slots = count + 1         # one is always empty: there every search ends
        self.k0 = <uint64_t>lf_get64(<bytes_t>PyBytes_AS_STRING(key))
        self.k1 = <uint64_t>lf_get64(<bytes_t>PyBytes_AS_STRING(key) + 8)
        self.slots = <Slot *>lf_reserve(self.most_slots * sizeof(Slot))
        if self.slots == NULL or not self.grow():
            raise MemoryError

    def __dealloc__(self):
        lf_release(self.slots, self.most_slots * sizeof(Slot))

    cdef bint grow(self) noexcept nogil:
        """Continue with a larger table, the first time with one at all; False without memory.

        From the end on entries move up, where nothing is left to be moved. The few that would not,
        those that were far after their place and those that go round the end, wait
        aside.
        """
        cdef uint64_t i = self.slot_count
        cdef uint64_t count = max(<uint64_t>FIRST_SLOTS, i + i // 2)
        cdef Slot *end
        cdef Slot *slot
        cdef Slot *aside = NULL
        cdef Slot *larger
        cdef Slot moved
        cdef size_t waiting = 0
        if count > self.most_slots - self.most_slots // 4:
            count = self.most_slots
        self.slot_count = count
        self.room = self.limit if count == self.most_slots else <int64_t>(count - count // 4)
        end = self.slots + count
        while i > 0:
            i -= 1
            moved = self.slots[i]
            if moved.next_offset == 0:
                continue
            self.slots[i].next_offset = 0
            slot = self.home(moved.hash)
            if slot >= self.slots + i:
                while slot < end and slot.next_offset:
                    slot += 1
                if slot < end:
                    slot[0] = moved
                    continue
            if waiting & (waiting - 1) == 0:
                larger = <Slot *>realloc(aside, max(2 * waiting, <size_t>1) * sizeof(Slot))
                if larger == NULL:
                    free(aside)
                    return False
                aside = larger
            aside[waiting] = moved
            waiting += 1
        while waiting > 0:
            waiting -= 1
            self.find(aside[waiting].hash)[0] = aside[waiting]
        free(aside)
        return True

    cdef inline Slot *home(self, lf_hash hash) noexcept nogil:
        return self.slots + lf_share_of(hash.low, self.slot_count)

    cdef inline Slot *find(self, lf_hash hash) noexcept nogil:
        """The slot of a key: its own, or the empty one where it belongs."""
        cdef Slot *slot = self.home(hash)
        while slot.next_offset and not (slot.hash.low == hash.low and slot.hash.high == hash.high):
            slot += 1
            if slot == self.slots + self.slot_count:
                slot = self.slots
        return slot

    cdef inline lf_hash hash_of(self, bytes_t p, int64_t n) noexcept nogil:
        return lf_hash_bytes(p, n, self.k0, self.k1)


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
