"""Promise 2 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fs.hanging import OPTIONS, check_others
from tests.mounting import Mount, environment, output, wait_until
from tests.semantics import appender
from tests.semantics.programs import APPEND, append, configure, errno_of, meta, numbered, values

pytestmark = pytest.mark.fuse

WRITERS = {
    # Whole lines only by chance; below, at and above the size of the kernel's requests.
    "a": (8_000, [97]),
    "b": (8_000, [1, 250, 33]),
    "c": (8_000, [4096]),
    "d": (12_000, [10_007, 3]),
    "e": (12_000, [65_537]),
    "f": (25_000, [262_145, 512]),
    "g": (40_000, [1_048_577]),
    "h": (40_000, [3_000_001, 11]),
}
CRASHES = [
    pytest.param(3, 3, id="few"),
    pytest.param(5, 1, id="more", marks=pytest.mark.long),
]
"""How often the daemon is killed, and what part of their lines the writers append."""


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


def _lines_acknowledged(journal: Path) -> int:
    if not journal.exists():
        return 0
    with journal.open("rb") as file:
        file.seek(max(0, os.stat(journal).st_size - 200))
        acknowledged = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b"ack ")]
    return int(acknowledged[-1].split()[1]) if acknowledged else 0


def _wait_for_lines(journals: Mapping[str, Path], goal: int) -> None:
    wait_until(
        lambda: sum(map(_lines_acknowledged, journals.values())) >= goal,
        f"{goal} lines were acknowledged",
    )


class _Failure(NamedTuple):
    """A call of write(2) that failed while it appended lines ``first`` to ``behind`` - 1."""

    first: int
    behind: int
    accepted: int
    """Bytes of the first line that earlier calls had appended."""


class _Account:
    """What one writer says it did, held against what is found in the file."""

    def __init__(self, name: str, lines: int, journal: Path) -> None:
        self._name = name
        self._lines = lines
        events = [line.split() for line in journal.read_text().splitlines()]
        assert events[-1] == ["ack", str(self._lines)]
        self.failures = [_Failure(*map(int, e[1:])) for e in events if e[0] == "fail"]
        self._repeated = [0] * self._lines

    def take_lines(self, found: Counter[bytes]) -> None:
        """See that every line is there, more than once only if a write that failed was repeated."""
        for number in range(self._lines):
            times = found.pop(appender.make_line(self._name, number)[:-1], 0)
            failed = sum(failure.first <= number < failure.behind for failure in self.failures)
            assert 1 <= times <= 1 + failed, (self._name, number, times, failed)
            self._repeated[number] = times - 1

    def take_beginnings(self, found: Counter[bytes]) -> None:
        """See that what was accepted of a line is there, as one or as the beginning of one."""
        # A call of which nothing is there leaves exactly what was accepted before. What is longer,
        # or of a later line, may be another one's: whose it is, the others tell first.
        left = []
        for failure in self.failures:
            piece = appender.make_line(self._name, failure.first)[: failure.accepted]
            if piece and found[piece]:
                found[piece] -= 1
            else:
                left.append(failure)
        found += Counter()  # without what has come down to 0
        # A short beginning fits many lines, so those that have to be there take theirs first.
        for failure in sorted(left, key=lambda failure: -failure.accepted):
            line = appender.make_line(self._name, failure.first)
            pieces = [x for x in found if line.startswith(x) and len(x) >= failure.accepted]
            for number in range(failure.first + 1, failure.behind):
                later = appender.make_line(self._name, number)
                pieces += [x for x in found if later.startswith(x)]
            piece = max(pieces, key=len, default=b"")
            if failure.accepted and not (piece and line.startswith(piece)):
                assert self._repeated[failure.first], (self._name, failure, self.failures)
                self._repeated[failure.first] -= 1
            if piece:
                found[piece] -= 1
                found += Counter()


@pytest.mark.parametrize(("crashes", "part"), CRASHES)
def test_no_acknowledged_line_is_lost_while_the_daemon_is_killed(
    mount: Mount, tmp_path: Path, crashes: int, part: int
) -> None:
    """Killing the daemon with `kill -9` loses no byte for which write(2) has returned."""
    path = mount.point / "orders" / "0"
    counts = {name: count // part for name, (count, _) in WRITERS.items()}
    journals = {name: tmp_path / f"journal-{name}" for name in WRITERS}
    writers = [
        subprocess.Popen(
            [
                sys.executable,
                appender.__file__,
                path,
                journals[name],
                name,
                *map(str, (counts[name], *sizes)),
            ],
            env=environment(),
        )
        for name, (_, sizes) in WRITERS.items()
    ]
    try:
        for crash in range(1, crashes + 1):
            _wait_for_lines(journals, sum(counts.values()) * crash // (crashes + 2))
            mount.crash()
        statuses = [writer.wait() for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    assert statuses == [0] * len(writers)
    found = Counter(path.read_bytes().split(b"\n")[:-1])
    assert len(values(path)) == found.total()
    accounts = [_Account(name, counts[name], journal) for name, journal in journals.items()]
    for account in accounts:
        account.take_lines(found)
    for account in accounts:
        account.take_beginnings(found)
    assert not found, "records that no writer wrote"
    failures = sum(len(account.failures) for account in accounts)
    assert failures >= crashes, "writers did not notice that the daemon died"
    # A batch that was being written when the daemon died may be there in part: it is cut.
    assert {loss["kind"] for loss in meta(path)["losses"]} <= {"cut"}


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
    """The mount option `sync` does this for every file."""
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
    its last open file is closed, or the mount comes back. `.meta` and the daemon's log say why."""
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
    its last open file is closed, or the mount comes back. `.meta` and the daemon's log say why."""
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


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_a_disk_that_hangs_under_one_topic_keeps_no_other(tmp_path: Path, option: str) -> None:
    """A disk that hangs under the files of one topic keeps no other topic."""
    check_others(tmp_path, option, "append", "half line", "close with half a line")
