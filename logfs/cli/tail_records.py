"""``logfs tail``: records of several partitions, merged by time, then new ones.

A merge keeps the order of each partition: a record is treated as if it had the largest timestamp of
those before it.
"""

import heapq
import select
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import partial
from itertools import chain, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Self

from logfs.cli import failures
from logfs.cli.parameters import VIEWS, view_of_suffix
from logfs.cli.record_query import RecordQuery
from logfs.disk.watching import Watch
from logfs.errors import (
    BadSelectorError,
    DeletedError,
    LogfsError,
    LogOfflineError,
    UnknownNameError,
)
from logfs.library.cursor import LOOK_S, Cursor
from logfs.library.directory import chosen, partitions_of, split_address
from logfs.library.followed_directory import SETTLING_S, FollowedDirectory
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import shown_level
from logfs.library.places import Place, locate
from logfs.library.points import why_empty
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    AtOffset,
    Earliest,
    Latest,
    PartitionAddress,
    Point,
    names_topic_range,
    parse_partition_name,
    parse_topic_range,
)
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.records.record import Record
from logfs.services.views.rendering import rendered
from logfs.types import Closeable, IsolationLevel, TopicPartition, View

if TYPE_CHECKING:
    from logfs.cli.tail_groups import TailGroup

_RENDERED_RECORDS = 4096


class Printed(NamedTuple):
    """A record, or several of one partition, rendered.

    Attributes:
        time_ms: The time by which it is merged.
        followed: The partition that it is from.
        stop: The offset after it.
    """

    time_ms: int
    text: bytes
    followed: "Followed"
    stop: int


@dataclass(eq=False)
class Followed:
    """One partition.

    Attributes:
        cursor: Everything before it was printed.
        end: Where what was there at the start ends.
        query: Which records are printed, and how.
        root: The root of its PATH.
        written: The offset after the last record that was written.
        printed: The same, of those that have reached the reader of the output.
    """

    name: TopicPartition
    cursor: Cursor
    end: int
    view: View
    query: RecordQuery
    root: str
    written: int
    printed: int
    highest_ms: int = -1

    def render(
        self, records: list[Record], *, has_prefix: bool, is_alone: bool = False
    ) -> Iterator[Printed]:
        """Render some records that the query wants, the next ones of the partition.

        Args:
            is_alone: No other partition is merged: the records are given as one.
        """
        for begin in range(0, len(records), _RENDERED_RECORDS):
            some = records[begin : begin + _RENDERED_RECORDS]
            template = self.query.template
            if template is None:
                lines = rendered(some, self.view)
            else:
                lines = [template.format(self.name, record) for record in some]
            if has_prefix:
                lines = self._prefixed(lines)
            if is_alone:
                yield Printed(0, b"".join(lines), self, some[-1].offset + 1)
                continue
            for record, line in zip(some, lines, strict=True):
                self.highest_ms = max(self.highest_ms, record.timestamp)
                yield Printed(self.highest_ms, line, self, record.offset + 1)

    def _prefixed(self, lines: list[bytes]) -> list[bytes]:
        topic, number = self.name
        if self.view is View.JSONL and self.query.template is None:
            begin = f'{{"topic":"{topic}","partition":{number},'.encode()
            return [begin + line[1:] for line in lines]
        prefix = f"{self.name}: ".encode()
        return [prefix + line for line in lines]


_FEW_TIMES = 4
_GROUP_BYTES = 4 << 10
"""What is flushed at a time for a group: a pipe takes all of it or nothing."""
_HIDDEN = "__"
"""A PATH without a topic leaves out topics whose names start so, as a listing does."""
_time = attrgetter("time_ms")


@dataclass
class _Root:
    """A data directory or mount point that PATHs lie in, and what its daemon shows."""

    place: Place
    present: dict[str, list[int]]
    level: IsolationLevel

    @classmethod
    def look(cls, place: Place) -> Self:
        """Look at the root of a place."""
        root = place._replace(address=())
        return cls(root, partitions_of(reading_disk(root)), shown_level(root))


@dataclass
class _Selection:
    """What a PATH names, None for all; where to begin, None for the last records; where to end."""

    path: str
    root: _Root
    topic: str | None
    number: int | None
    view: View
    point: Point | None
    stop: Point | None = None

    def has(self, name: TopicPartition) -> bool:
        """Tell whether it names a partition."""
        if self.topic is None:
            return not name.topic.startswith(_HIDDEN)
        return self.topic == name.topic and self.number in {None, name.partition}


