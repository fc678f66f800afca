"""Files whose large reads leave the page cache as it was, for data that is read once.

A reader of last year's log would otherwise evict what other readers use now. Pages that were in the
page cache before such a read stay there; pages that had to be fetched for it do not.

    RWF_DONTCACHE        Linux 6.14 and later, where the file system has it (ext4, xfs, btrfs): the
                         kernel drops the pages that it has read for this call alone
    POSIX_FADV_DONTNEED  elsewhere: a piece of which nothing was in memory before is dropped after
                         the read; one of which a part was, stays. Read-ahead is off, since the
                         next read would take its pages for those of another reader

Small reads are ordinary ones: a look-up reads little, and likely again.
"""

import errno
import mmap
import os

from logfs.disk.posixfile import PosixFile

UNCACHED_BYTES = 32 * 1024
"""Reads that are shorter are ordinary ones."""

_DONTCACHE = 0x80
"""RWF_DONTCACHE. Source: Linux include/uapi/linux/fs.h."""
_NOT_OFFERED = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS))
_PAGE_BYTES = mmap.PAGESIZE


class UncachedFile(PosixFile):
    """A file whose large reads stay out of the page cache; ``vfs.File`` describes the methods."""

    __slots__ = ("_asks_kernel", "_reads_ahead", "_tells")

    def __init__(self, path: str, descriptor: int, *, asks_kernel: bool = True) -> None:
        super().__init__(path, descriptor)
        self._asks_kernel = asks_kernel
        self._reads_ahead = True
        self._tells = True  # what is in memory; on top of another file system it may always be 0

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """See ``vfs.File``."""
        if len(buffer) < UNCACHED_BYTES:
            return super().pread_into(buffer, position)
        if self._asks_kernel:
            done = self._ask_kernel(buffer, position)
            if done is not None:
                return done
        if not self._tells or not self._is_cold(position, len(buffer)):
            return super().pread_into(buffer, position)
        if self._reads_ahead:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            self._reads_ahead = False
        done = super().pread_into(buffer, position)
        self._drop(position, done)
        return done

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        """See ``vfs.File``; nothing is read ahead for it either."""
        if len(buffer) < UNCACHED_BYTES:
            return super().pread_nowait_into(buffer, position)
        if self._asks_kernel:
            try:
                return os.preadv(self._descriptor, (buffer,), position, os.RWF_NOWAIT | _DONTCACHE)
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    return None
                if error.errno not in _NOT_OFFERED:
                    raise self._named(error, len(buffer), position) from None
        # The kernel begins to fetch missing pages, also for a read that must not wait.
        length = min(len(buffer), self.size() - position)
        if length <= 0:
            return 0
        if self._tells:
            pages = -(-(position + length) // _PAGE_BYTES) - position // _PAGE_BYTES
            found = _cached_pages(self._descriptor, position, length)
            if found is not None and found < pages:
                return None
        return super().pread_nowait_into(buffer, position)

    def _is_cold(self, position: int, length: int) -> bool:
        # The page in which the piece before has ended is there because of that.
        start = -(-position // _PAGE_BYTES) * _PAGE_BYTES
        return _cached_pages(self._descriptor, start, length) == 0

    def _drop(self, position: int, length: int) -> None:
        """Drop the pages of a range that was cold; the last one only if all of it was read."""
        if self._is_cold(position, length):
            self._tells = False
            return
        start = position // _PAGE_BYTES * _PAGE_BYTES
        os.posix_fadvise(self._descriptor, start, position + length - start, os.POSIX_FADV_DONTNEED)

    def _ask_kernel(self, buffer: memoryview, position: int) -> int | None:
        """Read with RWF_DONTCACHE; None where that is not offered, from then on."""
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._descriptor, (buffer[done:],), position + done, _DONTCACHE)
                if count == 0:
                    break
                done += count
        except OSError as error:
            if error.errno not in _NOT_OFFERED or done:
                raise self._named(error, len(buffer), position) from None
            self._asks_kernel = False
            return None
        return done


def _cached_pages(descriptor: int, position: int, length: int) -> int | None:
    from logfs.disk import page_cache  # ctypes: only where the kernel does not do it all

    return page_cache.cached_pages(descriptor, position, length)
