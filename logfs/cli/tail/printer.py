"""``logfs tail``: the records of several partitions, merged by time, then new ones."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from operator import attrgetter
from select import POLLERR, poll
from typing import TYPE_CHECKING, BinaryIO

from logfs.cli import failures
from logfs.cli.parameters import VIEWS
from logfs.cli.record_query import RecordQuery
from logfs.cli.tail.partitions import TailedDirectory, select
from logfs.cli.tail.records import Followed, Printed, PrintedForm
from logfs.disk.watching import Watch
from logfs.errors import DeletedError, LogfsError
from logfs.library.cursor import LOOK_S
from logfs.library.followed_directory import SETTLING_S
from logfs.library.places import locate
from logfs.log.reading.address import Earliest
from logfs.types import Closeable, IsolationLevel

if TYPE_CHECKING:
    from logfs.cli.tail.groups import TailGroup

_time = attrgetter("time_ms")


_GROUP_BYTES = 4 << 10
"""The bytes that are flushed at a time for a group: a pipe takes all of them or none."""


_DIVIDER = b"--\n"


class Output:
    """The output, and how far each partition was written to it.

    Args:
        group: Its positions are committed; None: no group.
    """

    def __init__(self, out: BinaryIO, group: "TailGroup | None") -> None:
        self._out = out
        self._group = group
        self._written: dict[Followed, int] = {}
        self._flushed: dict[Followed, int] = {}
        self._has_output = False

    def begin(self, followed: Followed) -> None:
        """Add a partition, of which nothing is written yet."""
        self._written[followed] = self._flushed[followed] = followed.cursor.offset

    def write(self, printed: Iterable[Printed]) -> None:
        """Write lines; those for a group are flushed a few at a time, and committed when due."""
        unflushed = 0
        for _, text, followed, stop, is_apart in printed:
            if is_apart and self._has_output:
                self._out.write(_DIVIDER)
            self._has_output = True
            is_full = unflushed > 0 and unflushed + len(text) > _GROUP_BYTES
            if self._group is not None and (is_full or self._group.is_due):
                self._flush()
                unflushed = 0
                self.commit(only_if_due=True)
            self._out.write(text)
            self._written[followed] = stop
            unflushed += len(text)

    def flush_all(self, read: Iterable[Followed]) -> None:
        """Flush what was written: everything that the cursors of some partitions have read."""
        for followed in read:
            self._written[followed] = max(self._written[followed], followed.cursor.offset)
        self._flush()

    def commit(self, *, only_if_due: bool = False) -> None:
        """Commit the positions after what has reached the reader of the output."""
        if self._group is None or (only_if_due and not self._group.is_due):
            return
        with failures.about(f"group {self._group.name}"):
            flushed = self._flushed.items()
            self._group.commit({(one.root, one.name): offset for one, offset in flushed})

    @property
    def has_reader(self) -> bool:
        """Whether the output has a reader; a pipe without one has an error."""
        polled = poll()
        polled.register(self._out, 0)
        return not any(events & POLLERR for _, events in polled.poll(0))

    def _flush(self) -> None:
        self._out.flush()
        self._flushed = dict(self._written)


class TailPrinter(Closeable):
    """Partitions that are printed.

    Args:
        reports: Told what went wrong with a PATH or partition, which is left out from there on.
        level: The level to show; None: that of the mount, else everything.
        query: Which records are printed, from when to when, and how.
        group: Its positions are where to begin, and are committed; None: no group.
        has_prefix: Say where a record is from; None: if there is more than one partition.
    """

    def __init__(
        self,
        out: BinaryIO,
        reports: failures.Reports,
        level: IsolationLevel | None,
        query: RecordQuery,
        *,
        group: str | None = None,
        has_prefix: bool | None,
    ) -> None:
        self._reports = reports
        self._level = level
        self._query = query
        self._has_prefix = has_prefix
        self._directories: list[TailedDirectory] = []
        self._followed: dict[Followed, TailedDirectory] = {}
        self._opened = ExitStack()
        self._group = None
        if group is not None:
            from logfs.cli.tail.groups import TailGroup  # only here: it takes long to import

            self._group = self._opened.enter_context(TailGroup(group))
        self._output = Output(out, self._group)
        self._watch = self._opened.enter_context(Watch())

    def open(
        self, paths: Iterable[str], view: str, count: int = 0, *, takes_addresses: bool = False
    ) -> None:
        """Open the partitions that PATHs name; what is wrong with one is reported.

        Args:
            view: The form of records where a PATH does not say which.
            count: How many of its last records a partition begins with, if nothing says where.
            takes_addresses: See ``partitions.select``.
        """
        directories: dict[str, TailedDirectory] = {}
        search, group = self._query.search, self._group
        for path in paths:
            with self._reports.about(path):
                place = locate(path)
                if place.root not in directories:
                    directories[place.root] = TailedDirectory(
                        place, self._level, search, group, self._watch
                    )
                tailed = select(
                    path, place, VIEWS[view], self._query, takes_addresses=takes_addresses
                )
                directories[place.root].add(tailed)
        for directory in directories.values():
            if directory.paths:
                with self._reports.about(directory.paths[0].path):
                    self._open(directory, count)

    def print_present(self) -> None:
        """Print the present records, merged by time."""
        # The records of a group are written one by one: it has a position in each partition.
        is_alone = len(self._followed) == 1 and self._group is None
        query, form = self._query, self._form
        streams: list[Iterator[Printed]] = []
        for one in self._followed:
            if query.context is not None:
                printed = one.present_around(form, *query.context)
            elif query.is_reversed:
                printed = one.present_backwards(form)
            else:
                printed = one.present(form, is_alone=is_alone)
            streams.append(self._guard(one, printed))
        merged = heapq.merge(*streams, key=_time) if len(streams) > 1 else chain(*streams)
        self._output.write(merged)
        self._output.flush_all(self._followed)
        self._output.commit()

    def print_counts(self) -> None:
        """Print how many records each partition has, after its name if there are several."""
        has_prefix = self._form.has_prefix
        for followed in list(self._followed):
            with self._guarded(followed):
                count = followed.count()
                prefix = f"{followed.name}: " if has_prefix else ""
                text = f"{prefix}{count}\n".encode()
                self._output.write([Printed(0, text, followed, followed.end)])
        self._output.flush_all(self._followed)

    def print_coming(self) -> None:
        """Print new records until no partition can come, or the reader of the output ends.

        A PATH of all topics waits for the next topic; one of a topic ends with its last partition.
        """
        is_endless = any(directory.is_all for directory in self._directories)
        while (self._followed or is_endless) and self._output.has_reader:
            self._follow_new()
            found: list[Printed] = []
            has_more = False
            for followed in list(self._followed):
                with self._guarded(followed):
                    has_more |= followed.cursor.refresh(is_around_known=True)
                    found += followed.render(followed.cursor.read(), self._form)
            if found:
                found.sort(key=_time)
                self._output.write(found)
                self._output.flush_all(self._followed)
            self._output.commit(only_if_due=bool(found) or has_more)
            if not found and not has_more:
                is_settling = any(followed.cursor.is_settling for followed in self._followed)
                self._watch.wait(SETTLING_S if is_settling else LOOK_S)

    def commit(self) -> None:
        """Commit the positions of the group after what has reached the reader of the output."""
        self._output.commit()

    def close(self) -> None:
        """Close what was opened; nothing is committed."""
        self._opened.close()

    @property
    def _form(self) -> PrintedForm:
        template = self._query.template
        if self._has_prefix is None:
            return PrintedForm(template, has_prefix=template is None and len(self._followed) > 1)
        return PrintedForm(template, has_prefix=self._has_prefix)

    def _open(self, directory: TailedDirectory, count: int) -> None:
        directory.open()
        self._directories.append(self._opened.enter_context(directory))
        for tailed, log in directory.present():
            with self._reports.about(tailed.path):
                self._follow(directory, directory.begin(tailed, log, tailed.point, count))

    def _follow_new(self) -> None:
        """Follow new partitions from their first record."""
        for directory in self._directories:
            for tailed, log in directory.new():
                self._follow(directory, directory.begin(tailed, log, Earliest()))

    def _follow(self, directory: TailedDirectory, followed: Followed) -> None:
        self._followed[followed] = directory
        self._output.begin(followed)

    @contextmanager
    def _guarded(self, followed: Followed) -> Iterator[None]:
        """Leave out a partition after its first error."""
        try:
            yield
        except (LogfsError, OSError) as error:
            directory = self._followed.pop(followed)
            if isinstance(error, DeletedError):
                directory.forget(followed.name)
            self._reports.add(failures.AboutError(str(followed.name), error))

    def _guard(self, followed: Followed, printed: Iterator[Printed]) -> Iterator[Printed]:
        with self._guarded(followed):
            yield from printed
