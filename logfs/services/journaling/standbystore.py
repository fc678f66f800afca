"""The store of a mount whose data directory follows an object store.

The directory is followed like any other that another process writes. A look starts a round of its
``Standby`` in another thread if one is due, so that no reader waits for the object store.
"""

import contextlib
import logging
import threading
from collections.abc import Callable

from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, RemoteStorageError, text_of
from logfs.log import names
from logfs.log.manifest import STANDBY, read_manifest
from logfs.log.names import LOCK_FILE
from logfs.log.remote.parallel import in_background
from logfs.log.writing.state import PartitionState
from logfs.services.following.store import FollowedStore
from logfs.services.following.watched import WatchedLog
from logfs.services.journaling.polling import PollTimes
from logfs.services.journaling.promotion import NextOwner, Promoted
from logfs.services.journaling.standby import Standby, clear_standby
from logfs.services.overview import PartitionOverview, partition_overview

logger = logging.getLogger(__name__)

_LEAST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_END_S = 2.0


def is_standby(disk: Disk) -> bool:
    """Whether a data directory follows a store, and does not own it."""
    manifest = read_manifest(disk)
    return manifest is not None and manifest.kind == STANDBY


class StandbyRounds:
    """The rounds of a standby, one at a time, in threads. Any thread.

    Args:
        standby: The directory.
        local: Its local disk.
        is_kept: What was made stays there at the end.
        clock_s: Seconds that only go forward.
        background: Runs a function without waiting for it.

    Attributes:
        error: Why the last round failed; None after a good one.
    """

    def __init__(
        self,
        standby: Standby,
        local: Disk,
        clock_s: Callable[[], float],
        background: Callable[[Callable[[], object]], object] = in_background,
        *,
        is_kept: bool = False,
    ) -> None:
        self.standby = standby
        self._local = local
        self._is_kept = is_kept
        self.error: str | None = None
        self._clock_s = clock_s
        self._background = background
        # A directory in use is not recovered by its readers: a batch at its end may be on its way.
        self._lock = local.lock(LOCK_FILE)
        self._guard = threading.Lock()
        self._times = PollTimes(clock_s(), 0.0)
        self._pause_s = _LEAST_PAUSE_S
        self._is_busy = self._is_over = False

    @property
    def is_promotable(self) -> bool:
        """Whether the directory is one that may become the owner."""
        return self._is_kept and not self._is_over

    def begin(self) -> None:
        """Make the directory.

        Raises:
            LogfsError, OSError: See ``Standby.begin``.
        """
        try:
            clear_standby(self._local)
            self.standby.begin()
        except BaseException:
            self.end()
            raise
        self._times = PollTimes(self._clock_s(), self.standby.freshness_s)

    def run_if_due(self) -> None:
        """Start a round if one is due."""
        with self._guard:
            if self._is_busy or self._is_over or self._clock_s() < self._times.due_s:
                return
            self._is_busy = True
        self._background(self._run)

    def promote(
        self, owner: NextOwner, sync_all: Callable[[], object], freeze: Callable[[], object]
    ) -> Promoted:
        """Own the store; no round follows, and the directory is whole and durable.

        Raises:
            LogfsError, OSError: See ``Standby.promote``; rounds follow as before.
        """
        with self._guard:
            done = self.standby.promote(owner, freeze)
            sync_all()
            owner.disk.remove(names.BACKUP)
            owner.disk.sync_directory("")
            self._is_kept = self._is_over = True
        return done

    def end(self) -> None:
        """End the round that runs, and let go of the directory.

        If the store does not answer that round, the directory stays locked until the process ends.
        """
        self._is_over = True
        if not self._guard.acquire(timeout=_END_S):
            return
        with contextlib.closing(self._lock):
            if not self._is_kept:
                clear_standby(self._local)
        self._guard.release()

    def _run(self) -> None:
        with self._guard:
            error: Exception | None = None
            is_found = False
            try:
                if not self._is_over:
                    is_found = self.standby.round()
            except (LogfsError, OSError) as found:
                error = found
            except Exception as found:
                logger.exception("a bug in logfs: the store is not followed")
                error = found
            self._end_round(error, is_found=is_found)

    def _end_round(self, error: Exception | None, *, is_found: bool) -> None:
        text = None if error is None else text_of(error)
        if text is not None and self.error is None:
            logger.warning("%s: %s; what was known is shown", self.standby.url, text)
        elif text is None and self.error is not None:
            logger.info("%s: the store answers again", self.standby.url)
        for problem in self.standby.problems:
            logger.warning("the journal is damaged: %s", problem)
        self.standby.problems.clear()
        now_s = self._clock_s()
        if error is None:
            self._pause_s = _LEAST_PAUSE_S
            self._times.plan(now_s, self.standby.freshness_s, is_found=is_found)
        else:
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._times = PollTimes(now_s + self._pause_s, self.standby.freshness_s)
        self._is_busy, self.error = False, text


class StandbyStore(FollowedStore):
    """The topics of a data directory that follows an object store.

    Attributes:
        rounds: What keeps the directory up to date; None until the store is open.
    """

    rounds: StandbyRounds | None = None
    _is_frozen = False

    @classmethod
    def check(cls, disk: Disk) -> None:
        """See ``FollowedStore``; a standby is marked as not whole, for other commands."""
        if not is_standby(disk):
            super().check(disk)

    def look_around(self, now_ms: int) -> None:
        """See ``FollowedStore``; starts a round if one is due."""
        if self.rounds is not None:
            self.rounds.run_if_due()
            self._note_freshness(self.rounds)
        super().look_around(now_ms)

    def close(self, now_ms: int, *, is_durable: bool = True) -> None:
        """See ``FollowedStore``."""
        super().close(now_ms, is_durable=is_durable)
        if self.rounds is not None:
            self.rounds.end()

    def promote(
        self, owner: NextOwner, sync_all: Callable[[], object], now_ms: int
    ) -> "tuple[Promoted, list[PartitionOverview]]":
        """Own the store; the next daemon of the directory writes it.

        Args:
            owner: The data directory.
            sync_all: Makes all its files durable.
            now_ms: The clock.

        Raises:
            RemoteStorageError: It is the directory of a reader, or was promoted before.
            LogfsError, OSError: See ``Standby.promote``.
        """
        if self.rounds is None or not self.rounds.is_promotable:
            raise RemoteStorageError("the data directory is no standby of a store")
        try:
            done = self.rounds.promote(owner, sync_all, self._freeze)
        except (LogfsError, OSError):
            self._is_frozen = False
            raise
        super().look_around(now_ms)
        for log in self.followed():
            while log.refresh(now_ms):
                pass
        return done, [partition_overview(log, now_ms) for log in self.all_partitions()]

    def followed(self) -> list[WatchedLog]:
        """See ``FollowedStore``."""
        return [] if self._is_frozen else super().followed()

    def _freeze(self) -> None:
        self._is_frozen = True

    def _note_freshness(self, rounds: StandbyRounds) -> None:
        for log in self.all_partitions():
            state = log.state
            if isinstance(state, PartitionState) and state.remote is not None:
                state.remote.journal_ms = rounds.standby.complete_ms
                state.remote.journal_error = rounds.error
