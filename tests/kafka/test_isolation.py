"""Isolation levels on what a broker wrote: what its consumers see, positions that do not move."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.log.partition import PartitionLog
from logfs.log.reading.address import AtOffset, Earliest, Latest, Moment, PartitionAddress, Suffix
from logfs.records.record import Record
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.services.views.resolve import Resolved, resolve
from logfs.types import IsolationLevel, View
from tests.kafka import ours
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.written import killed, stopped, told
from tests.log.support import lengths_of, read_all
from tests.mounting import Mount, now_ms, output
from tests.spark import reading as spark

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

LEVELS = {
    READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
    READ_COMMITTED: IsolationLevel.READ_COMMITTED,
}
FROM_THEIRS = ("transactions", "compacted-transactions")
NAMES = (*FROM_THEIRS, "spanning", "left-open", "ends-aborted")


@dataclass
class Seen:
    """A directory, and what the broker's consumers saw of it by isolation level and topic."""

    data: Path
    records: dict[str, dict[str, list[Record]]]
    stable: dict[str, int]


def _look(broker: Broker) -> tuple[dict[str, dict[str, list[Record]]], dict[str, int]]:
    client = Client(broker.bootstrap)
    records = {level: client.consume_all(NAMES, isolation=level) for level in LEVELS}
    latest = client.list_offsets(NAMES, "latest", isolation=READ_COMMITTED)
    return records, {name: row[1] for name, row in latest.items() if row}


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Seen]]:
    """The directory after kill -9, after a clean stop, and while the broker runs."""
    directory = tmp_path_factory.mktemp("isolation")
    found = told(killed, "isolation", _look)
    broker = Broker(directory / "broker")
    stopped(broker.data)
    with broker:
        yield {
            "killed": Seen(killed(directory / "killed"), *found),
            "stopped": Seen(stopped(directory / "stopped"), *found),
            "live": Seen(broker.data, *_look(broker)),
        }


@pytest.fixture(params=["killed", "stopped", "live"])
def seen(every: dict[str, Seen], request: pytest.FixtureRequest) -> Seen:
    return every[request.param]


def content(resolved: Resolved) -> list[Record]:
    file: GrowingFile | FixedFile
    if resolved.grows:
        file = GrowingFile(
            resolved.log, resolved.view, resolved.start, resolved.limit, resolved.level
        )
    else:
        file = FixedFile(resolved)
    return ours.parse(read_all(file, 1 << 16))


def test_what_is_aborted_is_what_was_meant(every: dict[str, Seen]) -> None:
    for seen in every.values():
        for name in NAMES:
            levels = seen.records
            is_same = levels[READ_COMMITTED][name] == levels[READ_UNCOMMITTED][name]
            assert is_same == (name == "compacted-transactions")
        assert seen.stable["left-open"] < seen.records[READ_UNCOMMITTED]["left-open"][-1].offset


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
def test_a_reader_sees_what_a_consumer_sees(seen: Seen, name: str, level: str) -> None:
    log, expected = ours.seen(seen.data, name), seen.records[level][name]
    assert log.last_stable_offset == seen.stable[name]
    file = GrowingFile(log, View.JSONL, 0, level=LEVELS[level])
    assert ours.parse(read_all(file, 1 << 16)) == expected
    address = PartitionAddress(0, Earliest(), Latest(), Suffix.JSONL)
    assert content(resolve(log, address, now_ms(), LEVELS[level])) == expected


@pytest.mark.spark
@pytest.mark.parametrize("level", LEVELS)
def test_spark_reads_what_a_consumer_sees(seen: Seen, level: str) -> None:
    for name in NAMES:
        assert spark.records(seen.data, name, level) == seen.records[level][name], name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
