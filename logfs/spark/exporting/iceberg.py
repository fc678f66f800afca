"""The files of an export into an Iceberg table, each exactly once.

A property of the table, set by the commit that adds files, has the offset that it has reached (as
has the summary of its snapshot). After a run that was killed the next one adds only missing files,
also if older snapshots have changed or are gone. Files are added as they are, where they
are: they must not be removed while the table has them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from logfs.arrow.batches import schema_of
from logfs.errors import ExportError
from logfs.machine.packages import how_to_add
from logfs.spark.exporting.dayfiles import COLUMNS
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

    Raises:
        ExportError: There is no such catalog, it does not answer, or the table is another one.
    """

    def __init__(self, name: str) -> None:
        catalog, _, identifier = name.partition(".")
        if not identifier or "." not in identifier:
            raise ExportError(f"{name}: expected CATALOG.NAMESPACE.TABLE, as prod.logs.orders")
        self._name = name
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise ExportError(
                f"--iceberg takes pyiceberg, which is not there ({error}): {how_to_add('iceberg')}"
            ) from error
        with _told(name):
            self._table = _load_or_make(load_catalog(catalog), identifier)

    def add(self, destination: str) -> int:
        """Add the files of a destination that the table does not have yet; returns how many.

        Raises:
            ExportError: The table holds another topic of that name, lacks a column, or the commit
                failed.
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
            transaction.set_properties(properties)
            if files:
                summary = {OFFSETS: properties[OFFSETS]}
                transaction.add_files(files, snapshot_properties=summary)
        return len(files)

    def _check_columns(self) -> None:
        present = {field.name for field in self._table.schema().fields}
        missing = [column.name for column in COLUMNS if column.name not in present]
        if missing:
            raise ExportError(
                f"{self._name} has no column {', '.join(missing)}: it was renamed or dropped. The "
                "files are written, but the table takes them only with all columns under their "
                "first names: rename or add the column (a view can have other names), then export "
                "again"
            )

    def _property(self, name: str) -> dict[str, Any]:
        found: Mapping[str, str] = self._table.properties
        try:
            return dict(json.loads(found.get(name, "{}")))
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


def _load_or_make(catalog: Any, identifier: str) -> Any:  # noqa: ANN401 - pyiceberg's
    from pyiceberg.transforms import DayTransform

    if not catalog.table_exists(identifier):
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        making = catalog.create_table_transaction(identifier, schema_of(COLUMNS))
        with making, making.update_spec() as spec:
            spec.add_field("timestamp", DayTransform(), "day")
    return catalog.load_table(identifier)
