"""Many partitions as Arrow record batches: ``logfs.scan``, and a range of one partition."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Any, TypeAlias

from logfs.errors import BadSelectorError, DeletedError, ExtraMissingError, InvalidConfigError
from logfs.library.owner import shown_level
from logfs.library.places import locate
from logfs.library.points import Point, offset_in, point_of
from logfs.library.selection import Selection
from logfs.library.stored_partitions import Directories, SeenLog, check_root, now_ms
from logfs.library.table_path import LogsPath, parse_path
from logfs.library.zones import zone_of
from logfs.log.reading import address
from logfs.log.reading.address import AtByte, AtOffset, Earliest, Latest, Moment
from logfs.machine.packages import how_to_add
from logfs.services.scanning.ranges import OffsetRange
from logfs.types import IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from polars import LazyFrame

    from logfs.arrow.columns import ArrowColumn
    from logfs.arrow.pruning import ReadLimits
    from logfs.arrow.reading import RecordBatch, RecordBatchReader, Schema
    from logfs.disk.vfs import Disk

logger = logging.getLogger(__name__)

Bounds: TypeAlias = tuple[address.Point, address.Point]
Range: TypeAlias = tuple[SeenLog, OffsetRange]


class Scan:
    """Records of partitions as a table that is read when it is used. Get one from ``logfs.scan``.

    It has ``__arrow_c_stream__``: ``pyarrow.table(scan)``, ``polars.DataFrame(scan)``,
    ``pandas.DataFrame.from_arrow(scan)`` and, in DuckDB, ``from scan`` take it. Each of them reads
    the records that are there at that time.
    """

    def __init__(  # noqa: PLR0913 - the arguments of ``scan``
        self,
        source: LogsPath,
        selection: Selection,
        bounds: tuple[address.Point, address.Point],
        columns: "tuple[ArrowColumn, ...]",
        text: frozenset[str],
        level: IsolationLevel,
        *,
        merged: bool,
    ) -> None:
        self._source = source
        self._selection = selection
        self._start, self._stop = bounds
        self._columns = columns
        self._text = text
        self._level = level
        self._merged = merged
        self._directories = Directories(source.roots, level)
        self.partitions()

    @property
    def schema(self) -> "Schema":
        """The Arrow schema."""
        from logfs.arrow.batches import schema_of

        return schema_of(self._columns, self._text)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that are read, in the order in which they are read.

        Raises:
            NoSuchTopicError, NoSuchPartitionError: One that was named does not exist.
        """
        return self._selection.choose(self._directories.partitions())

    def read_arrow(self) -> "RecordBatchReader":
        """Return a reader of the present records: partition by partition, or merged by time.

        One batch is in memory at a time, 4 MiB unless a record is larger; one of each partition if
        they are merged. A reader is read once.

        Raises:
            NoSuchTopicError, NoSuchPartitionError, CorruptRecordError, OSError: The partitions
                cannot be looked up. The reader raises CorruptRecordError after the records before
                the damage.
        """
        ranges = self._ranges([(self._start, self._stop)])
        if not self._merged:
            return _reader(self.schema, self._batches(ranges, self._columns))
        from logfs.arrow.columns import with_time
        from logfs.arrow.merging import merged

        columns = with_time(self._columns)
        streams = [self._batches([one], columns) for one in ranges]
        return _reader(self.schema, merged(self.schema, streams))

    def lazy(self, *, sorted_times: bool = False) -> "LazyFrame":
        """Return a lazy frame of Polars over the scan, which is read when it is collected.

        Columns that a query does not need are not decoded. In a filter, comparisons of ``offset``
        and ``timestamp`` with constants become look-ups in the indexes: ``filter(pl.col("offset")
        >= 1000)`` reads nothing before that offset. An upper limit of ``timestamp`` ends the read
        only with ``sorted_times``. Other filters are applied batch by batch.

        Args:
            sorted_times: The timestamps in each partition never go back, as with
                ``message.timestamp.type=LogAppendTime``. Where they do, records would be missing.

        Raises:
            ExtraMissingError: Polars is missing.
            InvalidConfigError: The scan is merged.
        """
        if self._merged:
            raise InvalidConfigError(
                "a merged scan has no lazy frame: leave out merged, and sort the frame by timestamp"
            )
        try:
            from logfs.arrow.lazy import lazy_frame

            return lazy_frame(
                self.schema,
                lambda names, limits: self._limited(names, limits, sorted_times=sorted_times),
            )
        except ImportError as error:
            raise ExtraMissingError(
                f"a lazy frame takes polars, version 1.20 or later ({error}): install it with pip"
            ) from error

    def _limited(
        self, names: Sequence[str], limits: "ReadLimits", *, sorted_times: bool
    ) -> "Iterator[RecordBatch]":
        """Return the batches with some columns, and at least the records within limits."""
        from logfs.arrow.columns import named

        bounds: list[Bounds] = [(self._start, self._stop)]
        bounds.append((AtOffset(max(limits.first, 0)), AtOffset(max(limits.stop, 0))))
        if limits.since_ms is not None:
            bounds.append((Moment(limits.since_ms), Latest()))
        if sorted_times and limits.until_ms is not None:
            bounds.append((Earliest(), Moment(limits.until_ms + 1)))
        return self._batches(self._ranges(bounds), named(names))

    def _ranges(self, bounds: "Sequence[Bounds]") -> "list[Range]":
        """Return the offsets of each partition that are within all bounds."""
        logs = self._directories.refresh(self.partitions())
        at, found = now_ms(), []
        for log in logs.values():
            within = [_range(log, start, stop, at) for start, stop in bounds]
            first, end = max(one.start for one in within), min(one.end for one in within)
            found.append((log, within[0]._replace(start=first, end=max(first, end))))
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:  # noqa: ANN401 - a capsule
        """Return the present records as an Arrow stream, for other libraries."""
        return self.read_arrow().__arrow_c_stream__(requested_schema)

    def _batches(
        self, ranges: "Sequence[Range]", columns: "tuple[ArrowColumn, ...]"
    ) -> "Iterator[RecordBatch]":
        text = self._text & {column.name for column in columns}
        for log, offsets in ranges:
            disk, on_loss = log.stored.disk, _loss(log.stored.disk, offsets, log.root)
            yield from _read(disk, offsets, columns, text, self._level, on_loss)

    def __repr__(self) -> str:
        return f"<logfs.Scan of {','.join(self._source.roots)}>"


