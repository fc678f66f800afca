# cython: language_level=3, wraparound=False, cdivision=True
"""Lines, records and Arrow columns to batches, and the partition of a line."""

include "_core.pxi"
include "_lines.pxi"
include "_drafts.pxi"
include "_encode.pxi"
include "_partition_lines.pxi"
include "_rows.pxi"
