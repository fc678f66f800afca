"""One range of offsets to Parquet: what a process, a thread or an executor does at a time."""

import io
from collections.abc import Collection

from logfs.arrow.reading import read_range
from logfs.errors import ExportError
from logfs.library.mounted_disk import disk_at
from logfs.services.scanning.ranges import OffsetRange
from logfs.spark.exporting.dayfiles import COLUMNS, DayFiles, file_schema
from logfs.spark.exporting.manifest import ExportRange, Written, file_name, note_written
from logfs.spark.exporting.targets import open_target


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
    with target.scratch(one.name) as scratch:
        made: list[tuple[io.IOBase, str]] = []

        def open_file(day: str, number: int) -> io.IOBase:
            file = scratch.create()
            made.append((file, file_name(one, day, number)))
            return file

        files, records = DayFiles(open_file, file_schema(text)), 0
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
        size_bytes = sum(target.put(file, name) for file, name in made)
    done = Written(one, records, size_bytes, tuple(name for _, name in made), tuple(lost))
    note_written(target, done)
    return done
