# cython: language_level=3, wraparound=False, cdivision=True
"""Batches to the bytes of a view, and places inside a large batch."""

include "_core.pxi"
include "_render.pxi"
include "_marks.pxi"
