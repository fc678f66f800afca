"""The files of an export, read again and compared with the log that they are from.

Each file is decoded as a whole, with the checksums of its pages. Its offsets have to go up, in its
range. Then its columns are compared with those of the log, as a checksum of each column of a day. A
file may have more records than the log: retention or compaction has removed those since. Then the
offsets are compared alone.
"""

from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from logfs.arrow.reading import read_range
from logfs.errors import LogfsError
from logfs.library.mounted_disk import disk_at
from logfs.services.scanning.ranges import OffsetRange
from logfs.spark.exporting.dayfiles import COLUMNS, by_day, read_columns
from logfs.spark.exporting.manifest import ExportManifest, ExportRange, file_order
from logfs.spark.exporting.targets import open_target
from logfs.types import TopicPartition


class ExportedFiles(NamedTuple):
    """The files of a range; a range without files is one in which no record may be left."""

    range: ExportRange
    names: tuple[str, ...]


class VerifiedExport(NamedTuple):
    """What was found.

    Attributes:
        files, records: Read again.
        removed: Records in the files that are not in the log any more.
        problems: The defects, each with its file.
    """

    files: int
    records: int
    removed: int
    problems: tuple[str, ...]


def files_to_verify(
    manifest: ExportManifest,
    written: Iterable[tuple[ExportRange, str]],
    only: Collection[TopicPartition],
) -> list[ExportedFiles]:
    """Return the files of some partitions by their ranges, and what is between the ranges.

    Topics that were deleted and created again are left out up to the present one.
    """
    by_range: dict[ExportRange, list[str]] = {}
    for one, name in written:
        present = one.generation == manifest.generation(one.topic)
        if present and one.topic_partition in only:
            by_range.setdefault(one, []).append(name)
    found = [ExportedFiles(one, tuple(names)) for one, names in sorted(by_range.items())]
    for partition in only:
        end, generation = manifest.ends.get(partition, 0), manifest.generation(partition.topic)
        ranges = [one for one in sorted(by_range) if one.topic_partition == partition]
        borders = [(0, 0), *((one.start, one.end) for one in ranges), (end, end)]
        found += [
            ExportedFiles(ExportRange(*partition, before, start, generation), ())
            for (_, before), (start, _) in pairwise(borders)
            if before < start
        ]
    return found


def verify_files(
    root: str, destination: str, files: ExportedFiles, *, text: Collection[str] = ()
) -> VerifiedExport:
    """Read the files of a range again, and compare them with the log."""
    one, count = files.range, len(files.names)
    in_files, problems = _read_files(destination, files)
    records = sum(len(columns.offsets()) for columns in in_files.values())
    for day, columns in in_files.items():
        disorder = columns.disorder(one)
        problems += [f"{one.name}, {_text(day)}: {disorder}"] if disorder else []
    if problems:
        return VerifiedExport(count, records, 0, tuple(problems))
    in_log: dict[int, _Columns] = {}
    try:
        for day, part in _log_of(root, one, text):
            in_log.setdefault(day, _Columns()).add(part)
    except LogfsError as error:
        return VerifiedExport(count, records, 0, (f"{one.name}: the log cannot be read: {error}",))
    removed = 0
    for day in sorted({*in_files, *in_log}):
        seen, present = in_files.get(day, _Columns()), in_log.get(day, _Columns())
        problem = seen.difference(present)
        if problem is None:
            removed += len(seen.offsets()) - len(present.offsets())
        else:
            problems.append(f"{one.name}, {_text(day)}: {problem}")
    return VerifiedExport(count, records, removed, tuple(problems))


def _read_files(destination: str, files: ExportedFiles) -> tuple[dict[int, "_Columns"], list[str]]:
    """Return the columns of files by day, and what could not be read."""
    target, found, problems = open_target(destination), dict[int, _Columns](), list[str]()
    for name in sorted(files.names, key=file_order):
        try:
            with target.local(name) as file:
                for day, part in _read(file):
                    found.setdefault(day, _Columns()).add(part)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            problems.append(f"{name}: it cannot be read: {error}")
    return found, problems


