"""Listings through the kernel: with small buffers, with changes meanwhile, and what it forgets."""

import ctypes
import os
import struct
from collections.abc import Iterator

import pytest

from logfs.client import Daemon
from tests.fs.mounting import Mounted
from tests.fs.test_native_opens import metric
from tests.processes import wait_until

pytestmark = pytest.mark.fuse

_GETDENTS64 = {"x86_64": 217, "aarch64": 61}
_DIRENT = struct.Struct("<QqHB")
PARTITIONS = 150


def getdents(descriptor: int, size: int) -> list[tuple[str, int]]:
    """Return the next names of a directory, each with the offset of the following one."""
    buffer = ctypes.create_string_buffer(size)
    libc = ctypes.CDLL(None, use_errno=True)
    got = libc.syscall(_GETDENTS64[os.uname().machine], descriptor, buffer, size)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    found, at = [], 0
    while at < got:
        _, following, length, _ = _DIRENT.unpack_from(buffer, at)
        name = buffer.raw[at + _DIRENT.size : at + length].partition(b"\0")[0].decode()
        found.append((name, following))
        at += length
    return found


@pytest.fixture
def directory(native: Mounted) -> Iterator[int]:
    """The open topic ``t``, of many partitions."""
    for last in range(49, PARTITIONS, 100):
        (native.point / "t" / str(last)).touch()
    descriptor = os.open(native.point / "t", os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_names_come_once_with_any_buffer(native: Mounted, directory: int) -> None:
    expected = [".", "..", *map(str, range(PARTITIONS))]
    for size in (32, 100, 1000, 5000, 1 << 20):
        os.lseek(directory, 0, os.SEEK_SET)
        found: list[tuple[str, int]] = []
        while part := getdents(directory, size):
            found += part
        assert [name for name, _ in found] == expected
        for name, following in found[::50]:  # seekdir(3)
            os.lseek(directory, following, os.SEEK_SET)
            after = getdents(directory, size)
            assert not after or after[0][0] == expected[expected.index(name) + 1]


def test_a_listing_continues_while_partitions_and_topics_come_and_go(
    native: Mounted, directory: int
) -> None:
    begun = getdents(directory, 1000)
    (native.point / "t" / str(PARTITIONS)).touch()
    while part := getdents(directory, 1000):
        begun += part
    assert [name for name, _ in begun] == [".", "..", *map(str, range(PARTITIONS))]
    os.lseek(directory, 0, os.SEEK_SET)  # rewinddir(3)
    assert len(getdents(directory, 1 << 20)) == PARTITIONS + 3
    os.lseek(directory, 0, os.SEEK_SET)
    getdents(directory, 100)
    delete(native, "t")
    assert [getdents(directory, 1 << 20) for _ in range(2)][1] == []
    assert os.listdir(native.point) == []


def test_the_kernel_has_the_attributes_of_all(native: Mounted, directory: int) -> None:
    topic = native.point / "t"
    for number in range(0, PARTITIONS, 7):
        with (topic / str(number)).open("ab", buffering=0) as file:
            file.write(b"x" * number + b"\n")
    (topic / "5").chmod(0o640)
    for _ in range(2):
        os.listdir(topic)
        # Those that came with the names, without a request for each.
        cached = native.shell("cd t; stat --cached=always -c '%n %s %b %a %u %i %.9Y %F' *")
        asked = native.shell("cd t; stat --cached=never -c '%n %s %b %a %u %i %.9Y %F' *")
        assert cached == asked
        for number in range(0, PARTITIONS, 7):
            with (topic / str(number)).open("ab", buffering=0) as file:
                file.write(b"more\n")


def test_what_the_kernel_forgets_is_dropped(native: Mounted, directory: int) -> None:
    (native.point / "u").mkdir()
    os.listdir(native.point)
    before = metric(native.data, "logfs_inodes")
    for _ in range(2):
        (native.point / "u" / "99").touch()
        for _ in range(3):
            assert len(os.listdir(native.point / "u")) == 100
            native.shell("ls -l u; find u; du u")
        assert metric(native.data, "logfs_inodes") >= before + 100
        delete(native, "u")
        assert "u" not in os.listdir(native.point)
        wait_until(
            lambda: metric(native.data, "logfs_inodes") <= before, "the kernel has forgotten all"
        )
        (native.point / "u").mkdir()


def delete(mounted: Mounted, topic: str) -> None:
    with Daemon.connect(str(mounted.data)) or pytest.fail("no daemon") as daemon:
        daemon.ask("delete", {"topic": topic})


def test_a_listing_has_the_new_mode_of_a_topic(native: Mounted) -> None:
    os.listdir(native.point)
    (native.point / "t").chmod(0o700)
    os.listdir(native.point)
    assert native.shell("stat --cached=always -c %a t") == "700\n"
