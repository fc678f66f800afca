"""A partition as a program sees it."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime, tzinfo
from itertools import chain
from types import TracebackType
from typing import Self
from weakref import WeakSet

from logfs.disk.watching import Watch
from logfs.library import reading
from logfs.library.points import Point, point_of
from logfs.library.producing import Producer
from logfs.library.reading import Cursor
from logfs.library.records import Appendable, Headers, NewRecord, check_range, chunks, to_record
from logfs.library.source import Source
from logfs.library.writing import Writer
from logfs.log.following.followed import AnyLog
from logfs.log.reading.lookup import timestamp_of
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.records.produced import add_to_sequence
from logfs.records.record import Record
from logfs.types import IsolationLevel, TopicPartition


class Partition:
    """One partition: append to it, read it, follow it. Get one from ``logfs.open``.

    Threads may share it; an iterator belongs to one thread.

    Reading takes no lock, changes nothing and asks nobody: the files are read, whoever writes them.
    Writing goes through the daemon that owns the data directory; if none does, the first write
    takes the lock of the directory, which is held until ``close`` (of the store, if it was got from
    one): until then no daemon can be started and no other program can write.

    Attributes:
        topic, number: Which one.
        isolation_level: What is read of transactions.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        source: Source,
        writer: Writer,
        level: IsolationLevel,
        zone: tzinfo,
        owned: ExitStack,
    ) -> None:
        self.topic, self.number = topic_partition
        self.isolation_level = level
        self._topic_partition = topic_partition
        self._source = source
        self._writer = writer
        self._zone = zone
        self._owned = owned
        self._now_ms = system_clock().now_ms
        self._watches: WeakSet[Watch] = WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False
        self._found: AnyLog = source.log(topic_partition)

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
        """Append one record. When this returns every reader sees it, and a kill loses nothing.

        Args:
            value: None is a null value: with a key, and ``cleanup.policy=compact``, a deletion.
            key: None is a null key.
            headers: Keys and values, in order.
            timestamp: In ms since the epoch, or a moment; None: now.
            durable: It is on the disk when this returns, as with ``flush``.

        Returns:
            Its offset.

        Raises:
            RecordTooLargeError: It exceeds ``max.message.bytes``.
            UnparsableLineError: The topic refuses it: it wants a key, or another timestamp.
            LockedError: Somebody else owns the directory and cannot be asked.
            ControlError: The daemon has gone: the record was appended or not. See ``producer``.
            OSError: The disk failed or is full.
        """
        self._check_open()
        record = to_record(NewRecord(value, key, headers, timestamp), self._now_ms(), self._zone)
        done = self._writer.append(self._topic_partition, [record], is_durable=durable)
        return done.base_offset

    def append_many(self, records: Iterable[Appendable], *, durable: bool = False) -> range:
        """Append records, in as few batches as possible: many times faster than one by one.

        Args:
            records: Values, ``NewRecord``s, or ``Record``s that were read (their offsets are
                ignored). Any number; they are taken in parts of 8192 records or 8 MiB.
            durable: They are on the disk when this returns.

        Returns:
            The offsets from the first on up to the last; empty if there were no records. Records of
            others may be in between, but not inside of a part.

        Raises:
            LogfsError, OSError: See ``append``; the parts before have been appended, of this one
                nothing, unless the disk is full.
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
        """Return once everything that was appended before is on the disk, by whomever.

        Raises:
            OSError: The disk failed: nobody knows what of it is durable.
            LogOfflineError: It failed before.
        """
        self._check_open()
        self._writer.flush(self._topic_partition)

    def producer(
        self, producer_id: int, *, epoch: int | None = None, sequence: int | None = None
    ) -> Producer:
        """Return a producer: what it appends is in the log exactly once.

        Args:
            producer_id: 64 bits, >= 0; who gives it out is the program's business.
            epoch: 0 to 2**15 - 1; higher than before: fences off earlier instances. None: the last.
            sequence: 0 to 2**31 - 1, of its next record; None: the one after what the log has of
                this epoch.

        Raises:
            TypeError, ValueError: One is no integer, or outside its range.
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
        """Offset of the first record that is kept."""
        return self._log().log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record that the isolation level will show."""
        return self.offset_at("latest")

    def offset_at(self, point: Point) -> int:
        """Return the offset of the first record at or after a point; the end if there is none.

        Raises:
            BadSelectorError: It is no point.
        """
        return self._locate(point)[1]

    def timestamp_of(self, offset: int) -> int | None:
        """Return the timestamp of a record, in ms; None if there is none with this offset."""
        return timestamp_of(self._locate(offset)[0].snapshot, offset)

    # Reading

    def read(self, start: Point = "earliest", stop: Point | None = None) -> Iterator[Record]:
        """Iterate over records, as they are kept now.

        Points are looked up by this call. What is removed while the iterator is used is passed
        over, and a warning is logged.

        Args:
            start: From the first record at or after this point on; see ``Point``.
            stop: Up to the first record at or after this point; None: the end as it is now.

        Raises:
            BadSelectorError: A point does not parse.
            CorruptRecordError: By the iterator, once it has given what is before the
                damage. ``read`` from an offset after it goes on.
        """
        return chain.from_iterable(self.read_batches(start, stop))

    def read_batches(
        self, start: Point = "earliest", stop: Point | None = None
    ) -> Iterator[list[Record]]:
        """Iterate over records in lists of about half a megabyte; see ``read``."""
        log, offset = self._locate(start)
        end = self._locate("latest" if stop is None else stop)[1]
        return reading.read(Cursor(self._source, log, offset, self.isolation_level), end)

    def follow(
        self,
        start: Point = "latest",
        stop: Point | None = None,
        *,
        timeout: float | None = None,
    ) -> Iterator[Record]:
        """Iterate over records from a point on, and over those to come as they come.

        At the end the iterator waits. It is woken by inotify when somebody of this machine
        writes, and looks once a second in any case.

        Args:
            start: From the first record at or after this point on.
            stop: It ends before the first record at or after this point, once there is one;
                None: it does not.
            timeout: It ends when no record has come for so many seconds; None: it does not.

        Raises:
            BadSelectorError, CorruptRecordError: See ``read``.
            DeletedError: By the iterator: the topic has been deleted.
        """
        return chain.from_iterable(self.follow_batches(start, stop, timeout=timeout))

    def follow_batches(
        self,
        start: Point = "latest",
        stop: Point | None = None,
        *,
        timeout: float | None = None,
    ) -> Iterator[list[Record]]:
        """Iterate over records as they come, in lists of what has come; see ``follow``."""
        log, offset = self._locate(start)
        limit = None if stop is None else point_of(stop, self._zone)
        watch = Watch()
        watch.add([self._source.watched(self._topic_partition), self._source.data])
        cursor = Cursor(self._source, log, offset, self.isolation_level)
        with self._lock:
            self._watches.add(watch)
        return reading.follow(cursor, watch, limit, timeout, lambda: self._is_closed)

    # The rest

    def close(self) -> None:
        """Stop: iterators that follow end, and what was opened for this partition is closed.

        Nothing is flushed: what is to survive a power cut, ``flush`` first.
        """
        with self._lock:
            self._is_closed = True
            for watch in self._watches:
                watch.wake()
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<logfs.Partition {self._topic_partition} in {self._source.data}>"

    def _log(self) -> AnyLog:
        """Return the log after a look at what has changed."""
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
