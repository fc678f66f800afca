"""Files of a fake disk, and what crashes of it may leave of them."""

from logfs.disk.vfs import File
from tests.fakes import FakeDisk

SEEDS = range(300)


def file_of(disk: FakeDisk, name: str = "a", *, durable: bytes = b"") -> File:
    """Open a file whose name and first bytes are durable."""
    file = disk.open(name, write=True, create=True)
    file.pwrite(durable, 0)
    file.sync()
    disk.sync_directory("")
    return file


def outcomes(disk: FakeDisk, name: str = "a") -> set[bytes]:
    return {disk.after_crash(seed).read(name) for seed in SEEDS}
