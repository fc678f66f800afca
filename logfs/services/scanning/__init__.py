"""A partition by offset, straight from its files: no lock, nothing loaded, nothing written.

For large reads without positions: Spark's executors, beside a daemon or a broker that continues
writing.

    stored    StoredLog: where a partition begins and ends now, and where a moment is
    ranges    RangeReader: a range of offsets as columns

Nothing is scanned but the end of the newest segment, after the last index entry. So what recovery
would cut before that is not cut here: a reader that comes to it says that it is corrupt.
"""
