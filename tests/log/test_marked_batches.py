"""Look-ups that come back to large batches: the same bytes, of which few are read."""

from collections.abc import Callable
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.services.views.buffers import Buffers
from logfs.services.views.files import GrowingFile
from logfs.types import IsolationLevel, View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.growing import VIEWS
from tests.log.readings import Rule
from tests.log.support import batches_in, log_name
from tests.log.transactions import ABORT, COMMIT, TransactionLog

each_view = pytest.mark.parametrize("view", VIEWS)

KIB = 1024
LARGE = {"max.message.bytes": str(300 * KIB), "index.interval.bytes": "4096"}
VALUES = (
    b"a value",
    b"two\nlines\t\\",
    b"",
    None,
    b"x" * 300,
    b"\xff\xfe",
    "ü€".encode(),
    b'"' * 40,
)
KEYS = (None, None, b"k\t", b"", b"\xff")


def records(count: int, seed: int, long: int = 0) -> list[Record]:
    """Records of all kinds, with headers now and then, and ``long`` ones of many KiB."""
    chance = Random(seed)
    made = []
    for n in range(count):
        value = chance.choice(VALUES)
        if chance.random() < long / count:
            value = chance.choice([b"\t", b"y", b"\xff"]) * chance.randrange(5, 60) * KIB
        headers = ((b"h", b"v" * chance.randrange(90)), (b"", None)) if n % 7 == 3 else ()
        made.append(Record(0, START_MS + n, chance.choice(KEYS), value, headers))
    return made


def fill(log: HoledLog, *counts: int) -> None:
    for number, count in enumerate(counts):
        log.append(records(count, number, long=number % 3 if count > 250 else 0))


@cache
def dense() -> HoledLog:
    log = HoledLog(LARGE)
    fill(log, 2, 150, 3, 160, 2, 300, 1, 170, 1, 400)
    return log


@cache
def compacted() -> HoledLog:
    log = HoledLog(LARGE)
    fill(log, 150, 2, 100)
    log.roll()
    fill(log, 150)
    log.compact(lambda offset: offset % 5 != 2 or offset > 120)
    fill(log, 2, 150, 300)
    return log


@cache
def compressed() -> HoledLog:
    log = HoledLog(LARGE | {"compression.type": "zstd"})
    fill(log, 200, 200)
    return log


LOGS = [dense, compacted, compressed]

READS = st.lists(
    st.tuples(st.integers(0, 11), st.integers(-2, 2), st.sampled_from((1, 9, 300, 4096, 70_000))),
    min_size=1,
    max_size=30,
)
"""Which of twelve places, how far from it, how many bytes: a place comes again and again."""