class TailPrinter(Closeable):
    """Partitions that are printed.

    Args:
        report: Told what went wrong with a partition, which is left out from there on.
        view: How, where a PATH does not say so.
        level: What is shown; None: as the mount shows it, else everything.
        query: Which records are printed, from when to when, and how.
        group: Its positions are where to begin, and are committed; None: no group.
        has_prefix: Say where a record is from; None: if there is more than one partition.
    """

    def __init__(  # noqa: PLR0913 - the options of the command
        self,
        out: BinaryIO,
        report: Callable[[failures.AboutError], None],
        view: str,
        level: IsolationLevel | None,
        query: RecordQuery,
        *,
        group: str | None = None,
        has_prefix: bool | None,
    ) -> None:
        self._out = out
        self._report = report
        self._view = VIEWS[view]
        self._level = level
        self._query = query
        self._cursors = 1
        self._has_prefix = has_prefix
        self._roots: dict[str, _Root] = {}
        self._selections: list[_Selection] = []
        self._sources: list[tuple[FollowedDirectory, list[_Selection]]] = []
        self._followed: list[Followed] = []
        self._known: set[tuple[FollowedDirectory, TopicPartition]] = set()
        self._has_more = False
        self._opened = ExitStack()
        self._group = None if group is None else self._enter(group)
        self._all: list[Followed] = []
        self._watch = self._opened.enter_context(Watch())

    def add(self, path: str, *, takes_addresses: bool = False) -> None:
        """Add the partitions that a PATH names.

        Args:
            takes_addresses: PATH may have FROM and TO, and begins with the first record if neither
                it nor the query says where to begin.

        Raises:
            LogfsError, OSError: There is nothing of that name, or it cannot be read.
        """
        place = locate(path)
        zone = zone_of(place)
        since, until = self._query.bounds(zone)
        root = self._roots.get(place.root)
        if root is None:
            root = self._roots[place.root] = _Root.look(place)
        found = self._select(path, root, place.address, since, takes_addresses=takes_addresses)
        if self._group is not None:
            self._group.add(root.place)
        found.stop = until
        if takes_addresses:
            self._address(found, place.address, zone)
        self._selections.append(found)

    def open(self, count: int) -> None:
        """Open what was added, at the last ``count`` records of a partition without a point."""
        for root in self._roots.values():
            selections = [selection for selection in self._selections if selection.root is root]
            if selections:
                with self._reported(selections[0].path):
                    self._open(root, selections, count)

    def print_present(self) -> None:
        """Print the present records, merged by time."""
        has_prefix = self._prefixes
        streams = [self._present(followed, has_prefix=has_prefix) for followed in self._followed]
        merged = heapq.merge(*streams, key=_time) if len(streams) > 1 else chain(*streams)
        self._write(merged)
        self._flush(self._followed)
        self._commit()

    def print_coming(self) -> None:
        """Print new records until no partition can come, or the reader of the output ends.

        A PATH of all topics waits for the next topic; one of a topic ends with its last partition.
        """
        is_endless = any(selection.topic is None for selection in self._selections)
        while (self._followed or is_endless) and self._is_read():
            self._find_new()
            self._has_more = False
            found: list[Printed] = []
            for followed in list(self._followed):
                found += self._guarded(followed, self._coming(followed))
            if found:
                found.sort(key=_time)
                self._write(found)
                self._flush(self._followed)
            if found or self._has_more:
                self._commit(only_if_due=True)
                continue
            self._commit()
            is_settling = any(followed.cursor.is_settling for followed in self._followed)
            self._watch.wait(SETTLING_S if is_settling else LOOK_S)

    def commit(self) -> None:
        """Commit the positions of the group after what has reached the reader of the output."""
        self._commit()

    def close(self) -> None:
        """Close what was opened; nothing is committed."""
        self._opened.close()

    @property
    def _prefixes(self) -> bool:
        if self._has_prefix is None:
            return len(self._followed) > 1 and self._query.template is None
        return self._has_prefix

    # Partitions

    def _select(
        self,
        path: str,
        root: _Root,
        address: Sequence[str],
        point: Point | None,
        *,
        takes_addresses: bool,
    ) -> _Selection:
        if takes_addresses and len(address) == 1 and names_topic_range(address[0]):
            address = (parse_topic_range(address[0], UTC).topic,)
        topic, parsed = split_address(address)
        if topic:
            chosen(root.present, topic, None if parsed is None else parsed.partition)
        if parsed is None:
            return _Selection(path, root, topic or None, None, self._view, point)
        view = view_of_suffix(parsed.view) if parsed.view else self._view
        if view is None or (parsed.has_selector and not takes_addresses):
            raise UnknownNameError(
                f"{address[1]!r}: expected the number of a partition, maybe with .tsv or .jsonl; "
                "points go into --since and --until"
            )
        return _Selection(path, root, topic, parsed.partition, view, point)

    def _address(self, found: _Selection, address: Sequence[str], zone: tzinfo) -> None:
        """Take FROM and TO of a PATH, which begins with the first record without them."""
        parsed: PartitionAddress | None = None
        if len(address) > 1:
            parsed = parse_partition_name(address[1], zone)
        elif address and names_topic_range(address[0]):
            parsed = parse_topic_range(address[0], zone).in_partition(0)
            if parsed.view:
                found.view = view_of_suffix(parsed.view) or found.view
        if parsed is not None and parsed.start is not None:
            if found.point is not None or found.stop is not None:
                raise BadSelectorError(
                    f"{address[-1]!r} says where to begin; leave out --since and --until"
                )
            found.point, found.stop = parsed.start, parsed.end
        found.point = found.point or Earliest()

    def _open(self, root: _Root, selections: list[_Selection], count: int) -> None:
        topics = {selection.topic for selection in selections if selection.topic is not None}
        is_all = any(selection.topic is None for selection in selections)
        disk = reading_disk(root.place, None if is_all else topics)
        source = FollowedDirectory(
            disk, _wanted(selections), positions=partial(self._position_of, root.place)
        )
        self._opened.callback(source.close)
        self._watch.add([source.data])
        self._sources.append((source, selections))
        logs = source.logs()
        self._cursors = len(logs)
        for selection in selections:
            for log in _of(selection, logs):
                with self._reported(selection.path):
                    self._begin(source, selection, log, selection.point, count)

    def _enter(self, group: str) -> "TailGroup":
        from logfs.cli.tail_groups import TailGroup  # only here: it takes long to import

        return self._opened.enter_context(TailGroup(group))

    def _position_of(self, place: Place, log: ReadableLog, group: str) -> int | None:
        """Return what any group has committed, for ``--since group=NAME``."""
        from logfs.library.groups import Groups

        with Groups(place) as groups:
            return groups.position_in(log, group)

    @contextmanager
    def _reported(self, path: str) -> Iterator[None]:
        """Report an error and continue without the PATH or partition."""
        try:
            with failures.about(path):
                yield
        except failures.AboutError as error:
            self._report(error)

    def _begin(
        self,
        source: FollowedDirectory,
        selection: _Selection,
        log: ReadableLog,
        point: Point | None,
        count: int,
    ) -> None:
        name, level = log.topic_partition, self._level or selection.root.level
        if log.is_unreadable:
            raise LogOfflineError(f"{name}: {log.offline}")
        # Watch first, so that no append is missed.
        self._watch.add([source.watched(name)])
        self._known.add((source, name))
        _, end = source.locate(log, Latest(), level)
        if self._group is not None:
            committed = self._group.position_in(selection.root.place, log)
            point = point or Earliest() if committed is None else AtOffset(committed)
        if selection.stop is not None:
            end = min(end, source.locate(log, selection.stop, level)[1])
        if point is None:
            point = AtOffset(self._last(source, log, level, count, end))
        elif note := why_empty(point, selection.stop, end, system_clock().now_ms()):
            failures.warn(f"{name}: {note}")
        log, offset = source.locate(log, point, level)
        cursor = self._cursor(source, log, offset, level)
        followed = Followed(
            name,
            cursor,
            end,
            selection.view,
            self._query,
            selection.root.place.root,
            offset,
            offset,
        )
        self._followed.append(followed)
        self._all.append(followed)

    def _cursor(
        self, source: FollowedDirectory, log: ReadableLog, offset: int, level: IsolationLevel
    ) -> Cursor:
        search, cursors = self._query.search, self._cursors
        return Cursor(source, log, offset, level, search=search, cursors=cursors)

    def _last(
        self,
        source: FollowedDirectory,
        log: ReadableLog,
        level: IsolationLevel,
        count: int,
        end: int,
    ) -> int:
        """Return the offset of the last but so many wanted records: some offsets have none."""
        if not count:
            return end
        step = count
        while True:
            found, offset = source.locate(log, AtOffset(max(end - step, 0)), level)
            cursor = self._cursor(source, found, offset, level)
            last = deque[int](maxlen=min(count, end + 1))
            while records := cursor.read(end):
                last.extend(record.offset for record in records)
            if len(last) >= count or offset <= log.log_start_offset:
                return last[0] if last else end
            step *= _FEW_TIMES

    def _find_new(self) -> None:
        """Follow new partitions from their first record."""
        for source, selections in self._sources:
            present = source.partitions()
            new = [name for name in present if (source, name) not in self._known]
            logs = [source.log(name) for name in new]
            for selection in selections:
                for log in _of(selection, logs):
                    self._begin(source, selection, log, Earliest(), 0)

    # Records

    def _present(self, followed: Followed, *, has_prefix: bool) -> Iterator[Printed]:
        # The records of a group are written one by one: it has a position in each partition.
        cursor, is_alone = followed.cursor, len(self._followed) == 1 and self._group is None

        def read() -> Iterator[Printed]:
            if is_alone and not has_prefix and followed.query.template is None:
                for text in cursor.lines(followed.view, followed.end):
                    yield Printed(0, text, followed, cursor.offset)
            while True:
                while records := cursor.read(followed.end):
                    yield from followed.render(records, has_prefix=has_prefix, is_alone=is_alone)
                if cursor.offset >= followed.end or not cursor.refresh():
                    return

        return self._guarded(followed, read())

    def _coming(self, followed: Followed) -> Iterator[Printed]:
        self._has_more |= followed.cursor.refresh(is_around_known=True)
        if records := followed.cursor.read():
            yield from followed.render(records, has_prefix=self._prefixes)

    def _guarded(self, followed: Followed, stream: Iterator[Printed]) -> Iterator[Printed]:
        """Leave out a partition after its first error."""
        try:
            yield from stream
        except (LogfsError, OSError) as error:
            self._followed.remove(followed)
            if isinstance(error, DeletedError):  # another one of that name is a new one
                self._known.discard((followed.cursor.source, followed.name))
            self._report(failures.AboutError(str(followed.name), error))

    def _write(self, printed: Iterable[Printed]) -> None:
        unflushed = 0
        for _, text, followed, stop in printed:
            is_full = unflushed > 0 and unflushed + len(text) > _GROUP_BYTES
            if self._group is not None and (is_full or self._group.is_due):
                self._flush()
                unflushed = 0
                self._commit(only_if_due=True)
            self._out.write(text)
            followed.written = stop
            unflushed += len(text)

    def _flush(self, read: Sequence[Followed] = ()) -> None:
        """Flush the output; all present records of the partitions ``read`` were written."""
        self._out.flush()
        for followed in self._all:
            followed.printed = followed.written
        for followed in read:
            followed.printed = followed.written = max(followed.written, followed.cursor.offset)

    def _commit(self, *, only_if_due: bool = False) -> None:
        if self._group is None or (only_if_due and not self._group.is_due):
            return
        with failures.about(f"group {self._group.name}"):
            self._group.commit({(one.root, one.name): one.printed for one in self._all})

    def _is_read(self) -> bool:
        """Return whether the output has a reader; a pipe without one has an error."""
        poll = select.poll()
        poll.register(self._out, 0)
        return not any(events & select.POLLERR for _, events in poll.poll(0))


def _wanted(selections: Sequence[_Selection]) -> Callable[[TopicPartition], bool]:
    names = {(selection.topic, selection.number) for selection in selections}
    is_all = any(selection.topic is None for selection in selections)

    def is_wanted(name: TopicPartition) -> bool:
        if is_all and not name.topic.startswith(_HIDDEN):
            return True
        return (name.topic, None) in names or (name.topic, name.partition) in names

    return is_wanted


def _of(selection: _Selection, logs: Sequence[ReadableLog]) -> list[ReadableLog]:
    """Return the logs that a PATH names; ``logs`` are sorted."""
    if selection.topic is not None:
        key = attrgetter("topic_partition")
        first = bisect_left(logs, TopicPartition(selection.topic, 0), key=key)
        logs = list(
            takewhile(lambda log: log.topic_partition.topic == selection.topic, logs[first:])
        )
    return [log for log in logs if selection.has(log.topic_partition)]
