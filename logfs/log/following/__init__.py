"""A directory that somebody else writes, a broker as a rule, shown as it grows and shrinks.

    store        the data directory: topics come and go; checkpoints; who owns it
    followed     one partition: what a look at its directory finds, and what readers see then
    tail         the segment that is appended to: whole batches whose CRC fits
    changes      what two looks at a directory say happened in between
    complaints   what is worth a warning
    survivors    where the records stand that a compaction has kept
    points       the log start and the high watermark that checkpoints name
    kept         what is remembered of positions: in the cache directory, or in memory only
    files        the files of a segment: read, never mapped, and never another file of that name

Nothing is written into the directory and no file of it is opened for writing, not even its lock.

A look is cheap: it stats the directory and the newest ``.log``, and goes on only if one of them has
changed. What a look finds replaces the snapshot of the partition as a whole, so readers are not
disturbed. Growth counts at once. What is missing or replaced counts when two looks agree on it:
names change one after the other, and in the middle of it a listing says nothing.

Positions. What was shown keeps its position: a segment that the broker rewrote is compared with the
one it replaced, record by record. When the end of a log is cut and rewritten, the new records
begin after everything that was ever shown.
"""