def borders(log: HoledLog, view: View) -> list[int]:
    """Positions at which batches and some of their records begin."""
    firsts = {
        h.base_offset
        for name in log.bench.names(".log")
        for _, h in batches_in(log.bench.file(name))
    }
    kept = log.model.visible
    step = max(len(kept) // 5, 1)
    return sorted(
        {
            k.positions[view]
            for n, k in enumerate(kept)
            if k.record.offset in firsts or n % step == 0
        }
    )


@cache
def whole(make: Callable[[], HoledLog], view: View) -> tuple[bytes, list[int]]:
    """The bytes of a log without holes, and where some of it begins."""
    log = make()
    ((begin, text),) = log.model.runs(view)
    assert begin == 0
    return text, borders(log, view)


@given(st.sampled_from([dense, compressed]), st.sampled_from(VIEWS), READS, st.booleans())
def test_reads_that_come_back_return_the_same_bytes(
    make: Callable[[], HoledLog], view: View, reads: list[tuple[int, int, int]], goes_on: bool
) -> None:
    text, places = whole(make, view)
    file = GrowingFile(make().log, view, 0)
    for number, step, size in reads * 3:
        offset = max(places[number * len(places) // 12] + step, 0)
        for _ in range(3 if goes_on else 1):
            out = bytearray(size)
            got = file.read_into(memoryview(out), offset)
            assert out[:got] == text[offset : offset + size]
            offset += got


@each_view
@pytest.mark.parametrize("make", [dense, compressed])
def test_reads_on_both_sides_of_a_border_return_the_same_bytes(
    make: Callable[[], HoledLog], view: View
) -> None:
    text, places = whole(make, view)
    for place in places:
        file, out = GrowingFile(make().log, view, 0), bytearray(300)
        for offset in (place, max(place - 1, 0)) * 4:
            got = file.read_into(memoryview(out), offset)
            assert out[:got] == text[offset : offset + 300]


@each_view
@pytest.mark.parametrize("make", LOGS)
def test_a_read_continues_from_a_part_of_a_batch(make: Callable[[], HoledLog], view: View) -> None:
    log = make()
    for place in borders(log, view)[::2]:
        file, rule = GrowingFile(log.log, view, 0), Rule(log.model, view)
        offset = place
        for size in (10, 10, 10, 5000, 20_000, 20_000, 20_000, 400_000):
            offset = place if size == 10 else offset
            out = bytearray(size)
            got = file.read_into(memoryview(out), offset)
            assert out[:got] == rule.read(offset, size)
            offset += got


@pytest.mark.parametrize("level", list(IsolationLevel))
@each_view
def test_aborted_records_stay_hidden(view: View, level: IsolationLevel) -> None:
    log = TransactionLog(LARGE)
    for number in range(8):
        log.produce(number % 3, records(120, number), Compression.NONE)
        if number % 3 == 2:
            for producer in range(3):
                log.end(producer, ABORT if producer == 1 else COMMIT, START_MS)
    seen = log.seen(level)
    places, chance = borders(seen, view), Random(1)
    file, rule = GrowingFile(log.log, view, 0, level=level), Rule(seen.model, view)
    for _ in range(150):
        offset, size = max(chance.choice(places) + chance.randrange(-3, 3), 0), 4000
        out = bytearray(size)
        got = file.read_into(memoryview(out), offset)
        assert out[:got] == rule.read(offset, size)


@each_view
def test_a_batch_that_was_damaged_since_is_an_error_wherever_it_is_read(view: View) -> None:
    log = HoledLog(LARGE)
    fill(log, 900, 900, 900)
    file, out = GrowingFile(log.log, view, 0), memoryview(bytearray(4000))
    places = [kept.positions[view] for kept in log.model.visible]
    for place in places[950:1700:50] * 3:
        assert file.read_into(out, place) > 0
    name = log_name(0)
    data = bytearray(log.bench.file(name))
    (_, _), (begin, header), _ = batches_in(bytes(data))
    data[begin + header.size_bytes // 2] ^= 1
    log.bench.put(name, bytes(data))
    fresh = GrowingFile(log.log, view, 0)
    with pytest.raises(CorruptRecordError):
        fresh.read_into(out, places[1350])
    damaged = 0
    for place in places[950:1700:10]:
        try:
            file.read_into(out, place)
        except CorruptRecordError:
            damaged += 1
    assert damaged
    assert file.read_into(out, places[1800]) > 0
    assert bytes(out[:100]) == Rule(log.model, view).read(places[1800], 4000)[:100]


@each_view
def test_a_tail_that_was_rewritten_is_read_as_it_is(view: View) -> None:
    log = HoledLog(LARGE)
    fill(log, 900, 900)
    file, out = GrowingFile(log.log, view, 0), memoryview(bytearray(500))
    for _ in range(4):
        for kept in log.model.visible[::100]:
            file.read_into(out, kept.positions[view])
    log.truncate(900)
    log.append(records(900, 77))
    rule = Rule(log.model, view)
    for _ in range(4):
        for kept in log.model.visible[::100]:
            got = file.read_into(out, kept.positions[view])
            assert bytes(out[:got]) == rule.read(kept.positions[view], 500)


@each_view
def test_a_third_look_into_a_large_batch_reads_little_of_it(view: View) -> None:
    log = HoledLog(LARGE)
    fill(log, 2, 3000)
    text = log.model.runs(view)[0][1]
    file, out = GrowingFile(log.log, view, 0), memoryview(bytearray(4096))
    read = [0]

    def count(operation: str, name: str, size: int) -> None:
        read[0] += size if operation.startswith("pread") and name.endswith(".log") else 0

    place = len(text) // 2
    for _ in range(3):
        place -= 20_000
        read[0] = 0
        log.bench.disk.before = count
        assert file.read_into(out, place) == 4096
        log.bench.disk.before = None
    assert read[0] < 40 * KIB
    assert len(log.bench.file(log_name(0))) > 150 * KIB
    found = bytes(out)
    while got := file.read_into(out, place + len(found)):
        found += out[:got]
    assert found == text[place:]


def test_what_is_remembered_is_part_of_what_a_reader_keeps() -> None:
    log = dense()
    buffers = Buffers(60 * KIB)
    file, out = GrowingFile(log.log, View.TEXT, 0, buffers=buffers), memoryview(bytearray(100))
    for place in borders(log, View.TEXT) * 3:
        file.read_into(out, place)
        assert buffers.kept_bytes <= 60 * KIB
    assert buffers.kept_bytes == 0 or buffers.kept_bytes > 100
