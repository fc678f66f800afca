"""The only code that talks to an object store.

``objects`` says what the rest needs of a store, ``s3`` does it with the library obstore, and
``probing`` refuses a store that ignores conditions. ``blocks`` keeps parts of objects in memory and
reads ahead, ``cache`` keeps them in a directory, ``remotefile`` makes a ``vfs.File`` of one object.
``overlay`` is a ``vfs.Disk`` of local files and of files that are in the store alone. What the
objects contain is the log's business: see ``logfs.log.tiering``.
"""
