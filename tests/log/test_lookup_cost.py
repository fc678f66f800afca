"""What an address costs: an index interval of scanning, however many segments there are."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from logfs.log.reading.address import Ago, AtByte, AtOffset, Moment, Now, PartitionAddress, Suffix
from logfs.log.reading.reader import TextReader
from logfs.log.segments.batches import LOOKUP_BYTES
from logfs.records.record import Record
from logfs.services.views.resolve import resolve
from logfs.types import View
from tests.fakes import START_MS
from tests.log.support import Bench

each_length = pytest.mark.parametrize(("segments", "batches"), [(2, 300), (8, 300), (150, 4)])


def long_log(segments: int, batches: int) -> Bench:
    """Segments of batches of about 1 KiB; the times run back now and then."""
    bench = Bench({"max.message.bytes": "1000", "internal.segment.bytes": str(1 << 30)})
    for segment in range(segments):
        first = segment * batches
        bench.append(
            [
                Record(0, START_MS + n - 40 * (n % 9 == 0), None, b"%0900d" % n, ())
                for n in range(first, first + batches)
            ]
        )
        bench.log.roll(bench.now_ms)
    return bench


def watched(bench: Bench, action: Callable[[], object]) -> tuple[int, set[str]]:
    """Do something; returns the bytes read of .log files, and the files that were touched."""
    read, names = [0], set()

    def before(operation: str, name: str, size: int) -> None:
        names.add(name)
        if operation.startswith("pread") and name.endswith(".log"):
            read[0] += size

    bench.disk.before = before
    action()
    bench.disk.before = None
    return read[0], names


def addresses(records: int) -> Iterator[PartitionAddress]:
    for n in range(3, records, records // 23):
        yield PartitionAddress(0, AtOffset(n))
        yield PartitionAddress(0, Moment(START_MS + n), view=Suffix.TSV)
        yield PartitionAddress(0, Ago(1_000_000 - n), Now(), Suffix.JSONL)
        yield PartitionAddress(0, AtByte(901 * n + 5), AtOffset(-1))


@each_length
def test_an_address_costs_an_index_interval_however_long_the_log(
    segments: int, batches: int
) -> None:
    bench = long_log(segments, batches)
    for asked in addresses(segments * batches):
        read, names = watched(bench, partial(resolve, bench.log, asked, START_MS + 1_000_000))
        points = 1 if asked.end is None else 2
        assert read <= points * 4 * LOOKUP_BYTES < 300_000
        assert len({name.split(".")[0] for name in names}) <= 2 * points


@each_length
def test_a_seek_costs_an_index_interval_however_long_the_log(segments: int, batches: int) -> None:
    bench = long_log(segments, batches)
    reader, out = TextReader(View.TEXT, lambda: bench.log.snapshot), bytearray(1)
    for n in range(0, segments * batches, segments * batches // 30):
        reader.seek(901 * n + 10)
        read, names = watched(bench, lambda: reader.read_into(memoryview(out), 1 << 40))
        assert read <= 2 * LOOKUP_BYTES
        assert len({name.split(".")[0] for name in names}) == 1
