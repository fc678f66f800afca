"""The files of an export into an Iceberg table, each exactly once.

A property of the table, set by the commit that adds files, has the offset that it has reached (as
has the summary of its snapshot). After a run that was killed the next one adds only missing files,
also if older snapshots have changed or are gone. Files are added as they are, where they
are: they must not be removed while the table has them.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from logfs.errors import ExportError
from logfs.machine.packages import how_to_add
from logfs.records.jsontext import decode_object
from logfs.spark.exporting.dayfiles import file_schema
from logfs.spark.exporting.manifest import (
    numbered,
    read_manifest,
    written_files,
)
from logfs.spark.exporting.targets import open_target

OFFSETS = "logfs.offsets"
"""Property of the table and of its snapshots: up to which offset each partition is in it.

The keys are those of ``ExportRange.log_name``.
"""
TOPICS = "logfs.topics"
"""Property of the table: the id of each topic in it."""


class IcebergTable:
    """A table that takes what is exported; made if it is missing, a partition a day.

    Args:
        name: ``CATALOG.NAMESPACE.TABLE``; the catalog as pyiceberg's configuration names it.
        text: The columns of the files that are strings.

    Raises:
        ExportError: There is no such catalog, it does not answer, or the table is another one.
    """

    def __init__(self, name: str, text: Collection[str] = ()) -> None:
        catalog, _, identifier = name.partition(".")
        if not identifier or "." not in identifier:
            raise ExportError(f"{name}: expected CATALOG.NAMESPACE.TABLE, as prod.logs.orders")
        self._name = name
        self._schema = file_schema(text)
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise ExportError(
                f"--iceberg takes pyiceberg, which is not there ({error}): {how_to_add('iceberg')}"
            ) from error
        with _told(name):
            self._table = _load_or_make(load_catalog(catalog), identifier, self._schema)

    def add(self, destination: str) -> int:
        """Add the files of a destination that the table does not have yet; returns how many.

        Raises:
            ExportError: The table holds another topic of that name, a column of it has another id
                than in the files, or the commit failed.
        """
        target = open_target(destination)
        manifest = read_manifest(target)
        ends = self._property(OFFSETS)
        topics = self._property(TOPICS)
        for topic, known in manifest.topics.items():
            if topics.get(topic, known) not in (known, *manifest.earlier.get(topic, ())):
                raise ExportError(
                    f"{self._name} has another topic {topic} (id {topics[topic]}) than "
                    f"{destination} (id {known}): give another table"
                )
            topics[topic] = known
        new = [
            (one, name)
            for one, name in sorted(written_files(target, manifest))
            if one.start >= ends.get(one.log_name, 0)
        ]
        files = [f"{destination}/{name}" for _, name in new]
        offsets = dict(ends)
        for one, _ in new:
            offsets[one.log_name] = max(offsets.get(one.log_name, 0), one.end)
        for present, end in manifest.ends.items():
            offsets[f"{present.directory}{numbered(manifest.generation(present.topic))}"] = end
        if not files and offsets == ends:
            return 0
        self._check_columns()
        properties = {OFFSETS: json.dumps(offsets), TOPICS: json.dumps(topics)}
        with _told(self._name), self._table.transaction() as transaction:
            if transaction.table_metadata.name_mapping() is None:  # of files without field ids
                mapping = transaction.table_metadata.schema().name_mapping
                properties["schema.name-mapping.default"] = mapping.model_dump_json()
            transaction.set_properties(properties)
            if files:
                self._append(transaction, files, {OFFSETS: properties[OFFSETS]})
        return len(files)

    def _append(self, transaction: Any, files: Sequence[str], summary: dict[str, str]) -> None:  # noqa: ANN401
        """Append files in one snapshot; ``add_files`` finds no column that was renamed."""
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
            pyarrow_to_schema,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

        metadata, io = transaction.table_metadata, self._table.io
        written, present = pyarrow_to_schema(self._schema), metadata.schema()
        paths = parquet_path_to_id_mapping(written)
        collected = {
            **compute_statistics_plan(written, metadata.properties),  # those of dropped columns
            **compute_statistics_plan(present, metadata.properties),
        }
        with transaction.update_snapshot(snapshot_properties=summary).fast_append() as appending:
            for path in files:
                file = io.new_input(path)
                with file.open() as stream:
                    found = pq.read_metadata(stream)
                statistics = data_file_statistics_from_parquet_metadata(found, collected, paths)
                appending.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA,
                        file_path=path,
                        file_format=FileFormat.PARQUET,
                        partition=statistics.partition(metadata.spec(), present),
                        file_size_in_bytes=len(file),
                        sort_order_id=None,
                        spec_id=metadata.default_spec_id,
                        equality_ids=None,
                        key_metadata=None,
                        **statistics.to_serialized_dict(),
                    )
                )

    def _check_columns(self) -> None:
        """Refuse a table in which a column of that name is another one, or has another type."""
        from pyiceberg.io.pyarrow import pyarrow_to_schema

        present = self._table.schema()
        for field in pyarrow_to_schema(self._schema).fields:
            for one in present.fields:
                if one.name == field.name and one.field_id != field.field_id:
                    raise ExportError(
                        f"{self._name}: its column {one.name} is another one than that of the "
                        f"files (field id {one.field_id}, in the files {field.field_id}), since "
                        "it was dropped and added again, or logfs did not make the table. The "
                        "files are written. Rename it, then export again, or give another table"
                    )
                if one.field_id == field.field_id and one.field_type != field.field_type:
                    raise ExportError(
                        f"{self._name}: its column {one.name} has the type {one.field_type}, the "
                        f"files have {field.field_type}: give another table"
                    )

    def _property(self, name: str) -> dict[str, Any]:
        found: Mapping[str, str] = self._table.properties
        try:
            return decode_object(found.get(name, "{}"))
        except ValueError as error:
            raise ExportError(f"{self._name}: its property {name} does not parse") from error


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Tell what goes wrong with a table in one line."""
    try:
        yield
    except Exception as error:
        if isinstance(error, ExportError):
            raise
        raise ExportError(f"Iceberg table {name}: {type(error).__name__}: {error}") from error


def _load_or_make(catalog: Any, identifier: str, schema: pa.Schema) -> Any:  # noqa: ANN401 - pyiceberg's
    from pyiceberg.transforms import DayTransform

    if not catalog.table_exists(identifier):
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        making = catalog.create_table_transaction(identifier, schema)
        with making, making.update_spec() as spec:
            spec.add_field("timestamp", DayTransform(), "day")
    return catalog.load_table(identifier)
