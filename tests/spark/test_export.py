"""Records to Parquet, run after run, with stops in between.

Without Spark, but with pyarrow, which comes with it.
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.cli.conftest import Call, command, environment, run
from tests.log.transactions import ABORT, COMMIT, append_batch, marker
from tests.records import oracle
from tests.spark.exports import DAYS, NOW_MS, rows_in, three_days, written
from tests.spark.logs import START_MS, Logs

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "store", NOW_MS)
    logs.topic("orders", 2)
    logs.topic("__internal")
    logs.topic("clicks")
    logs.append("orders", 0, three_days(0, 100))
    logs.append("orders", 1, three_days(7, 30))
    logs.append("clicks", 0, three_days(0, 10))
    logs.append("__internal", 0, three_days(0, 10))
    yield logs
    logs.close()


def test_a_directory_a_day_and_the_next_run_continues(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    out = tmp_path / "lake" / "kafka"
    status, printed, errors = logfs("export", logs.path, out)
    assert (status, errors) == (0, [])
    assert printed.decode().startswith(f"{out}: 140 records in 9 files, ")
    assert sorted(path.name for path in (out / "topic=orders").iterdir()) == [
        f"day={day}" for day in DAYS
    ]
    assert (
        out / "topic=orders" / "day=2023-11-15" / f"orders-0-{0:020}-{100:020}.parquet"
    ).is_file()
    assert rows_in(out) == written(logs)
    assert logfs("export", logs.path, out) == (0, f"{out}: nothing new\n".encode(), [])
    logs.append("orders", 0, three_days(100, 20))
    status, printed, _ = logfs("export", logs.path / "orders" / "0", out, "--json", "--jobs", "1")
    told = json.loads(printed)
    assert (status, told["records"], told["files"], told["lost"]) == (0, 20, 3, [])
    assert {"topic": "orders", "partition": 0, "end": 120} in told["partitions"]
    assert rows_in(out) == written(logs)
    assert not list((out / "_logfs" / "writing").iterdir())


def test_small_ends_of_partitions_are_left_for_a_later_run(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    out = tmp_path / "lake"
    size = logs.log("orders", 1).snapshot.size_bytes
    least = f"{size + 1}"  # orders/0 is larger, clicks/0 smaller
    assert logfs("export", "--min-bytes", least, logs.path, out).status == 0
    assert {row[:2] for row in rows_in(out)} == {("orders", 0)}
    assert not list(out.glob("topic=clicks"))
    logs.append("orders", 1, three_days(37, 30))
    assert logfs("export", "--min-bytes", least, logs.path, out).status == 0
    assert not list(out.glob("topic=clicks"))
    assert logfs("export", logs.path, out).status == 0
    assert rows_in(out) == written(logs)


def test_headers_and_types_are_those_of_the_source(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    assert logfs("export", logs.path / "clicks", tmp_path / "out").status == 0
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table().sort_by("offset")
    assert [field.name for field in table.schema] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        *("headers", "day"),
    ]  # fmt: skip
    assert str(table.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    pairs = [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}]
    assert table.column("headers").to_pylist()[:2] == [pairs, None]
    assert table.column("day").to_pylist()[:2] == list(DAYS[:2])


def test_a_killed_run_continues_with_the_next_one(tmp_path: Path) -> None:
    """Killed after some ranges, over and over: in the end everything is there once."""
    logs, out = Logs(tmp_path / "store", NOW_MS), tmp_path / "out"
    logs.topic("orders", 24)
    for number in range(24):
        logs.append("orders", number, three_days(number, 50))
    logs.close()
    killed = 0
    for wanted in (1, 6, 14):
        process = subprocess.Popen(command("export", logs.path, out, "-j", "2"), env=environment())
        while process.poll() is None:
            notes = list(out.glob("_logfs/done/*.json"))
            if len(notes) >= wanted:
                process.send_signal(signal.SIGKILL)
                killed += 1
                break
            time.sleep(0.0005)
        process.wait()
        found = rows_in(out)
        assert len(found) == len(set(found))
    assert killed
    done = run("export", logs.path, out)
    assert (done.status, done.errors) == (0, [])
    assert rows_in(out) == written(logs, *(("orders", n) for n in range(24)))
    assert not list((out / "_logfs" / "writing").iterdir())


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("stop", range(4))
def test_what_was_interrupted_is_written_first_and_once(
    logs: Logs, tmp_path: Path, stop: int, is_noted: bool
) -> None:
    """Stopped before the range ``stop``, or after its files and before its note."""
    from logfs.spark.exporting.export import Exporter
    from logfs.spark.exporting.manifest import ExportRange, Written
    from logfs.spark.exporting.ranges import export_range
    from logfs.spark.exporting.targets import DONE

    out = tmp_path / "out"
    out.mkdir()
    partitions = [TopicPartition(*one) for one in (("orders", 0), ("orders", 1), ("clicks", 0))]

    def write(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        for one in ranges:
            yield export_range(str(logs.path), str(out), one)

    def stopping(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        for number, one in enumerate(ranges):
            if number == stop and is_noted:
                raise KeyboardInterrupt
            yield export_range(str(logs.path), str(out), one)
            if number == stop:
                (out / DONE / f"{one.name}.json").unlink()
                raise KeyboardInterrupt

    first = Exporter(str(logs.path), str(out), stopping)
    with first.owned():
        if stop < len(partitions):
            with pytest.raises(KeyboardInterrupt):
                first.export(partitions)
        else:
            first.export(partitions)
    logs.append("orders", 0, three_days(100, 50))  # what was planned continues as it was planned
    again = Exporter(str(logs.path), str(out), write)
    with again.owned():
        again.export(partitions)
    assert rows_in(out) == written(logs)


def test_what_retention_took_is_told(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert logfs("export", logs.path / "clicks", out).status == 0
    logs.append("clicks", 0, three_days(10, 20))
    logs.close()
    assert logfs("trim", f"{logs.path}/clicks/0@offset=15").status == 0
    status, printed, errors = logfs("export", logs.path / "clicks", out)
    assert status == 0
    assert errors == ["logfs: clicks/0: offsets 10 to 14 were gone before they were exported"]
    assert printed.startswith(f"{out}: 15 records in 3 files".encode())


def test_records_that_are_not_committed_wait(logfs: Call, tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "store"), tmp_path / "out"
    logs.topic("t")
    log = logs.log("t")

    def produce(producer: int, kind: int | None) -> None:
        offset = log.log_end_offset
        records = [Record(offset + n, START_MS, None, b"%d" % producer) for n in range(2)]
        fields = BatchFields(
            producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        append_batch(log, encode_batch(records, fields), oracle.lengths(records), START_MS)
        if kind is not None:
            end(producer, kind)

    def end(producer: int, kind: int) -> None:
        data = marker(producer, log.log_end_offset, kind, START_MS)
        append_batch(log, data, (0, 0, 0), START_MS)

    for producer, kind in ((0, COMMIT), (1, ABORT), (2, None)):
        produce(producer, kind)
    assert logfs("export", logs.path, out).status == 0
    assert [row[2] for row in rows_in(out)] == [0, 1]
    end(2, COMMIT)
    assert logfs("export", logs.path, out).status == 0
    assert [row[2] for row in rows_in(out)] == [0, 1, 6, 7]
    logs.close()


def test_a_destination_in_the_data_directory_is_refused(logfs: Call, logs: Logs) -> None:
    status, _, errors = logfs("export", logs.path, logs.path / "out")
    assert status == 1
    assert "is in the data directory" in errors[0]
    assert not (logs.path / "out").exists()


def test_a_machine_without_the_directories_is_told(logs: Logs, tmp_path: Path) -> None:
    """Each range as a machine works on it that has other disks than the driver."""
    from logfs.errors import ExportError
    from logfs.spark.exporting.export import Exporter
    from logfs.spark.exporting.manifest import ExportRange, Written
    from logfs.spark.exporting.ranges import export_range
    from logfs.spark.exporting.targets import DONE, FOLDER, WRITING

    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    for folder in (other, other / FOLDER, other / DONE, other / WRITING):
        folder.mkdir()

    def elsewhere(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        yield from (export_range(str(logs.path), str(other), one) for one in ranges)

    def without_data(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        yield from (export_range(str(other), str(out), one) for one in ranges)

    for run_there, problem in ((elsewhere, "is not seen here"), (without_data, "is not there")):
        exporter = Exporter(str(logs.path), str(out), run_there)
        with exporter.owned(), pytest.raises(ExportError, match=problem):
            exporter.export([TopicPartition("clicks", 0)])
    assert rows_in(out) == []


def test_another_topic_of_that_name_is_refused(logfs: Call, logs: Logs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert logfs("export", logs.path / "clicks", out).status == 0
    other = Logs(tmp_path / "other", NOW_MS)
    other.topic("clicks")
    other.append("clicks", 0, three_days(0, 20))
    other.close()
    status, _, errors = logfs("export", other.path, out)
    assert status == 1
    assert "clicks is another topic (id " in errors[0]
    assert "export it to another directory" in errors[0]
    (out / "_logfs" / "manifest.json").write_text('{"version": 4}')
    status, _, errors = logfs("export", logs.path, out)
    assert (status, "version 4, expected 3" in errors[0]) == (1, True)
    (out / "_logfs" / "manifest.json").write_text("{")
    status, _, errors = logfs("export", logs.path, out)
    assert (status, "it does not parse" in errors[0]) == (1, True)


def test_a_topic_made_again_does_not_stop_the_export_of_others(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert logfs("export", logs.path, out).status == 0
    logs.store.delete_topic("clicks", NOW_MS)
    logs.topic("clicks")
    logs.written.pop(TopicPartition("clicks", 0))
    logs.append("clicks", 0, three_days(0, 5))
    logs.append("orders", 0, three_days(100, 20))
    status, printed, errors = logfs("export", logs.path, out, "--json")
    assert status == 1
    assert len(errors) == 1
    assert "clicks is another topic (id " in errors[0]
    done = json.loads(printed)
    assert done["records"] == 20
    assert done["refused"] == [errors[0].removeprefix("logfs: ")]
    assert {row[:2] for row in rows_in(out)} == {("orders", 0), ("orders", 1), ("clicks", 0)}
    # Its own directory is a way to continue.
    assert logfs("export", logs.path / "clicks", tmp_path / "clicks").status == 0


def test_a_damaged_batch_is_a_line_and_the_rest_is_written(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    logs.log("orders").roll(NOW_MS)
    logs.close()
    log = logs.path / "orders-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    status, printed, errors = logfs("export", logs.path, tmp_path / "out", "-j", "1")
    assert (status, printed) == (1, b"")
    assert errors[0].startswith(f"logfs: {logs.path}: orders-0/{log.name} at byte 0: ")
    content[100] ^= 1
    log.write_bytes(content)
    assert logfs("export", logs.path, tmp_path / "out").status == 0
    assert rows_in(tmp_path / "out") == written(logs)


def recreate(logs: Logs, topic: str, count: int) -> None:
    """Delete a topic and create another one of that name."""
    logs.store.delete_topic(topic, NOW_MS)
    logs.topic(topic)
    logs.written.pop(TopicPartition(topic, 0))
    logs.append(topic, 0, three_days(0, count))


def test_an_export_continues_with_a_topic_made_again(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert logfs("export", logs.path, out).status == 0
    due = written(logs)
    for turn, count in ((2, 25), (3, 4)):
        recreate(logs, "clicks", count)
        assert "--recreated" in logfs("export", logs.path, out).errors[0]
        assert logfs("export", logs.path, out, "--recreated").errors == []
        due = sorted(due + written(logs, ("clicks", 0)))
        assert rows_in(out) == due
        assert len(list(out.glob(f"topic=clicks/*/clicks-0-*~{turn}.parquet"))) == 3
        assert logfs("export", logs.path, out).out == f"{out}: nothing new\n".encode()
    logs.append("clicks", 0, three_days(4, 10))
    assert json.loads(logfs("export", logs.path, out, "--json").out)["records"] == 10
    first = [row for row in due if row[0] == "clicks" and row[2] < 4]
    assert len(first) == 12
    rest = [row for row in written(logs, ("clicks", 0)) if row[2] >= 4]
    assert rows_in(out) == sorted(due + rest)


def test_an_interrupted_run_does_not_take_records_of_a_topic_made_again(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    """Its offsets are the same, its records are others."""
    from logfs.spark.exporting.export import Exporter

    out = tmp_path / "out"
    out.mkdir()

    def killed(_ranges: object, _sizes: object) -> NoReturn:
        raise KeyboardInterrupt

    exporter = Exporter(str(logs.path), str(out), killed)
    with exporter.owned(), pytest.raises(KeyboardInterrupt):
        exporter.export([TopicPartition("clicks", 0)])
    recreate(logs, "clicks", 10)
    status, _, errors = logfs("export", logs.path / "clicks", out)
    assert status == 1
    assert "clicks/0: offsets 0 to 9 were gone" in errors[0]
    assert "clicks is another topic" in errors[1]
    assert rows_in(out) == []
