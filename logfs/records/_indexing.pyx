# cython: language_level=3, wraparound=False, cdivision=True
"""The entries of the indexes of a segment, and batches with a producer id."""

include "_core.pxi"
include "_producers.pxi"
include "_index.pxi"
