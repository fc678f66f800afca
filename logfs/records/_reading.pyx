# cython: language_level=3, wraparound=False, cdivision=True
"""Batches that are read: places in a log, queries, records as objects, matching lines."""

include "_core.pxi"
include "_search.pxi"
include "_matching.pxi"
include "_decode.pxi"
include "_matched_lines.pxi"
