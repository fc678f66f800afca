"""Damage in a log: an error that names the file, the place and the offset at which to read on."""

import re
from datetime import UTC

import pytest

from logfs.errors import CorruptRecordError
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import PartitionAddress, parse_partition_name
from logfs.log.reading.reader import TextReader
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import resolve
from logfs.types import View
from tests.log.support import DIRECTORY, Bench, batches_in, log_name

LINES = [b"line %03d" % number for number in range(40)]
SMALL = {"internal.segment.bytes": "1000", "index.interval.bytes": "200"}


@pytest.fixture
def bench() -> Bench:
    bench = Bench(SMALL)
    bench.write(*LINES)
    bench.log.flush()
    return bench


def damage(bench: Bench, number: int, change: str) -> tuple[str, int]:
    """Damage the batch of a line; returns its file and its place in there."""
    log = bench.log
    segment = log.snapshot.segments[log.snapshot.index_of_offset(number)]
    name = log_name(segment.base_offset)
    data = bytearray(bench.file(name))
    at = batches_in(bytes(data))[number - segment.base_offset][0]
    match change:
        case "value":
            data[at + 68] ^= 1
        case "length":
            data[at + 8 : at + 12] = b"\x7f\0\0\0"
        case "cut":
            del data[at + 30 :]
    bench.put(name, bytes(data))
    segment.close_files()
    return f"{DIRECTORY}/{name}", at


def read(log: PartitionLog, position: int) -> list[bytes]:
    """Read lines from a position on, until the end or damage."""
    reader, data = TextReader(View.TEXT, lambda: log.snapshot), b""
    reader.seek(position)
    out, end = memoryview(bytearray(7)), log.snapshot.end.positions.text
    try:
        while got := reader.read_into(out, end):
            data += out[:got]
    except CorruptRecordError:
        pass
    return data.splitlines()


@pytest.mark.parametrize("change", ["value", "length"])
@pytest.mark.parametrize("number", [0, 1, 5, 11, 12, 13, 25, 38, 39])
def test_the_offset_at_which_reading_continues(bench: Bench, number: int, change: str) -> None:
    log = bench.log
    file, at = damage(bench, number, change)
    reader, out = GrowingFile(log, View.TEXT, 0), memoryview(bytearray(7))
    offset = sum(len(text) + 1 for text in LINES[:number])
    done = 0
    while done < offset:
        done += reader.read_into(out[: offset - done], done)
    with pytest.raises(CorruptRecordError) as caught:
        reader.read_into(out, done)
    error = caught.value
    assert (error.file, error.position) == (file, at)
    on = error.next_offset
    assert on is not None
    assert on > number
    if change == "value":
        assert on == number + 1
    assert f"read on with @offset={on}" in str(error)
    start = resolve(log, parse_partition_name(f"0@offset={on}", UTC), bench.now_ms).start
    assert read(log, start) == LINES[on:]


@pytest.mark.parametrize("number", range(0, 39, 3))
@pytest.mark.parametrize(
    "selector",
    [
        *(
            "@offset=5",
            "@offset=20..offset=30",
            "@byte=100",
            "@0",
            "@now",
            "@-1s",
            "@earliest..latest",
        ),
        *("@1700000000001", "@offset=38.tsv", "@offset=1..latest.jsonl"),
    ],
)
def test_look_ups_in_a_log_that_was_cut(bench: Bench, number: int, selector: str) -> None:
    file, _ = damage(bench, number, "cut")
    address = parse_partition_name(f"0{selector}", UTC)
    for error in filter(None, (error_of(bench, address), error_of(bench, address))):
        assert error.file == file
        assert re.match(rf"{re.escape(file)}.* byte \d+", str(error))


def error_of(bench: Bench, address: PartitionAddress) -> CorruptRecordError | None:
    """Resolve a name and, if it is fixed, read it; returns the error that ends this."""
    try:
        resolved = resolve(bench.log, address, bench.now_ms)
        if not resolved.grows:
            opened, out, done = FixedFile(resolved), memoryview(bytearray(1 << 16)), 0
            while got := opened.read_into(out, done):
                done += got
    except CorruptRecordError as error:
        return error
    return None
