"""The library: partitions as a program sees them, with a daemon or without.

``import logfs`` has all of it, and ``help(logfs)`` shows how it is used. The parts::

    partition    one partition: append, read, follow; store: all of a directory, how one is opened
    producing    producers: exactly once, transactions
    points       points in a log as a program gives them; records: records as it gives them
    reading      iterators over records; source: the files they come from, followed
    writing      the daemon, or this process under the lock
    places       which leading part of a path is the data directory or a mount point
    owner        who acts on a directory: the daemon that owns it, or this process under its lock
"""
