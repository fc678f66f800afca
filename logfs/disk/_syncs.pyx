# cython: language_level=3
"""Syncs of files that run by themselves, in threads that are not Python's; see ``_syncs.h``.

A thread of Python that waits for fsync(2) has to get the interpreter's lock twice, from an event
loop that would rather keep it. These threads do not: the caller watches a descriptor and takes
the finished syncs.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF

import os

cdef extern from "_syncs.h" nogil:
    ctypedef struct logfs_sync:
        logfs_sync *next
        void *owner
        int fd
        int error
        int is_done

    ctypedef struct logfs_syncs:
        int event
        int thread_count

    logfs_syncs *logfs_syncs_new()
    void logfs_syncs_free(logfs_syncs *pool)
    int logfs_syncs_start(logfs_syncs *pool, logfs_sync *sync)
    logfs_sync *logfs_syncs_take(logfs_syncs *pool)
    void logfs_syncs_clear(logfs_syncs *pool)
    void logfs_syncs_wait(logfs_syncs *pool, logfs_sync *sync)


@cython.final
cdef class ThreadSyncs:
    """The syncs that are under way, and those that are done and were not taken. Any thread.

    Raises:
        OSError: There is no descriptor left, or no memory.
    """

    cdef logfs_syncs *_pool

    def __cinit__(self):
        self._pool = logfs_syncs_new()
        if self._pool is NULL:
            raise OSError("the threads that sync files could not be set up")

    def __dealloc__(self):
        if self._pool is not NULL:
            with nogil:
                logfs_syncs_free(self._pool)

    @property
    def threads(self):
        """How many threads there are."""
        return self._pool.thread_count

    def fileno(self):
        """Return the descriptor that can be read when something is done and was not taken."""
        return self._pool.event

    def start(self, int descriptor, file, path):
        """Start an fsync.

        Args:
            descriptor: The descriptor of the file.
            file: The object that closes the descriptor; referenced until the sync is done and taken.
            path: For an error.

        Returns:
            The ``ThreadSync``, which ``take`` will return once it is done.

        Raises:
            OSError: No thread could be started.
        """
        cdef ThreadSync sync = ThreadSync.__new__(ThreadSync)
        cdef int error
        sync._pool = self
        sync._file = file
        sync._path = path
        sync._sync.owner = <void *>sync
        sync._sync.fd = descriptor
        error = logfs_syncs_start(self._pool, &sync._sync)
        if error:
            raise OSError(error, os.strerror(error), path)
        Py_INCREF(sync)
        return sync

    def take(self):
        """Return the syncs that were done since the last call, in that order."""
        cdef logfs_sync *sync
        cdef logfs_sync *after
        cdef list done = []
        logfs_syncs_clear(self._pool)
        sync = logfs_syncs_take(self._pool)
        while sync is not NULL:
            after = sync.next
            owner = <ThreadSync>sync.owner
            done.append(owner)
            Py_DECREF(owner)
            sync = after
        return done


@cython.final
cdef class ThreadSync:
    """One sync; see ``vfs.Sync``."""

    cdef logfs_sync _sync
    cdef ThreadSyncs _pool
    cdef object _file
    cdef object _path

    @property
    def has_failed(self):
        """See ``vfs.Sync``."""
        return self._sync.error != 0

    def wait(self):
        """See ``vfs.Sync``."""
        with nogil:
            logfs_syncs_wait(self._pool._pool, &self._sync)
        if self._sync.error:
            raise OSError(self._sync.error, os.strerror(self._sync.error), self._path)
