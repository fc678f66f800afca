"""Consumer groups of a data directory: their positions are read from the files, and committed."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from logfs.errors import TopicExistsError
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.mounted_disk import reading_disk
from logfs.library.places import Place
from logfs.library.writer import Writer
from logfs.log.groups.coding import (
    OFFSETS_CONFIG,
    OFFSETS_PARTITIONS,
    OFFSETS_TOPIC,
    Position,
)
from logfs.log.groups.table import (
    Group,
    GroupTable,
    check_whole_topic,
    commit_records,
    removal_records,
)
from logfs.log.names import check_group
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import system_clock
from logfs.records.record import Record
from logfs.types import Closeable, TopicPartition


class Groups(Closeable):
    """The consumer groups of a data directory. Threads may share it.

    Reading takes no lock, also beside a running broker. A user of a mount needs read permission for
    the topic ``__consumer_offsets``, and to commit also write permission.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._source: FollowedDirectory | None = None
        self._now_ms = system_clock().now_ms
        self._table = GroupTable(self._numbers, self._log)

    def groups(self) -> dict[str, Group]:
        """Return the groups, sorted by name."""
        return self._table.groups()

    def group(self, name: str) -> Group | None:
        """Return a group; None if there is none of that name."""
        return self._table.group(name)

    def position_in(self, log: ReadableLog, group: str) -> int | None:
        """Return the offset that a group has committed for a log; see ``GroupTable``."""
        return self._table.position_in(log, check_group(group))

    def committed(self, group: str, topic_partition: TopicPartition) -> int | None:
        """Return the offset that a group has committed for a partition; None: none."""
        return self._table.committed(check_group(group), topic_partition)

    def commit(
        self,
        writer: Writer,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        metadata: str = "",
        is_durable: bool = False,
    ) -> None:
        """Commit positions of a group; later look-ups of all programs find them.

        Raises:
            InvalidConfigError: A name or an offset cannot be written; or the directory is that of a
                cluster's broker.
            LockedError: Another process, such as a broker, owns the directory.
            PermissionError, LogfsError, OSError: See ``Partition.append``.
        """
        now_ms = self._now_ms()
        positions = {one: Position(offset, metadata, now_ms) for one, offset in offsets.items()}
        records = commit_records(group, positions)
        if records:
            self._append(writer, group, records, is_durable=is_durable)

    def remove(self, writer: Writer, group: str, removed: Sequence[TopicPartition]) -> None:
        """Remove positions of a group; raises as ``commit`` does."""
        if removed:
            records = removal_records(group, removed, self._now_ms())
            self._append(writer, group, records, is_durable=False)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.close()

    def _append(
        self, writer: Writer, group: str, records: list[Record], *, is_durable: bool
    ) -> None:
        numbers = self._numbers()
        check_whole_topic(numbers)
        if not numbers:
            with suppress(TopicExistsError):  # another program was quicker
                writer.change_topics(
                    lambda topics: topics.create_topic(
                        OFFSETS_TOPIC, OFFSETS_PARTITIONS, OFFSETS_CONFIG
                    )
                )
        where = TopicPartition(OFFSETS_TOPIC, self._table.partition_of(group))
        writer.append(where, records, is_durable=is_durable)

    def _followed(self) -> FollowedDirectory:
        with self._lock:
            if self._source is None:
                disk = reading_disk(self._place, {OFFSETS_TOPIC})
                self._source = FollowedDirectory(disk, lambda one: one.topic == OFFSETS_TOPIC)
            return self._source

    def _numbers(self) -> list[int]:
        return [one.partition for one in self._followed().partitions()]

    def _log(self, number: int) -> ReadableLog:
        source = self._followed()
        log = source.log(TopicPartition(OFFSETS_TOPIC, number), is_around_known=True)
        source.look_twice(log, is_around_known=True)
        return log
