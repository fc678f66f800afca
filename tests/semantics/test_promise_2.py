"""Promise 2 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounting import Mount, environment, output, wait_until
from tests.semantics import appender
from tests.semantics.programs import APPEND, append, configure, errno_of, meta, numbered, values

pytestmark = pytest.mark.fuse

WRITERS = {
    # Whole lines only by chance; below, at and above the size of the kernel's requests.
    "a": (12_000, [97]),
    "b": (12_000, [1, 250, 33]),
    "c": (12_000, [4096]),
    "d": (20_000, [10_007, 3]),
    "e": (20_000, [65_537]),
    "f": (40_000, [262_145, 512]),
    "g": (60_000, [1_048_577]),
    "h": (60_000, [3_000_001, 11]),
}
CRASHES = 5


def recovery_point(partition: Path) -> int:
    """Return the first offset that may not be on the disk yet."""
    point: int = meta(partition)["durable"]["recovery_point"]
    return point


def test_what_is_written_is_there_at_once(topic: Path) -> None:
    """When write(2) returns, every reader of the mount sees its complete lines."""
    path = topic / "0"
    with path.open("rb", buffering=0) as reader:
        for number in range(300):
            line = b"%d\n" % number
            output("bash", "-c", f"echo {number} >> 0", cwd=topic) if number < 10 else append(
                path, line
            )
            assert reader.read(100) == line
            assert os.stat(path).st_size == reader.tell()
    assert output("tail", "-n", "1", path) == b"299\n"


def _total_lines(journals: list[Path]) -> int:
    total = 0
    for journal in journals:
        text = journal.read_text() if journal.exists() else ""
        acknowledged = [line for line in text.splitlines() if line.startswith("ack ")]
        total += int(acknowledged[-1].split()[1]) if acknowledged else 0
    return total


def _check(name: str, count: int, journal: Path, found: dict[bytes, int]) -> None:
    """See that every line of a writer is there, and twice only where a failed write was repeated.

    What is left in ``found`` are beginnings of lines whose write failed, or nothing.
    """
    events = [line.split() for line in journal.read_text().splitlines()]
    assert events[-1] == ["ack", str(count)]
    failures = [range(int(e[1]), int(e[2])) for e in events if e[0] == "fail"]
    beginnings: set[bytes] = set()
    for number in range(count):
        line = appender.make_line(name, number)[:-1]
        times = found.pop(line, 0)
        repeats = sum(number in failure for failure in failures)
        assert 1 <= times <= 1 + repeats, (name, number, times, repeats)
        if repeats:
            beginnings.update(line[:length] for length in range(1, len(line)))
    torn = [line for line in found if line.startswith(f"{name} ".encode()) or line == name.encode()]
    for line in torn:
        assert line in beginnings, line
        del found[line]


def test_no_acknowledged_line_is_lost_while_the_daemon_is_killed(
    mount: Mount, tmp_path: Path
) -> None:
    """Killing the daemon with `kill -9` loses nothing that a write(2) has returned for."""
    path = mount.point / "orders" / "0"
    journals = {name: tmp_path / f"journal-{name}" for name in WRITERS}
    writers = [
        subprocess.Popen(
            [sys.executable, appender.__file__, path, journals[name], name, *map(str, (count, *sizes))],
            env=environment(),
        )
        for name, (count, sizes) in WRITERS.items()
    ]
    try:
        total = sum(count for count, _ in WRITERS.values())
        for crash in range(1, CRASHES + 1):
            goal = total * crash // (CRASHES + 2)
            wait_until(
                lambda goal=goal: _total_lines([*journals.values()]) >= goal, f"{goal} lines stood"
            )
            mount.crash()
        statuses = [writer.wait() for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert statuses == [0] * len(writers)
    found: dict[bytes, int] = {}
    for line in path.read_bytes().split(b"\n")[:-1]:
        found[line] = found.get(line, 0) + 1
    assert len(values(path)) == sum(found.values())
    for name, (count, _) in WRITERS.items():
        _check(name, count, journals[name], found)
    assert not found
    failed = sum("fail" in journal.read_text() for journal in journals.values())
    assert failed, "no writer ever noticed that the daemon had died"
    assert not meta(path)["losses"]


def test_fsync_makes_lines_durable(topic: Path) -> None:
    """When fsync(2) returns, the lines before it are on the disk."""
    path = topic / "0"
    append(path, b"".join(numbered(0, 10)))
    assert recovery_point(path) == 0
    output("sync", path)
    assert recovery_point(path) == 10
    descriptor = os.open(path, APPEND)
    os.write(descriptor, b"one more\n")
    os.fdatasync(descriptor)
    os.write(descriptor, b"and another\nunfinished")
    assert recovery_point(path) == 11
    os.fsync(descriptor)
    assert recovery_point(path) == 12
    os.close(descriptor)
    assert recovery_point(path) == 12


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC], ids=["O_SYNC", "O_DSYNC"])
def test_synchronous_files_sync_every_write(topic: Path, flag: int) -> None:
    """A file opened with O_SYNC or O_DSYNC is synced by every write(2)."""
    descriptor = os.open(topic / "0", APPEND | flag)
    for number in range(1, 4):
        os.write(descriptor, b"line\n")
        assert recovery_point(topic / "0") == number
    os.close(descriptor)


def test_a_mount_can_sync_every_write(mount: Mount) -> None:
    """Mounted with the option `sync`, it treats every file so."""
    mount.stop()
    mount.options = ("sync",)
    mount.start()
    path = mount.point / "orders" / "0"
    for number in range(1, 4):
        append(path, b"line\n")
        assert recovery_point(path) == number


def test_flush_messages_counts_records(topic: Path) -> None:
    """`flush.messages` and `flush.ms` are Kafka's."""
    configure(topic, flush_messages=3)
    path = topic / "0"
    append(path, b"1\n2\n")
    assert recovery_point(path) == 0
    append(path, b"3\n")
    assert recovery_point(path) == 3
    append(path, b"4\n")
    assert recovery_point(path) == 3


