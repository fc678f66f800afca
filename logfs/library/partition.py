"""A partition as a program sees it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime, tzinfo
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from logfs.disk.watching import Watch
from logfs.library.cursor import Cursor, follow_batches, read_batches
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.groups import Groups
from logfs.library.points import Point, point_of
from logfs.library.producer import Producer
from logfs.library.records import Appendable, Headers, NewRecord, check_range, chunks, to_record
from logfs.library.writer import Writer
from logfs.log.reading.lookup import timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.records.produced import add_to_sequence
from logfs.records.record import Record
from logfs.services.following.followed import AnyLog
from logfs.services.scanning.ranges import OffsetRange
from logfs.types import Closeable, IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from logfs.arrow.reading import RecordBatchReader


class PartitionAccess(NamedTuple):
    """A partition, and what reads and writes it.

    Attributes:
        source: Its files.
        zone: The time zone of dates without one.
    """

    topic_partition: TopicPartition
    source: FollowedDirectory
    writer: Writer
    groups: Groups
    zone: tzinfo


class Partition(Closeable):
    """One partition: append to it, read it, follow it. Get one from ``logfs.open``.

    Threads may share it; an iterator belongs to one thread.

    Reading takes no lock and changes nothing: the files are read, also while other programs write
    them. Writing goes through the daemon that serves the data directory. If none does, the first
    write takes the lock of the directory and keeps it until ``close`` (of the store, for a
    partition of a store). Until then no daemon can start and no other program can write.

    Attributes:
        isolation_level: Which records of transactions it shows.
    """

    def __init__(self, place: PartitionAccess, level: IsolationLevel, owned: ExitStack) -> None:
        topic_partition, self._source, self._writer, self._groups, self._zone = place
        self.topic, self.number = topic_partition
        self.isolation_level = level
        self._topic_partition = topic_partition
        self._owned = owned
        self._now_ms = system_clock().now_ms
        self._watches: WeakSet[Watch] = WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False
        self._found: AnyLog = self._source.log(topic_partition)

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    # Writing

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        durable: bool = False,
    ) -> int:
        """Append one record. When this returns, readers see it and a kill does not lose it.

        Args:
            value: None is a null value; with ``cleanup.policy=compact`` it deletes the key.
            key: None is a null key.
            headers: Keys and values, in order.
            timestamp: Milliseconds since the epoch, or a datetime; None: now.
            durable: Return when the record is durable, as ``flush`` does.

        Returns:
            The offset of the record.

        Raises:
            RecordTooLargeError: The record exceeds ``max.message.bytes``.
            UnparsableLineError: The topic requires a key, or another timestamp.
            LockedError: Another process that is not a daemon owns the directory.
            ControlError: The daemon ended: the record may be appended or not. See ``producer``.
            OSError: The disk failed or is full.
        """
        self._check_open()
        record = to_record(NewRecord(value, key, headers, timestamp), self._now_ms(), self._zone)
        done = self._writer.append(self._topic_partition, [record], is_durable=durable)
        return done.base_offset

    def append_many(self, records: Iterable[Appendable], *, durable: bool = False) -> range:
        """Append records in as few batches as possible, many times faster than one by one.

        Args:
            records: Any number of values, ``NewRecord`` or ``Record`` objects that were read (their
                offsets are ignored). They are appended in parts of 8192 records or 8 MiB.
            durable: Return when the records are durable.

        Returns:
            The offsets from the first to the last; empty if there were no records. Other writers'
            records may have offsets between the parts, but not within a part.

        Raises:
            LogfsError, OSError: See ``append``. Earlier parts are appended; of the failed part no
                record, unless the disk is full.
        """
        self._check_open()
        first, stop = None, 0
        for chunk in chunks(records, self._now_ms(), self._zone):
            done = self._writer.append(self._topic_partition, chunk)
            first = done.base_offset if first is None else first
            stop = done.last_offset + 1
        if first is not None and durable:
            self.flush()
        return range(stop if first is None else first, stop)

    def flush(self) -> None:
        """Make all earlier appends of all writers durable.

        Raises:
            OSError: The disk failed: it is unknown which records are durable.
            LogOfflineError: It failed before.
        """
        self._check_open()
        self._writer.flush(self._topic_partition)

    def producer(
        self, producer_id: int, *, epoch: int | None = None, sequence: int | None = None
    ) -> Producer:
        """Return a producer, which appends records exactly once.

        Args:
            producer_id: 0 to 2**63 - 1; the programs that write must not share one.
            epoch: 0 to 2**15 - 1; a higher one fences earlier instances. None: the last epoch.
            sequence: 0 to 2**31 - 1, the number of the next record; None: the number after the last
                record of this epoch in the log.

        Raises:
            TypeError, ValueError: An argument is not an integer, or outside its range.
        """
        self._check_open()
        check_range("producer_id", producer_id, 2**63)
        check_range("epoch", 0 if epoch is None else epoch, 2**15)
        check_range("sequence", 0 if sequence is None else sequence, 2**31)
        log = self._log()
        known = log.producers.entries.get(producer_id)
        last_epoch = -1 if known is None else known.epoch
        if epoch is None:
            epoch = max(last_epoch, 0)
        if sequence is None:
            is_known = known is not None and epoch == last_epoch
            sequence = add_to_sequence(known.last_sequence, 1) if known and is_known else 0
        return Producer(
            self._writer, self._zone, self._topic_partition, producer_id, epoch, sequence
        )

    # Where things are

    @property
    def start_offset(self) -> int:
        """The offset of the first record that is kept."""
        return self._log().log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next record that the isolation level will show."""
        return self.offset_at("latest")

    def offset_at(self, point: Point) -> int:
        """Return the offset of the first record at or after a point; the end if there is none.

        Raises:
            BadSelectorError: The point does not parse.
        """
        return self._locate(point)[1]

    def timestamp_of(self, offset: int) -> int | None:
        """Return the timestamp of a record in ms; None if no record has this offset."""
        return timestamp_of(self._locate(offset)[0].snapshot, offset)

    # Reading

    def read(self, start: Point = "earliest", stop: Point | None = None) -> Iterator[Record]:
        """Iterate over the present records.

        This call looks up the points. The iterator skips records that are removed meanwhile, and a
        warning is logged.

        Args:
            start: Start with the first record at or after this point; see ``Point``.
            stop: End before the first record at or after this point; None: at the present end.

        Raises:
            BadSelectorError: A point does not parse.
            CorruptRecordError: Raised by the iterator after the records before the damage. ``read``
                from a later offset continues.
        """
        return chain.from_iterable(self.read_batches(start, stop))

    def read_batches(
        self, start: Point = "earliest", stop: Point | None = None
    ) -> Iterator[list[Record]]:
        """Iterate over records in lists of about half a megabyte; see ``read``."""
        log, offset = self._locate(start)
        end = self._locate("latest" if stop is None else stop)[1]
        return read_batches(Cursor(self._source, log, offset, self.isolation_level), end)

    def read_arrow(
        self,
        start: Point = "earliest",
        stop: Point | None = None,
        *,
        columns: Iterable[str] | None = None,
        text: bool | Iterable[str] = False,
    ) -> "RecordBatchReader":
        """Return a reader of the present records as Arrow record batches; see ``logfs.scan``.

        pyarrow, pandas, Polars and DuckDB take the reader, once: ``reader.read_pandas()``,
        ``polars.DataFrame(reader)``. No Python object is made for a record, and one batch of 4 MiB
        is in memory at a time. This call looks up the points. Needs pyarrow: the extra ``arrow``.

        Args:
            start: Start with the first record at or after this point.
            stop: End before the first record at or after this point; None: at the present end.
            columns: Names of columns; None: all. Others are not decoded.
            text: True: key and value are strings, which have to be UTF-8; or the names of one or
                both.

        Raises:
            BadSelectorError, InvalidConfigError: A point does not parse, or a column is unknown.
            ExtraMissingError: pyarrow is missing.
            CorruptRecordError: Raised by the reader after the records before the damage.
            UndecodableTextError: Raised by the reader: a key or value is not UTF-8.
        """
        from logfs.library.scan import partition_reader

        first = self._locate(start)[1]
        end = self._locate("latest" if stop is None else stop)[1]
        offsets = OffsetRange(self._topic_partition, first, max(first, end))
        return partition_reader(self._source.disk, offsets, columns, text, self.isolation_level)

    def follow(
        self,
        start: Point = "latest",
        stop: Point | None = None,
        *,
        timeout: float | None = None,
    ) -> Iterator[Record]:
        """Iterate over records from a point, and over new records as they come.

        At the end the iterator waits. Inotify wakes it when a program on this machine writes; it
        also looks once a second.

        Args:
            start: Start with the first record at or after this point.
            stop: End before the first record at or after this point, when it comes; None: never.
            timeout: End when no record has come for so many seconds; None: never.

        Raises:
            BadSelectorError, CorruptRecordError: See ``read``.
            DeletedError: Raised by the iterator: the topic was deleted.
        """
        return chain.from_iterable(self.follow_batches(start, stop, timeout=timeout))

    def follow_batches(
        self,
        start: Point = "latest",
        stop: Point | None = None,
        *,
        timeout: float | None = None,
        ticks: bool = False,
    ) -> Iterator[list[Record]]:
        """Iterate over records in lists of those that have come; see ``follow``.

        With ``ticks`` there is also an empty list after each wait, of a second at most.
        """
        log, offset = self._locate(start)
        limit = None if stop is None else point_of(stop, self._zone)
        watch = Watch()
        watch.add([self._source.watched(self._topic_partition), self._source.data])
        cursor = Cursor(self._source, log, offset, self.isolation_level)
        with self._lock:
            self._watches.add(watch)
        return follow_batches(cursor, watch, limit, timeout, lambda: self._is_closed, ticks=ticks)

    # Consumer groups

    def committed(self, group: str) -> int | None:
        """Return the offset that a consumer group has committed here; None: none.

        ``read("group=NAME")`` begins there.
        """
        self._check_open()
        return self._groups.committed(group, self._topic_partition)

    def commit(self, group: str, offset: int, *, metadata: str = "", durable: bool = False) -> None:
        """Commit the position of a consumer group.

        Args:
            group: The name of the group.
            offset: The offset of the next record that the group will read: that of the last one
                plus 1.
            metadata: A text that ``logfs group describe`` shows.
            durable: Return when the position is durable.

        Raises:
            InvalidConfigError: An argument cannot be written.
            LockedError, ControlError, PermissionError, OSError: See ``append``.
        """
        self._check_open()
        self._groups.commit(
            self._writer,
            group,
            {self._topic_partition: offset},
            metadata=metadata,
            is_durable=durable,
        )

    # The rest

    def close(self) -> None:
        """End the iterators that follow, and close what was opened for this partition.

        Nothing is flushed: call ``flush`` first for records that must survive a power cut.
        """
        with self._lock:
            self._is_closed = True
            for watch in self._watches:
                watch.wake()
        self._owned.close()

    def __repr__(self) -> str:
        return f"<logfs.Partition {self._topic_partition} in {self._source.data}>"

    def _log(self) -> AnyLog:
        """Return the log with all present changes."""
        self._check_open()
        if self._found.is_deleted:
            self._found = self._source.log(self._topic_partition)
        self._source.look_twice(self._found)
        return self._found

    def _locate(self, point: Point) -> tuple[ReadableLog, int]:
        return self._source.locate(self._log(), point_of(point, self._zone), self.isolation_level)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"{self!r} is closed")
