"""What ``logfs tail`` prints: records of several partitions, merged, and those that come.

A merge keeps the order of each partition: a record counts as if it had the largest timestamp of
those in front of it.
"""

import heapq
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from types import TracebackType
from typing import BinaryIO, Self

from logfs.cli import failures
from logfs.cli.printing import Followed, Printed
from logfs.disk.watching import Watch
from logfs.errors import DeletedError, LogfsError, NoSuchTopicError, UnknownNameError
from logfs.library.directory import check_exists, partitions_of
from logfs.library.owner import data_directory, shown_level
from logfs.library.places import Place, locate
from logfs.library.points import point_of
from logfs.library.reading import LOOK_S, Cursor
from logfs.library.source import SETTLING_S, Source
from logfs.library.zones import zone_of
from logfs.log.reading.address import (
    SEGMENTS_NAME,
    AtOffset,
    Earliest,
    Latest,
    Point,
    Suffix,
    parse_partition_name,
)
from logfs.machine.host import LOCAL_ZONE
from logfs.types import IsolationLevel, TopicPartition, View

_VIEWS = {
    "text": View.TEXT,
    "tsv": View.TSV,
    "jsonl": View.JSONL,
    Suffix.TSV: View.TSV,
    Suffix.JSONL: View.JSONL,
}
_FEW_TIMES = 4
_time = attrgetter("time_ms")


@dataclass
class _Place:
    """What a PATH names: a source, and which partitions of it."""

    source: Source
    topic: str
    number: int | None
    view: View
    level: IsolationLevel