def scan(  # noqa: PLR0913 - an argument for each part of a range
    path: str | os.PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    start: Point | None = None,
    stop: Point | None = None,
    columns: Iterable[str] | None = None,
    text: bool | Iterable[str] = False,
    isolation_level: str | None = None,
    merged: bool = False,
) -> Scan:
    """Return records of many partitions as an Arrow table, which is read when it is used.

    Only the files and columns that are needed are read, without a lock and without a Python object
    for a record. Needs pyarrow: the extra ``arrow``.

    Args:
        path: ``DATA``, ``DATA/TOPIC`` or ``DATA/TOPIC/PARTITION[@FROM[..TO]]``; DATA is a data
            directory, a mount point or the URL of an object store. Several data directories have
            commas in between.
        topics: Topics of DATA; None: all but those that begin with ``__``.
        start: Start with the first record at or after this point, in each partition; None: with
            the first. See ``Point``; a byte is no point in a table.
        stop: End before the first record at or after this point; None: at the present end.
        columns: Names of columns: key, value, topic, partition, offset, timestamp, timestampType,
            headers; None: all. Others are not decoded.
        text: True: key and value are strings, which have to be UTF-8; or the names of one or both.
        isolation_level: ``read_uncommitted``, ``read_committed`` or ``high_watermark``; None: what
            the mount shows if a daemon serves the directory, else all records.
        merged: Merge the partitions by their timestamps, each in the order of its offsets; else
            they follow each other.

    Raises:
        NoDataDirectoryError: No leading part of the path is a data directory or a mount point.
        NoSuchTopicError, NoSuchPartitionError: It does not exist.
        BadSelectorError: A point does not parse, or is a byte.
        InvalidConfigError: There is no such column, or the path says the same as another argument.
        ExtraMissingError: pyarrow is missing.
    """
    check_pyarrow()
    from logfs.arrow.columns import named, texts

    given = os.fspath(path)
    place = locate(given.partition(",")[0])
    zone = zone_of(place)
    source = parse_path(given, zone, 'logfs.scan("/var/lib/logfs")')
    where = source.address
    begin = _point("start", start, where.start if where else None, zone) or Earliest()
    end = _point("stop", stop, where.end if where else None, zone) or Latest()
    level = shown_level(place) if isolation_level is None else IsolationLevel(isolation_level)
    selection = _selection(source, topics)
    return Scan(source, selection, (begin, end), named(columns), texts(text), level, merged=merged)


