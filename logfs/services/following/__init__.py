"""A directory that another process writes, usually a broker, shown as it grows and shrinks.

    store           the data directory: topics that appear and disappear, checkpoints, owners
    loading         the first listing of a partition, and where to resume
    watched         what all logs have that another process writes
    followed        one partition: each listing of its directory, and what readers see after it
    listing         one listing of a directory, and what happened between two
    rebuilding      the view of readers, rebuilt after a truncation, a removal or a compaction,
                    which keeps the positions of the records that are retained
    tail            the segment that the other process appends to: whole batches whose CRC is right
    tailcheckpoint  how far the tail was read, in ``logfs.tail`` of the cache directory
    positions       the positions of segments: in the cache directory, or in memory only
    identity        whether a segment in the cache is the file that is there now
    partial         a log from the middle on, while earlier positions are not known
    transactions    aborted and open transactions
    bucketlog       one partition of an object store
    files, entries  the files of a segment: read, never mapped, and always the file described

The follower writes nothing into the directory and opens no file of it for writing, not even its
lock.

A listing is cheap: it stats the directory and the newest ``.log``, and continues only if one of
them has changed. It replaces the snapshot of the partition as a whole, so readers are not
disturbed. New records are shown at once. Missing and replaced files take effect when two listings
agree on them: names change one after the other, and between two changes a listing proves nothing.

Positions. A record that was shown keeps its position: a segment that the broker rewrote is compared
with the one it replaced, record by record. When the end of a log is truncated and rewritten, the
new records begin after every position that was ever shown.
"""
