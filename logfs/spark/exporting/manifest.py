"""What an export keeps of itself in its destination, so that the next run can continue.

``manifest.json``, replaced as a whole:

    {"version": 3,
     "topics": {"orders": "the topic id, or null"},
     "earlier": {"orders": ["the ids of deleted topics of this name"]},
     "ends": {"orders-0": 1500},
     "ranges": [["orders", 0, 1500, 2300, 1]],
     "text": ["value"],
     "merges": [["topic=orders/day=…/orders-0-0-20.parquet", ["…/orders-0-0-10.parquet", …]]],
     "tables": ["lake.logs.orders"],
     "run": "a random number, so that no two versions have the same bytes"}

``ends`` is the offset up to which everything is written; ``ranges`` are about to be, by a run that
is under way or was killed. A topic that is created again starts at offset 0 again, so its ranges
have a *generation*: the number of exported topics of that name before it. Version 1 has no
generations. ``text`` is left out by versions before 0.3.0, which write bytes. Version 3 has the
merges of files that are under way, see ``merging``, and the Iceberg tables that have the files;
``tables`` is null if an earlier version began the export.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logfs.errors import ExportError
from logfs.log.names import parse_partition_directory
from logfs.records.jsontext import decode_json
from logfs.spark.exporting.targets import DONE, MANIFEST, ExportTarget
from logfs.types import TopicPartition

_VERSION = 3
_FIRST_VERSION = 1
_SUFFIX = ".parquet"
_DIGITS = 20


class ExportRange(NamedTuple):
    """Offsets ``[start, end)`` of a partition, which become a file for each day.

    Attributes:
        generation: The number of topics of that name that were exported before this one.
    """

    topic: str
    partition: int
    start: int
    end: int
    generation: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def name(self) -> str:
        """The name of its files, without suffix; the same whenever it is written."""
        offsets = f"{self.start:0{_DIGITS}}-{self.end:0{_DIGITS}}"
        return f"{self.topic}-{self.partition}-{offsets}{numbered(self.generation)}"

    @property
    def log_name(self) -> str:
        """The partition and its generation: ``orders-0``, ``orders-0~2`` of the second topic."""
        return f"{self.topic_partition.directory}{numbered(self.generation)}"


class Written(NamedTuple):
    """What became of a range.

    Attributes:
        files: Relative to the destination.
        lost: Ranges of offsets that retention has removed meanwhile.
    """

    range: ExportRange
    records: int
    size_bytes: int
    files: tuple[str, ...]
    lost: tuple[tuple[int, int], ...]


class Merge(NamedTuple):
    """Files that become one, relative to the destination; the sources in the order of offsets."""

    into: str
    sources: tuple[str, ...]


@dataclass(slots=True)
class ExportManifest:
    """Where an export is: ids of topics, the ends that are written, the ranges that are next.

    Attributes:
        topics: The id of each topic.
        earlier: The ids of deleted topics of the same names, in order.
        text: The columns that are strings; None: nothing was exported yet.
        merges: The merges of files that are under way.
        tables: The Iceberg tables that have the files; None: not known.
    """

    topics: dict[str, str | None] = field(default_factory=dict)
    earlier: dict[str, list[str | None]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    ranges: list[ExportRange] = field(default_factory=list)
    text: frozenset[str] | None = None
    merges: list[Merge] = field(default_factory=list)
    tables: list[str] | None = field(default_factory=list)

    def settle_text(self, wanted: Collection[str] | None) -> frozenset[str]:
        """Return the columns that are strings: those of earlier runs, or else the wanted ones.

        Raises:
            ExportError: Earlier runs have written others.
        """
        found = self.text
        if found is None:
            return frozenset(wanted or ())
        if wanted is not None and found != frozenset(wanted):
            has = " and ".join(sorted(found)) or "no column"
            raise ExportError(
                f"earlier runs have written {has} as text there, and a table has one type for each "
                "column: leave out --text, or export to another place"
            )
        return found

    def generation(self, topic: str) -> int:
        """Return the number of topics of that name that were exported before the present one."""
        return len(self.earlier.get(topic, ()))

    def restart(self, topic: str, topic_id: str | None) -> None:
        """Continue with another topic of that name, from its first record."""
        self.earlier.setdefault(topic, []).append(self.topics[topic])
        self.topics[topic] = topic_id
        self.ends = {one: end for one, end in self.ends.items() if one.topic != topic}

    def note_table(self, name: str) -> bool:
        """Note that a table gets the files; return whether that is new."""
        if name in (self.tables or ()):
            return False
        self.tables = sorted([*(self.tables or ()), name])
        return True

    def check_no_table(self) -> None:
        """Raise ExportError if an Iceberg table may have the files, which must then stay."""
        if self.tables is None:
            raise ExportError(
                f"{MANIFEST}: an earlier version of logfs began this export, and did not note "
                "whether an Iceberg table has its files, which must stay then. If none has, write "
                '"tables": [] into that file instead of null'
            )
        if self.tables:
            raise ExportError(
                f"the Iceberg table {', '.join(self.tables)} has the files of this export, so they "
                "must stay: compact the table (rewrite_data_files), or export to another place"
            )

    def finish(self) -> None:
        """Take it that all ranges are written."""
        for one in self.ranges:
            before = self.ends.get(one.topic_partition, 0)
            self.ends[one.topic_partition] = max(before, one.end)
        self.ranges = []


def read_manifest(target: ExportTarget) -> ExportManifest:
    """Read the manifest of a destination, or a new one; raise ExportError."""
    try:
        text = target.read(MANIFEST)
    except FileNotFoundError:
        return ExportManifest()

    def build(found: Mapping[str, Any]) -> ExportManifest:
        version = found["version"]
        if version not in range(_FIRST_VERSION, _VERSION + 1):
            raise ExportError(
                f"{MANIFEST}: version {version}, expected {_VERSION}: logfs is too old for it"
            )
        ends = {_partition(name): int(end) for name, end in found["ends"].items()}
        ranges = [ExportRange(*row) for row in found["ranges"]]
        earlier = {topic: list(ids) for topic, ids in found.get("earlier", {}).items()}
        texts = frozenset(found.get("text", ()))
        merges = [Merge(into, tuple(names)) for into, names in found.get("merges", ())]
        topics, tables = dict(found["topics"]), found.get("tables")
        return ExportManifest(topics, earlier, ends, ranges, texts, merges, tables)

    try:
        return decode_json(text, build)
    except ValueError as error:
        raise ExportError(
            f"{MANIFEST}: it does not parse ({error}); restore it, or export to another directory"
        ) from error


def write_manifest(target: ExportTarget, manifest: ExportManifest) -> None:
    """Put a manifest in the place of the one that is there; durable on return."""
    found = {
        "version": _VERSION,
        "topics": manifest.topics,
        "earlier": manifest.earlier,
        "ends": {one.directory: end for one, end in sorted(manifest.ends.items())},
        "ranges": manifest.ranges,
        "text": sorted(manifest.text or ()),
        "merges": manifest.merges,
        "tables": manifest.tables,
        "run": os.urandom(8).hex(),
    }
    target.replace(MANIFEST, json.dumps(found, indent=1).encode())


def note_written(target: ExportTarget, written: Written) -> None:
    """Note that a range is written; durable on return."""
    target.replace(f"{DONE}/{written.range.name}.json", json.dumps(written).encode())


def read_written(target: ExportTarget) -> dict[ExportRange, Written]:
    """Return the ranges that are noted as written."""
    found = {}
    for name in target.names(DONE):
        if not name.endswith(".json"):
            continue
        try:
            written = decode_json(target.read(name), _written)
        except ValueError as error:
            raise ExportError(
                f"{name}: it does not parse ({error}); remove it, and its range is exported again"
            ) from error
        found[written.range] = written
    return found


def _written(row: Sequence[Any]) -> Written:
    one, records, size_bytes, files, lost = row
    lost = tuple((first, behind) for first, behind in lost)
    return Written(ExportRange(*one), records, size_bytes, tuple(files), lost)


def forget_written(target: ExportTarget) -> None:
    """Remove the notes: the manifest says it now."""
    for name in target.names(DONE):
        target.remove(name)


def parse_file(name: str) -> ExportRange | None:
    """Return the range that a file of Parquet is of; None if it is not one of an export."""
    stem = name.removesuffix(_SUFFIX)
    offsets, _, number = stem.partition("+")[0].partition("~")
    directory, _, end = offsets.rpartition("-")
    directory, _, start = directory.rpartition("-")
    parsed = parse_partition_directory(directory)
    if stem == name or parsed is None:
        return None
    if not all(text.isdecimal() for text in (start, end, number or "1")):
        return None
    return ExportRange(parsed.topic, parsed.partition, int(start), int(end), int(number or "1") - 1)


def written_files(target: ExportTarget, manifest: ExportManifest) -> list[tuple[ExportRange, str]]:
    """Return the files of the ranges that are whole, each with its range."""
    found = []
    for name in target.names(""):
        one = parse_file(name.rpartition("/")[2]) if name.startswith("topic=") else None
        if one is not None and _is_whole(manifest, one):
            found.append((one, name))
    return found


def _is_whole(manifest: ExportManifest, one: ExportRange) -> bool:
    """Tell whether nothing more is written of a range."""
    if one.generation < manifest.generation(one.topic):
        return True
    return one.end <= manifest.ends.get(one.topic_partition, 0)


def numbered(generation: int) -> str:
    """Return what distinguishes names of generations: nothing, ``~2``, ``~3``."""
    return f"~{generation + 1}" if generation else ""


def file_name(one: ExportRange, day: str, number: int) -> str:
    """Return where a range's records of a day go; a number > 0 is a further file of the day."""
    more = f"+{number}" if number else ""
    return f"topic={one.topic}/day={day}/{one.name}{more}{_SUFFIX}"


def day_of(name: str) -> str:
    """Return the day of a file, as in ``file_name``."""
    return name.split("/")[1].removeprefix("day=")


def file_order(name: str) -> tuple[str, int]:
    """Return what orders files of a day by their offsets, further files of a range included."""
    first, _, number = name.removesuffix(_SUFFIX).partition("+")
    return first, int(number or 0)


def _partition(name: str) -> TopicPartition:
    parsed = parse_partition_directory(name)
    if parsed is None:
        raise ValueError(f"{name!r} is no partition")
    return TopicPartition(parsed.topic, parsed.partition)
