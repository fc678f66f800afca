# cython: language_level=3, wraparound=False, cdivision=True
"""Packing: neighbouring batches of a sealed segment become one, compressed."""

include "_core.pxi"

from logfs.records._indexing cimport IndexBuilder

include "_rewrite.pxi"
include "_pack.pxi"
