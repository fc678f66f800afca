"""Copying what can be read of a damaged data directory into a new one; the source is not changed.

The copy has the same names, offsets, keys, headers and timestamps. Byte positions start at 0 with
the first record of each partition. A batch is copied byte for byte, or it is left out. What is left
out is reported by its offsets and times, noted in ``logfs.losses`` of the copy, and its bytes, as
far as the disk can read them, are kept in a ``.cut`` file there. The copy has no mark of a clean
stop, so the next start of logfs or of a broker checks all of it and makes the indexes.

    gaplessfile   a file whose unreadable bytes are zeros
    search        where batches are among bytes that are no batch
    segmentcopy   the .log of a segment that is written
    otherfiles    the files that hold no batches
    report        what was copied of a partition, and what is missing
    part          a part of the .log of a segment
    partition     one partition
    directory     a data directory

A recovery cuts a log at the first batch that it cannot use. A salvage continues with the next one.
It finds that one by the length of the damaged batch. If that length is damaged too, or the disk
cannot read it, it looks at every byte for a batch with the right checksum and a possible offset.

A base offset that other batches prove wrong (``logfs.log.loading.offsetrepair``) would mislead the
search. So a part of a segment in which there is one is copied again, with the right offset.
"""
