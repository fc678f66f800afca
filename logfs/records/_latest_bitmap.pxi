# Part of _native.pyx: compaction. A bit for each offset of a log, set for the last record of a key.


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
