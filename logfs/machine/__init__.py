"""The machine that logfs runs on: clocks, mounts, processes, the terminal, Python packages.

    host         clocks, random identifiers, the boot, the time zone, users, the limit of open files
    caches       the directory of caches
    stores       the object store of a data directory
    disks        the disk of a data directory, or of the URL of an object store
    mountpoints  mounts of logfs, also dead ones, and removing them
    holders      processes that keep a mount in use
    holder       the process that keeps a mount while its daemon restarts
    packages     how to install the packages of an extra
    terminal     whether the controlling terminal is still there
    throttling   waits of writers whose topic has a quota for the rate of appends
    daemonnote   ``logfs.daemon``: the note of the daemon in its data directory
    notifying    messages to a service manager from a process without an event loop
    storeplace   where an object store is, if nothing else says it

Code that needs these takes them as arguments; programs get them here.
"""
