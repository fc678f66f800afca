"""The open files of the mount.

The modules, lowest first:

    nativereads     reads that continue where the last one ended, answered by the hooks
    ahead           read-ahead for small reads of growing names
    handles         what an open file does, and its number
    fsyncs          fsyncs that programs ask for
    throttling      writers that wait for the quota of their topic
    readerqueue     readers that wait for a log to grow
    followreads     reads of ``.follow`` names
    filereads       all other reads: on the event loop or in a thread
    nativewrites    which open files the hooks serve
    watching        what is counted for ``logfs top``
    openfiles       the open files, and where each call on them runs
    listings        open directories, as the kernel gets them

``handles`` is plain, synchronous and free of FUSE.
"""