class Tail:
    """Partitions that are printed.

    Args:
        out: Where to.
        report: Told what went wrong with a partition, which is left out from there on.
        view: How, where a PATH does not say so.
        level: What is shown; None: as the mount shows it, else everything.
        has_prefix: Say where a record is from; None: if there is more than one partition.
    """

    def __init__(
        self,
        out: BinaryIO,
        report: Callable[[failures.AboutError], None],
        view: str,
        level: IsolationLevel | None,
        *,
        has_prefix: bool | None,
    ) -> None:
        self._out = out
        self._report = report
        self._view = _VIEWS[view]
        self._level = level
        self._has_prefix = has_prefix
        self._places: list[_Place] = []
        self._followed: list[Followed] = []
        self._known: set[tuple[Source, TopicPartition]] = set()
        self._has_more = False
        self._opened = ExitStack()
        self._watch = self._opened.enter_context(Watch())

    def add(self, path: str, count: int, start: str | None) -> None:
        """Add the partitions that a PATH names.

        Args:
            path: DATA/TOPIC or DATA/TOPIC/PARTITION.
            count: Begin with so many records of each, if no ``start`` is given.
            start: The point at which to begin.

        Raises:
            LogfsError, OSError: There is nothing of that name, or it cannot be read.
        """
        found = locate(path)
        point = None if start is None else point_of(start, zone_of(found))
        place = self._open(found)
        names = self._names(place)
        if not names:
            raise NoSuchTopicError(f"no topic {place.topic}")
        for name in names:
            self._begin(place, name, count, point)
        self._places.append(place)

    def print_present(self) -> None:
        """Print what there is, merged by time."""
        has_prefix = self._prefixes
        streams = [self._present(followed, has_prefix=has_prefix) for followed in self._followed]
        merged = heapq.merge(*streams, key=_time) if len(streams) > 1 else chain(*streams)
        self._write(merged)
        self._out.flush()

    def print_coming(self) -> None:
        """Print what comes, for as long as there is a partition, and somebody who reads."""
        while self._followed and self._is_read():
            self._find_new()
            self._has_more = False
            found: list[Printed] = []
            for followed in list(self._followed):
                found += self._guarded(followed, self._coming(followed))
            if found:
                found.sort(key=_time)
                self._write(found)
                self._out.flush()
            if found or self._has_more:
                continue
            is_settling = any(followed.cursor.is_settling for followed in self._followed)
            self._watch.wait(SETTLING_S if is_settling else LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    @property
    def _prefixes(self) -> bool:
        return len(self._followed) > 1 if self._has_prefix is None else self._has_prefix

    # Partitions

    def _open(self, place: Place) -> _Place:
        topic, name, *more = *place.address, "", ""
        if not topic or topic == SEGMENTS_NAME or any(more):
            raise UnknownNameError("expected TOPIC or TOPIC/PARTITION behind the data directory")
        number, view = None, self._view
        data = data_directory(place)
        if name:
            address = parse_partition_name(name, LOCAL_ZONE)
            if address.has_selector or address.view in (Suffix.META, Suffix.FOLLOW):
                raise UnknownNameError(
                    f"{name!r}: expected the number of a partition, maybe with .tsv or .jsonl; "
                    "points go into --from"
                )
            number, view = address.partition, _VIEWS.get(address.view, view)
            check_exists(data, TopicPartition(topic, number))
        elif topic not in partitions_of(data):
            raise NoSuchTopicError(f"no topic {topic}")
        level = shown_level(place) if self._level is None else self._level
        source = Source(data, _wanted(topic, number))
        self._opened.callback(source.close)
        self._watch.add([data])
        return _Place(source, topic, number, view, level)

    def _names(self, place: _Place) -> list[TopicPartition]:
        return [
            name
            for name in place.source.partitions()
            if name.topic == place.topic and place.number in {None, name.partition}
        ]

    def _begin(self, place: _Place, name: TopicPartition, count: int, point: Point | None) -> None:
        source, level = place.source, place.level
        # Watched first: what comes from now on wakes.
        self._watch.add([f"{source.data}/{name.directory}"])
        log = source.log(name)
        _, end = source.locate(log, Latest(), level)
        if point is None:
            point = AtOffset(self._last(place, name, count, end))
        log, offset = source.locate(log, point, level)
        cursor = Cursor(source, log, offset, level)
        self._followed.append(Followed(name, cursor, end, place.view))
        self._known.add((source, name))

    def _last(self, place: _Place, name: TopicPartition, count: int, end: int) -> int:
        """Return the offset of the last but so many records: some offsets have none."""
        source, level, step = place.source, place.level, count
        if not count:
            return end
        while True:
            log, offset = source.locate(source.log(name), AtOffset(max(end - step, 0)), level)
            cursor, last = Cursor(source, log, offset, level), deque[int](maxlen=count)
            while records := cursor.read(end):
                last.extend(record.offset for record in records)
            if len(last) == count or offset <= source.log(name).log_start_offset:
                return last[0] if last else end
            step *= _FEW_TIMES

    def _find_new(self) -> None:
        """Follow partitions that were added to a topic, from their first record on."""
        for place in self._places:
            for name in self._names(place) if place.number is None else ():
                if (place.source, name) not in self._known:
                    self._begin(place, name, 0, Earliest())

    # Records

    def _present(self, followed: Followed, *, has_prefix: bool) -> Iterator[Printed]:
        cursor = followed.cursor

        def read() -> Iterator[Printed]:
            while True:
                while records := cursor.read(followed.end):
                    yield from followed.render(records, has_prefix=has_prefix)
                if cursor.offset >= followed.end or not cursor.look():
                    return

        return self._guarded(followed, read())

    def _coming(self, followed: Followed) -> Iterator[Printed]:
        self._has_more |= followed.cursor.look()
        if records := followed.cursor.read():
            yield from followed.render(records, has_prefix=self._prefixes)

    def _guarded(self, followed: Followed, stream: Iterator[Printed]) -> Iterator[Printed]:
        """Leave a partition out from where it cannot be read any more."""
        try:
            yield from stream
        except (LogfsError, OSError) as error:
            self._followed.remove(followed)
            if isinstance(error, DeletedError):  # another one of that name is a new one
                self._known.discard((followed.cursor.source, followed.name))
            self._report(failures.AboutError(str(followed.name), error))

    def _write(self, printed: Iterable[Printed]) -> None:
        for _, text in printed:
            self._out.write(text)

    def _is_read(self) -> bool:
        """Whether somebody reads what is printed; a pipe that nobody reads has an error."""
        poll = select.poll()
        poll.register(self._out, 0)
        return not any(events & select.POLLERR for _, events in poll.poll(0))


def _wanted(topic: str, number: int | None) -> Callable[[TopicPartition], bool]:
    return lambda name: name.topic == topic and number in {None, name.partition}
