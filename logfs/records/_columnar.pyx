# cython: language_level=3, wraparound=False, cdivision=True
"""Batches to the buffers of Arrow columns."""

include "_core.pxi"
include "_columns.pxi"
