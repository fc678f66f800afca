"""Checking a data directory: everything in it that can be compared with something else.

    file                     checked
    .log                     frame, CRC and records of every batch, offsets without holes or steps
                             back, leader epochs, zeros or half a batch at the end
    .index                   every entry: where it points a batch begins that ends with its offset
    .timeindex               every entry: no larger timestamp is before it; the last one
    .txnindex                every entry: an ABORT marker is where it says; none is missing
    .textindex               every entry: the lengths of the renderings up to it, and its gaps
    .snapshot                checksum, offsets
    logfs.segments           checksums; size, offsets, times, positions and gaps of every segment
    leader-epoch-checkpoint, partition.metadata, logfs.config, logfs.losses
                             that they parse, and agree with the log
    checkpoints in the root  that they parse, and lie inside the logs
    anything else            what it is, and what happens to it

Nothing is locked or written. Another process may be writing to the directory: see ``verify``. The
unit of work is a segment. ``segments.verify_segment`` is one function from plain data to plain
data, so that threads, processes or machines can share a directory.

    findings      the findings of a check, each a line
    walking       a ``.log`` from its first byte to its last, over bytes that cannot be read
    indexes       index entries against batches
    segments      one segment
    tables        the segment table against the segments
    smallfiles    the small files, and files that should not be there
    partitions    the reports of the segments of a partition, combined
    verify        a data directory

Reading costs most; then decoding the records, without which neither the text index nor the
positions could be checked. Compressed records have to be decompressed, at the codec's speed.
"""
