"""A read that must not wait says so, or finds what a read finds that waits."""

from collections.abc import Callable
from functools import partial

import pytest

from logfs.disk.waiting import WouldWaitError
from logfs.errors import CorruptRecordError
from logfs.log.forwardfile import ForwardFile, ForwardIdentity, ForwardPosition
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import Earliest, Latest, Moment, PartitionAddress
from logfs.log.reading.lookup import batch_crc_at, newest_record, offset_for_time, timestamp_of
from logfs.log.reading.records import RecordReader
from logfs.records._reading import RecordSearch
from logfs.services.meta import partition_meta
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.lag import lag_of
from logfs.services.views.matched_lines import LineReader
from logfs.services.views.merging import MergedFile, MergedPart
from logfs.services.views.resolve import resolve, resolve_records
from logfs.types import IsolationLevel, View
from tests.fakes import START_MS
from tests.log.gaps import HoledLog
from tests.log.growing import SUFFIXES, VIEWS, filled
from tests.log.support import DIRECTORY, log_name

SEEN = IsolationLevel.READ_COMMITTED
FORWARD = ForwardIdentity("cluster", "b1:9092", "there", "id", "same", 1, 7, 0, 0)
MOST_OPERATIONS = 400


def dense() -> HoledLog:
    return filled(30)


def compacted() -> HoledLog:
    log = filled(30)
    log.compact(lambda offset: offset % 3 == 1)
    return log


def damaged() -> HoledLog:
    log = filled(30)
    name = log_name(log.log.snapshot.segments[1].base_offset)
    text = bytearray(log.bench.file(name))
    text[100] ^= 1
    log.bench.put(name, bytes(text))
    return log


def sized(file: GrowingFile | FixedFile | MergedFile) -> object:
    out = memoryview(bytearray(1 << 16))
    got = file.read_into(out, 0)
    if file.would_block:
        raise WouldWaitError("the file")
    return bytes(out[:got]), str(file.ended_by)


def growing(view: View, log: PartitionLog) -> object:
    return sized(GrowingFile(log, view, 0))


def fixed(view: View, log: PartitionLog) -> object:
    address = PartitionAddress(0, Moment(START_MS + 7), Latest(), SUFFIXES[view])
    return sized(FixedFile(resolve(log, address, START_MS)))


def merged(log: PartitionLog) -> object:
    address = PartitionAddress(0, Earliest(), Latest())
    return sized(MergedFile([MergedPart(*resolve_records(log, address, START_MS))], View.TEXT))


def records(log: PartitionLog) -> object:
    reader, found = RecordReader(lambda: log.snapshot, 5, SEEN), list[object]()
    while some := reader.read():
        found += some
    return found


def matched(log: PartitionLog) -> object:
    lines = LineReader(
        lambda: log.snapshot, 0, SEEN, RecordSearch([b"line 2"]), View.TEXT, threads=1
    )
    found = b""
    while some := lines.read(1 << 20):
        found += some
    return found


READS: dict[str, Callable[[PartitionLog], object]] = {
    **{f"growing {view}": partial(growing, view) for view in VIEWS},
    **{f"fixed {view}": partial(fixed, view) for view in VIEWS},
    "merged": merged,
    "records": records,
    "matched lines": matched,
    "time of a record": lambda log: timestamp_of(log.snapshot, 8),
    "record of a time": lambda log: offset_for_time(log.snapshot, START_MS + 9, SEEN),
    "newest record": lambda log: newest_record(log.snapshot, SEEN),
    "checksum of a batch": lambda log: batch_crc_at(log.snapshot, 8),
    "lag": lambda log: lag_of(log, 8, SEEN, START_MS),
    ".meta": lambda log: partition_meta(log, SEEN)["forward"],
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("make", [dense, compacted, damaged])
def test_a_read_that_must_not_wait_says_so_or_finds_the_same(
    make: Callable[[], HoledLog], name: str
) -> None:
    log = make()
    disk, read = log.bench.disk, READS[name]
    path = f"{DIRECTORY}/logfs.forward-0000002a"
    ForwardFile.create(disk, path, FORWARD).hold(ForwardPosition(8))

    def outcome() -> object:
        try:
            return read(log.log)
        except CorruptRecordError as error:
            return str(error)

    log.bench.restart()
    expected, ends, left = outcome(), [], 0

    def wait_once(operation: str, file: str, _size: int) -> None:
        nonlocal left
        if operation in {"open", "pread"} and file.startswith(DIRECTORY):
            left -= 1
            if not left:
                raise WouldWaitError(file)

    for number in range(1, MOST_OPERATIONS):
        log.bench.restart()
        left, disk.before = number, wait_once
        try:
            assert outcome() == expected
        except WouldWaitError:
            ends.append(number)
        finally:
            disk.before = None
        assert outcome() == expected  # nothing was concluded for later reads
        if left > 0:
            break
    assert left > 0
    assert ends
