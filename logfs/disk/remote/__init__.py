"""The only code that talks to an object store.

    objects       what the rest needs of a store
    failures      the errors of the library obstore as those of ``objects``
    urls          the addresses of stores
    s3            stores through obstore
    credentials   from where they are taken, and their renewal
    foreground    for a person that waits: Ctrl-C, and why it takes long
    folder        a directory in the place of a store, to read only
    probing       refuses a store that ignores conditions
    waiting       which thread may wait for a store, and what ends the wait
    counters      what reads from a store have cost, and a journal
    blocks        parts of objects in memory, read ahead
    cache         parts of objects in a directory
    cachedfile    whole objects in that directory, as files
    readonlyfile  what all files of a store have in common; files whose bytes are in memory
    remotefile    a ``vfs.File`` of one object
    overlay       a ``vfs.Disk`` of local files and of files that are in the store alone
    chunkedfile   a ``vfs.File`` whose object has it in compressed chunks
    treedisk      a ``vfs.Disk`` of a store alone: what a bucket mount reads

What the objects contain is the log's business: see ``logfs.log.remote``.
"""
