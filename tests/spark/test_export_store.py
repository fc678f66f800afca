"""Records to Parquet in an object store, and as text; without Spark."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from logfs.errors import ExportError
from logfs.records.record import Record
from logfs.types import TopicPartition
from tests.cli.conftest import Call
from tests.remote.servers import Bucket
from tests.spark.exports import NOW_MS, rows_in, three_days, written
from tests.spark.logs import START_MS, Logs

pytestmark = pytest.mark.spark


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "store", NOW_MS)
    logs.topic("orders", 2)
    logs.append("orders", 0, three_days(0, 100))
    logs.append("orders", 1, three_days(7, 30))
    yield logs
    logs.close()


@pytest.fixture
def lake(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty prefix that the environment leads to."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


def copied(bucket: Bucket, directory: Path) -> Path:
    """Return a copy of the objects as files."""
    store = bucket.open()
    for found in store.list_all(""):
        path = directory / found.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(found.key, 1 << 30)[0])
    return directory


def test_records_go_to_a_store_and_the_next_run_continues(
    logfs: Call, logs: Logs, lake: Bucket, tmp_path: Path
) -> None:
    status, printed, errors = logfs("export", logs.path, f"{lake.url}/")
    assert (status, errors) == (0, [])
    assert printed.decode().startswith(f"{lake.url}/: 130 records in 6 files, ")
    everything = ("orders", 0), ("orders", 1)
    assert rows_in(copied(lake, tmp_path / "first")) == written(logs, *everything)
    assert logfs("export", logs.path, lake.url).out == f"{lake.url}: nothing new\n".encode()
    logs.append("orders", 0, three_days(100, 20))
    told = json.loads(logfs("export", logs.path, lake.url, "--json").out)
    assert (told["records"], told["files"], told["lost"]) == (20, 3, [])
    found = copied(lake, tmp_path / "second")
    assert rows_in(found) == written(logs, *everything)
    assert [path.name for path in found.glob("_logfs/**/*") if path.is_file()] == ["manifest.json"]


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("stop", range(2))
def test_what_was_interrupted_is_written_once(
    logs: Logs, lake: Bucket, tmp_path: Path, stop: int, is_noted: bool
) -> None:
    from logfs.spark.exporting.export import Exporter
    from logfs.spark.exporting.manifest import ExportRange, Written
    from logfs.spark.exporting.ranges import export_range
    from logfs.spark.exporting.targets import DONE

    partitions = [TopicPartition("orders", 0), TopicPartition("orders", 1)]

    def write(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        for one in ranges:
            yield export_range(str(logs.path), lake.url, one)

    def stopping(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        for number, one in enumerate(ranges):
            yield export_range(str(logs.path), lake.url, one)
            if number == stop:
                if not is_noted:
                    lake.open().delete(f"{DONE}/{one.name}.json")
                raise KeyboardInterrupt

    first = Exporter(str(logs.path), lake.url, stopping)
    with first.owned(), pytest.raises(KeyboardInterrupt):
        first.export(partitions)
    logs.append("orders", 0, three_days(100, 50))
    again = Exporter(str(logs.path), lake.url, write)
    with again.owned():
        again.export(partitions)
    expected = written(logs, ("orders", 0), ("orders", 1))
    assert rows_in(copied(lake, tmp_path / "copy")) == expected


def test_of_two_runs_at_the_same_time_one_fails_and_no_record_is_there_twice(
    logs: Logs, lake: Bucket, tmp_path: Path
) -> None:
    from logfs.spark.exporting.export import Exporter
    from logfs.spark.exporting.manifest import ExportRange, Written
    from logfs.spark.exporting.ranges import export_range

    partitions = [TopicPartition("orders", 0), TopicPartition("orders", 1)]

    def write(ranges: Sequence[ExportRange], _sizes: Sequence[int]) -> Iterator[Written]:
        yield from (export_range(str(logs.path), lake.url, one) for one in ranges)

    def with_another(ranges: Sequence[ExportRange], sizes: Sequence[int]) -> Iterator[Written]:
        other = Exporter(str(logs.path), lake.url, write)
        with other.owned():
            other.export(partitions)
        yield from write(ranges, sizes)

    first = Exporter(str(logs.path), lake.url, with_another)
    with first.owned(), pytest.raises(ExportError, match="another export to it is under way"):
        first.export(partitions)
    expected = written(logs, ("orders", 0), ("orders", 1))
    assert rows_in(copied(lake, tmp_path / "copy")) == expected


def test_values_are_strings_if_wanted(logfs: Call, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    logs, out = Logs(tmp_path / "store", NOW_MS), tmp_path / "out"
    logs.topic("orders")
    values = [None, "größer".encode(), b""]
    logs.append("orders", 0, [Record(0, START_MS + n, b"\xff", v) for n, v in enumerate(values)])
    assert logfs("export", "--text", "value", logs.path, out).status == 0
    (file,) = out.glob("**/*.parquet")
    table = pq.read_table(file, partitioning=None)
    assert table.column("value").to_pylist() == [None, "größer", ""]
    assert (table.schema.field("value").type, table.schema.field("key").type) == (
        *(pa.string(), pa.binary()),
    )
    status, _, (error,) = logfs("export", "--text", "key", logs.path, out)
    assert status == 1
    assert "earlier runs have written value as text" in error
    logs.append("orders", 0, [Record(0, START_MS, b"k", b"more")])
    assert logfs("export", logs.path, out).status == 0
    kinds = {str(pq.read_schema(path).field("value").type) for path in out.glob("**/*.parquet")}
    assert kinds == {"string"}
    logs.append("orders", 0, [Record(0, START_MS, b"k", b"\xff\xfe")])
    status, _, (error,) = logfs("export", logs.path, out)
    assert status == 1
    assert "orders/0: the value at offset 4 is not UTF-8" in error
    assert "without --text" in error
    logs.close()


def test_the_prefix_of_the_logs_is_refused(logfs: Call, lake: Bucket, logs: Logs) -> None:
    from logfs.spark.exporting.targets import refuse_inside

    refuse_inside("s3://bucket/logs-export", "s3://bucket/logs")
    with pytest.raises(ExportError, match="is in the data directory"):
        refuse_inside("s3://bucket/logs/lake", "s3://bucket/logs")
    status, _, (error,) = logfs("export", logs.path, "s3://no-such-bucket-here/lake")
    assert status == 1
    assert "no-such-bucket-here" in error


def test_verify_reads_files_again_and_compares_them_with_the_log(
    logfs: Call, logs: Logs, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    status, printed, _ = logfs("export", "--verify", logs.path, out)
    assert status == 0
    assert printed.splitlines()[-1] == b"verified: 130 records in 6 files, intact"
    logs.append("orders", 0, three_days(100, 20))
    told = json.loads(logfs("export", "--verify", "--json", logs.path, out).out)
    assert told["verified"] == {"files": 9, "records": 150, "removed": 0, "problems": []}
    logs.close()
    assert logfs("trim", "--now", f"{logs.path}/orders/0@latest").status == 0
    _, printed, _ = logfs("export", "--verify", logs.path, out)
    assert printed.splitlines()[-1] == (
        b"verified: 150 records in 9 files, intact; 120 are no longer in the log"
    )


def damage(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))
    return "it cannot be read"


def change(path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path, partitioning=None)
    values = [b"another", *table.column("value").to_pylist()[1:]]
    number = table.schema.get_field_index("value")
    pq.write_table(table.set_column(number, "value", pa.array(values, pa.binary())), path)
    return "value, value lengths differ from the log"


def double(path: Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path, partitioning=None)
    pq.write_table(pa.concat_tables([table, table.slice(len(table) - 1)]), path)
    return "comes after"


def shorten(path: Path) -> str:
    import pyarrow.parquet as pq

    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.slice(1), path)
    return "1 records of the log are in no file"


def remove(path: Path) -> str:
    path.unlink()
    return "records of the log are in no file"


@pytest.mark.parametrize("harm", [damage, change, double, shorten, remove])
def test_verify_finds_what_is_wrong(
    logfs: Call, logs: Logs, tmp_path: Path, harm: Callable[[Path], str]
) -> None:
    out = tmp_path / "out"
    assert logfs("export", logs.path, out).status == 0
    problem = harm(sorted(out.glob("topic=orders/*/orders-1-*.parquet"))[1])
    status, printed, (error,) = logfs("export", "--verify", logs.path, out)
    assert (status, printed.splitlines()[-1].endswith(b", 1 problem")) == (1, True)
    assert problem in error
