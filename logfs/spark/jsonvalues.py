"""Tables of JSON values: ``valueFormat=json``, where a schema names members of the values.

    spark.read.format("logfs").option("valueFormat", "json").schema("id long, _offset long")

    _offset, _timestamp, _key ...   a column of the log, with an underscore before its name
    _corrupt_record                 the value, if it is no object or a member has another type
    any other                       the member of that name

Source: Spark JacksonParser, for ``_corrupt_record`` and what becomes null.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, DecimalType, StructField, StructType

from logfs.arrow.columns import BY_NAME, ArrowColumn
from logfs.arrow.members import MemberParser
from logfs.errors import InvalidConfigError
from logfs.spark.schema import chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader

CORRUPT = "_corrupt_record"
_VALUE = BY_NAME["value"]
_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


class JsonColumns(NamedTuple):
    """The columns of a table of JSON values.

    Attributes:
        names: All of them, in order.
        own: The columns of the log among them, by their names in the table.
        members: The others, as they are parsed.
    """

    names: tuple[str, ...]
    own: dict[str, ArrowColumn]
    members: tuple[pa.Field, ...]

    @property
    def read(self) -> tuple[ArrowColumn, ...]:
        """What of the records is needed."""
        return tuple({*self.own.values(), _VALUE})

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of batches that have the columns ``read``."""
        parser = MemberParser(self.members)
        for batch in batches:
            parts = list(parser.parse(batch.column("value")))
            members = pa.concat_arrays([one for one, _ in parts]).flatten()
            found = dict(zip((one.name for one in self.members), members, strict=True))
            found[CORRUPT] = pa.concat_arrays([corrupt for _, corrupt in parts])
            for name, column in self.own.items():
                found[name] = batch.column(column.name)
            yield pa.record_batch([found[name] for name in self.names], list(self.names))


def json_columns(schema: StructType) -> JsonColumns:
    """Return the columns of a schema; raise InvalidConfigError for one that cannot be read."""
    own: dict[str, ArrowColumn] = {}
    members = []
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        if name.startswith("_") and name[1:].lower() in BY_NAME:
            (own[name],) = chosen([(name[1:], kind)])
        elif name == CORRUPT and kind != "string":
            raise InvalidConfigError(f"column {name} is string, not {kind}")
        elif name != CORRUPT:
            members.append(_member(field))
    return JsonColumns(tuple(schema.fieldNames()), own, tuple(members))


def infer_schema(reader: "DataFrameReader", path: str, records: int = 1000) -> StructType:
    """Return the schema of JSON values, as Spark infers it from the first ones.

    Args:
        reader: ``spark.read``, with the options that say what to read.
        path: As of ``load``.
        records: How many values are looked at.

    Raises:
        InvalidConfigError: There is no value.
    """
    table = reader.format("logfs").schema("value binary").load(path).where("value IS NOT NULL")
    texts = table.limit(records).selectExpr("CAST(value AS STRING) AS value")
    found = texts.sparkSession.read.json(texts).schema
    if not found.fields:
        raise InvalidConfigError(f"{path}: no JSON value says which members there are")
    return found


def _member(field: StructField) -> pa.Field:
    return pa.field(field.name, _type(field.name, field.dataType, field.nullable))


def _type(name: str, kind: DataType, may_be_null: bool) -> pa.DataType:
    if not may_be_null:
        raise InvalidConfigError(f"column {name} is NOT NULL, but a value may lack a member")
    if isinstance(kind, StructType):
        return pa.struct([_member(field) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(_type(name, kind.elementType, kind.containsNull))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _TYPES.get(kind.simpleString())
    if found is None:
        raise InvalidConfigError(
            f"column {name}: a member cannot be read as {kind.simpleString()}; read it as string, "
            f"and convert that; expected decimal, array, struct or {', '.join(_TYPES)}"
        )
    return found
