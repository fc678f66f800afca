# cython: language_level=3, wraparound=False, cdivision=True
"""Batches as kafka-dump-log prints them."""

include "_core.pxi"
include "_dump.pxi"
