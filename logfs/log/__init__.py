"""Partitions and the store that holds them: Kafka's log engine, blocking and without a clock.

From the outside in::

    store          a data directory: topics, lock, checkpoints, clean stop
      catalog        what can be asked of it
      topics         configuration, id, leader epoch of a topic; attributes, losses: plain files
      loading/       what a partition directory holds; recovery: scan, cutting
    partition      one log: append, roll, truncate, delete
      removing       what it gives up at its start; replacing: segments that take others' place
      retention, trimming   delete segments from the start, by rule or on request
      compaction/    cleaner: which log; rounds: one round over one log (offsetmap, then rewriting)
      facts, standing  what can be asked of it; whether it can be written
      writing/       the active segment, rolls, durability, the lease of positions; the lines of
                     open files that write
      producers/     idempotent and transactional producers: state, snapshots, aborted transactions
      epochs         leader epochs
    reading/       addresses, look-ups, open files that read, cursors over text and over records
    segments/      what readers see: the snapshot, its segments, the table of them
    indexes/       the index files
    following/     a directory that a broker is writing
    dumping/       what kafka-dump-log prints
    publishing/    what jobs have staged gets its places in the logs, exactly once
    names, checkpoints   names and small files, as in Kafka

A ``PartitionLog`` may be used by several threads: changes take its lock, readers take a snapshot.
"""
