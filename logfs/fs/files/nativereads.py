"""Native reads of one open file, which continue where the last one ended.

The native library (``native/reading.h``) renders them from a place that Python gives it, a segment
and a position in its file, up to the end of the log. It gives the place back with the first read
that it leaves to Python: after a seek, at the end of a segment, of data that is not in the page
cache or not in plain batches, and after Python has changed the partition. So which bytes a read
returns is decided by one rule, that of ``log.reading.files``.

Growing names have it in every view, if their log is written here, is not in an object store, and
its visible end is its end. Names that end at a TO, and other levels, are read ahead; see ``ahead``.

A read of a ``.follow`` name at the end waits in the library. The thread that appends answers it. It
comes to Python, as a request, when Python has changed the partition, when the topic is deleted, and
before anything else is done with the open file.
"""

from logfs.fs.kernel.serving import Serving
from logfs.fs.partitions.partition import MountedPartition
from logfs.fs.tree.nodes import FileNode, PlainNode, RangeNode
from logfs.services.views.files import GrowingFile

_IN_ORDER = 2
_AFTER_USELESS = 16
"""How many reads later a place from which nothing was read is given again."""


class NativeReads:
    """The place in one open file. Event loop only.

    Args:
        serving: The native thread, which answers the reads.
        handle: The number of the open file.
        reader: Reads the file.
        partition: The partition of the file.
        may_wait: A read at the end waits.

    Attributes:
        is_given: The library has the place.
    """

    __slots__ = ("_handle", "_log", "_may_wait", "_partition", "_reader", "_serving", "is_given")

    def __init__(
        self,
        serving: Serving,
        handle: int,
        reader: GrowingFile,
        partition: MountedPartition,
        *,
        may_wait: bool = False,
    ) -> None:
        self._serving = serving
        self._handle = handle
        self._reader = reader
        self._partition = partition
        self._log = partition.log
        self._may_wait = may_wait
        self.is_given = False

    @staticmethod
    def may_read(node: FileNode) -> bool:
        """Whether files of an inode may be read in this way."""
        if isinstance(node, RangeNode):
            return node.log is node.partition.log
        return isinstance(node, PlainNode)

    def give(self, offset: int) -> bool:
        """Have the reads answered that begin at an offset, the end of the last one."""
        log, has_store = self._log, self._partition.executor.has_store
        if (
            log is not self._partition.log
            or log.is_followed
            or log.indexing is not None
            or has_store
        ):
            return False
        lock = log.writable.exclusive()
        mark = lock.mark(self._reader.view)
        if mark is None:
            return False
        try:
            place = self._reader.plain_place()
            descriptor = -1 if place is None else place.log.fileno()
        except OSError:
            return False
        again = lock.mark(self._reader.view)
        if place is None or descriptor < 0 or again is None or again[0] != mark[0]:
            return False
        self.is_given = self._serving.give_reads(
            self._handle, offset, (lock.address, mark[0]), place, may_wait=self._may_wait
        )
        if self.is_given:
            self._reader.leave_place(place)
        return self.is_given

    def take(self) -> int:
        """Take the place back; returns how many bytes were read."""
        self.is_given = False
        size, numbers = self._serving.take_reads(self._handle)
        self._reader.go_on(size, numbers)
        return size


class NativeFollowing:
    """The reads of one open ``.follow`` name that are left to the library. Event loop only.

    Args:
        native: The place in the file.
    """

    __slots__ = ("_in_order", "_native", "_next", "_reads")

    def __init__(self, native: NativeReads) -> None:
        self._native = native
        self._next = 0  # where the last reply ended
        self._in_order = 0  # reads that began where the one before ended
        self._reads = 0  # that Python has not answered

    def begin(self, offset: int) -> None:
        """Begin a read of Python: it takes the place back."""
        self.take()
        self._reads += 1
        self._in_order = self._in_order + 1 if offset == self._next else min(self._in_order, 0)

    def end(self, offset: int, size: int) -> None:
        """End a read of Python, which returns ``size`` bytes; the next one may not come here."""
        self._reads -= 1
        self._next = offset + size
        is_due = size > 0 and self._in_order >= _IN_ORDER and not self._reads
        if is_due and not self._native.give(self._next):
            self._in_order = -_AFTER_USELESS

    def take(self) -> None:
        """Take the place back, and the read that waits."""
        if self._native.is_given:
            size = self._native.take()
            self._next += size
            if not size:
                self._in_order = -_AFTER_USELESS
