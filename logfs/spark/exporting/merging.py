"""Small files of an export, merged into larger ones, so that frequent runs leave few files.

Neighbouring ranges of a partition whose files are small become one range: each of its days becomes
one file. The manifest lists the merges before the first one begins. Then, for each of them, the new
file is written as a whole and durably, and after that its sources are removed. So a kill at any
moment loses no record, and the next run continues: a merge whose file is there has only to remove
the sources.

Until the sources are removed, a reader of the directory sees their records twice.
"""

import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logfs.errors import ExportError
from logfs.spark.exporting.dayfiles import DayFiles, file_schema, read_columns
from logfs.spark.exporting.manifest import (
    ExportRange,
    Merge,
    day_of,
    file_name,
    file_order,
)
from logfs.spark.exporting.targets import ExportTarget, Scratch, open_target
from logfs.types import TopicPartition

SMALL_BYTES = 32 << 20
"""The size of the Parquet files of a range: a larger one is left as it is."""
MERGED_BYTES = 128 << 20
"""The largest size of the Parquet files that become one range."""

MergeRun = Callable[[Sequence[Merge], Sequence[int]], Iterable["Merged"]]
"""Does merges of about these sizes."""


class Merged(NamedTuple):
    """What became of a merge.

    Attributes:
        files: The sources that were there.
        missing: The sources that were gone before.
    """

    files: int
    missing: tuple[str, ...] = ()


def plan_merges(
    files: Iterable[tuple[ExportRange, str]],
    sizes: Mapping[str, int],
    only: Collection[TopicPartition],
) -> list[Merge]:
    """Return the merges that leave fewer files.

    Args:
        files: The files of whole ranges, each with its range.
        sizes: Their sizes in bytes.
        only: The partitions to look at.
    """
    logs: dict[str, dict[ExportRange, list[str]]] = {}
    for one, name in files:
        if one.topic_partition in only:
            logs.setdefault(one.log_name, {}).setdefault(one, []).append(name)
    return [
        merge
        for _, by_range in sorted(logs.items())
        for group in _groups(by_range, sizes)
        for merge in _merges(group, by_range)
    ]


def _groups(
    by_range: Mapping[ExportRange, Sequence[str]], sizes: Mapping[str, int]
) -> Iterator[list[ExportRange]]:
    """Yield neighbouring small ranges that are about the same days.

    A range joins if its records of the group's main day are at least half of those of its own main
    day. So ranges on both sides of midnight do not become one, and no later run has to write the
    files of an earlier day again.
    """
    group: list[ExportRange] = []
    in_group = Counter[str]()
    for one in sorted(by_range):
        days = Counter[str]()
        for name in by_range[one]:
            days[day_of(name)] += sizes[name]
        if group and (
            2 * days[_main(in_group)] < max(days.values())
            or in_group.total() + days.total() > MERGED_BYTES
        ):
            yield group
            group, in_group = [], Counter()
        if days.total() < SMALL_BYTES:
            group.append(one)
            in_group += days
        else:
            yield group
            group, in_group = [], Counter()
    yield group


def _main(days: Counter[str]) -> str:
    return days.most_common(1)[0][0]


def _merges(
    group: Sequence[ExportRange], by_range: Mapping[ExportRange, Sequence[str]]
) -> list[Merge]:
    days: dict[str, list[str]] = {}
    for one in group:
        for name in by_range[one]:
            days.setdefault(day_of(name), []).append(name)
    if len(group) < 2 or all(len(names) == 1 for names in days.values()):
        return []
    whole = group[0]._replace(end=group[-1].end)
    return [
        Merge(file_name(whole, day, 0), tuple(sorted(names, key=file_order)))
        for day, names in sorted(days.items())
    ]


def merge_files(destination: str, merge: Merge, *, text: Collection[str] = ()) -> Merged:
    """Merge files into one; if it is there already, only remove them.

    Args:
        text: The columns that are strings.

    Raises:
        ExportError: A source is damaged; it is left, and so are the others.
    """
    target, missing = open_target(destination), list[str]()
    if not target.exists(merge.into):
        with target.scratch(merge.into.rpartition("/")[2]) as scratch:
            file, missing = _merged(target, scratch, merge, text)
            if len(missing) == len(merge.sources):
                return Merged(0, tuple(missing))
            if not (missing and target.exists(merge.into)):  # another run has merged and removed
                target.put(file, merge.into)
    target.remove_all(merge.sources)
    return Merged(len(merge.sources) - len(missing), tuple(missing))


def _merged(
    target: ExportTarget, scratch: Scratch, merge: Merge, text: Collection[str]
) -> tuple[io.IOBase, list[str]]:
    """Write the records of the sources; return the file, and the sources that are not there."""
    file, missing, last = scratch.create(), list[str](), -1

    def open_file(day: str, number: int) -> io.IOBase:
        if day != day_of(merge.into) or number:
            raise ExportError(f"{merge.into}: a file to merge has records of {day}")
        return file

    schema = file_schema(text)
    files = DayFiles(open_file, schema)
    for name in merge.sources:
        try:
            with target.local(name) as source:
                for batch in read_columns(source):
                    last = _check_order(name, batch, last)
                    files.write(batch.cast(schema))
        except FileNotFoundError:
            missing.append(name)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise ExportError(
                f"{name}: it cannot be merged: {error}; it is left as it is, 'logfs export "
                "--verify' compares it with the log"
            ) from error
    files.close()
    return file, missing


def _check_order(name: str, batch: pa.RecordBatch, last: int) -> int:
    """Return the last offset of a batch; raise ValueError if offsets do not go up after another."""
    offsets = batch.column("offset")
    if not len(offsets):
        return last
    first = offsets[0].as_py()
    ascend = pc.all(pc.greater(offsets[1:], offsets[:-1])).as_py() is not False
    if first <= last or not ascend:
        raise ValueError(f"its offsets do not go up after {last}")
    return int(offsets[-1].as_py())
