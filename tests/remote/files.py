"""Files of a store in memory, for the tests of what reads them."""

import random
import time

from logfs.disk.remote.blocks import BLOCK_BYTES, BlockCache
from logfs.disk.remote.overlay import Checks, RemotePart
from logfs.disk.remote.remotefile import MEMORY_BYTES, RemoteFile, RemoteFiles
from logfs.records.checksum import crc32c
from tests.remote.fakestore import FakeStore

MIB = 1 << 20


def some_bytes(size: int, seed: int = 0) -> bytes:
    """Return bytes that differ from block to block."""
    return random.Random(seed).randbytes(size)


class StoredLog:
    """An object and its checksums in a fake store, like those of a tiered segment.

    Args:
        store: The store.
        name: What its keys begin with.
        data: The contents of the .log.
    """

    def __init__(self, store: FakeStore, name: str, data: bytes) -> None:
        self.data = data
        self.key = f"{name}.log"
        self.indexes = f"{name}.indexes"
        store.objects[self.key] = data
        starts = range(0, len(data), BLOCK_BYTES)
        crcs = [crc32c(data[start : start + BLOCK_BYTES]) for start in starts]
        listed = b"some index" + b"".join(crc.to_bytes(4, "big") for crc in crcs)
        store.objects[self.indexes] = listed
        self.checks = Checks(blocks=(self.indexes, len(listed), crc32c(listed), 10))
        self.index_part = RemotePart(
            self.indexes, 0, 10, len(listed), 0, 2, checks=Checks(crc32c(listed))
        )

    def part(self, following: "StoredLog | None" = None) -> RemotePart:
        """Return the .log as a part."""
        size = len(self.data)
        after = None if following is None else (following.key, len(following.data))
        return RemotePart(self.key, 0, size, size, 0, 1, after, self.checks)


def files_of(
    store: FakeStore, memory_bytes: int = MEMORY_BYTES, cache: BlockCache | None = None
) -> RemoteFiles:
    """Return what opens files of a store."""
    return RemoteFiles(store, crc32c, time.monotonic, memory_bytes, cache)


def opened(files: RemoteFiles, part: RemotePart) -> RemoteFile:
    """Return an open file, which must not be a local one."""
    file = files.open("t-0/x.log", part)
    assert isinstance(file, RemoteFile)
    return file
