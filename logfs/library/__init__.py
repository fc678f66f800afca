"""The library: partitions as a program sees them, with a daemon or without.

``import logfs`` has all of it, and ``help(logfs)`` shows how it is used. The parts::

    places       which leading part of a path is the data directory or a mount point
    owner        who acts on a directory: the daemon that owns it, or this process under its lock
"""