def _read(file: IO[bytes]) -> Iterator[tuple[int, pa.RecordBatch]]:
    for batch in read_columns(file):
        yield from by_day(batch)


def _log_of(
    root: str, one: ExportRange, text: Collection[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    source = disk_at(root)
    if not source.exists(one.topic_partition.directory):
        return
    offsets = OffsetRange(one.topic_partition, one.start, one.end)
    batches = read_range(
        source, offsets, COLUMNS, hides_aborted=True, on_loss=lambda *_: None, text=text
    )
    for batch in batches:
        yield from by_day(batch)


def _text(day: int) -> str:
    return str(np.datetime64(day, "D"))


class _Columns:
    """Checksums of the columns of some records, which batches they came in makes no difference."""

    def __init__(self) -> None:
        self._hashes: dict[str, blake2b] = {}
        self._offsets: list[npt.NDArray[np.int64]] = []

    def add(self, records: pa.RecordBatch) -> None:
        """Add records."""
        self._offsets.append(records.column("offset").to_numpy())
        for name in records.schema.names:
            self._add(name, records.column(name))

    def offsets(self) -> npt.NDArray[np.int64]:
        """Return the offsets of the records."""
        return np.concatenate([np.empty(0, np.int64), *self._offsets])

    def digest(self) -> dict[str, bytes]:
        """Return the checksums by column."""
        return {name: found.digest() for name, found in self._hashes.items()}

    def difference(self, log: "_Columns") -> str | None:
        """Return how the records differ from those of the log; None: in what was removed there."""
        mine, present = self.digest(), log.digest()
        if mine == present:
            return None
        missing = np.setdiff1d(log.offsets(), self.offsets())
        if len(missing):
            return f"{len(missing)} records of the log are in no file, at first offset {missing[0]}"
        if len(self.offsets()) > len(log.offsets()):
            return None
        names = sorted(name for name in mine if mine[name] != present.get(name))
        return f"{', '.join(names)} differ from the log"

    def disorder(self, one: ExportRange) -> str | None:
        """Return what is wrong with the offsets; None if nothing is."""
        offsets = self.offsets()
        if (np.diff(offsets) <= 0).any():
            at = int(np.flatnonzero(np.diff(offsets) <= 0)[0])
            return f"offset {offsets[at + 1]} comes after {offsets[at]}"
        if len(offsets) and not one.start <= offsets[0] <= offsets[-1] < one.end:
            return f"it has the offsets {offsets[0]} to {offsets[-1]}, which are not in its range"
        return None

    def _add(self, name: str, values: pa.Array) -> None:
        kind = values.type
        if pa.types.is_list(kind):
            self._update(f"{name} lengths", pc.list_value_length(values).fill_null(-1))
            for field, part in zip(kind.value_type, values.flatten().flatten(), strict=True):
                self._add(f"{name}.{field.name}", part)
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            self._update(f"{name} lengths", pc.binary_length(values).fill_null(-1))
            self._hash(name).update(_bytes_of(values.drop_null()))
        else:
            self._update(name, values)

    def _update(self, name: str, numbers: pa.Array) -> None:
        if pa.types.is_timestamp(numbers.type):
            numbers = numbers.view(pa.int64())
        self._hash(name).update(numbers.to_numpy(zero_copy_only=False).tobytes())

    def _hash(self, name: str) -> blake2b:
        return self._hashes.setdefault(name, blake2b(digest_size=16))


def _bytes_of(values: pa.Array) -> memoryview:
    """Return the bytes of strings without nulls, one after the other."""
    _, ends, data = values.buffers()
    if not len(values) or data is None:
        return memoryview(b"")
    # The buffer may be longer, also by a part of a number.
    borders = np.frombuffer(ends, np.int32, values.offset + len(values) + 1)
    return memoryview(data)[borders[values.offset] : borders[-1]]