def partition_reader(
    disk: "Disk",
    offsets: OffsetRange,
    columns: Iterable[str] | None,
    text: bool | Iterable[str],
    level: IsolationLevel,
) -> "RecordBatchReader":
    """Return a reader of a range of one partition; see ``Partition.read_arrow``."""
    check_pyarrow()
    from logfs.arrow.batches import schema_of
    from logfs.arrow.columns import named, texts

    chosen, strings = named(columns), texts(text)
    batches = _read(disk, offsets, chosen, strings, level, _loss(disk, offsets, None))
    return _reader(schema_of(chosen, strings), batches)


def check_pyarrow() -> None:
    """Raise ExtraMissingError if pyarrow cannot be imported."""
    try:
        import logfs.arrow.batches  # noqa: F401 - it imports pyarrow
    except ImportError as error:
        raise ExtraMissingError(
            f"Arrow record batches take pyarrow ({error}): {how_to_add('arrow')}"
        ) from error


def _reader(schema: "Schema", batches: "Iterator[RecordBatch]") -> "RecordBatchReader":
    from logfs.arrow.reading import reader_of

    return reader_of(schema, batches)


def _read(
    disk: "Disk",
    offsets: OffsetRange,
    columns: "tuple[ArrowColumn, ...]",
    text: frozenset[str],
    level: IsolationLevel,
    on_loss: Callable[[int, int], None],
) -> "Iterator[RecordBatch]":
    from logfs.arrow.reading import read_range

    hides_aborted = level is IsolationLevel.READ_COMMITTED
    return read_range(
        disk, offsets, columns, hides_aborted=hides_aborted, on_loss=on_loss, text=text
    )


def _loss(disk: "Disk", offsets: OffsetRange, root: str | None) -> Callable[[int, int], None]:
    """Return what is called with offsets that are gone: a warning, as when records are read."""
    one = offsets.topic_partition

    def lost(first: int, behind: int) -> None:
        if root is not None:
            check_root(root)
        if not disk.exists(one.directory):
            raise DeletedError(f"{one}: the topic has been deleted; offsets from {first} are gone")
        logger.warning(
            "%s: offsets %d to %d were removed before they were read", one, first, behind - 1
        )

    return lost


def _range(log: SeenLog, start: address.Point, stop: address.Point, at_ms: int) -> OffsetRange:
    earliest, latest = log.earliest(), log.latest()
    first, behind = offset_in(log, start, at_ms), offset_in(log, stop, at_ms)
    begin = latest if first is None else min(max(first, earliest), latest)
    end = latest if behind is None else min(behind, latest)
    return OffsetRange(log.stored.topic_partition, begin, max(begin, end))


def _point(
    name: str,
    given: Point | None,
    said: address.Point | None,
    zone: tzinfo,
) -> address.Point | None:
    if given is None:
        return said
    if said is not None:
        raise InvalidConfigError(f"the path and {name} both say where to {name}: give one")
    point = point_of(given, zone)
    if isinstance(point, AtByte):
        raise BadSelectorError(f"{name}={given!r}: a byte is no place in a table; use offset=N")
    return point


def _selection(source: LogsPath, topics: str | Iterable[str] | None) -> Selection:
    if source.topic is None:
        if topics is None:
            return Selection()
        names = frozenset([topics] if isinstance(topics, str) else topics)
        if not names:
            raise InvalidConfigError("topics names no topic: leave it out for all of them")
        return Selection(names)
    if topics is not None:
        raise InvalidConfigError(
            f"the path names the topic {source.topic}: leave out topics, or give the data "
            "directory alone"
        )
    if source.address is None:
        return Selection(frozenset({source.topic}))
    one = TopicPartition(source.topic, source.address.partition)
    return Selection(partitions=frozenset({one}))
