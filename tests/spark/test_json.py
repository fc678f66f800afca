"""Members of JSON values as columns: ``valueFormat=json``."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import InvalidConfigError
from tests.spark.logs import START_MS, Logs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]  # it parses schemas

Rows = list[dict[str, Any]]


def read(path: Path, schema: str, **options: str) -> Rows:
    """The rows of a table of JSON values, without a JVM."""
    from pyspark.sql.types import StructType

    from logfs.spark.source import LogfsDataSource

    parsed = StructType.fromDDL(schema)
    source = LogfsDataSource({"path": str(path), "valueFormat": "json", **options})
    reader = source.reader(parsed)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert all(batch.schema.names == parsed.fieldNames() for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write values to a topic; returns the data directory."""

    def write(*values: bytes) -> Path:
        logs = Logs(tmp_path / "data")
        logs.topic("t")
        logs.write("t", 0, *values)
        logs.close()
        return logs.path

    return write


def test_the_columns_are_members_of_the_values(written: Written) -> None:
    path = written(
        b'{"id": 1, "level": "info", "more": {"a": [1, 2]}, "price": 1.5, "is_new": true}',
        b'{"level": "error", "id": 9223372036854775807, "more": {"b": 7, "a": null}}',
        b'{\n  "id": null\n}\n',
        b"{}",
    )
    schema = "level string, id long, more struct<a: array<int>>, price double, is_new boolean"
    nothing = {"level": None, "id": None, "more": None, "price": None, "is_new": None}
    assert read(path, schema) == [
        {"level": "info", "id": 1, "more": {"a": [1, 2]}, "price": 1.5, "is_new": True},
        {**nothing, "level": "error", "id": 2**63 - 1, "more": {"a": None}},
        nothing,
        nothing,
    ]


def test_columns_of_the_log_have_an_underscore_before_their_names(written: Written) -> None:
    path = written(b'{"offset": "mine", "timestamp": 7}', b'{"offset": "yours", "timestamp": 8}')
    schema = (
        "_offset long, offset string, timestamp int, _topic string, _partition int, _value binary"
    )
    first, second = read(path, schema + ", _timestamp timestamp, _key binary")
    moment = first.pop("_timestamp")
    assert moment.timestamp() * 1000 == START_MS
    assert list(first.values()) == [
        0, "mine", 7, "t", 0, b'{"offset": "mine", "timestamp": 7}', None,
    ]  # fmt: skip
    assert (second["_offset"], second["offset"]) == (1, "yours")


MALFORMED = [
    b"",
    b"  ",
    b"{",
    b"no JSON",
    b"5",
    b'"text"',
    b'[{"id": 1}]',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}}\n{"row":1,"value":{"id": 2}',
    b'1}\n{"row":1,"value":{"id": 2}',
    b'{"name": "\xff"}',
    b"[" * 100_000,
    b"\x00",
]


def test_a_malformed_value_has_no_members_and_its_text_is_kept(written: Written) -> None:
    good = b'{"id": 7, "name": "seven"}'
    values = [value for one in MALFORMED for value in (one, good)]
    found = read(written(*values), "id long, name string, _corrupt_record string")
    for value, row in zip(values, found, strict=True):
        if value == good:
            assert row == {"id": 7, "name": "seven", "_corrupt_record": None}
        else:
            text = value.decode(errors="replace")
            assert row == {"id": None, "name": None, "_corrupt_record": text}


def test_a_member_of_another_type_is_null_and_the_others_are_read(written: Written) -> None:
    values = {
        b'{"n": "1", "name": "text"}': None,
        b'{"n": 1.0, "name": "text"}': None,
        b'{"n": true, "name": "text"}': None,
        b'{"n": 2147483648, "name": "text"}': None,
        b'{"n": [1], "name": "text"}': None,
        b'{"n": -2147483648, "name": "text"}': -(2**31),
        b'{"n": 1, "n": 2, "name": "text"}': 2,
    }
    found = read(written(*values), "n int, name string, _corrupt_record string")
    assert [row["name"] for row in found] == ["text"] * len(values)
    for (value, expected), row in zip(values.items(), found, strict=True):
        assert row["n"] == expected
        assert row["_corrupt_record"] == (value.decode() if expected is None else None)


def test_a_string_is_the_json_of_any_other_member(written: Written) -> None:
    members = ["text", 5, 1.5, True, {"a": [1, "é"]}, [], None]
    path = written(*(json.dumps({"m": member}).encode() for member in members))
    assert [row["m"] for row in read(path, "m string")] == [
        "text", "5", "1.5", "true", '{"a":[1,"é"]}', "[]", None,
    ]  # fmt: skip


def test_times_and_decimals(written: Written) -> None:
    path = written(
        b'{"at": "2026-11-20T10:00:00.5+01:00", "sum": 12.50}',
        b'{"at": "2026-11-20 10:00:00", "sum": "3.1"}',
        b'{"at": "yesterday", "sum": 1}',
    )
    found = read(path, "at timestamp, sum decimal(9, 2)")
    assert [row["at"] and row["at"].isoformat() for row in found] == [
        "2026-11-20T09:00:00.500000+00:00", "2026-11-20T10:00:00+00:00", None,
    ]  # fmt: skip
    assert [str(row["sum"]) for row in found] == ["12.50", "3.10", "1.00"]


