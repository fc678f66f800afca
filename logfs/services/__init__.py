"""Services on logs: following, tiering, backup, verifying and others; blocking, without a clock.

Packages and modules, lowest first. Each imports only from those above it in this table, which
``tests/test_layering.py`` checks. ``logfs.log`` imports none of them::

    tiering/       sealed segments go to an object store, their local files are deleted
    following/     FollowedStore: a directory that another process writes
    backup/        copies of a data directory while its daemon runs
    verifying/     checking all files
    dumping/       the output of kafka-dump-log
    planning/      size estimates of topics
    mirrors        what is done to a copy of a topic of a cluster for its source's sake
    overview, administration   what ``logfs status`` and ``logfs topic`` show and change
    reindexing     rebuilding the indexes
    scanning/      records of a partition straight from its files, for Spark
"""