def test_so_it_does_from_every_offset_and_moment(seen: Seen, name: str, level: str) -> None:
    log, expected = ours.seen(seen.data, name), seen.records[level][name]

    def shown(point: AtOffset | Moment) -> list[list[Record]]:
        names = ((point, None), (point, Latest()), (Earliest(), point))
        addresses = [PartitionAddress(0, start, end, Suffix.JSONL) for start, end in names]
        return [content(resolve(log, a, 2**62, LEVELS[level])) for a in addresses]

    last = seen.stable[name] if level == READ_COMMITTED else log.log_end_offset
    for offset in range(log.log_start_offset, last, 29):
        behind = [r for r in expected if r.offset >= offset]
        assert shown(AtOffset(offset)) == [behind, behind, expected[: len(expected) - len(behind)]]
    for record in expected[::41]:
        at = next(n for n, r in enumerate(expected) if r.timestamp >= record.timestamp)
        moment = Moment(record.timestamp)
        assert shown(moment) == [expected[at:], expected[at:], expected[:at]]


@pytest.mark.parametrize("name", NAMES)
def test_positions_do_not_depend_on_the_level(seen: Seen, name: str) -> None:
    log, shown = ours.seen(seen.data, name), seen.records[READ_COMMITTED][name]
    for record in shown[::7]:
        address = PartitionAddress(0, AtOffset(record.offset), None, Suffix.JSONL)
        starts = {resolve(log, address, 0, level).start for level in LEVELS.values()}
        [start] = starts
        length = lengths_of(record).jsonl
        for level in LEVELS.values():
            assert ours.parse(read_at(log, level, start, length)) == [record]


@pytest.mark.parametrize("name", NAMES)
def test_a_seek_to_an_aborted_record_continues_with_the_next_committed_one(
    seen: Seen, name: str
) -> None:
    log, shown = ours.seen(seen.data, name), seen.records[READ_COMMITTED][name]
    committed = {record.offset for record in shown}
    hidden = [r for r in seen.records[READ_UNCOMMITTED][name] if r.offset not in committed]
    for record in hidden[::5]:
        address = PartitionAddress(0, AtOffset(record.offset), None, Suffix.JSONL)
        start = resolve(log, address, 0).start
        behind = [r for r in shown if r.offset > record.offset]
        for offset in (start, start + lengths_of(record).jsonl - 1):
            data = read_at(log, IsolationLevel.READ_COMMITTED, offset, 1)
            # The window is smaller than the hole: the record, up to its newline or the window.
            assert data == (b"{" if behind else b"")
        wide = read_at(log, IsolationLevel.READ_COMMITTED, start, lengths_of(record).jsonl)
        assert wide[:10] == (b'{"offset":' if behind else b"")


def read_at(log: PartitionLog, level: IsolationLevel, offset: int, size: int) -> bytes:
    """Read once, after a seek."""
    file, out = GrowingFile(log, View.JSONL, 0, level=level), memoryview(bytearray(size))
    file.read_into(out[:1], file.size() + 10)
    return bytes(out[: file.read_into(out, offset)])


@pytest.mark.fuse
def test_a_mount_of_each_level(every: dict[str, Seen], tmp_path: Path) -> None:
    data = every["stopped"].data
    records, stable = every["stopped"].records, every["stopped"].stable
    sizes = {}
    for level in (*LEVELS, "high_watermark"):
        expected = records[READ_COMMITTED if level == READ_COMMITTED else READ_UNCOMMITTED]
        with Mount(data, tmp_path / level, "ro", f"isolation.level={level}") as mount:
            for name in NAMES:
                path = mount.point / name / "0"
                assert ours.parse(output("cat", f"{path}.jsonl")) == expected[name]
                fixed = f"{path}@earliest..latest.jsonl"
                assert ours.parse(output("tac", fixed))[::-1] == expected[name]
                assert ours.parse(output("tail", "-n", "3", fixed)) == expected[name][-3:]
                assert os.getxattr(path, "user.logfs.isolation_level").decode() == level
                shown = int(os.getxattr(path, "user.logfs.last_stable_offset"))
                assert shown == stable[name]
                end = int(os.getxattr(path, "user.logfs.end"))
                sizes[level, name] = path.stat().st_size
                assert sizes[level, name] == end
    assert sizes[READ_COMMITTED, "left-open"] < sizes[READ_UNCOMMITTED, "left-open"]
    for name in set(NAMES) - {"left-open"}:
        assert sizes[READ_COMMITTED, name] == sizes[READ_UNCOMMITTED, name]
