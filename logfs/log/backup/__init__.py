"""Backups of a data directory: directories of the same kind, made while its daemon goes on.

    point       where a partition is at one moment, as only its owner can say
    running     a partition of a daemon, as it was at such a point
    resting     a partition that nobody owns, file by file
    manifest    ``logfs.backup``: whether a backup is whole, and of what
    taking      a whole backup            restoring    and back

What is linked must never change in place. File by file, of a partition that a daemon owns:

    NNN.log, .index, .timeindex,      sealed and flushed: linked. Nothing appends to them, the flush
    .txnindex, .textindex             before the point has made them durable and as long as they
                                      stay. Retention and compaction rename and remove names, and
                                      what compaction puts there is a new file. Recovery and
                                      ``truncate_to`` do change them in place, and so might whoever
                                      mounts the backup; ``PosixDisk.open`` gives whoever opens a
                                      linked file for writing a copy of his own first.
    the same, not flushed             (the partition is offline) copied, then recovered in the copy
    the same, of the active segment   the .log copied up to the point, which is where a batch ends;
                                      recovery of the copy makes the indexes, as after a crash
    NNN.snapshot                      up to the active segment: the two newest copied, which may
                                      still be written, others linked
    logfs.segments                    appended to in place: rewritten from its entries
    logfs.NNN.unfinished              appended to in place: the bytes that it had at the point; not
                                      taken if its line was a record by then
    logfs.*.cut                       never changed: linked
    logfs.config, logfs.losses,       replaced as a whole: copied
    partition.metadata,
    leader-epoch-checkpoint
    others                            copied: staged records, whatever else there is
    *.deleted, *.cleaned, *.swap,     not taken
    *.tmp

and in the root: ``meta.properties``, ``logfs.attributes`` and, of a directory that was a broker's,
``__cluster_metadata-0`` and ``bootstrap.checkpoint`` are copied; the checkpoints are written for
what is in the backup, the clean-shutdown marker last. ``.lock``, ``logfs.daemon`` and
``logfs.socket`` belong to a process and are not taken.

Nothing holds retention or compaction back meanwhile. The files of a segment are those that one look
at the directory has shown; when all are linked or copied, a second look and the entries that the
segment table has got since must say the same of them, else what has changed is taken again, from a
new point. A segment that retention has removed by then does no harm: the backup keeps it.
"""
