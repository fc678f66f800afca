"""Rewriting sealed segments in the background: which log is next, and what follows a failure.

A topic without a configuration of its own was made by a broker, and is left alone. After a failure
that may pass, such as a full disk, a log is left alone for a while. After any other failure, except
by a change of the log meanwhile, it is left alone until the next start; the daemon's log says so.

Source: Kafka LogCleanerManager.grabFilthiestCompactedLog, LogCleaner.CleanerThread.
"""

import errno
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar, Generic, NamedTuple, TypeVar

from logfs.config import TopicConfig
from logfs.disk.vfs import DISK_FULL
from logfs.errors import CleaningAbortedError, DeletedError, LogfsError, LogOfflineError
from logfs.log.catalog import Catalog
from logfs.log.counters import RewritingStatus
from logfs.log.partition import PartitionLog
from logfs.services.compaction.tools import CleaningTools

logger = logging.getLogger(__name__)

_TEMPORARY = DISK_FULL | {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors after which a log can be rewritten another time."""

Part = TypeVar("Part")


class ChosenLog(NamedTuple, Generic[Part]):
    """The log to rewrite next, and the part of it that is due."""

    log: PartitionLog
    part: Part


class LogRewriter(ABC, Generic[Part]):
    """Rewrites sealed segments of the logs of a store: the base of compaction and packing.

    Any thread may call. A log is rewritten by one thread at a time.
    """

    name: ClassVar[str]
    """The name of the work, for messages."""

    def __init__(self, store: Catalog[PartitionLog]) -> None:
        self._store = store

    def choose(self, now_ms: int) -> ChosenLog[Part] | None:
        """Choose and lock the first log that is due; None if none is.

        The lock is held until ``rewrite`` or ``release`` is called.
        """
        for log, part in self._due(now_ms):
            if log.cleaning.lock.acquire(blocking=False):
                return ChosenLog(log, part)
        return None

    def rewrite(
        self, chosen: ChosenLog[Part], now_ms: int, tools: CleaningTools, thread: object = None
    ) -> bool:
        """Rewrite the part of a chosen log and unlock it; returns whether that succeeded."""
        log, status = chosen.log, self._status(chosen.log)
        try:
            self._rewrite(chosen, now_ms, tools, thread)
        except (CleaningAbortedError, DeletedError, LogOfflineError) as error:
            logger.info("%s", error)
            return False
        except (LogfsError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _TEMPORARY:
                status.pause(now_ms)
                logger.warning(
                    "%s: %s: %s; it is tried again in %d s",
                    log.topic_partition, self.name, error, status.pause_ms // 1000,
                )  # fmt: skip
            elif log.offline is None:
                self._give_up(chosen, error)
            return False
        finally:
            self.release(chosen)
        status.pause_ms = 0
        return True

    def release(self, chosen: ChosenLog[Part]) -> None:
        """Unlock a chosen log."""
        chosen.log.cleaning.lock.release()

    def _candidates(self, now_ms: int) -> Iterator[PartitionLog]:
        """Yield the logs that can be rewritten now, due or not."""
        for topic in self._store.topics():
            try:
                # In this order: the first configuration comes before its file.
                if not self._store.has_config(topic):
                    continue
                if not self._is_wanted(self._store.topic_config(topic)):
                    continue
                logs = [self._store.partition(topic, n) for n in self._store.partitions(topic)]
            except LogfsError:
                continue  # deleted meanwhile
            for log in logs:
                is_open = log.offline is None and not log.is_deleted and not log.is_unreadable
                if is_open and now_ms >= self._status(log).paused_until_ms:
                    yield log

    @abstractmethod
    def _is_wanted(self, config: TopicConfig) -> bool:
        """Whether the logs of a topic are rewritten."""

    @abstractmethod
    def _status(self, log: PartitionLog) -> RewritingStatus:
        """Return the pauses of a log."""

    @abstractmethod
    def _due(self, now_ms: int) -> Iterable[tuple[PartitionLog, Part]]:
        """Return the logs that are due, in their order."""

    @abstractmethod
    def _rewrite(
        self, chosen: ChosenLog[Part], now_ms: int, tools: CleaningTools, thread: object
    ) -> None:
        """Rewrite the part of a log."""

    @abstractmethod
    def _give_up(self, chosen: ChosenLog[Part], error: Exception) -> None:
        """Leave the part of a log alone until the next start."""
