"""The partitions that PATHs name, each opened where to begin."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

from logfs.cli import failures
from logfs.cli.parameters import view_of_suffix
from logfs.cli.record_query import RecordQuery
from logfs.cli.tail.records import Followed
from logfs.disk.watching import Watch
from logfs.errors import BadSelectorError, LogOfflineError, UnknownNameError
from logfs.library.cursor import Cursor
from logfs.library.directory import chosen, partitions_of, split_address
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import shown_level
from logfs.library.places import Place
from logfs.library.points import why_empty
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    AtOffset,
    Earliest,
    Latest,
    PartitionAddress,
    Point,
    TopicRange,
    names_topic_range,
    parse_topic_range,
)
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.records._reading import RecordSearch
from logfs.types import Closeable, IsolationLevel, TopicPartition, View

if TYPE_CHECKING:
    from logfs.cli.tail.groups import TailGroup

_HIDDEN = "__"
"""A PATH without a topic leaves out topics whose names start so, as a listing does."""


@dataclass(frozen=True, slots=True)
class TailedPath:
    """What a PATH names.

    Attributes:
        topic, number: None: all.
        point: The point at which to begin; None: with the last records.
        stop: The point at which to end; None: at the end.
    """

    path: str
    view: View
    topic: str | None
    number: int | None
    point: Point | None
    stop: Point | None

    def of(self, logs: Sequence[ReadableLog]) -> list[ReadableLog]:
        """Return those of some sorted logs that it names."""
        if self.topic is None:
            return [log for log in logs if not log.topic_partition.topic.startswith(_HIDDEN)]
        key = attrgetter("topic_partition")
        first = bisect_left(logs, TopicPartition(self.topic, 0), key=key)
        of_topic = takewhile(lambda log: log.topic_partition.topic == self.topic, logs[first:])
        return [log for log in of_topic if self.number in {None, log.topic_partition.partition}]


def select(
    path: str, place: Place, view: View, query: RecordQuery, *, takes_addresses: bool
) -> TailedPath:
    """Return what a PATH, which is that place, means.

    Args:
        view: The view for a PATH that names none.
        takes_addresses: PATH may have FROM and TO, and begins with the first record if neither it
            nor the query says where to begin.

    Raises:
        LogfsError: It means nothing.
    """
    address, zone = place.address, zone_of(place)
    point, stop = query.bounds(zone)
    asked: TopicRange | PartitionAddress | None
    if takes_addresses and len(address) == 1 and names_topic_range(address[0]):
        asked = parse_topic_range(address[0], zone)
        topic, number = asked.topic, None
    else:
        topic, asked = split_address(address, zone)
        number = None if asked is None else asked.partition
    if asked is not None:
        found = view_of_suffix(asked.view) if asked.view else view
        if found is None or (asked.start is not None and not takes_addresses):
            raise UnknownNameError(
                f"{address[1]!r}: expected the number of a partition, maybe with .tsv or .jsonl; "
                "points go into --since and --until"
            )
        view = found
        if asked.start is not None:
            if point is not None or stop is not None:
                raise BadSelectorError(
                    f"{address[-1]!r} says where to begin; leave out --since and --until"
                )
            point, stop = asked.start, asked.end
    if takes_addresses and point is None:
        point = Earliest()
    return TailedPath(path, view, topic or None, number, point, stop)


class TailedDirectory(Closeable):
    """A data directory or mount point, and what PATHs name in it.

    Args:
        place: The first of the PATHs.
        level: The level to show; None: that of the mount, else everything.
        search: Which records are wanted; None: all.
        group: Its positions are where to begin; None: no group.
        watch: Told of every directory that may change.

    Attributes:
        paths: The added PATHs, in the order of the command line.
        is_all: Whether a PATH names all topics, also those to come.
    """

    def __init__(
        self,
        place: Place,
        level: IsolationLevel | None,
        search: RecordSearch | None,
        group: "TailGroup | None",
        watch: Watch,
    ) -> None:
        self.paths: list[TailedPath] = []
        self.is_all = False
        self._place = place._replace(address=())
        self._present = partitions_of(reading_disk(self._place))
        self._level = level or shown_level(self._place)
        self._search = search
        self._group = group
        self._watch = watch
        self._names = set[tuple[str | None, int | None]]()
        self._known = set[TopicPartition]()
        self._cursors = 1

    def add(self, tailed: TailedPath) -> None:
        """Add what a PATH means; raise a LogfsError if there is no such topic or partition."""
        topic, number = tailed.topic, tailed.number
        if topic is not None:
            chosen(self._present, topic, number)
        if self._group is not None:
            self._group.add(self._place)
        self.paths.append(tailed)
        self._names.add((topic, number))
        self.is_all |= topic is None

    def open(self) -> None:
        """Open the directory for what was added."""
        topics = {topic for topic, _ in self._names if topic is not None}
        disk = reading_disk(self._place, None if self.is_all else topics)
        self._source = FollowedDirectory(disk, self._is_wanted, positions=self._committed)
        self._watch.add([self._source.data])

    def present(self) -> Iterator[tuple[TailedPath, ReadableLog]]:
        """Yield the present logs of each PATH."""
        logs = self._source.logs()
        self._cursors = len(logs)
        return self._selected(logs)

    def close(self) -> None:
        """Close all files."""
        self._source.close()

    def new(self) -> Iterator[tuple[TailedPath, ReadableLog]]:
        """Yield the logs of each PATH that were not opened yet."""
        names = [name for name in self._source.partitions() if name not in self._known]
        return self._selected([self._source.log(name) for name in names])

    def forget(self, name: TopicPartition) -> None:
        """Forget a partition that was deleted: another one of that name is a new one."""
        self._known.discard(name)

    def begin(
        self, tailed: TailedPath, log: ReadableLog, point: Point | None, count: int = 0
    ) -> Followed:
        """Open a log at a point or (None) its last ``count`` records, or where the group is.

        Raises:
            LogfsError, OSError: It cannot be read.
        """
        name = log.topic_partition
        if log.is_unreadable:
            raise LogOfflineError(f"{name}: {log.offline}")
        # Watch first, so that no append is missed.
        self._watch.add([self._source.watched(name)])
        self._known.add(name)
        _, end = self._source.locate(log, Latest(), self._level)
        if self._group is not None:
            committed = self._group.position_in(self._place, log)
            point = point or Earliest() if committed is None else AtOffset(committed)
        if tailed.stop is not None:
            end = min(end, self._source.locate(log, tailed.stop, self._level)[1])
        if point is None:
            last = self._cursor(log, AtOffset(end)).start_of_last(count, end)
            point = AtOffset(last)
        elif note := why_empty(point, tailed.stop, end, system_clock().now_ms()):
            failures.warn(f"{name}: {note}")
        return Followed(name, self._cursor(log, point), end, tailed.view, self._place.root)

    def _is_wanted(self, name: TopicPartition) -> bool:
        if self.is_all and not name.topic.startswith(_HIDDEN):
            return True
        return (name.topic, None) in self._names or name in self._names

    def _selected(self, logs: list[ReadableLog]) -> Iterator[tuple[TailedPath, ReadableLog]]:
        return ((one, log) for one in self.paths for log in one.of(logs))

    def _cursor(self, log: ReadableLog, point: Point) -> Cursor:
        log, offset = self._source.locate(log, point, self._level)
        search, cursors = self._search, self._cursors
        return Cursor(self._source, log, offset, self._level, search=search, cursors=cursors)

    def _committed(self, log: ReadableLog, group: str) -> int | None:
        """Return what any group has committed, for ``--since group=NAME``."""
        from logfs.library.groups import Groups

        with Groups(self._place) as groups:
            return groups.position_in(log, group)
