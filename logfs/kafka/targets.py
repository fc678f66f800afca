"""Where a mirror writes: a store that this process owns, or the daemon that owns it.

Both do the same with each partition; what is done is in ``logfs.services.clusters.mirrors``. A
``LocalTarget`` also does the upkeep that a daemon does otherwise: flushes, retention, checkpoints.
It does not compact.
"""

import contextlib
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from logfs.client import MAX_PAYLOAD_BYTES, Daemon
from logfs.errors import ControlError, LogfsError, LogOfflineError, RecordTooLargeError
from logfs.kafka.wire import Message
from logfs.log.mirrorfile import MirrorSource
from logfs.log.writing.replication import Replicated
from logfs.machine.host import Clock
from logfs.records.layout import size_of
from logfs.services.clusters import mirrors
from logfs.services.clusters.mirrors import MirrorEnd
from logfs.services.retention.logs import apply_retention
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.log.partition import PartitionLog
    from logfs.log.store import LogStore

logger = logging.getLogger(__name__)

_FLUSH_EVERY_S = 5.0
_RETENTION_EVERY_S = 30.0


class MirrorTarget(Protocol):
    """The topics that are mirrors; each thread has its own."""

    def for_thread(self) -> "MirrorTarget":
        """Return another one, for another thread."""

    def open(
        self, topic: str, partitions: int, config: Mapping[str, str], source: MirrorSource
    ) -> list[MirrorEnd]:
        """Make or look up a mirror; see ``mirrors.open_mirror``."""

    def sources(self) -> dict[str, MirrorSource]:
        """Return every topic that is a mirror, and of what."""

    def delete(self, topic: str) -> None:
        """Delete a topic."""

    def rename(self, topic: str, new: str) -> None:
        """Give a topic another name; may be repeated after a stop in the middle."""

    def end(self, where: TopicPartition) -> MirrorEnd:
        """Return where a partition begins and ends."""

    def append(self, where: TopicPartition, expected: int, batches: memoryview) -> Replicated:
        """Append batches; raise OffsetOutOfRangeError if the log does not end where expected."""

    def start_at(self, where: TopicPartition, offset: int) -> None:
        """Let an empty partition begin at an offset."""

    def skip_to(self, where: TopicPartition, offset: int, why: str) -> None:
        """Continue at an offset, after records that the source has lost."""

    def cut(self, where: TopicPartition, offset: int, why: str) -> None:
        """Remove what the source has lost."""

    def advance(self, where: TopicPartition, offset: int) -> None:
        """Delete the records before an offset."""

    def end_for_epoch(self, where: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """Return the largest leader epoch up to one and where it ends; None if it is not known."""

    def note_state(self, topic: str, state: str, reason: str) -> None:
        """Note whether a mirror continues, and why not."""

    def show(self, facts: Mapping[str, object]) -> None:
        """Give the daemon what ``.meta`` and the metrics show."""

    def keep_up(self, *, is_last: bool = False) -> None:
        """Do what is due: make durable what was appended, delete what is too old."""


class LocalTarget:
    """A store that this process owns."""

    def __init__(self, store: "LogStore", clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._flushed_s = self._checked_s = time.monotonic()

    def for_thread(self) -> "LocalTarget":
        """See ``MirrorTarget``."""
        return self

    def open(
        self, topic: str, partitions: int, config: Mapping[str, str], source: MirrorSource
    ) -> list[MirrorEnd]:
        """See ``MirrorTarget``."""
        now_ms = self._clock.now_ms()
        return mirrors.open_mirror(self._store, topic, partitions, config, source, now_ms)

    def sources(self) -> dict[str, MirrorSource]:
        """See ``MirrorTarget``."""
        return mirrors.sources(self._store)

    def delete(self, topic: str) -> None:
        """See ``MirrorTarget``."""
        self._store.delete_topic(topic, self._clock.now_ms())

    def rename(self, topic: str, new: str) -> None:
        """See ``MirrorTarget``."""
        self._store.rename_topic(topic, new, self._clock.now_ms())

    def end(self, where: TopicPartition) -> MirrorEnd:
        """See ``MirrorTarget``."""
        return mirrors.end_of(self._log(where))

    def append(self, where: TopicPartition, expected: int, batches: memoryview) -> Replicated:
        """See ``MirrorTarget``."""
        return mirrors.replicate(self._log(where), expected, batches, self._clock.now_ms())

    def start_at(self, where: TopicPartition, offset: int) -> None:
        """See ``MirrorTarget``."""
        mirrors.check_mirror(self._log(where)).replication.start_at(offset, self._clock.now_ms())

    def skip_to(self, where: TopicPartition, offset: int, why: str) -> None:
        """See ``MirrorTarget``."""
        mirrors.skip_to(self._log(where), offset, why, self._clock.now_ms())

    def cut(self, where: TopicPartition, offset: int, why: str) -> None:
        """See ``MirrorTarget``."""
        mirrors.cut(self._log(where), offset, why, self._clock.now_ms())

    def advance(self, where: TopicPartition, offset: int) -> None:
        """See ``MirrorTarget``."""
        mirrors.advance(self._log(where), offset, self._clock.now_ms())

    def end_for_epoch(self, where: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """See ``MirrorTarget``."""
        return self._log(where).end_offset_for_epoch(epoch)

    def note_state(self, topic: str, state: str, reason: str) -> None:
        """See ``MirrorTarget``."""
        mirrors.note_state(self._store, topic, state, reason)

    def show(self, facts: Mapping[str, object]) -> None:
        """See ``MirrorTarget``; no other process asks this one."""

    def keep_up(self, *, is_last: bool = False) -> None:
        """See ``MirrorTarget``."""
        now_s, now_ms = time.monotonic(), self._clock.now_ms()
        if is_last:
            return  # closing the store does it all
        if now_s - self._flushed_s >= _FLUSH_EVERY_S:
            self._flushed_s = now_s
            for log in self._store.all_partitions():
                if log.unflushed_since_ms is not None and log.offline is None:
                    self._attempt(log.flush)
            self._attempt(self._store.checkpoint)
        for log in self._store.maintenance_due():
            self._attempt(log.maintain)
        if now_s - self._checked_s >= _RETENTION_EVERY_S:
            self._checked_s = now_s
            for log in list(self._store.all_partitions()):
                if log.offline is None and log.config.is_expiring:
                    self._attempt(lambda log=log: apply_retention(log, now_ms))
            self._store.remove_due_files(now_ms)
            self._store.expire_producers(now_ms)

    def _attempt(self, call: Message) -> None:
        try:
            call()
        except (LogfsError, OSError) as error:
            # The log has gone offline where it must; the next append says so.
            logger.warning("%s", error)

    def _log(self, where: TopicPartition) -> "PartitionLog":
        log = self._store.partition(*where)
        if log.offline is not None:
            log = self._store.reload(where, self._clock.now_ms())
            if log.offline is not None:
                raise LogOfflineError(f"{where} is offline: {log.offline}")
        return log


class DaemonTarget:
    """The daemon that owns the directory, through its control socket."""

    def __init__(self, data: str, daemon: Daemon | None = None) -> None:
        self._data = data
        self._daemon = daemon

    def for_thread(self) -> "DaemonTarget":
        """See ``MirrorTarget``."""
        return DaemonTarget(self._data)

    def open(
        self, topic: str, partitions: int, config: Mapping[str, str], source: MirrorSource
    ) -> list[MirrorEnd]:
        """See ``MirrorTarget``."""
        fields = {
            "topic": topic,
            "partitions": partitions,
            "config": dict(config),
            "source": source._asdict(),
        }
        return [MirrorEnd(*row) for row in self._ask("mirror", fields)]

    def sources(self) -> dict[str, MirrorSource]:
        """See ``MirrorTarget``."""
        return {topic: MirrorSource(**row) for topic, row in self._ask("mirrors", {}).items()}

    def delete(self, topic: str) -> None:
        """See ``MirrorTarget``."""
        self._ask("delete", {"topic": topic})

    def rename(self, topic: str, new: str) -> None:
        """See ``MirrorTarget``."""
        self._ask("rename", {"topic": topic, "new": new})

    def end(self, where: TopicPartition) -> MirrorEnd:
        """See ``MirrorTarget``."""
        return MirrorEnd(*self._ask("replica", _fields(where))["end"])

    def append(self, where: TopicPartition, expected: int, batches: memoryview) -> Replicated:
        """See ``MirrorTarget``."""
        if len(batches) > MAX_PAYLOAD_BYTES:
            if (size := size_of(batches)) > MAX_PAYLOAD_BYTES:
                raise RecordTooLargeError(
                    f"a batch has {size} bytes, and the daemon takes {MAX_PAYLOAD_BYTES}: mirror "
                    "the topic while no daemon serves the directory",
                    size,
                    MAX_PAYLOAD_BYTES,
                )
            batches = batches[:MAX_PAYLOAD_BYTES]  # what is left of the last batch is fetched again
        fields = {**_fields(where), "expected": expected}
        return Replicated(*self._ask("replicate", fields, batches))

    def start_at(self, where: TopicPartition, offset: int) -> None:
        """See ``MirrorTarget``."""
        self._ask("start", {**_fields(where), "offset": offset})

    def skip_to(self, where: TopicPartition, offset: int, why: str) -> None:
        """See ``MirrorTarget``."""
        self._ask("continue", {**_fields(where), "offset": offset, "why": why})

    def cut(self, where: TopicPartition, offset: int, why: str) -> None:
        """See ``MirrorTarget``."""
        self._ask("cut", {**_fields(where), "offset": offset, "why": why})

    def advance(self, where: TopicPartition, offset: int) -> None:
        """See ``MirrorTarget``."""
        self._ask("advance", {**_fields(where), "offset": offset})

    def end_for_epoch(self, where: TopicPartition, epoch: int) -> tuple[int, int] | None:
        """See ``MirrorTarget``."""
        found = self._ask("replica", {**_fields(where), "epoch": epoch})["epoch"]
        return None if found is None else (found[0], found[1])

    def note_state(self, topic: str, state: str, reason: str) -> None:
        """See ``MirrorTarget``."""
        self._ask("mirror_state", {"topic": topic, "state": state, "reason": reason})

    def show(self, facts: Mapping[str, object]) -> None:
        """See ``MirrorTarget``."""
        self._ask("notes", {"facts": dict(facts)})

    def keep_up(self, *, is_last: bool = False) -> None:
        """See ``MirrorTarget``; the daemon does it, as ``flush.ms`` says."""
        if is_last and self._daemon is not None:
            self._daemon.close()

    def _ask(
        self, request: str, fields: Mapping[str, object], payload: memoryview | bytes = b""
    ) -> Message:
        if self._daemon is None:
            self._daemon = Daemon.connect(self._data)
            if self._daemon is None:
                raise ControlError(f"{self._data}: no daemon serves it any more")
        try:
            return self._daemon.ask(request, fields, payload=payload)
        except LogfsError as error:
            if error.__cause__ is not None:  # the connection is lost
                with contextlib.suppress(OSError):
                    self._daemon.close()
                self._daemon = None
            raise


def _fields(where: TopicPartition) -> dict[str, object]:
    return {"topic": where.topic, "partition": where.partition}
