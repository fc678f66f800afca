"""Names that end in ``.in``: each open file has its own inode, through the kernel."""

import errno
import fcntl
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fs.mounting import Mounted
from tests.fs.test_native_opens import APPEND, echo, errno_of, native_opens
from tests.fs.world import World
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

OF_A_NAME = 256
"""So many inodes a name has."""


def locks(files: Iterable[int]) -> int:
    """Return how many of some open files can be locked at the same time: one for each inode."""
    count = 0
    for file in files:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            count += 1
    return count


def write_in_turn(files: list[int], lines: range) -> bytes:
    """Write a line to each file in turn, and return all of them."""
    written = b""
    for number in lines:
        line = b"line %d\n" % number
        os.write(files[number % len(files)], line)
        written += line
    return written


@pytest.mark.parametrize("name", ["0.in", "0.tsv.in", "0.jsonl.in"])
def test_writers_do_not_share_an_inode(native: Mounted, name: str) -> None:
    path = native.point / "t" / name
    files = [os.open(path, APPEND | os.O_CREAT) for _ in range(20)]
    assert locks(files) == 20
    shared = [os.open(native.point / "t/0", APPEND) for _ in range(20)]
    assert locks(shared) == 1
    for file in files + shared:
        os.close(file)


def test_more_writers_than_inodes_share_some(native: Mounted) -> None:
    files = [os.open(native.point / "t/0.in", APPEND) for _ in range(OF_A_NAME + 50)]
    assert locks(files) == OF_A_NAME
    written = write_in_turn(files, range(2 * len(files)))
    assert (native.point / "t/0").read_bytes() == written
    for file in files:
        os.close(file)


def test_an_inode_is_used_again_after_its_file_was_closed(native: Mounted) -> None:
    path = native.point / "t/0.in"
    for number in range(300):
        echo(path, b"line %d\n" % number)
    assert native_opens(native.data) > 200
    held = os.open(path, APPEND)
    for _ in range(300):
        other = os.open(path, APPEND)
        assert locks([held, other]) == 2
        os.close(other)
    os.close(held)
    assert len((native.point / "t/0").read_bytes().splitlines()) == 300


def test_programs_see_the_file_without_in(native: Mounted) -> None:
    """So a program that compares names and open files does not open the log again."""
    path = native.point / "t/0.in"
    echo(path, b"line\n")
    file = os.open(path, APPEND)
    for _ in range(3):
        numbers = {
            os.fstat(file).st_ino,
            os.stat(path).st_ino,
            os.stat(native.point / "t/0").st_ino,
        }
        assert len(numbers) == 1
        os.write(file, b"line\n")
        assert os.fstat(file).st_size == os.stat(native.point / "t/0").st_size
    os.close(file)
    assert os.listdir(native.point / "t") == ["0"]
    assert os.stat(path).st_mode & 0o777 == 0o200


def test_only_appends_are_taken(native: Mounted) -> None:
    path = native.point / "t/0.in"
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_WRONLY, APPEND | os.O_TRUNC):
        assert errno_of(lambda: os.close(os.open(path, flags))) == errno.EPERM  # noqa: B023
    assert errno_of(lambda: path.chmod(0o600)) == errno.EPERM
    assert errno_of(lambda: os.truncate(path, 0)) == errno.EPERM
    path.touch()
    assert (native.point / "t/0").stat().st_mode & 0o777 == 0o644


def test_a_mapping_shows_what_a_read_does_beside_writers(native: Mounted) -> None:
    files = [os.open(native.point / "t" / name, APPEND) for name in ("0", "0.in", "0.in")]
    written = write_in_turn(files, range(3000))
    with (native.point / "t/0").open("rb") as file:
        with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
            assert mapped[:] == written
        assert file.read() == written
    for one in files:
        os.close(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="it mounts without fusermount")
def test_the_kernel_maps_the_backing_file_of_a_file_that_the_daemon_reads() -> None:
    """Why no writer passes through the kernel; see docs/internals/passing-writers.md."""
    program = Path(__file__).with_name("mmap_of_passthrough.py")
    command = [sys.executable, str(program)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    read, mapped = done.stdout.splitlines()
    assert read == r"read: b'what the daemon answers\n'"
    assert mapped in ("mmap: b'what is in the backing f'", "mmap: No such device")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user appends")
def test_a_user_that_may_append_may_use_it() -> None:
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    mounted = Mounted(directory, "allow_other")
    mounted.start()
    try:
        (mounted.point / "t").mkdir()
        for mode, is_refused in ((0o642, False), (0o644, True)):
            (mounted.point / "t/0").chmod(mode)
            command = (
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "sh",
                "-c",
                'echo x >> "$1"',
            )
            done = subprocess.run((*command, "sh", mounted.point / "t/0.in"), check=False)
            assert bool(done.returncode) == is_refused
        assert (mounted.point / "t/0").read_bytes() == b"x\n"
    finally:
        mounted.clear()
        shutil.rmtree(directory)


def test_open_files_continue_after_the_daemon_was_killed(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as held:
        (held.point / "t").mkdir()
        (held.point / "t/0").touch()
        path = held.point / "t/0.in"
        files = [os.open(path, APPEND) for _ in range(5)]
        written = b""
        for number in range(4):
            written += write_in_turn(files, range(10))
            os.write(files[number], b"half ")
            held.end_daemon()
            os.write(files[number], b"line\n")
            written += b"half line\n" + write_in_turn(files, range(10))
            files.append(os.open(path, APPEND))
            assert locks(files) == len(files)
        for file in files:
            os.close(file)
        assert (held.point / "t/0").read_bytes() == written


async def test_a_look_up_that_no_open_follows_keeps_no_inode(world: World) -> None:
    await world.mkdir("t")
    await world.append("t/0", b"line\n")
    first = await world.find("t/0.in")
    second = await world.find("t/0.in")
    assert first.st_ino != second.st_ino
    world.clock.advance(1)
    assert (await world.find("t/0.in")).st_ino == first.st_ino
