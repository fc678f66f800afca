"""Promise 6, beside another process that writes the directory; tests/kafka has a real broker."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.foreign import FakeBroker, broker_in
from tests.mounting import Mount, wait_until

pytestmark = pytest.mark.fuse


@pytest.fixture
def broker(tmp_path: Path) -> FakeBroker:
    """A process that writes topic t in a directory."""
    data = tmp_path / "data"
    data.mkdir()
    return broker_in(data)


@pytest.fixture
def mount(broker: FakeBroker, tmp_path: Path) -> Iterator[Mount]:
    broker.append(b"before")
    with Mount(tmp_path / "data", tmp_path / "mnt", "ro") as mount:
        yield mount


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def wait_for(path: Path, expected: list[bytes]) -> None:
    wait_until(lambda: lines(path) == expected, f"{path} had {len(expected)} lines")


def fill(broker: FakeBroker, segments: int) -> None:
    for _ in range(segments):
        for _ in range(10):
            broker.append(*[b"record %d" % (broker.next_offset + n) for n in range(3)])
        broker.roll()


def test_a_waiting_reader_is_woken_by_another_writer(broker: FakeBroker, mount: Mount) -> None:
    """A directory that a broker is writing can be mounted read-only: readers see its records within
    a second, and logfs writes nothing there."""
    with subprocess.Popen(["cat", mount.point / "t" / "0.follow"], stdout=subprocess.PIPE) as cat:
        assert cat.stdout is not None
        assert cat.stdout.readline() == b"before\n"
        for value in (b"later", b"and later"):
            broker.append(value)
            assert cat.stdout.readline() == value + b"\n"
        broker.delete_topic()
        assert cat.stdout.read() == b""
        assert cat.wait() == 0


def test_records_of_another_writer_are_seen_and_nothing_is_written(
    broker: FakeBroker, mount: Mount
) -> None:
    """A directory that a broker is writing can be mounted read-only: readers see its records within
    a second, and logfs writes nothing there."""
    path = mount.point / "t" / "0"
    names = sorted(str(path) for path in mount.data.rglob("*"))
    with path.open("rb") as file:
        assert file.read() == b"before\n"
        started = time.monotonic()
        broker.append(b"later")
        wait_until(lambda: file.read() == b"later\n", "it was seen")
        assert time.monotonic() - started < 30  # a second, on a machine that has nothing else to do
    open_files = [os.readlink(entry) for entry in Path(f"/proc/{mount.pid}/fd").iterdir()]
    ours = [name for name in open_files if name.startswith(f"{mount.data}/")]
    assert ours
    for entry in Path(f"/proc/{mount.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(entry) in ours:
                flags = Path(f"/proc/{mount.pid}/fdinfo/{entry.name}").read_text().split()[3]
                assert int(flags, 8) & os.O_ACCMODE == os.O_RDONLY
    mount.stop()
    assert sorted(str(path) for path in mount.data.rglob("*")) == names


def test_what_is_deleted_or_rewritten(broker: FakeBroker, mount: Mount) -> None:
    """Records that the broker deletes become holes, and those that its compaction keeps stay where
    they were."""
    path = mount.point / "t" / "0"
    fill(broker, 6)
    wait_for(path, broker.values())
    before = path.read_bytes()
    broker.compact(lambda offset: offset % 3 == 0, 2)
    wait_for(path, broker.values())
    broker.retain(3)
    wait_for(path, broker.values())
    broker.remove_deleted()  # a minute later: by then the mount knows
    wait_for(path, broker.values())
    assert path.stat().st_size == len(before)
    for line in lines(path):
        with path.open("rb", buffering=0) as file:
            file.seek(before.index(line + b"\n"))
            assert file.read(len(line) + 1) == line + b"\n"


def test_positions_outlast_the_mount(broker: FakeBroker, mount: Mount) -> None:
    """Positions outlast the mount, in a cache directory."""
    path = mount.point / "t" / "0"
    fill(broker, 3)
    wait_for(path, broker.values())
    before, inode = path.read_bytes(), path.stat().st_ino
    broker.retain(2)
    wait_for(path, broker.values())
    mount.restart()
    broker.append(b"new")
    wait_for(path, broker.values())
    assert (path.stat().st_size, path.stat().st_ino) == (len(before) + len(b"new\n"), inode)


@pytest.mark.slow
def test_a_large_directory_never_seen_before(broker: FakeBroker, tmp_path: Path) -> None:
    """In a large directory that is mounted for the first time, offsets and times are found at once.
    A partition opens when its positions are known, and waiting for that can be interrupted."""
    block = [b"x" * 1023] * 1000
    for number in range(400):
        broker.append(*block[1:], b"the last of %d" % number)
        if number % 50 == 0:
            broker.roll()
    with Mount(tmp_path / "data", tmp_path / "mnt", "ro") as mount:
        path = mount.point / "t" / "0"
        os.listdir(path.parent)
        path.stat()
        with path.with_name("0@offset=-1").open("rb") as file:
            assert file.read() == b"the last of 399\n"
        with path.with_name("0@offset=1999..offset=2000").open("rb") as file:
            assert file.read() == b"the last of 1\n"
        waiting = subprocess.Popen(["wc", "-c", path], stdout=subprocess.DEVNULL)
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(30) in {0, 1, -signal.SIGINT}
        assert len(lines(path)) == 400_000
        assert path.stat().st_size == sum(1 + len(value) for value in broker.values())
