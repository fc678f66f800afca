"""One range of offsets to Parquet: what a process, a thread or an executor does at a time."""

import contextlib
import os

from logfs.arrow.batches import schema_of
from logfs.arrow.columns import ALL
from logfs.arrow.reading import read_range
from logfs.disk.posix import PosixDisk
from logfs.errors import ExportError
from logfs.library.mounted_disk import disk_at
from logfs.log.scanning.ranges import OffsetRange
from logfs.spark.exporting.dayfiles import DayFiles
from logfs.spark.exporting.manifest import WRITING, ExportRange, Written, file_name, note_written

COLUMNS = ALL
"""Those of Spark's Kafka source, as ``spark.read.format("logfs")`` has them."""


def export_range(root: str, destination: str, one: ExportRange) -> Written:
    """Write the records of a range that are committed; a second time it replaces the first.

    Raises:
        ExportError: This machine has no such partition.
        CorruptRecordError: A batch in it is damaged.
    """
    source, disk, lost = disk_at(root), PosixDisk(destination), list[tuple[int, int]]()
    if not source.exists(one.topic_partition.directory):
        raise ExportError(
            f"{root}/{one.topic_partition.directory} is not there: every machine needs the data "
            "directory at the same path"
        )
    # Of this attempt alone: Spark may begin another one before this one has ended.
    folder = f"{WRITING}/{one.name}.{os.urandom(8).hex()}"
    disk.make_directory(folder)
    names: list[tuple[str, str]] = []

    def open_file(day: str, number: int) -> str:
        written = f"{folder}/{len(names)}"
        names.append((written, file_name(one, day, number)))
        return f"{destination}/{written}"

    files, records = DayFiles(open_file, schema_of(COLUMNS)), 0
    batches = read_range(
        source,
        OffsetRange(one.topic_partition, one.start, one.end),
        COLUMNS,
        hides_aborted=True,
        on_loss=lambda first, behind: lost.append((first, behind)),
    )
    for batch in batches:
        files.write(batch)
        records += batch.num_rows
    files.close()
    size_bytes = sum(_put_in_place(disk, written, name) for written, name in names)
    disk.remove_tree(folder)
    done = Written(one, records, size_bytes, tuple(name for _, name in names), tuple(lost))
    note_written(disk, done)
    return done


def _put_in_place(disk: PosixDisk, written: str, name: str) -> int:
    """Make a file durable and rename it; returns its size."""
    file = disk.open(written, write=True)
    file.sync()
    size = file.size()
    file.close()
    topic, day, _ = name.split("/")
    make_folder(disk, topic)
    make_folder(disk, f"{topic}/{day}")
    disk.rename(written, name)
    # All of them: another writer may have made a directory and not synced its parent yet.
    for folder in (f"{topic}/{day}", topic, ""):
        disk.sync_directory(folder)
    return size


def make_folder(disk: PosixDisk, name: str) -> None:
    """Make a directory; it may exist already."""
    with contextlib.suppress(FileExistsError):
        disk.make_directory(name)
