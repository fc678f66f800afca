"""One range of offsets to Parquet: what a process, a thread or an executor does at a time."""

from collections.abc import Collection

from logfs.arrow.batches import schema_of
from logfs.arrow.columns import ALL
from logfs.arrow.reading import read_range
from logfs.errors import ExportError
from logfs.library.mounted_disk import disk_at
from logfs.log.scanning.ranges import OffsetRange
from logfs.spark.exporting.dayfiles import DayFiles
from logfs.spark.exporting.manifest import ExportRange, Written, file_name, note_written
from logfs.spark.exporting.targets import open_target

COLUMNS = ALL
"""Those of Spark's Kafka source, as ``spark.read.format("logfs")`` has them."""


def export_range(
    root: str, destination: str, one: ExportRange, *, text: Collection[str] = ()
) -> Written:
    """Write the records of a range that are committed; a second time it replaces the first.

    Args:
        text: The columns to write as strings.

    Raises:
        ExportError: This machine has no such partition.
        CorruptRecordError: A batch in it is damaged.
        UndecodableTextError: A key or value that is to be text is not UTF-8.
    """
    source, target, lost = disk_at(root), open_target(destination), list[tuple[int, int]]()
    if not source.exists(one.topic_partition.directory):
        raise ExportError(
            f"{root}/{one.topic_partition.directory} is not there: every machine needs the data "
            "directory at the same path"
        )
    with target.scratch(one.name) as folder:
        names: list[tuple[str, str]] = []

        def open_file(day: str, number: int) -> str:
            path = f"{folder}/{len(names)}"
            names.append((path, file_name(one, day, number)))
            return path

        files, records = DayFiles(open_file, schema_of(COLUMNS, text)), 0
        batches = read_range(
            source,
            OffsetRange(one.topic_partition, one.start, one.end),
            COLUMNS,
            hides_aborted=True,
            on_loss=lambda first, behind: lost.append((first, behind)),
            text=text,
        )
        for batch in batches:
            files.write(batch)
            records += batch.num_rows
        files.close()
        size_bytes = sum(target.put(path, name) for path, name in names)
    done = Written(one, records, size_bytes, tuple(name for _, name in names), tuple(lost))
    note_written(target, done)
    return done