def test_a_null_value_has_no_members_and_is_not_malformed(tmp_path: Path) -> None:
    logs = Logs(tmp_path / "data")
    logs.topic("t")
    from logfs.records.record import Record

    logs.append("t", 0, [Record(0, START_MS, b"key", None), Record(0, START_MS, None, b"null")])
    logs.close()
    nothing = {"id": None, "_corrupt_record": None}
    assert read(logs.path, "id long, _corrupt_record string") == [nothing, nothing]


def test_among_many_values_only_the_malformed_ones_are_without_members(written: Written) -> None:
    count, bad = 5000, {0, 777, 778, 4999}
    values = [b"bad" if n in bad else b'{"id": %d}' % n for n in range(count)]
    found = read(written(*values), "id long, _offset long")
    assert found == [{"id": None if n in bad else n, "_offset": n} for n in range(count)]


ODD = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([*MALFORMED[:-2], b"null", b"{}", b'{"id": "x", "name": 1}', b'{"id": 1e2}']),
    st.dictionaries(st.sampled_from(["id", "name", "row"]), st.integers() | st.text() | st.none())
    .map(lambda one: json.dumps(one).encode()),
    st.none(),
)  # fmt: skip


@given(st.lists(ODD, max_size=8))
def test_each_value_is_parsed_as_if_it_were_alone(values: Sequence[bytes | None]) -> None:
    import pyarrow as pa

    from logfs.arrow.members import MemberParser

    def parsed(some: Sequence[bytes | None]) -> list[tuple[object, object]]:
        parser = MemberParser([pa.field("id", pa.int64()), pa.field("name", pa.string())])
        parts = parser.parse(pa.array(some, pa.binary()))
        return [
            (row, text)
            for rows, texts in parts
            for row, text in zip(rows.to_pylist(), texts.to_pylist(), strict=True)
        ]

    assert parsed(values) == [row for value in values for row in parsed([value])]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("id map<string, int>", "column id: a member cannot be read as map<string,int>; read it"),
        ("id array<date>", "column id: a member cannot be read as date"),
        ("id long not null", "column id is NOT NULL, but a value may lack a member"),
        ("_offset int", "column offset is bigint, not int"),
        ("_corrupt_record int", "column _corrupt_record is string, not int"),
    ],
)
def test_columns_that_cannot_be_read_are_refused(
    written: Written, schema: str, message: str
) -> None:
    with pytest.raises(InvalidConfigError, match=message.replace("(", r"\(")):
        read(written(b"{}"), schema)


def test_a_schema_is_needed_and_the_format_is_one_of_two(written: Written) -> None:
    from logfs.spark.source import LogfsDataSource

    path = written(b"{}")
    source = LogfsDataSource({"path": str(path), "valueFormat": "json"})
    with pytest.raises(InvalidConfigError, match=r"valueFormat=json needs a schema.*infer_schema"):
        source.schema()
    with pytest.raises(InvalidConfigError, match="valueFormat 'xml': expected bytes or json"):
        read(path, "id long", valueFormat="xml")
    source = LogfsDataSource({"path": str(path)})
    from pyspark.sql.types import StructType

    with pytest.raises(InvalidConfigError, match=r"there is no column id.*valueFormat=json"):
        source.reader(StructType.fromDDL("id long"))


VALUES = (
    b'{"id": 1, "level": "info", "tags": ["a"], "more": {"x": 1.5}}',
    b'{"id": 2, "level": "error"}',
    b'{"id": "three", "level": "error", "tags": []}',
    b'{"id": 4.0, "level": 4}',
    b"no JSON",
    b'{"id": 5, "level": {"a": [1]}, "tags": null}',
    b'[{"id": 6}]',
    b"",
    b'{"ID": 7}',
)
SCHEMA = "id long, level string, tags array<string>, more struct<x: double>"


def test_spark_reads_the_same_as_with_from_json(spark: "SparkSession", written: Written) -> None:
    path = str(written(*VALUES))
    ours = spark.read.format("logfs").option("valueFormat", "json")
    plain = spark.read.format("logfs").load(path)
    theirs = plain.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS v").select("v.*")
    assert ours.schema(SCHEMA).load(path).collect() == theirs.collect()


def test_a_stream_and_sql_read_json_with_an_inferred_schema(
    spark: "SparkSession", written: Written, tmp_path: Path
) -> None:
    from logfs.spark.jsonvalues import infer_schema

    path = str(written(*VALUES[:2]))
    schema = infer_schema(spark.read, path)
    assert schema.simpleString() == (
        "struct<id:bigint,level:string,more:struct<x:double>,tags:array<string>>"
    )
    stream = spark.readStream.format("logfs").option("startingOffsets", "earliest")
    stream = stream.option("valueFormat", "json").schema(schema).load(path)
    checkpoint = str(tmp_path / "checkpoint")
    query = (
        stream.writeStream.format("memory").queryName("members").trigger(availableNow=True)
        .option("checkpointLocation", checkpoint).start()
    )  # fmt: skip
    query.awaitTermination()
    assert [row.id for row in spark.sql("SELECT id FROM members ORDER BY id").collect()] == [1, 2]
    spark.sql(
        "CREATE TEMPORARY VIEW said (id BIGINT, level STRING, _offset BIGINT) USING logfs "
        f"OPTIONS (path '{path}', valueFormat 'json')"
    )
    found = spark.sql("SELECT _offset FROM said WHERE level = 'error'").collect()
    assert [row._offset for row in found] == [1]


def test_the_schema_of_nothing_is_refused(spark: "SparkSession", written: Written) -> None:
    from logfs.spark.jsonvalues import infer_schema

    with pytest.raises(InvalidConfigError, match="no JSON value says which members there are"):
        infer_schema(spark.read, str(written()))
