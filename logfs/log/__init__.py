"""Partitions and the store that holds them: Kafka's log engine, blocking and without a clock.

From the outside in::

    store          a data directory: topics, lock, checkpoints, clean stop
      loading        what a partition directory holds; recovery: scan, cutting
      topics         configuration, id, leader epoch of a topic; attributes, losses: plain files
    partition      one log: append, roll, truncate, delete
      facts, standing  what can be asked of it; whether it can be written
      active         the segment that is appended to; roll: when the next one begins
      flushing       durability, shared; lease: no position is given twice
      truncation, deletion
    lines          one open file that writes: lines in, records out; unfinished lines
    files          one open file that reads: growing names and their holes, fixed names
      reader         a cursor over one rendering; window, behind: how it gets at whole batches
      resolve        an address (address) to positions, through lookup
    snapshot       what readers see: segments (segment), start and end, replaced as a whole
    table          the segment table; index, textindex, indexfile: the indexes
    names, checkpoints   names and small files, as Kafka has them

A ``PartitionLog`` may be used by several threads: changes take its lock, readers take a snapshot.
"""
