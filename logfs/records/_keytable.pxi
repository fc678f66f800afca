# Part of _native.pyx: compaction. The table of keys: which offset is the last one of each.

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
        """Go on with a larger table, the first time with one at all; False without memory.

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
