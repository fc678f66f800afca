"""The only code that talks to an object store.

    objects     what the rest needs of a store
    failures    the errors of the library obstore as those of ``objects``
    s3          stores through obstore
    probing     refuses a store that ignores conditions
    counters    what reads from a store have cost
    blocks      parts of objects in memory, read ahead
    cache       parts of objects in a directory
    remotefile  a ``vfs.File`` of one object
    overlay     a ``vfs.Disk`` of local files and of files that are in the store alone
    chunkedfile a ``vfs.File`` whose object has it in compressed chunks

What the objects contain is the log's business: see ``logfs.log.remote``.
"""
