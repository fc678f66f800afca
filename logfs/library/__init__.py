"""The library: partitions as a program sees them, with a daemon or without.

``import logfs`` exports all of it, and ``help(logfs)`` shows its use. The parts::

    store               a data directory, and how to open one
    partition           one partition: append, read, follow
    producer            producers: exactly once, transactions
    records, points     records and points in a log as a program gives them
    topic               all partitions of one: appends by key, reads by time
    groups              what consumer groups have committed; consumer: reads from there on
    group_lags          the lags of groups; spark_checkpoint: of a streaming query of Spark
    cursor              iterators over records
    scan                many partitions as Arrow record batches
    selection           which topics and partitions are read                                 pure
    table_path          which data directories, and which address, the path of a table names
    stored_partitions   where partitions begin and end, without loading them
    followed_directory  the partitions of a data directory as they are now, for readers
    writer              appends, through the daemon, through the mount or under the lock
    store_writer        under the lock; mounted_writer: through the mount
    topics              the three ways to the topics of a data directory
    mounted_disk        a data directory read through its mount
    places              which part of a path is the data directory or the mount point
    owner               the choice between the daemon and this process
    zones               the time zone of dates without one

For the command line, and for programs that want the same::

    status              the state of a data directory, from its daemon or from its files
    disk_use            what topics and partitions take on the disk
    offset_queries      offsets of partitions, as ``logfs offsets`` prints them
    explaining          the meaning of an address, as ``logfs explain`` prints it
    rewriting           compaction and packing on request
    group_points        where a group continues that is set to a point
    addresses           what an address means when its files are read, without a mount
    backup              backing up and restoring a data directory
    remote              the object store of a data directory
    promote             continuing the logs of a store on another machine
    diverged            what a machine alone has after that, and a copy of the store again
"""
