"""Any one operation of the disk fails while logfs starts, trims, deletes or applies retention."""

import errno
from collections.abc import Callable, Iterator

import pytest

from logfs.errors import LogfsError
from logfs.log.reading.lookup import positions_of_offset
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import trim
from logfs.types import Positions
from tests.log.looking import directories
from tests.log.support import DIRECTORY, Bench, lines_of

LINES = [b"line %d" % n for n in range(20)]
SMALL = {"internal.segment.bytes": "300", "index.interval.bytes": "0"}
NEEDED = {"", ".lock", ".kafka_cleanshutdown", "logfs.backup", "logfs.closed"}
"""What a start has to know of the directory, and to do in it, before it may change anything."""
ERRORS = [errno.ENOSPC, errno.EIO]

pytestmark = [
    pytest.mark.allow_log("for a test", "the one before it is used"),
    pytest.mark.parametrize("error", ERRORS),
    # Every fifth operation, and in long tests each.
    pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)]),
]


def filled() -> Bench:
    bench = Bench(SMALL)
    bench.write(*LINES)
    bench.writer().write(b"unfinished", bench.now_ms)
    bench.log.advance_log_start_offset(1, bench.now_ms)
    bench.log.flush()
    bench.store.checkpoint()
    bench.store.attributes.set("t", 0, mode=0o640)
    return bench


class Failing:
    """Lets the operation with a number fail, counted from now on.

    Attributes:
        what: The operation that failed, and on what; None if there were fewer.
    """

    def __init__(self, bench: Bench, number: int, error: int) -> None:
        self._left = number
        self._error = error
        self.what: tuple[str, str] | None = None
        bench.disk.before = self._look

    def _look(self, operation: str, name: str, _size: int) -> None:
        self._left -= 1
        if self._left == -1:
            self.what = operation, name
            raise OSError(self._error, "for a test", name)


def failing_once(error: int, step: int) -> Iterator[tuple[Bench, Callable[[], Failing]]]:
    """Yield logs, each with what lets another operation fail, until there are no more of them."""
    for number in range(0, 1_000, step):
        bench = filled()
        made: list[Failing] = []

        def begin(
            bench: Bench = bench, number: int = number, made: list[Failing] = made
        ) -> Failing:
            made.append(Failing(bench, number, error))
            return made[0]

        yield bench, begin
        if made[0].what is None:
            assert number > 5
            return
    raise AssertionError("it has fewer operations")


def runs_of(bench: Bench) -> dict[bytes, int]:
    """Return the kept lines, each with the position of its record."""
    log = bench.log
    offsets = range(log.log_start_offset, log.log_end_offset)
    found = [positions_of_offset(log.snapshot, offset).text for offset in offsets]
    return dict(zip(lines_of(log), found, strict=True))


def test_the_store_opens_or_says_why_and_nothing_is_lost(error: int, step: int) -> None:
    for stop in ("kill", "close"):
        for bench, begin in failing_once(error, step):
            before, shown = runs_of(bench), bench.log.snapshot.end.positions
            if stop == "kill":
                bench.disk.kill()
            else:
                bench.store.close(bench.now_ms)
            failing = begin()
            has_opened = True
            try:
                bench.store = bench.open()
            except OSError:
                has_opened = False
            bench.disk.before = None
            what = failing.what or ("", "")
            needed = what[1] in NEEDED
            assert has_opened or needed, what
            if has_opened:
                assert not bench.log.is_unreadable, what
                assert set(lines_of(bench.log)) >= set(before), what
            bench.disk.kill()
            bench.store = bench.open()
            assert bench.log.offline is None, what
            found = runs_of(bench)
            assert before.items() <= found.items(), what
            assert set(found) <= {*before, b"unfinished"}, what
            end = bench.log.snapshot.end.positions
            assert end == Positions(*map(max, end, shown)), what
            bench.write(b"more")
            assert lines_of(bench.restart())[-1] == b"more", what


@pytest.mark.parametrize("what_for", ["trim", "retention"])
def test_what_is_trimmed_is_trimmed_for_good_or_not_at_all(
    error: int, step: int, what_for: str
) -> None:
    for bench, begin in failing_once(error, step):
        before = runs_of(bench)
        bench.store.alter_topic("t", {"retention.ms": "-1", "retention.bytes": "300"})
        failing = begin()
        start = None
        try:
            if what_for == "trim":
                start = trim(bench.log, 17, bench.now_ms, at_once=True).log_start_offset
            else:
                apply_retention(bench.log, bench.now_ms)
                start = bench.log.log_start_offset
        except OSError:
            pass
        bench.disk.before = None
        what = failing.what
        if error == errno.ENOSPC and what is not None and what[0] not in {"sync", "sync_directory"}:
            assert bench.log.offline is None, what
        for stop in (bench.disk.kill, lambda disk=bench.disk: disk.crash(None)):
            stop()
            bench.store = bench.open()
            assert bench.log.offline is None, what
            assert start is None or bench.log.log_start_offset == start, what
            found = {line: at for line, at in runs_of(bench).items() if line != b"unfinished"}
            assert found.items() <= before.items(), what
            assert list(found) == LINES[20 - len(found) :], what


def test_a_topic_is_deleted_as_a_whole_or_the_error_says_that_it_is_not(
    error: int, step: int
) -> None:
    for bench, begin in failing_once(error, step):
        failing = begin()
        try:
            bench.store.delete_topic("t", bench.now_ms)
        except (LogfsError, OSError):
            is_deleted = False
        else:
            is_deleted = True
        bench.disk.before = None
        assert ("t" not in bench.store.topics()) == is_deleted, failing.what
        assert (DIRECTORY not in directories(bench.disk)) == is_deleted, failing.what
        bench.disk.kill()
        bench.store = bench.open()
        assert ("t" not in bench.store.topics()) == is_deleted, failing.what
        if is_deleted:
            bench.store.create_topic("t", 1, SMALL, bench.now_ms)
            bench.write(b"new")
            bench.log.flush()
            bench.disk.kill()
            bench.store = bench.open()
            assert lines_of(bench.log) == [b"new"], failing.what
            assert bench.store.attributes.get("t", 0).mode is None, failing.what
