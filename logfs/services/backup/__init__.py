"""Backups of a data directory: directories of the same kind, made while its daemon runs.

    point       the state of a partition at one moment, from its owner process
    live        back up a partition that a daemon owns, as it was at a point
    copying     copy a partition without an owner process, file by file
    storecopies what is copied of the object store
    taking      make a whole backup
    restoring   restore a backup

A linked file must never change in place. The files of a partition that a daemon owns:

    NNN.log, .index, .timeindex,      sealed and flushed: linked. Flushed before the point, they
    .txnindex, .textindex             are not appended to. Retention and compaction rename and
                                      remove names; compaction writes new files. Recovery and
                                      ``truncate_to`` change files in place, as may a mount of the
                                      backup. ``PosixDisk.open`` therefore replaces a linked file
                                      by a copy before it is opened for writing.
    the same, not flushed             (the partition is offline) copied, then recovered in the copy
    the same, of the active segment   the .log copied up to the point, which is the end of a batch;
                                      recovery of the copy makes the indexes, like after a crash
    NNN.snapshot                      up to the active segment: the two newest copied, which may
                                      still be written, others linked
    logfs.segments                    appended to in place: rewritten from its entries
    logfs.NNN.unfinished              appended to in place: the bytes that it had at the point; not
                                      taken if its line was a record by then
    logfs.*.cut                       never changed: linked
    logfs.config, logfs.losses,       replaced as a whole: copied
    partition.metadata,
    leader-epoch-checkpoint
    logfs.tiered                      copied: what it names stays in the object store, which a
                                      copy of the directory needs. The manifest has its objects.
                                      Or the segments are copied from the store, as local files
    logfs.head                        made: a copy of the head of the partition in the store
    others                            copied: staged records, and files of other programs
    *.deleted, *.cleaned, *.swap,     not taken
    *.tmp

In the root, ``meta.properties``, ``logfs.attributes`` and ``logfs.remote`` are copied, and of a
broker's directory also ``__cluster_metadata-0`` and ``bootstrap.checkpoint``. The checkpoints are
written for the partitions in the backup, the clean-shutdown marker last. ``.lock``,
``logfs.daemon`` and ``logfs.socket`` belong to a process and are not taken.

Retention and compaction continue meanwhile. The files of a segment are taken from one listing of
the directory. After all are linked or copied, a second listing and new entries of the segment table
must agree with it. If not, the partition is taken again from a new point; files that have not
changed are reused. A segment that retention removes meanwhile stays in the backup.
"""
