"""The files of an export in an Iceberg table: each once, also if a run is stopped in between.

Without Spark, but with pyarrow, which comes with it. The catalog is a file of SQLite.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logfs.records.record import Record
from tests.cli.conftest import Call
from tests.remote.servers import Bucket
from tests.spark.exports import DAY_MS, NOW_MS, Row, rows_of, three_days, written
from tests.spark.logs import START_MS, Logs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ORDERS = ("orders", 0)
Catalog = Any  # pyiceberg's, which is an extra


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    logs = Logs(tmp_path / "store", NOW_MS)
    logs.topic("orders")
    logs.append("orders", 0, three_days(0, 50))
    yield logs
    logs.close()


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """A catalog ``lake``, as the environment may configure one."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, at its import
    catalog = load_catalog("lake")
    yield catalog
    catalog.close()


def rows_in(catalog: Catalog, **selection: str) -> list[Row]:
    return sorted(rows_of(catalog.load_table("logs.orders").scan(**selection).to_arrow()))


def test_each_file_is_added_once(
    logfs: Call,
    logs: Logs,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    command = ("export", logs.path / "orders", out, "--iceberg", "lake.logs.orders")
    status, printed, errors = logfs(*command)
    assert (status, errors) == (0, [])
    assert printed.decode().endswith("; 3 files added to lake.logs.orders\n")
    assert rows_in(catalog) == written(logs, ORDERS)
    assert logfs(*command).out.decode() == (
        f"{out}: nothing new; 0 files added to lake.logs.orders\n"
    )
    # Written without the table, or killed before its commit: the next run adds it.
    logs.append("orders", 0, three_days(50, 20))
    assert logfs(*command[:3]).status == 0
    logs.append("orders", 0, three_days(70, 20))
    assert logfs(*command, "--json").status == 0
    assert rows_in(catalog) == written(logs, ORDERS)
    table = catalog.load_table("logs.orders")
    assert json.loads(table.properties["logfs.offsets"]) == {"orders-0": 90}
    snapshot = table.current_snapshot()
    assert json.loads(snapshot.summary["logfs.offsets"]) == {"orders-0": 90}
    assert len(table.snapshots()) == 2
    # Its files are pruned by day, and by what is known of their offsets.
    second = f"timestamp >= '{iso(DAY_MS)}' and timestamp < '{iso(2 * DAY_MS)}'"
    assert len(list(table.scan(row_filter=second).plan_files())) < 9
    assert [row[2] for row in rows_in(catalog, row_filter="offset >= 85")] == list(range(85, 90))


def test_files_have_the_field_ids_of_the_table(
    logfs: Call, logs: Logs, catalog: Catalog, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    out = tmp_path / "out"
    command = ("export", logs.path / "orders", out, "--iceberg", "lake.logs.orders")
    assert logfs(*command).errors == []
    schema = catalog.load_table("logs.orders").schema()
    for path in out.glob("**/*.parquet"):
        assert pyarrow_to_schema(pq.read_schema(path)).fields == schema.fields


def test_files_in_a_store_are_added(
    logfs: Call, logs: Logs, catalog: Catalog, lake_settings: Bucket
) -> None:
    url = lake_settings.url
    command = ("export", logs.path / "orders", url, "--iceberg", "lake.logs.orders")
    for count in (50, 70):
        assert logfs(*command).errors == []
        table = load_catalog_again().load_table("logs.orders")
        assert sorted(rows_of(table.scan().to_arrow())) == written(logs, ORDERS)
        assert all(one.file.file_path.startswith(url) for one in table.scan().plan_files())
        logs.append("orders", 0, three_days(count, 20))
    status, _, errors = logfs("export", "--compact", logs.path / "orders", url)
    assert (status, "table lake.logs.orders has the files" in errors[-1]) == (1, True)


@pytest.fixture
def lake_settings(catalog: Catalog, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A store that the environment leads to, for logfs and for pyiceberg."""
    from pyiceberg.utils.config import Config

    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    known = {
        "ENDPOINT": bucket.environment["AWS_ENDPOINT_URL"],
        "ACCESS_KEY_ID": bucket.environment["AWS_ACCESS_KEY_ID"],
        "SECRET_ACCESS_KEY": bucket.environment["AWS_SECRET_ACCESS_KEY"],
        "REGION": bucket.environment["AWS_REGION"],
    }
    for name, value in known.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__S3__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return bucket


def load_catalog_again() -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake")


def iso(after_ms: int) -> str:
    from datetime import UTC, datetime

    midnight = (START_MS + after_ms) // DAY_MS * DAY_MS
    return datetime.fromtimestamp(midnight / 1000, UTC).isoformat()


def test_what_is_wrong_is_a_line(
    logfs: Call,
    logs: Logs,
    catalog: Catalog,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    status, _, errors = logfs("export", logs.path, out, "--iceberg", "lake")
    assert (status, "expected CATALOG.NAMESPACE.TABLE" in errors[0]) == (1, True)
    assert not out.exists()
    status, _, errors = logfs("export", logs.path, out, "--iceberg", "nowhere.logs.orders")
    assert (status, len(errors)) == (1, 1)
    assert "Iceberg table nowhere.logs.orders: " in errors[0]
    assert logfs("export", logs.path, out, "--iceberg", "lake.logs.orders").status == 0
    other = Logs(tmp_path / "other", NOW_MS)
    other.topic("orders")
    other.append("orders", 0, three_days(0, 90))
    other.close()
    command = ("export", other.path, tmp_path / "out2", "--iceberg", "lake.logs.orders")
    status, _, errors = logfs(*command)
    assert (status, "has another topic orders (id " in errors[0]) == (1, True)
    assert rows_in(catalog) == written(logs, ORDERS)


@pytest.mark.parametrize("change", ["rename", "drop"])
def test_a_column_may_be_renamed_or_dropped(
    logfs: Call, logs: Logs, catalog: Catalog, tmp_path: Path, change: str
) -> None:
    command = ("export", logs.path / "orders", tmp_path / "out", "--iceberg", "lake.logs.orders")
    assert logfs(*command).status == 0
    with catalog.load_table("logs.orders").update_schema() as update:
        if change == "rename":
            update.rename_column("key", "name")
        else:
            update.delete_column("key")
    logs.append("orders", 0, three_days(50, 20))
    assert logfs(*command).errors == []
    found = catalog.load_table("logs.orders").scan().to_arrow().sort_by("offset")
    due = written(logs, ORDERS)
    assert found.column("value").to_pylist() == [row[5] for row in due]
    if change == "rename":
        assert found.column("name").to_pylist() == [row[4] for row in due]
    assert ("name" in found.column_names, "key" in found.column_names) == (
        change == "rename",
        False,
    )


def test_a_column_that_was_dropped_and_added_again_is_named(
    logfs: Call, logs: Logs, catalog: Catalog, tmp_path: Path
) -> None:
    from pyiceberg.types import IntegerType

    command = ("export", logs.path / "orders", tmp_path / "out", "--iceberg", "lake.logs.orders")
    assert logfs(*command).status == 0
    table = catalog.load_table("logs.orders")
    with table.update_schema() as update:
        update.delete_column("timestampType")
    with table.update_schema() as update:
        update.add_column("timestampType", IntegerType())
    logs.append("orders", 0, three_days(50, 20))
    status, _, errors = logfs(*command)
    assert (status, len(errors)) == (1, 1)
    assert "its column timestampType is another one than that of the files" in errors[0]
    with catalog.load_table("logs.orders").update_schema() as update:
        update.rename_column("timestampType", "again")
    assert logfs(*command).status == 0
    assert rows_in(catalog) == written(logs, ORDERS)


def test_files_of_an_export_without_field_ids_are_read_beside_new_ones(
    logfs: Call, logs: Logs, catalog: Catalog, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    from logfs.arrow.batches import schema_of
    from logfs.arrow.columns import ALL

    out = tmp_path / "out"
    assert logfs("export", logs.path / "orders", out).status == 0
    for path in out.glob("**/*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).cast(schema_of(ALL)), path)
    command = ("export", logs.path / "orders", out, "--iceberg", "lake.logs.orders")
    assert logfs(*command).errors == []
    with catalog.load_table("logs.orders").update_schema() as update:
        update.rename_column("value", "body")
    logs.append("orders", 0, three_days(50, 20))
    assert logfs(*command).errors == []
    found = catalog.load_table("logs.orders").scan().to_arrow().sort_by("offset")
    assert found.column("body").to_pylist() == [row[5] for row in written(logs, ORDERS)]


def test_a_table_has_strings_if_the_files_have_text(
    logfs: Call, catalog: Catalog, tmp_path: Path
) -> None:
    logs = Logs(tmp_path / "texts", NOW_MS)
    logs.topic("orders")
    logs.append("orders", 0, [Record(0, START_MS, b"k", "größer".encode())])
    command = ("export", "--text", "value", logs.path, tmp_path / "out")
    assert logfs(*command, "--iceberg", "lake.logs.orders").errors == []
    table = catalog.load_table("logs.orders").scan().to_arrow()
    assert table.column("value").to_pylist() == ["größer"]
    logs.close()


def test_a_table_continues_with_a_topic_made_again(
    logfs: Call, logs: Logs, catalog: Catalog, tmp_path: Path
) -> None:
    command = ("export", logs.path, tmp_path / "out", "--iceberg", "lake.logs.orders")
    assert logfs(*command).status == 0
    due = written(logs, ORDERS)
    logs.append("orders", 0, three_days(50, 20))
    assert logfs(*command[:3]).status == 0  # without the table, before the topic is deleted
    due = written(logs, ORDERS)
    logs.store.delete_topic("orders", NOW_MS)
    logs.topic("orders")
    logs.written.clear()
    logs.append("orders", 0, three_days(0, 90))
    assert logfs(*command).status == 1
    assert logfs(*command, "--recreated").errors == []
    assert rows_in(catalog) == sorted(due + written(logs, ORDERS))
    table = catalog.load_table("logs.orders")
    assert json.loads(table.properties["logfs.offsets"]) == {"orders-0": 70, "orders-0~2": 90}
    assert logfs(*command).out.decode().endswith("nothing new; 0 files added to lake.logs.orders\n")
