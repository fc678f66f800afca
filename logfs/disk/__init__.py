"""The only code that touches data files.

    vfs              what the log needs of a disk, above all what is durable when
    posix            PosixDisk: a directory of this machine; posixfile: one open file
    waiting          where a thread may wait for a disk or a store
    locks            the lock on a data directory
    _syncs           native: fsyncs that run beside Python
    page_cache       how much of a file is in the page cache
    preallocate      blocks that are allocated before a write
    generations      a number for each file that gets an inode
    mounts           on which mount of a file system a directory is
    ownership        which files other users may have written
    beneath          names below a directory, without symbolic links
    lines            whole lines out of what is read
    memoryfile       files in memory
    uncached_file    large reads that leave the page cache as it was
    appended         a file below a mount that is appended to
    link_or_copy     files of a directory in another one; disk_transfer: from any disk
    watching         inotify
    sockets          paths of sockets that are too long
    remote           object stores

Tests put a fake in the place of ``posix`` that tears writes, fails and loses power.
"""
