"""What readers keep in memory between two reads, for all of them together."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from logfs.log.reading.reader import TextReader
from logfs.records.record import Record
from logfs.services.views.buffers import Buffers
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.types import View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.growing import LOGS, VIEWS, dense, everything
from tests.log.readings import Rule
from tests.log.support import end_of

READS = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.integers(0, 100_000), st.integers(1, 90)),
    min_size=1,
    max_size=40,
)
"""Which of four readers; where it seeks to, if at all; how many bytes it reads."""


@given(st.sampled_from(LOGS), st.sampled_from(VIEWS), READS, st.sampled_from((0, 300, 2000)))
def test_readers_that_lose_their_buffers_read_the_same(
    make: Callable[[], HoledLog],
    view: View,
    reads: list[tuple[int, int | None, int]],
    limit_bytes: int,
) -> None:
    log, buffers = make(), Buffers(limit_bytes)
    end = end_of(log.log, view)
    files = [GrowingFile(log.log, view, 0, buffers=buffers) for _ in range(4)]
    rules = [Rule(log.model, view) for _ in files]
    offsets = [0] * len(files)
    for number, seek, size in reads:
        offset = offsets[number] if seek is None else seek % (end + 20)
        out = memoryview(bytearray(size))
        got = files[number].read_into(out, offset)
        assert out[:got] == rules[number].read(offset, size)
        assert buffers.kept_bytes <= limit_bytes
        offsets[number] = offset + got


def test_the_reader_that_has_not_read_for_the_longest_time_loses_its_buffers() -> None:
    log, out = dense(), memoryview(bytearray(10))
    readers = [TextReader(View.TEXT, lambda: log.log.snapshot) for _ in range(3)]
    for reader in readers:
        reader.read_into(out, 10)
    buffers = Buffers(sum(reader.buffer_bytes for reader in readers) - 1)
    for reader in (readers[1], readers[0], readers[2]):
        buffers.end(reader)
    assert [reader.buffer_bytes > 0 for reader in readers] == [True, False, True]


def test_what_a_reader_decompressed_is_part_of_what_it_keeps() -> None:
    log = HoledLog({"compression.type": "zstd"})
    log.append([Record(0, START_MS, None, bytes(200_000), ())])
    buffers, out = Buffers(), memoryview(bytearray(10))
    GrowingFile(log.log, View.TEXT, 0, buffers=buffers).read_into(out, 0)
    assert log.log.snapshot.end.positions.text == 200_001
    assert buffers.kept_bytes > 200_000


def test_a_closed_reader_keeps_nothing() -> None:
    buffers, out = Buffers(), memoryview(bytearray(10))
    growing = GrowingFile(dense().log, View.TEXT, 0, buffers=buffers)
    fixed_file = FixedFile(everything(dense(), View.TEXT), buffers)
    for file in (growing, fixed_file):
        file.read_into(out, 0)
        assert buffers.kept_bytes > 0
        file.close()
        assert buffers.kept_bytes == 0
