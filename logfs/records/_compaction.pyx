# cython: language_level=3, wraparound=False, cdivision=True
"""Compaction: which record of a key is the last one, and what is left of a batch."""

include "_core.pxi"

from logfs.records._indexing cimport IndexBuilder

include "_offsetmap.pxi"
include "_key_filter.pxi"
include "_rewrite.pxi"
include "_filter.pxi"
include "_kept_records.pxi"
