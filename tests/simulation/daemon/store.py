"""An object store beside the data directory, whose requests fail, come late, or are made twice.

Each object is a file of a directory. A daemon that is killed in a request has made it, or not.

    fails    an error, and nothing has changed
    lost     it is done, and the reply is lost: TimeoutError
    twice    it is sent again after a reply that was lost: the second one is refused
    late     the reply comes some seconds later
"""

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, unquote

import trio

from logfs.config.remote import RemoteConfig
from logfs.disk.remote.blocks import Blocks, ObjectBlocks, Span
from logfs.disk.remote.objects import ChangedError, KeyListing, ObjectStat
from logfs.disk.remote.remotefile import RemoteFiles
from logfs.disk.vfs import ReadableBuffer, check_size
from logfs.disk.waiting import may_wait
from logfs.fs.upkeep import tiering
from logfs.log.remote.directory import OpenedStore, OwnDirectory
from logfs.machine import stores
from logfs.records.checksum import crc32c
from tests.simulation.daemon.machine import BEGIN_NS, Choices
from tests.simulation.daemon.preloading import Shared, SharedWords

URL = "s3://simulated/logs"
_LATE_NS = 4_000_000_000
_WHOLE = 256


class SimulatedStore:
    """See ``ObjectStore`` and above.

    Args:
        directory: Has the objects.
        words: What is shared with the parent: the time, and the share of requests with a fault.
        choices: What the seed decides.
    """

    url = URL

    def __init__(self, directory: Path, words: SharedWords, choices: Choices) -> None:
        self._directory = directory
        self._words = words
        self._choice = choices.random

    def get(self, key: str, most: int) -> tuple[bytes, ObjectStat]:
        """See ``ObjectStore``."""
        data = self._read(key)
        check_size(len(data), most, self._address(key))
        return data, _described(key, data)

    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """See ``ObjectStore``."""
        return memoryview(self._read(key)[start : start + length])

    def stat(self, key: str) -> ObjectStat:
        """See ``ObjectStore``."""
        return _described(key, self._read(key))

    def put(self, key: str, parts: Iterable[ReadableBuffer]) -> None:
        """See ``ObjectStore``."""
        data = b"".join(bytes(part) for part in parts)
        self._change(key, lambda: self._write(key, data))

    def create(self, key: str, data: ReadableBuffer) -> str:
        """See ``ObjectStore``."""

        def create() -> None:
            if self._path(key).exists():
                text = "there is such an object"
                raise FileExistsError(errno.EEXIST, text, self._address(key))
            self._write(key, bytes(data))

        self._change(key, create)
        return _etag(bytes(data))

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        """See ``ObjectStore``."""

        def swap() -> None:
            path = self._path(key)
            if not path.exists() or _etag(path.read_bytes()) != etag:
                raise ChangedError(self._address(key))
            self._write(key, bytes(data))

        self._change(key, swap)
        return _etag(bytes(data))

    def delete(self, key: str) -> None:
        """See ``ObjectStore``."""

        def delete() -> None:
            if self._path(key).exists():
                os.unlink(self._path(key))

        self._change(key, delete)

    def list_level(self, prefix: str) -> KeyListing:
        """See ``ObjectStore``."""
        found = list(self.list_all(prefix))
        below = {one.key.removeprefix(prefix).partition("/")[0] for one in found
                 if "/" in one.key.removeprefix(prefix)}  # fmt: skip
        here = [one for one in found if "/" not in one.key.removeprefix(prefix)]
        return KeyListing(sorted(below), here)

    def list_all(self, prefix: str) -> Iterator[ObjectStat]:
        """See ``ObjectStore``."""
        self._begin(prefix)
        keys = sorted(unquote(name) for name in os.listdir(self._directory))
        found = [key for key in keys if key.startswith(prefix) and not key.endswith(" new")]
        return iter([_described(key, self._path(key).read_bytes()) for key in found])

    def _address(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _path(self, key: str) -> Path:
        return self._directory / quote(key, safe="")

    def _read(self, key: str) -> bytes:
        self._begin(key)
        try:
            return self._path(key).read_bytes()
        except FileNotFoundError:
            text = "there is no such object"
            raise FileNotFoundError(errno.ENOENT, text, self._address(key)) from None

    def _write(self, key: str, data: bytes) -> None:
        """Store an object: all of it, or nothing if the process is killed."""
        path, new = self._path(key), self._path(f"{key} new")
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                if os.pwrite(file, data, 0) != len(data):
                    raise OSError(errno.EIO, "cut short")
            finally:
                os.close(file)
            os.rename(new, path)
        except OSError:
            self._fail(key)

    def _change(self, key: str, change: Callable[[], object]) -> None:
        self._begin(key)
        change()
        if self._has_fault():
            if self._choice.random() < 0.5:
                raise TimeoutError(errno.ETIMEDOUT, "no answer", self._address(key))
            change()

    def _begin(self, key: str) -> None:
        if self._has_fault():
            if self._choice.random() < 0.5:
                self._fail(key)
            self._words[Shared.TIME_NS] += self._choice.randrange(_LATE_NS)

    def _has_fault(self) -> bool:
        return self._choice.randrange(_WHOLE) < self._words[Shared.STORE_FAULTS]

    def _fail(self, key: str) -> NoReturn:
        raise OSError(errno.EIO, "the store has failed", self._address(key)) from None


class SimulatedBlocks(Blocks):
    """Blocks that no thread fetches: a call that may wait fetches them, or the seed says when."""

    def __init__(self, store: SimulatedStore, config: RemoteConfig, choices: Choices) -> None:
        super().__init__(store, crc32c, lambda: 0.0, config.memory_bytes)
        self._choices = choices

    def read(self, source: ObjectBlocks, block: int, count: int = 1) -> Span:
        """See ``Blocks``."""
        if not may_wait():
            return super().read(source, block, count)
        with self._guard:
            span = source.spans.get(block)
            if span is None:
                span = self._add(source, block, count)
                self._wanted.append(span)
                self._make_room(0)
        self._fetch_queued(span)
        return span

    def _start(self, queue: deque[Span], span: Span) -> None:
        queue.append(span)
        if trio.lowlevel.in_trio_run():  # else it is a start: a reader fetches it
            trio.lowlevel.spawn_system_task(self._fetch_later, span)

    async def _fetch_later(self, span: Span) -> None:
        await self._choices.wait()
        self._fetch_queued(span)

    def _fetch_queued(self, span: Span) -> None:
        for queue in (self._wanted, self._ahead):
            if span in queue:
                queue.remove(span)
                self._complete(span)


def use_store(directory: Path, words: SharedWords, choices: Choices) -> None:
    """Have the daemon of this process use the store of a directory."""

    def opened(config: RemoteConfig) -> OpenedStore:
        store = SimulatedStore(directory, words, choices)
        files = RemoteFiles(store, crc32c, lambda: _seconds(words), config.memory_bytes)
        files.blocks = SimulatedBlocks(store, config, choices)
        return OpenedStore(store, files.open, files.blocks.counters)

    stores.open_directory_store = opened
    # The real one notes inodes of the machine.
    own = OwnDirectory(b"d" * 16, is_copy=False)
    setattr(tiering, "own_directory", lambda *_: own)  # noqa: B010 - mypy: it is not exported


def _seconds(words: SharedWords) -> float:
    return (words[Shared.TIME_NS] - BEGIN_NS) / 1e9


def _etag(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _described(key: str, data: bytes) -> ObjectStat:
    return ObjectStat(key, len(data), _etag(data), BEGIN_NS // 1_000_000)
