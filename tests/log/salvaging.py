"""Salvages of partitions in memory, and which of their batches are in the copy."""

import errno
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from logfs.disk.remote.readonlyfile import ReadOnlyFile
from logfs.disk.vfs import File
from logfs.services.salvage.directory import Salvaged, salvage
from logfs.services.salvage.report import SalvagedPartition
from tests.fakes import START_MS, FakeDisk
from tests.log.support import DIRECTORY, Bench, batches_in

BLOCK_BYTES = 4096


class Damage(NamedTuple):
    """A ``.log`` with damage, and which of its batches it has left as they were."""

    data: bytes
    intact: list[bytes]


def salvaged(disk: FakeDisk, target: FakeDisk | None = None) -> tuple[Salvaged, FakeDisk]:
    """Salvage a disk; returns what was copied, and the copy."""
    target = target or FakeDisk()
    read: list[int] = []
    return salvage(disk, "/damaged", target, (), START_MS, read.append), target


def salvage_one(disk: FakeDisk) -> tuple[SalvagedPartition, FakeDisk]:
    """The same of a disk with one partition, which alone is damaged."""
    done, target = salvaged(disk)
    assert done.notes == []
    (one,) = done.partitions
    return one, target


def logs_of(disk: FakeDisk) -> dict[str, bytes]:
    """The ``.log`` files of the partition."""
    listed = [name for name, _ in disk.list(DIRECTORY) if name.endswith(".log")]
    return {name: disk.read(f"{DIRECTORY}/{name}", None) for name in listed}


def split(data: bytes) -> list[bytes]:
    """The batches of a ``.log``."""
    return [data[at : at + header.size_bytes] for at, header in batches_in(data)]


def batches_of(logs: Iterable[bytes]) -> list[bytes]:
    return [batch for data in logs for batch in split(data)]


def opened(disk: FakeDisk) -> Bench:
    """Start a store on a copy."""
    return Bench(disk=disk)


def overwrite(data: bytes, rng: random.Random) -> Damage:
    """Overwrite a range with random bytes, zeros or ones."""
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice([1, 2, 30, 200, 700]))
    filler = rng.choice(
        [rng.randbytes(stop - start), bytes(stop - start), b"\xff" * (stop - start)]
    )
    return _damaged(data, data[:start] + filler + data[stop:], start, stop)


def remove(data: bytes, rng: random.Random) -> Damage:
    """Remove a range, so that what follows it moves."""
    start = rng.randrange(len(data))
    stop = end = min(len(data), start + rng.choice([1, 20, 200]))
    after = data[:start] + data[stop:]
    while end < len(data) and data[start + end - stop] == data[end]:
        end += 1  # without the bytes from here on the file would be the same
    return _damaged(data, after, start, end)


def insert(data: bytes, rng: random.Random) -> Damage:
    """Insert bytes in a batch."""
    at = rng.randrange(len(data))
    begins = [begin for begin, _ in batches_in(data)]
    inside = at + (at in begins)
    return _damaged(data, data[:at] + rng.randbytes(rng.choice([1, 50])) + data[at:], at, inside)


def truncate(data: bytes, rng: random.Random) -> Damage:
    """Cut the file."""
    at = rng.randrange(len(data))
    return _damaged(data, data[:at], at, len(data))


Damaging = Callable[[bytes, random.Random], Damage]
DAMAGES: list[Damaging] = [overwrite, remove, insert, truncate]


def _damaged(data: bytes, after: bytes, start: int, stop: int) -> Damage:
    intact = [
        data[at : at + header.size_bytes]
        for at, header in batches_in(data)
        if at + header.size_bytes <= start or at >= stop
    ]
    return Damage(after, intact)


class FailingFile(ReadOnlyFile):
    """A file of which some blocks cannot be read."""

    def __init__(self, file: File, blocks: set[int]) -> None:
        super().__init__("failing")
        self._file = file
        self._blocks = blocks

    def size(self) -> int:
        return self._file.size()

    def inode(self) -> int:
        return self._file.inode()

    def fileno(self) -> int:
        return -1

    def next_data(self, position: int) -> int:
        return position

    def pread(self, size: int, position: int) -> bytes:
        self._check(position, size)
        return self._file.pread(size, position)

    def pread_into(self, buffer: memoryview, position: int) -> int:
        self._check(position, len(buffer))
        return self._file.pread_into(buffer, position)

    def pread_nowait_into(self, buffer: memoryview, position: int) -> int | None:
        return None

    def close(self) -> None:
        self._file.close()

    def _check(self, position: int, size: int) -> None:
        stop = min(position + size, self.size())
        if any(block * BLOCK_BYTES < stop and (block + 1) * BLOCK_BYTES > position
               for block in self._blocks):  # fmt: skip
            raise OSError(errno.EIO, "Input/output error", "failing")


class FailingDisk(FakeDisk):
    """A disk on which some blocks of the ``.log`` files cannot be read."""

    blocks: set[int]

    def open(self, name: str, *, write: bool = False, create: bool = False, **_: bool) -> File:
        file = super().open(name, write=write, create=create)
        return FailingFile(file, self.blocks) if name.endswith(".log") and not write else file
