"""A run of an export: what was interrupted, then what is new.

Only committed records are written, up to the last stable offset: what is in a table stays true. A
record that compaction removes later stays there, one that it removed before is not there.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from logfs.errors import ExportError
from logfs.library.mounted_disk import disk_at
from logfs.library.stored_partitions import Directories, SeenLog, SizedRange
from logfs.log.checkpoints import read_partition_metadata
from logfs.spark.exporting.manifest import (
    ExportManifest,
    ExportRange,
    Written,
    forget_written,
    read_manifest,
    read_written,
    write_manifest,
    written_files,
)
from logfs.spark.exporting.merging import MergeRun, plan_merges
from logfs.spark.exporting.targets import open_target
from logfs.types import IsolationLevel, TopicPartition

RANGE_BYTES = 128 << 20
"""Of ``.log``, about: as much as a task should do, and a file of Parquet should have."""

Run = Callable[[Sequence[ExportRange], Sequence[int]], Iterable[Written]]
"""Writes ranges of about these sizes."""


class Exporter:
    """Exports partitions of a data directory.

    Args:
        with_recreated: Continue with topics that were deleted and created again.
        text: The columns that are strings; None: those of earlier runs.
        merge: Merges files; None: none are merged.
        table: The Iceberg table that gets the files.
        min_bytes: Leave the end of a partition for a later run until about so many bytes of its log
            are new.

    Attributes:
        lost: The records that were gone before a run: partition, first offset, offset after.
        refused: Why topics were left out, and what else a user has to look at.
    """

    def __init__(  # noqa: PLR0913 - the options of the command
        self,
        root: str,
        destination: str,
        run: Run,
        *,
        merge: MergeRun | None = None,
        table: str | None = None,
        text: Collection[str] | None = None,
        with_recreated: bool = False,
        min_bytes: int = 0,
    ) -> None:
        self._merge = merge
        self._table = table
        self._root = root
        self._destination = destination
        self._run = run
        self._with_recreated = with_recreated
        self._min_bytes = min_bytes
        self._text = text
        self._source = disk_at(root)
        self._target = open_target(destination)
        self.lost: list[tuple[TopicPartition, int, int]] = []
        self.refused: list[str] = []

    def owned(self) -> AbstractContextManager[None]:
        """Own the destination; raise LockedError if another run is under way."""
        return self._target.owned()

    def export(self, wanted: Collection[TopicPartition]) -> list[Written]:
        """Write what is new in partitions, and what an interrupted run was to write or merge.

        A topic that this user may not read is left out, as is one of which the destination holds
        another one, or more than there is; see ``refused``.

        Raises:
            ExportError: The manifest cannot be read, or another run has replaced it.
            SparkJobError, LogfsError, OSError: A range could not be written; the next run
                continues.
        """
        manifest = read_manifest(self._target)
        manifest.text = manifest.settle_text(self._text)
        has_table = self._table is not None and manifest.note_table(self._table)
        if has_table or not self._target.is_locked:
            # In a store, another run that is under way fails from now on.
            write_manifest(self._target, manifest)
        self._finish_merges(manifest)
        done = self._write(manifest) if manifest.ranges else []
        wanted = self._readable(wanted)
        logs = Directories([self._root], IsolationLevel.READ_COMMITTED).refresh(wanted)
        logs = self._without_refused(manifest, logs)
        sized = [piece for one, log in logs.items() for piece in self._new(manifest, one, log)]
        if sized:
            sizes = {_range(manifest, piece): piece.size_bytes for piece in sized}
            manifest.ranges = list(sizes)
            write_manifest(self._target, manifest)
            done += self._write(manifest, sizes)
        return done

    def compact(self, only: Collection[TopicPartition]) -> tuple[int, int]:
        """Merge small files of partitions; call it after ``export``.

        Returns:
            How many files were merged, and into how many.

        Raises:
            ExportError: An Iceberg table may have the files, or a file is damaged.
        """
        manifest = read_manifest(self._target)
        manifest.check_no_table()
        files, sizes = written_files(self._target, manifest), self._target.sizes()
        manifest.merges = plan_merges(files, sizes, set(only))
        count = len(manifest.merges)
        if not count:
            return 0, 0
        write_manifest(self._target, manifest)
        return self._finish_merges(manifest), count

    def _finish_merges(self, manifest: ExportManifest) -> int:
        """Do the merges of the manifest; return how many files were merged."""
        if not manifest.merges or self._merge is None:
            return 0
        present = self._target.sizes()
        sizes = [sum(present.get(name, 0) for name in one.sources) for one in manifest.merges]
        files = 0
        for one in self._merge(manifest.merges, sizes):
            files += one.files
            self.refused += [f"{name}: it is gone, and was not merged" for name in one.missing]
        manifest.merges = []
        write_manifest(self._target, manifest)
        return files

    def _write(
        self, manifest: ExportManifest, sizes: dict[ExportRange, int] | None = None
    ) -> list[Written]:
        """Write the ranges of a manifest that are not written yet."""
        written = read_written(self._target)
        for one in manifest.ranges:
            if one not in written and self._is_deleted(manifest, one):
                written[one] = Written(one, 0, 0, (), ((one.start, one.end),))
        left = [one for one in manifest.ranges if one not in written]
        sizes = sizes or {one: self._size_of(one) for one in left}
        for found in self._run(left, [sizes[one] for one in left]):
            self._check_seen(found)
            written[found.range] = found
        ranges = manifest.ranges
        manifest.finish()
        write_manifest(self._target, manifest)
        forget_written(self._target)
        self.lost += [
            (one.range.topic_partition, first, behind)
            for one in map(written.__getitem__, ranges)
            for first, behind in one.lost
        ]
        return [written[one] for one in ranges]

    def _is_deleted(self, manifest: ExportManifest, one: ExportRange) -> bool:
        """Tell whether the topic of a range was deleted since, and maybe created again."""
        if not self._source.exists(one.topic_partition.directory):
            return True
        return self._topic_id(one.topic_partition) != manifest.topics.get(one.topic)

    def _topic_id(self, one: TopicPartition) -> str | None:
        found = read_partition_metadata(self._source, one.directory)
        return None if found is None else str(found)

    def _check_seen(self, found: Written) -> None:
        for name in found.files:
            if not self._target.exists(name):
                raise ExportError(
                    f"{self._destination}/{name} was written by another machine and is not seen "
                    "here: every machine needs the destination at the same path"
                )

    def _size_of(self, one: ExportRange) -> int:
        seen = Directories([self._root], IsolationLevel.READ_COMMITTED)
        log = seen.refresh([one.topic_partition]).get(one.topic_partition)
        return 0 if log is None else log.size_of(one.start, one.end)

    def _readable(self, wanted: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that this user may read; the others are refused."""
        readable, denied = [], set[str]()
        for one in wanted:
            try:
                self._source.list(one.directory)
                readable.append(one)
            except PermissionError:
                denied.add(one.topic)
            except FileNotFoundError:  # it was deleted just now
                continue
        self.refused += [f"{topic}: this user may not read it" for topic in sorted(denied)]
        return [one for one in readable if one.topic not in denied]

    def _without_refused(
        self, manifest: ExportManifest, logs: Mapping[TopicPartition, SeenLog]
    ) -> dict[TopicPartition, SeenLog]:
        refused: dict[str, str] = {}
        for one, log in logs.items():
            try:
                self._check(manifest, one, log)
            except ExportError as error:
                refused.setdefault(one.topic, str(error))
        self.refused += [refused[topic] for topic in sorted(refused)]
        return {one: log for one, log in logs.items() if one.topic not in refused}

    def _check(self, manifest: ExportManifest, one: TopicPartition, log: SeenLog) -> None:
        """Refuse to continue where another log was exported."""
        topic_id = self._topic_id(one)
        known = manifest.topics.setdefault(one.topic, topic_id)
        if known != topic_id and self._with_recreated:
            manifest.restart(one.topic, topic_id)
        elif known != topic_id:
            raise ExportError(
                f"{one.topic} is another topic (id {topic_id}) than the one exported to "
                f"{self._destination} before (id {known}): export it to another directory, or "
                "continue with its records in this one: --recreated"
            )
        end = manifest.ends.get(one, 0)
        if end > log.latest():
            raise ExportError(
                f"{one} ends at offset {log.latest()}, but {self._destination} has it up "
                f"to {end}: is it the same data directory?"
            )

    def _new(self, manifest: ExportManifest, one: TopicPartition, log: SeenLog) -> list[SizedRange]:
        start, earliest = manifest.ends.get(one), log.earliest()
        pieces = log.pieces(max(start or 0, earliest), log.latest(), RANGE_BYTES)
        if pieces and pieces[-1].size_bytes < self._min_bytes:
            pieces.pop()
        if start is not None and start < earliest and (pieces or not self._min_bytes):
            self.lost.append((one, start, earliest))
        return pieces


def _range(manifest: ExportManifest, piece: SizedRange) -> ExportRange:
    one = piece.topic_partition
    return ExportRange(*one, piece.start, piece.end, manifest.generation(one.topic))
