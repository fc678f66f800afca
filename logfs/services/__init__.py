"""What is done with logs: views, retention, compaction, tiering, backup; blocking, without a clock.

Packages and modules, lowest first. Each imports only from those above it in this table, which
``tests/test_layering.py`` checks. ``logfs.log`` imports none of them::

    views/         what a name shows: from an address to a file that is read, and lines that match
    meta           the content of ``.meta``
    retention/     deleting old records: by limits of a topic or the directory, by request
    compaction/    deleting old records by key
    packing/       sealed segments are written once more, smaller
    tiering/       sealed segments go to an object store, their local files are deleted
    journaling/    what is not sealed goes to the store as well; promotion of another machine
    following/     FollowedStore: a directory that another process writes
    scanning/      records of a partition straight from its files, for Spark
    backup/        copies of a data directory while its daemon runs
    verifying/     checking all files; reindexing: rebuilding the indexes
    dumping/       the output of kafka-dump-log
    planning/      size estimates of topics
    clusters/      for mirrors and forwards: copies of topics of a cluster, batches to send
    salvage/       what can be read of a damaged directory, copied into a new one
    overview, administration   what ``logfs status`` and ``logfs topic`` show and change
"""
