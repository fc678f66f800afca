"""Partitions and the store that holds them: Kafka's log engine, blocking and without a clock.

Packages and modules, lowest first. Each imports only from those above it in this table, which
``tests/test_layering.py`` checks::

    names          names of files and directories
    counters       numbers of a partition
    quotas         what the partitions of a topic have and append together
    checkpoints    Kafka's small text files; cleanercheckpoint: where compactions ended
    attributes, epochs, losses, manifest, mirrorfile, forwardfile, topics   other small files
    listing        the segment files of a partition directory
    indexes/       the index files: offsets, times, text positions, aborted transactions
    segments/      a segment and its scan; the table of segments; the snapshot that readers use
    host           the machine: boot id, random ids, seconds
    remote/        tiered segments: the objects of a store, and the file that names them
    reading/       ReadableLog; addresses and look-ups; cursors over text and records
    producers/     idempotent and transactional producers: rules, snapshot files, replay
    writing/       the parts of a log that is written: state, appender, flusher, active segment,
                   reserved positions, removal, replacement, truncation, unfinished lines,
                   replication
    partition      PartitionLog: one log that is written here, made of these parts
    lines/         lines that become records: open files that append, whole texts
    checkpointing  the checkpoint files of all logs of a store
    loading/       from the files of a partition directory to its log; recovery
    groups/        what consumer groups have committed: the records of ``__consumer_offsets``
    catalog        the topics of a data directory, for reading
    publishing/    staged records get their offsets, exactly once
    closing        a close without a flush, and how the last owner stopped
    topiclocks     a lock for each topic
    topiccreation, topicdeletion   the directories of topics that come and go
    topicchanges   the topics of a directory that is written here: created, altered, deleted
    store          LogStore: such a directory, from the lock to the clean stop

What is done with whole logs (views, retention, compaction, tiering, backup and others) is in
``logfs.services``.

A ``PartitionLog`` may be used by several threads: changes take its lock, readers take a snapshot.
"""