def test_flush_ms_passes(topic: Path) -> None:
    """`flush.messages` and `flush.ms` are Kafka's."""
    configure(topic, flush_ms=1)
    append(topic / "0", b"line\n")
    wait_until(lambda: recovery_point(topic / "0") == 1, "the log was flushed")


def _limit_file_size(mount: Mount, size: int) -> None:
    resource.prlimit(mount.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_failed_write_takes_the_partition_offline(mount: Mount) -> None:
    """After a write or fsync that failed, the partition answers EIO to every append and fsync until
    nobody has it open, or the mount comes back; `.meta` and the daemon's log say why.
    """
    path = mount.point / "orders" / "0"
    kept = b"".join(numbered(0, 1000))
    append(path, kept)
    _limit_file_size(mount, os.stat(mount.data / "orders-0" / f"{0:020}.log").st_size + 10)
    descriptor, other = os.open(path, APPEND), os.open(path, APPEND)
    assert errno_of(os.write, descriptor, b"does not fit\n" * 10) == errno.EIO
    _limit_file_size(mount, resource.RLIM_INFINITY)
    assert errno_of(os.write, descriptor, b"x\n") == errno.EIO
    assert errno_of(os.write, other, b"x\n") == errno.EIO
    assert errno_of(os.fsync, other) == errno.EIO
    assert "write failed" in meta(path)["offline"]
    assert "offline" in mount.log
    assert path.read_bytes() == kept
    assert errno_of(os.close, descriptor) == errno.EIO
    assert errno_of(os.close, other) == errno.EIO
    append(path, b"again\n")
    assert meta(path)["offline"] is None
    assert path.read_bytes() == kept + b"again\n"


def test_a_failed_write_is_over_after_a_restart(mount: Mount) -> None:
    """After a write or fsync that failed, the partition answers EIO to every append and fsync until
    nobody has it open, or the mount comes back; `.meta` and the daemon's log say why.
    """
    path = mount.point / "orders" / "0"
    kept = b"".join(numbered(0, 1000))
    append(path, kept)
    _limit_file_size(mount, os.stat(mount.data / "orders-0" / f"{0:020}.log").st_size + 10)
    descriptor = os.open(path, APPEND)
    assert errno_of(os.write, descriptor, b"does not fit\n" * 10) == errno.EIO
    assert errno_of(os.close, descriptor) == errno.EIO
    _limit_file_size(mount, resource.RLIM_INFINITY)
    mount.restart()
    append(path, b"again\n")
    assert path.read_bytes() == kept + b"again\n"
