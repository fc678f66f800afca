"""Many lines at once, into a partition or over those of a topic; batches that others encoded."""

import errno

import pytest

from logfs.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    LogOfflineError,
    RecordTooLargeError,
    UnparsableLineError,
)
from logfs.log.lines.append import append_by_key, append_lines
from logfs.log.lines.form import AppendedLines, LineForm, Lines
from logfs.log.partition import PartitionLog
from logfs.log.writing.producerbatches import Appended
from logfs.records._encoding import encode_records
from logfs.records.compression import Compression
from logfs.records.encoded import EncodeOptions, ProducerBatch
from logfs.records.record import Record
from logfs.types import View
from tests.fakes import START_MS
from tests.log.support import Bench, batches_in, lines_of, log_name, records_in, text_of

NUMBERED = b"".join(b"line %03d\n" % n for n in range(100))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def append(bench: Bench, data: bytes, form: LineForm = LineForm()) -> Lines:  # noqa: B008
    return append_lines(bench.log, data, form, bench.now_ms)


def topic(bench: Bench, partitions: int, **properties: str) -> list[PartitionLog]:
    config = {name.replace("_", "."): value for name, value in properties.items()}
    bench.store.create_topic("many", partitions, config, bench.now_ms)
    return [bench.store.partition("many", n) for n in range(partitions)]


# One partition


def test_lines_are_records(bench: Bench) -> None:
    form = LineForm(View.TEXT, b"=", ((b"h", b"x"),))
    assert append(bench, b"a=1\nb=2=3\n", form) == Lines([AppendedLines(0, 2, 0, 1)], 10, None)
    assert append(bench, b"", form) == Lines([], 0, None)
    assert append(bench, b"c=\n", form).appended == [AppendedLines(0, 1, 2, 2)]
    headers = ((b"h", b"x"),)
    assert records_in(bench.file(log_name(0))) == [
        Record(0, START_MS, b"a", b"1", headers),
        Record(1, START_MS, b"b", b"2=3", headers),
        Record(2, START_MS, b"c", b"", headers),
    ]
    assert lines_of(bench.log, View.TSV) == [b"a\t1", b"b\t2=3", b"c\t"]


def test_what_is_before_a_refused_line_is_in_the_log(bench: Bench) -> None:
    done = append(bench, b"a\tb\nc\n\td\te\nf\n", LineForm(View.TSV))
    assert (done.records, done.accepted) == (2, 6)
    assert isinstance(done.refusal, UnparsableLineError)
    assert str(done.refusal).startswith("line 3: more than one TAB")
    assert lines_of(bench.log) == [b"b", b"c"]
    done = append(bench, b"x\ty\tz\n", LineForm(View.TSV))
    assert (done.appended, done.accepted) == ([], 0)
    assert str(done.refusal).startswith("line 1: ")


def test_a_line_that_is_too_large() -> None:
    bench = Bench({"max.message.bytes": "100"})
    done = append(bench, b"a\n" * 50 + b"x" * 100 + b"\nb\n")
    assert (done.records, done.accepted) == (50, 100)
    assert isinstance(done.refusal, RecordTooLargeError)
    assert str(done.refusal).startswith("line 51: ")


@pytest.mark.parametrize("space_bytes", [0, 50, 250, 700, 1500])
def test_a_full_disk(space_bytes: int) -> None:
    bench = Bench({"max.message.bytes": "150"})
    assert append(bench, b"").records == 0
    bench.write(b"first")  # what it needs once is there
    bench.disk.space_bytes = bench.disk.used_bytes + space_bytes
    written = 0
    if space_bytes < 150:
        with pytest.raises(OSError, match="No space left"):
            append(bench, NUMBERED)
    else:
        done = append(bench, NUMBERED)
        assert isinstance(done.refusal, OSError)
        assert done.refusal.errno == errno.ENOSPC
        assert text_of(bench.log) == b"first\n" + NUMBERED[: done.accepted]
        assert done.records == done.accepted // 9 > 0
        written = done.accepted
    bench.disk.space_bytes = None
    assert append(bench, NUMBERED[written:]).refusal is None
    assert text_of(bench.log) == b"first\n" + NUMBERED


@pytest.mark.expect_log("is offline")
def test_a_log_that_is_offline(bench: Bench) -> None:
    bench.disk.fail_next_write("*.log", errno.EIO, 0)
    with pytest.raises(OSError, match="Input/output error"):
        append(bench, b"a\n")
    with pytest.raises(LogOfflineError):
        append(bench, b"a\n")


# Over the partitions of a topic


def test_the_key_decides(bench: Bench) -> None:
    logs = topic(bench, 5)
    form = LineForm(View.TEXT, b":")
    # Of murmur2 "foobar" is -790332482 and "21" is -973932308; see the tests of the hash.
    places = [(value & 0x7FFFFFFF) % 5 for value in (-790332482, -973932308)]
    done = append_by_key(logs, b"foobar:1\n21:2\nfoobar:3\n", form, 0, START_MS)
    assert (done.records, done.accepted, done.refusal) == (3, 23, None)
    assert sorted(done.appended) == sorted(
        [AppendedLines(places[0], 2, 0, 1), AppendedLines(places[1], 1, 0, 0)]
    )
    assert lines_of(logs[places[0]]) == [b"1", b"3"]
    assert lines_of(logs[places[1]]) == [b"2"]


def test_lines_without_a_key_stay_together(bench: Bench) -> None:
    logs = topic(bench, 3)
    for turn in range(7):
        done = append_by_key(logs, b"%d\nx\n" % turn, LineForm(), turn, START_MS)
        assert [row.partition for row in done.appended] == [turn % 3]
    assert lines_of(logs[0]) == [b"0", b"x", b"3", b"x", b"6", b"x"]


