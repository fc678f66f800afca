"""The wanted records of a partition as lines, searched window by window, by threads or without."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from logfs.errors import CorruptRecordError
from logfs.records._reading import RecordSearch
from logfs.records.matching import search_for
from logfs.records.record import Record
from logfs.services.views.matched_lines import LineReader
from logfs.services.views.rendering import rendered
from logfs.types import IsolationLevel, View
from tests.log import isolation, readers
from tests.log.gaps import HoledLog
from tests.log.support import Bench, log_name
from tests.log.transactions import TransactionLog

each_number_of_threads = pytest.mark.parametrize("threads", [1, 2])
ALL = RecordSearch()
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test two processors, also where there is one."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


def always(_: Record) -> bool:
    return True


def lines_of(
    log: HoledLog,
    view: View,
    is_wanted: Callable[[Record], bool],
    stop: int,
    start: int = 0,
) -> bytes:
    found = [kept.record for kept in log.model.visible]
    wanted = [record for record in found if is_wanted(record) and start <= record.offset < stop]
    return b"".join(rendered(wanted, view)) if wanted else b""


def read_all(reader: LineReader, stop: int) -> bytes:
    found = b""
    while lines := reader.read(stop):
        found += lines
    return found


@contextmanager
def reading(
    log: Bench | HoledLog | TransactionLog,
    threads: int,
    *,
    start: int = 0,
    level: IsolationLevel = UNCOMMITTED,
    search: RecordSearch = ALL,
    view: View = View.TEXT,
) -> Iterator[LineReader]:
    """Open a reader of windows so small that a log of a few records has many."""
    with LineReader(
        lambda: log.log.snapshot, start, level, search, view, window_bytes=100, threads=threads
    ) as reader:
        yield reader


@each_number_of_threads
@readers.each_log
def test_from_and_to_every_offset(make: Callable[[], HoledLog], threads: int) -> None:
    log = make()
    end = log.model.end_offset
    for start in range(end + 2):
        with reading(log, threads, start=start) as reader:
            assert read_all(reader, end + 5) == lines_of(log, View.TEXT, always, end, start)
            assert reader.offset == max(start, end)
        with reading(log, threads) as reader:
            before = read_all(reader, start)
            assert before == lines_of(log, View.TEXT, always, start)
            assert before + read_all(reader, end) == lines_of(log, View.TEXT, always, end)


@each_number_of_threads
@pytest.mark.parametrize("view", list(View))
@readers.each_log
def test_each_search_and_view(make: Callable[[], HoledLog], view: View, threads: int) -> None:
    log = make()
    end = log.model.end_offset
    searches: list[tuple[RecordSearch, Callable[[Record], bool]]] = [
        (search_for([b"lines"]), lambda record: b"lines" in (record.value or b"")),
        (search_for([b"^x+$"]), lambda record: (record.value or b"").startswith(b"xxx")),
        (search_for(keys=[b"k\t8"]), lambda record: record.key == b"k\t8"),
        (search_for([b"nothing"]), lambda _: False),
    ]
    for search, is_wanted in searches:
        with reading(log, threads, search=search, view=view) as reader:
            assert read_all(reader, end) == lines_of(log, view, is_wanted, end)


@each_number_of_threads
@isolation.each_log
@isolation.each_level
def test_each_level_sees_its_records(
    make: Callable[[], TransactionLog], level: IsolationLevel, threads: int
) -> None:
    log = make()
    end = log.model.end_offset
    with reading(log, threads, level=level) as reader:
        assert read_all(reader, end) == lines_of(log.seen(level), View.TEXT, always, end)


def damaged(bench: Bench, number: int, count: int) -> None:
    """Damage the last byte of one of so many batches of the same size."""
    data = bytearray(bench.file(log_name(0)))
    data[(number + 1) * len(data) // count - 1] ^= 1
    bench.put(log_name(0), bytes(data))


@each_number_of_threads
def test_what_is_before_damage_is_printed_and_the_error_comes_again(threads: int) -> None:
    bench = Bench()
    bench.write(*[b"record %d" % n for n in range(10)])
    damaged(bench, 6, 10)
    with reading(bench, threads) as reader:
        found = b""
        while reader.offset < 6:
            found += reader.read(10)
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="offset 6") as caught:
                reader.read(10)
            assert caught.value.file == f"t-0/{log_name(0)}"
            assert reader.offset == 6
        assert found == b"".join(b"record %d\n" % n for n in range(6))


@each_number_of_threads
def test_it_continues_with_what_is_appended_rolled_cut_and_removed(threads: int) -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    with reading(bench, threads) as reader:
        found = b""
        for n in range(50):
            bench.write(b"%d" % n)
            found += read_all(reader, 100)
        bench.log.truncate_to(45, bench.now_ms)
        bench.write(*[b"again %d" % n for n in range(45, 60)])
        found += reader.read(100)
        bench.log.advance_log_start_offset(58, bench.now_ms)
        found += read_all(reader, 100)
    lines = found.decode().split()
    assert lines[:50] == [str(n) for n in range(50)]
    assert lines[-2:] == ["again", "59"]
    numbers = [int(line) for line in lines[50:] if line != "again"]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 50
