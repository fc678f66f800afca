"""A partition by offset, straight from its files: no lock, nothing loaded, nothing written.

For large reads without positions: Spark's executors, beside a daemon or a broker that continues
writing.

    stored    StoredLog: where a partition begins and ends now, and where a moment is
    ranges    RangeReader: a range of offsets as columns

Nothing is scanned but the end of the newest segment, after the last index entry. Where no process
owns a directory after an unclean stop, a partition ends where recovery would end it.
"""