def test_lines_after_a_refused_line_are_not_appended(bench: Bench) -> None:
    logs = topic(bench, 4, cleanup_policy="compact", compression_type="gzip")
    data = b"".join(b"%d\tv%d\n" % (n, n) for n in range(20))
    done = append_by_key(logs, data + b"no key\n" + data, LineForm(View.TSV), 0, START_MS)
    assert (done.records, done.accepted) == (20, len(data))
    assert str(done.refusal).startswith("line 21: this topic needs a key")
    assert sorted(b"".join(lines_of(log, View.TSV)) != b"" for log in logs) == [True] * 4
    found = [line + b"\n" for log in logs for line in lines_of(log, View.TSV)]
    assert sorted(found) == sorted(data.splitlines(keepends=True))


def test_a_disk_that_fills_up_between_two_partitions(bench: Bench) -> None:
    logs = topic(bench, 2)
    data = b"".join(b"%d\tv\n" % n for n in range(9))
    bench.disk.fail_next_write("many-1/*.log", errno.ENOSPC, 0)
    done = append_by_key(logs, data, LineForm(View.TSV), 0, START_MS)
    assert [row.partition for row in done.appended] == [0]
    assert isinstance(done.refusal, OSError)
    assert done.accepted == 0
    assert logs[1].log_end_offset == 0


# Batches that others encoded


RECORDS = [
    Record(0, START_MS - 1, b"k", b"v", ((b"h", None),)),
    Record(0, START_MS, None, b"w" * 90),
    Record(0, START_MS - 9, b"", None),
]
ANYTHING = EncodeOptions(1 << 20, timestamp_after_max_ms=2**63 - 1)


def payload_of(records: list[Record], options: EncodeOptions = ANYTHING) -> bytes:
    return b"".join(batch.data for batch in encode_records(records, 0, 0, options).batches)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"max.message.bytes": "170"},  # two of them fit, so the batch is recreated
        {"compression.type": "zstd"},
        {"compression.type": "gzip", "max.message.bytes": "170"},
        {"message.timestamp.type": "LogAppendTime"},
    ],
)
def test_encoded_batches_are_stored_as_records_would_be(properties: dict[str, str]) -> None:
    theirs, ours = Bench(properties), Bench(properties)
    for bench in (theirs, ours):
        bench.write(b"before")
    payload = payload_of(RECORDS)
    assert ours.log.appender.append_encoded(payload, ours.now_ms) == Appended(1, 3)
    assert theirs.log.append_records(RECORDS, theirs.now_ms) == Appended(1, 3)
    assert ours.file(log_name(0)) == theirs.file(log_name(0))
    for view in View:
        assert text_of(ours.log, view) == text_of(theirs.log, view)


def test_the_batches_of_a_call_stay_as_they_are(bench: Bench) -> None:
    payload = payload_of(RECORDS) + payload_of(RECORDS[:1]) + payload_of(RECORDS[:2])
    assert bench.log.appender.append_encoded(payload, bench.now_ms) == Appended(0, 5)
    assert [b.record_count for _, b in batches_in(bench.file(log_name(0)))] == [3, 1, 2]
    bench.kill()
    assert bench.log.log_end_offset == 6


def test_a_batch_that_the_client_has_compressed(bench: Bench) -> None:
    for codec in Compression:
        options = EncodeOptions(1 << 20, compression=codec, timestamp_after_max_ms=2**63 - 1)
        bench.log.appender.append_encoded(payload_of(RECORDS, options), bench.now_ms)
    headers = [header for _, header in batches_in(bench.file(log_name(0)))]
    assert [header.compression for header in headers] == list(Compression)
    assert len(lines_of(bench.log)) == 3 * len(Compression)


def test_a_producer_of_encoded_batches(bench: Bench) -> None:
    payload, log = payload_of(RECORDS), bench.log
    assert log.appender.append_encoded(payload, START_MS, ProducerBatch(7, 1, 0)) == Appended(0, 2)
    assert log.appender.append_encoded(payload, START_MS, ProducerBatch(7, 1, 0)) == Appended(
        0, 2, True
    )
    assert log.appender.append_encoded(payload, START_MS, ProducerBatch(7, 1, 3)) == Appended(3, 5)
    with pytest.raises(InvalidProducerEpochError):
        log.appender.append_encoded(payload, START_MS, ProducerBatch(7, 0, 6))
    [first, second] = [header for _, header in batches_in(bench.file(log_name(0)))]
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (7, 1, 0)
    assert (second.base_sequence, second.base_offset) == (3, 3)
    # Two batches become one.
    assert log.appender.append_encoded(payload * 2, START_MS, ProducerBatch(7, 1, 6)) == Appended(
        6, 11
    )
    assert len(batches_in(bench.file(log_name(0)))) == 3


def test_nothing_of_a_refused_payload_is_appended() -> None:
    bench = Bench({"cleanup.policy": "compact"})
    good = payload_of([Record(0, START_MS, b"k", b"v")])
    for payload, error in (
        (good + payload_of(RECORDS), UnparsableLineError),
        (good + b"noise" * 20, CorruptRecordError),
        (good[:-1], CorruptRecordError),
        (b"", ValueError),
    ):
        with pytest.raises(error):
            bench.log.appender.append_encoded(payload, bench.now_ms)
    with pytest.raises(ValueError, match="epoch"):
        bench.log.appender.append_encoded(good, bench.now_ms, ProducerBatch(7, -1, 0))
    assert bench.log.log_end_offset == 0
