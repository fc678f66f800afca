"""Promise 3 of SEMANTICS.md while retention works; each docstring is the sentence that is run."""

import contextlib
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.mounting import Mount, environment, logfs, output, wait_until
from tests.semantics.programs import append_all, attribute, configure, meta, numbered

pytestmark = pytest.mark.fuse

LINE_BYTES = 100
ROUND = 300
KEPT_BYTES = 60_000


@pytest.fixture
def trimmed(tmp_path: Path) -> Iterator[Mount]:
    """A mount that looks for what is to be deleted all the time."""
    options = ("log.retention.check.interval.ms=20", "log.initial.task.delay.ms=0")
    with Mount(tmp_path / "data", tmp_path / "mnt", *options) as mount:
        (mount.point / "orders").mkdir()
        configure(
            mount.point / "orders",
            internal_segment_bytes=20_000,
            max_message_bytes=10_000,
            retention_bytes=KEPT_BYTES,
            file_delete_delay_ms=0,
        )
        yield mount


def lines(first: int, last: int) -> bytes:
    return b"".join(numbered(first, last, LINE_BYTES))


@contextlib.contextmanager
def tail(path: Path, *flags: str) -> Iterator[IO[bytes]]:
    """Run a ``tail`` that follows; it must still run when the block ends, and be content."""
    command = ["tail", "-s", "0.02", *flags, str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process.stdout
        assert process.poll() is None
        os.set_blocking(process.stdout.fileno(), False)
        assert not process.stdout.read(1)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        complaints = process.stderr.read()
        process.stderr.close()
    assert not complaints


def wait_for_retention(path: Path) -> int:
    """Wait until nothing more is to be deleted; returns the first offset that is kept."""

    def is_done() -> bool:
        return bool(meta(path)["size_bytes"] < KEPT_BYTES + 21_000)

    wait_until(is_done, "retention had deleted what it may")
    return attribute(path, "log_start_offset")


def test_readers_live_through_retention(trimmed: Mount) -> None:
    """Retention deletes the oldest segments while programs read: they meet no error, they do not
    stop, and no record comes twice.
    """
    path = trimmed.point / "orders" / "0"
    append_all(path, lines(0, ROUND))
    with tail(path, "-f", "-n", "1") as follow, tail(path, "-F", "-n", "1") as retry:
        for out in (follow, retry):
            assert out.read(LINE_BYTES) == lines(ROUND - 1, ROUND)
        with path.open("rb", buffering=0) as middle:
            middle.seek(100 * LINE_BYTES)
            read = [int(middle.read(LINE_BYTES).split()[0])]
            for number in range(1, 15):
                text = lines(number * ROUND, (number + 1) * ROUND)
                append_all(path, text)
                assert follow.read(len(text)) == text
                assert retry.read(len(text)) == text
                assert os.stat(path).st_size == (number + 1) * ROUND * LINE_BYTES
                wait_for_retention(path)
                read.append(int(middle.read(LINE_BYTES).split()[0]))
            read += [int(line.split()[0]) for line in middle.readall().splitlines()]
        total = 15 * ROUND
        first = attribute(path, "log_start_offset")
        assert path.read_bytes() == output("cat", path) == lines(first, total)
        assert read == sorted(set(read))
        assert read[0] == 100
        assert set(range(first, total)) <= set(read)
        assert len(read) < total - 1_000
    assert "orders/0: deleted " in trimmed.log


def test_what_is_deleted_stays_so(trimmed: Mount) -> None:
    """Deleted records stay deleted, after a crash too, and the size includes them."""
    path = trimmed.point / "orders" / "0"
    append_all(path, lines(0, 3_000))
    first = wait_for_retention(path)
    assert first > 2_000
    status = os.stat(path)
    assert status.st_size == 3_000 * LINE_BYTES
    for start_again in (trimmed.restart, trimmed.crash, trimmed.crash):
        start_again()
        assert attribute(path, "log_start_offset") == first
        assert output("cat", path) == lines(first, 3_000)
        now = os.stat(path)
        assert (now.st_ino, now.st_size) == (status.st_ino, status.st_size)
        assert not meta(path)["losses"]
    # By age everything goes, the active segment too.
    configure(path.parent, retention_ms=1)
    wait_until(lambda: attribute(path, "log_start_offset") == 3_000, "everything had been deleted")
    for start_again in (trimmed.restart, trimmed.crash):
        assert output("cat", path) == b""
        assert os.stat(path).st_size == 3_000 * LINE_BYTES
        start_again()
    assert attribute(path, "start") == 3_000 * LINE_BYTES


def test_open_fixed_names_keep_what_they_have(trimmed: Mount) -> None:
    """A fixed name that is open still reads records that are deleted meanwhile, until it is
    closed."""
    path = trimmed.point / "orders" / "0"
    text = lines(0, 600)
    append_all(path, text)
    first = attribute(path, "log_start_offset")
    name = path.with_name("0@earliest..latest")
    with name.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        expected = text[-size:]
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            append_all(path, lines(600, 3_000))
            assert wait_for_retention(path) > 600 > first
            files = os.listdir(trimmed.data / "orders-0")
            assert [x for x in files if x.endswith(".log.deleted")], "kept for the open reader"
            assert mapped[:] == expected
        assert file.read() == expected

    def is_gone() -> bool:
        return not [x for x in os.listdir(trimmed.data / "orders-0") if x.endswith(".deleted")]

    wait_until(is_gone, "the files had been removed")


def test_a_topic_of_a_broker_is_left_alone(trimmed: Mount) -> None:
    """From a topic without its own configuration, as a broker leaves it, nothing is ever
    deleted until its policy is set.
    """
    path = trimmed.point / "orders" / "0"
    configure(path.parent, retention_bytes=-1)
    append_all(path, lines(0, 2_000))
    trimmed.stop()
    (trimmed.data / "orders-0" / "logfs.config").unlink()
    trimmed.options = (*trimmed.options, "log.retention.bytes=0", "log.segment.delete.delay.ms=0")
    trimmed.start()
    wait_until(lambda: "topic orders has no configuration" in trimmed.log, "it was said")
    configure(path.parent, flush_messages=1000)
    configure(path.parent, flush_messages=1001)
    trimmed.restart()
    assert os.getxattr(path.parent, "user.logfs.cleanup.policy") == b""
    assert output("cat", path) == lines(0, 2_000)
    configure(path.parent, cleanup_policy="delete")
    wait_until(lambda: attribute(path, "log_start_offset") == 2_000, "the policy was followed")
    assert output("cat", path) == b""


def test_trim_gives_up_what_lies_before_a_point(mount: Mount) -> None:
    """`logfs trim` removes the records before a point, and no crash brings them back. With `--now`
    the files are deleted at once, except what an open fixed name still reads."""
    path = mount.point / "orders" / "0"
    configure(path.parent, internal_segment_bytes=20_000, max_message_bytes=10_000)
    append_all(path, lines(0, 2_000))
    size = os.stat(path).st_size
    fixed = path.with_name("0@offset=100..offset=300")
    assert fixed.read_bytes() == lines(100, 300)
    with (
        tail(path, "-f", "-n", "1") as follow,
        tail(path, "-F", "-n", "1") as retry,
        path.open("rb", buffering=0) as middle,
        fixed.open("rb") as kept,
    ):
        for out in (follow, retry):
            assert out.read(LINE_BYTES) == lines(1_999, 2_000)
        middle.seek(150 * LINE_BYTES)
        assert middle.read(LINE_BYTES) == lines(150, 151)
        logfs("trim", f"{mount.data}/orders/0@offset=1234")
        assert output("cat", path) == lines(1_234, 2_000)
        logfs("trim", f"{mount.point}/orders/0@offset=1500", "--now")
        logs = [name for name in os.listdir(mount.data / "orders-0") if ".log" in name]
        assert [name for name in logs if name.endswith(".deleted")], "one is being read"
        assert len(logs) < 12
        assert kept.read() == lines(100, 300)
        append_all(path, lines(2_000, 2_100))
        for out in (follow, retry):
            assert out.read(100 * LINE_BYTES) == lines(2_000, 2_100)
        rest = middle.readall()
        assert rest.endswith(lines(1_500, 2_100))
        assert rest == lines(2_100 - len(rest) // LINE_BYTES, 2_100) or rest.startswith(
            lines(151, 152)
        )
        assert os.stat(path).st_size == size + 100 * LINE_BYTES
    mount.crash()
    assert output("cat", path) == lines(1_500, 2_100)
    assert attribute(path, "log_start_offset") == 1_500
    logfs("trim", f"{mount.data}/orders@latest", "--now")
    for start_again in (mount.crash, mount.restart):
        start_again()
        assert output("cat", path) == b""
        assert os.stat(path).st_size == size + 100 * LINE_BYTES
    append_all(path, lines(2_100, 2_101))
    assert output("cat", path) == lines(2_100, 2_101)
