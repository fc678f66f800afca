"""What logfs writes for a broker to read: logs in every codec and view, and those of producers.

Each scenario writes a log and says what every reader has to find in it, by its own rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from logfs.config import CompressionType
from logfs.log.lines.writer import LineWriter
from logfs.log.partition import PartitionLog
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.types import View
from tests.mounting import now_ms
from tests.records.oracle import rendering

TIME_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "index.interval.bytes": "1000"}


class Expected(NamedTuple):
    """What readers find.

    Attributes:
        records: Under read_uncommitted.
        committed: Under read_committed.
        end: The log end offset.
        stable: The last stable offset.
    """

    records: list[Record]
    committed: list[Record]
    end: int
    stable: int


class Scenario(Protocol):
    """A log: the topic's configuration, and how it is written."""

    @property
    def config(self) -> Mapping[str, str]:
        """The settings of the topic."""

    def write(self, log: PartitionLog) -> Expected:
        """Write it, and return what every reader has to find."""


@dataclass(frozen=True)
class Lines:
    """A log written through a view, each batch of records in one call."""

    config: Mapping[str, str]
    view: View
    batches: list[list[Record]]

    def write(self, log: PartitionLog) -> Expected:
        writer = LineWriter(log, self.view)
        expected: list[Record] = []
        for batch in self.batches:
            data = b"".join(rendering(self.view, record) for record in batch)
            # Each batch comes at the time of its last record.
            at = batch[-1].timestamp
            assert writer.write(data, at) == len(data)
            for record in batch:
                keeps_time = self.view is View.JSONL and "message.timestamp.type" not in self.config
                expected.append(
                    record._replace(
                        offset=len(expected), timestamp=record.timestamp if keeps_time else at
                    )
                )
        writer.close(TIME_MS)
        return Expected(expected, expected, len(expected), len(expected))


@dataclass(frozen=True)
class Produced:
    """A log of transactional producers, some of whose transactions abort or stay open.

    Broker and logfs forget producers that have not written for a day, so the times are today's.
    """

    config: Mapping[str, str]
    rounds: int
    leaves_open: bool

    def write(self, log: PartitionLog) -> Expected:
        begin_ms = now_ms() - 100_000
        records: list[Record] = []
        aborted: set[int] = set()
        open_offsets: dict[int, list[int]] = {}
        sequences: dict[int, int] = {}

        def append(producer_id: int, *, is_transactional: bool) -> None:
            base = log.log_end_offset
            batch = [
                Record(base + n, begin_ms + base + n, b"%d" % producer_id, b"value %d" % (base + n))
                for n in range(1 + base % 5)
            ]
            who = ProducerBatch(producer_id, 0, sequences.get(producer_id, 0), is_transactional)
            for repeated in (False, True):
                written = log.append_records(batch, batch[-1].timestamp, who)
                assert written == (base, batch[-1].offset, repeated)
            sequences[producer_id] = who.base_sequence + len(batch)
            records.extend(batch)
            if is_transactional:
                open_offsets.setdefault(producer_id, []).extend(r.offset for r in batch)

        def end(producer_id: int, *, commit: bool) -> None:
            at = begin_ms + log.log_end_offset
            log.appender.end_transaction(
                producer_id, 0, commit=commit, coordinator_epoch=3, now_ms=at
            )
            offsets = open_offsets.pop(producer_id)
            aborted.update(() if commit else offsets)

        for n in range(self.rounds):
            transactional = 7001 + n % 3
            append(transactional, is_transactional=True)
            append(7100, is_transactional=False)
            if n % 7 > 3:
                end(transactional, commit=n % 2 == 0)
        for number, producer_id in enumerate([*open_offsets]):
            if not self.leaves_open or number:
                end(producer_id, commit=True)
        stable = min((o for offsets in open_offsets.values() for o in offsets), default=None)
        last = log.log_end_offset
        stable = last if stable is None else stable
        committed = [r for r in records if r.offset < stable and r.offset not in aborted]
        return Expected(records, committed, last, stable)


def numbered(batches: int, records: int) -> list[list[Record]]:
    """Return batches of records that differ in value and time."""
    numbers = [range(b * records, (b + 1) * records) for b in range(batches)]
    return [
        [Record(0, TIME_MS + 7 * n, None, b"record %d, some text" % n) for n in batch]
        for batch in numbers
    ]


def keyed(batches: list[list[Record]]) -> list[list[Record]]:
    return [[r._replace(key=b"key %d" % (n % 7)) for n, r in enumerate(b)] for b in batches]


ODD = [
    Record(0, TIME_MS, None, b"a plain value"),
    Record(0, TIME_MS - 5_000, b"key", None),
    Record(0, TIME_MS + 70_000, b"", b""),
    Record(0, TIME_MS + 1, b"\xff\x00", b"\xfe\n\t", ((b"h", b"\xff"), (b"h", None))),
    Record(0, TIME_MS + 2, "größe".encode(), "größe".encode(), (("größe".encode(), b""),)),
]
SCENARIOS: Mapping[str, Scenario] = {
    "text": Lines({}, View.TEXT, [[Record(0, TIME_MS, None, b"x"), Record(0, TIME_MS, None, b"")]]),
    "tsv": Lines({}, View.TSV, keyed(numbered(3, 5))),
    "jsonl": Lines({}, View.JSONL, [ODD, ODD[:2], ODD[2:]]),
    **{
        codec.value: Lines(
            {"compression.type": codec.value, **SMALL_SEGMENTS}, View.TEXT, numbered(60, 40)
        )
        for codec in CompressionType
    },
    "zstd-jsonl": Lines({"compression.type": "zstd"}, View.JSONL, [ODD * 50] * 3),
    "segments": Lines(SMALL_SEGMENTS, View.JSONL, numbered(200, 10)),
    "times-go-back": Lines(SMALL_SEGMENTS, View.JSONL, numbered(60, 20)[::-1]),
    "append-time": Lines(
        {"message.timestamp.type": "LogAppendTime", **SMALL_SEGMENTS}, View.TSV,
        keyed(numbered(60, 20)),
    ),
    "compacted-later": Lines({"cleanup.policy": "compact"}, View.TSV, keyed(numbered(2, 9))),
    "empty": Lines({}, View.TEXT, []),
    "producers": Produced(SMALL_SEGMENTS, 900, leaves_open=False),
    "producers-lz4": Produced({"compression.type": "lz4"}, 40, leaves_open=False),
    "open-transaction": Produced(SMALL_SEGMENTS, 200, leaves_open=True),
}  # fmt: skip
