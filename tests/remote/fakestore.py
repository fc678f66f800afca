"""An object store in memory that can fail, lose replies, answer late and lie.

store.fail_next("put", "*.log")              # the next put of a .log raises EIO, nothing stored
store.lose_reply_of("swap", "*/logfs-head")  # it takes effect, and raises TimeoutError
store.fail("get_range")                      # every one, until store.heal()
store.before = lambda operation, key: ...    # observe, delay, raise, run another writer
store.stop_before(7)                         # the process dies before its 8th change: Stopped
store.stop_after(7)                          # the 8th change happens, then the process dies
store.damage("key", 100)                     # flip one byte
"""

import errno
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase

from logfs.disk.remote.objects import ChangedError, KeyListing, ObjectStat
from logfs.disk.vfs import ReadableBuffer, check_size
from tests.fakestate import Stopped

CHANGES = frozenset({"put", "create", "swap", "delete"})


class FakeStore:
    """An ``ObjectStore`` in memory. See ``logfs.disk.remote.objects`` and above for the faults.

    Attributes:
        objects: Key -> contents.
        before: Called before every operation with its name and its key; may block or raise.
        counts: How often each operation was called.
        asked: Every call of an operation: its name and its key.
        now_ms: Modification time of what is stored next.
    """

    def __init__(self, url: str = "s3://fake/logs") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.before: Callable[[str, str], object] | None = None
        self.counts: Counter[str] = Counter()
        self.asked: list[tuple[str, str]] = []
        self.now_ms = 1_700_000_000_000
        self._modified: dict[str, int] = {}
        self._failures: list[tuple[str, str, OSError, bool]] = []
        self._lost: list[tuple[str, str]] = []
        self._changes_left: int | None = None
        self._dies_after = False
        self._guard = threading.RLock()

    def fail_next(self, operation: str, key: str = "*", error: int = errno.EIO) -> None:
        """Let the next matching operation raise, with no effect."""
        self._failures.append((operation, key, OSError(error, "injected"), True))

    def fail(self, operation: str, key: str = "*", error: int = errno.EIO) -> None:
        """Let every matching operation raise, until ``heal``."""
        self._failures.append((operation, key, OSError(error, "injected"), False))

    def lose_reply_of(self, operation: str, key: str = "*") -> None:
        """Let the next matching change take effect and raise TimeoutError."""
        self._lost.append((operation, key))

    def heal(self) -> None:
        """End all faults."""
        self._failures.clear()
        self._lost.clear()
        self._changes_left = None

    def stop_before(self, change: int) -> None:
        """Let the process die before its change of this number, from 0."""
        self._changes_left, self._dies_after = change, False

    def stop_after(self, change: int) -> None:
        """Let the process die after its change of this number, from 0."""
        self._changes_left, self._dies_after = change, True

    def damage(self, key: str, position: int) -> None:
        """Flip a byte of an object."""
        data = bytearray(self.objects[key])
        data[position] ^= 0xFF
        self.objects[key] = bytes(data)

    def get(self, key: str, most: int) -> tuple[bytes, ObjectStat]:
        """See ``ObjectStore``."""
        self._begin("get", key)
        with self._guard:
            data = self._find(key)
            check_size(len(data), most, self._address(key))
            return data, self._stat(key)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """See ``ObjectStore``."""
        self._begin("get_range", key)
        with self._guard:
            data = self._find(key)[start : start + length]
        if len(data) < length:
            raise OSError(errno.EIO, f"{len(data)} bytes, {length} expected", self._address(key))
        return memoryview(data)

    def stat(self, key: str) -> ObjectStat:
        """See ``ObjectStore``."""
        self._begin("stat", key)
        with self._guard:
            self._find(key)
            return self._stat(key)

    def put(self, key: str, parts: Iterable[ReadableBuffer]) -> None:
        """See ``ObjectStore``."""
        data = b"".join(bytes(part) for part in parts)
        self._change("put", key, lambda: self._store(key, data))

    def create(self, key: str, data: ReadableBuffer) -> str:
        """See ``ObjectStore``."""

        def create() -> None:
            if key in self.objects:
                raise FileExistsError(errno.EEXIST, "there is such an object", self._address(key))
            self._store(key, bytes(data))

        self._change("create", key, create)
        return etag_of(bytes(data))

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        """See ``ObjectStore``."""

        def swap() -> None:
            if key not in self.objects or etag_of(self.objects[key]) != etag:
                raise ChangedError(self._address(key))
            self._store(key, bytes(data))

        self._change("swap", key, swap)
        return etag_of(bytes(data))

    def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        self._change("delete", key, lambda: self.objects.pop(key, None))

    def list_level(self, prefix: str) -> KeyListing:
        """See ``ObjectStore``."""
        self._begin("list_level", prefix)
        with self._guard:
            rests = [key.removeprefix(prefix) for key in self.objects if key.startswith(prefix)]
            directories = sorted({rest.split("/")[0] for rest in rests if "/" in rest})
            here = sorted(prefix + rest for rest in rests if "/" not in rest)
            return KeyListing(directories, [self._stat(key) for key in here])

    def list_all(self, prefix: str) -> Iterator[ObjectStat]:
        """See ``ObjectStore``."""
        self._begin("list_all", prefix)
        with self._guard:
            found = [self._stat(key) for key in self.objects if key.startswith(prefix)]
        return iter(found)

    def _address(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _find(self, key: str) -> bytes:
        if key not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._address(key))
        return self.objects[key]

    def _store(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self._modified[key] = self.now_ms

    def _stat(self, key: str) -> ObjectStat:
        data = self.objects[key]
        return ObjectStat(key, len(data), etag_of(data), self._modified.get(key, self.now_ms))

    def _begin(self, operation: str, key: str) -> None:
        with self._guard:
            self.counts[operation] += 1
            self.asked.append((operation, key))
        if self.before is not None:
            self.before(operation, key)
        with self._guard:
            for failure in self._failures:
                if failure[0] == operation and fnmatchcase(key, failure[1]):
                    if failure[3]:
                        self._failures.remove(failure)
                    raise OSError(failure[2].errno, failure[2].strerror, self._address(key))

    def _change(self, operation: str, key: str, carry_out: Callable[[], object]) -> None:
        self._begin(operation, key)
        with self._guard:
            is_last = self._changes_left == 0
            if self._changes_left is not None:
                self._changes_left -= 1
                if self._changes_left < -1 or (is_last and not self._dies_after):
                    raise Stopped
            carry_out()
            if is_last:
                raise Stopped
            for row in self._lost:
                if row[0] == operation and fnmatchcase(key, row[1]):
                    self._lost.remove(row)
                    raise TimeoutError(errno.ETIMEDOUT, "no answer", self._address(key))


def etag_of(data: bytes) -> str:
    """Return the ETag of contents: as in S3, a hash of them."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
