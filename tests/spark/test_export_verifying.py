"""The checksums by which exported files are compared with the log."""

import numpy as np
import pyarrow as pa

from logfs.spark.exporting.verifying import _Columns


def columns_of(values: pa.Array) -> _Columns:
    columns = _Columns()
    offsets = pa.array(range(len(values)), pa.int64())
    columns.add(pa.record_batch([offsets, values], ["offset", "value"]))
    return columns


def test_buffers_that_are_longer_than_what_they_hold_make_no_difference() -> None:
    ends = np.array([0, 1, 3], np.int32).tobytes()
    buffers = [None, pa.py_buffer(ends + b"\xff"), pa.py_buffer(b"abc and more")]
    values = pa.Array.from_buffers(pa.binary(), 2, buffers)
    plain = columns_of(pa.array([b"a", b"bc"], pa.binary()))
    assert columns_of(values).digest() == plain.digest()
    assert columns_of(values).difference(columns_of(pa.array([b"a", b"bd"], pa.binary())))
