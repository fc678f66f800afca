# cython: language_level=3
"""The builder of indexes, for the modules that write segments."""

from libc.stdint cimport int64_t

from logfs.records._headers cimport lf_end, lf_entries
from logfs.records._structures cimport Batch, Lens, bytes_t

cdef struct Measured:
    int status
    int64_t left            # records not measured
    Lens lens


cdef class IndexBuilder:
    cdef lf_end end
    cdef readonly int64_t max_leader_epoch
    cdef readonly list leader_epochs
    cdef int64_t lowest_fed_epoch
    cdef int64_t highest_fed_epoch
    cdef readonly list produced
    cdef readonly str problem
    cdef public bint stops_at_far
    cdef readonly int64_t far_position
    cdef readonly int64_t wanted
    cdef bint skips_text    # the next batch begins after a gap, which has its own entries
    cdef object decompress
    cdef bytearray offset_entries
    cdef bytearray time_entries
    cdef bytearray text_entries

    cdef int account(self, Batch *b, int64_t size, Lens *lens) except -1
    cdef int keep_entries(self, lf_entries *entries) except -1
    cdef int64_t check_frame(self, bytes_t p, int64_t available, Batch *b) except -1
    cdef bint may_be_here(self, Batch *b, int64_t size) except -1
    cdef int measure_opened(self, bytes_t p, int64_t size, Batch *b, Measured *m) except -1
