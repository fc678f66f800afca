"""The journal as a task: every ``freshness.ms`` what is not sealed goes to the object store.

A round that takes longer than ``freshness.ms`` is followed by the next one at once. After a failure
the next round comes after a pause that grows from ``freshness.ms`` to a minute. If another data
directory or a copy of this one has fenced this one, nothing is copied to the store any more. A
clean stop sends what was appended since the last round.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

import trio

from logfs.config.remote import FencedAction
from logfs.disk.remote.counters import JournalCounters
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.vfs import Disk
from logfs.errors import FencedError, LockedError, LogfsError, RemoteStorageError, text_of
from logfs.fs.threads import run_in_thread
from logfs.log.host import Host
from logfs.log.listing import list_partitions
from logfs.log.names import LOCK_FILE
from logfs.log.partition import PartitionLog
from logfs.log.remote.directory import own_directory, read_remote_config
from logfs.log.remote.of_disk import catalog_of
from logfs.log.store import was_clean
from logfs.machine.host import Clock, machine_id
from logfs.services.following.store import AnyStore
from logfs.services.journaling.assembly import read_journal
from logfs.services.journaling.healing import compare, heal, may_have_lost
from logfs.services.journaling.notes import notes_of
from logfs.services.journaling.root import begin_epoch, lost_to, read_root
from logfs.services.journaling.writing import RemoteJournal, is_journaled
from logfs.services.tiering.ownership import OwnedVersions

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 60.0
_LAST_ROUND_S = 5.0


class Journaling:
    """The journal of the data directory of a mount. Event loop only.

    Args:
        store: The store.
        clock: The clocks.
        host: Name of the machine.
        give_up: Called with the reason when another process owns the store.
    """

    def __init__(
        self, store: AnyStore, clock: Clock, host: str, give_up: Callable[[FencedError], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._host = host
        self._give_up = give_up
        self._journal: RemoteJournal | None = None
        self._owned: OwnedVersions | None = None
        self._directory_id = b""
        self._told: str | None = None
        self._again: Callable[[], None] | None = None
        self._guard = threading.Lock()
        self._counters = JournalCounters()
        self._unknown: Collection[str] = ()
        self._is_over = False

    async def run(self) -> None:
        """Run rounds until cancelled or fenced; return if the directory has no journal."""
        try:
            await self._run()
        finally:
            self._is_over = True

    async def finish(self) -> None:
        """Do a last round, once nothing is appended any more; do not wait for a store that is away.

        Nothing happens if the last round failed, or another data directory owns the store.
        """
        if self._again is None or self._told is not None:
            return
        with trio.move_on_after(_LAST_ROUND_S) as waiting:
            try:
                await run_in_thread(self._again, abandon_on_cancel=True)
            except (LogfsError, OSError) as error:
                logger.warning("the journal does not have what came last: %s", text_of(error))
        if waiting.cancelled_caught:
            logger.warning("the journal may not have what came last: the store did not answer")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Refuse to begin an epoch once the daemon stops: the next one may have begun its own."""
        if self._is_over:
            raise RemoteStorageError("the daemon is stopping")
        yield

    async def _run(self) -> None:
        catalog = catalog_of(self._store.disk)
        config = None if catalog is None else read_remote_config(catalog.local)
        if catalog is None or config is None or not config.freshness_ms:
            return
        local, objects = catalog.local, catalog.store
        catalog.journal = self._counters
        freshness_s = config.freshness_ms / 1000
        # One object is under way at a time: offsets are never given twice.
        thread, pause_s = trio.CapacityLimiter(1), freshness_s
        while True:
            begin_s = self._clock.monotonic_s()
            try:
                await run_in_thread(
                    self._round,
                    local,
                    objects,
                    config.freshness_ms,
                    limiter=thread,
                    abandon_on_cancel=True,
                )
            except FencedError as error:
                logger.error("%s", error)  # noqa: TRY400 - no defect of logfs
                self._again = None
                self._give_up(error)
                await run_in_thread(
                    self._fence, objects, error, config.fenced_action, abandon_on_cancel=True
                )
                return
            except (LogfsError, OSError) as error:
                self._fail(error)
                pause_s = min(pause_s * 2, max(_LONGEST_PAUSE_S, freshness_s))
                await trio.sleep(pause_s)
                continue
            if self._told is not None:
                logger.info("the object store takes the journal again")
                self._told = None
            self._again = partial(self._round, local, objects, config.freshness_ms)
            pause_s = freshness_s
            await trio.sleep(max(0.0, begin_s + freshness_s - self._clock.monotonic_s()))

    def _round(self, local: Disk, objects: Callable[[], ObjectStore], freshness_ms: int) -> None:
        """Do one round, in a thread; the first one begins an epoch."""
        with self._guard:  # the loop may have left a thread with its request
            self._do_round(local, objects, freshness_ms)

    def _do_round(self, local: Disk, objects: Callable[[], ObjectStore], freshness_ms: int) -> None:
        logs = self._store.writable.all_partitions()
        if self._journal is None:
            self._journal = self._begin(local, objects(), logs, freshness_ms)
        now_ms = self._clock.now_ms()
        kept = [log for log in logs if not log.is_unreadable and is_journaled(log.config)]
        notes = notes_of(self._store.writable, kept)
        if notes.unknown and notes.unknown != self._unknown:
            logger.warning("not read, and not sent to the journal: %s", ", ".join(notes.unknown))
        self._unknown = notes.unknown
        counters, journal = self._counters, self._journal
        try:
            sent = journal.round(logs, now_ms, notes)
        finally:
            counters.objects, counters.size_bytes = journal.objects, journal.size_bytes
        counters.rounds, counters.complete_ms = counters.rounds + 1, now_ms
        for log in sent:
            if log.state.remote is not None:
                log.state.remote.journal_ms, log.state.remote.journal_error = now_ms, None

    def _fence(
        self, objects: Callable[[], ObjectStore], error: FencedError, action: FencedAction
    ) -> None:
        """Take no more records if so wished, and note that another data directory owns the store.

        A directory that is a copy never owned it.
        """
        if self._owned is None:
            return
        lost: FencedError | None = error
        with contextlib.suppress(LogfsError, OSError):  # the next start asks the store
            lost = lost_to(objects(), self._directory_id, self._owned)
        if lost is not None and action is FencedAction.READONLY:  # else the root is gone
            self._store.writable.fence(text_of(lost))

    def _begin(
        self, local: Disk, objects: ObjectStore, logs: list[PartitionLog], freshness_ms: int
    ) -> RemoteJournal:
        new_id, now_ms = self._store.writable.new_id, self._clock.now_ms()
        own = own_directory(local, new_id, machine_id())
        if own.refusal is not None:
            raise FencedError(own.refusal)
        owned = self._owned = OwnedVersions(local, "", self._writing)
        self._directory_id = own.directory_id
        writer = own.writer(self._host, now_ms)
        root = begin_epoch(objects, writer, owned, new_id, freshness_ms=freshness_ms)
        journal = read_journal(objects, root)
        for text in journal.problems:
            logger.warning("the journal is damaged: %s", text)
        return RemoteJournal(objects, root, journal, compare(journal, logs), new_id)

    def _fail(self, error: Exception) -> None:
        self._counters.failures += 1
        for log in self._store.writable.all_partitions():
            if log.state.remote is not None and is_journaled(log.config):
                log.state.remote.journal_error = f"the journal: {text_of(error)}"
        kind = type(error).__name__
        if self._told != kind:
            self._told = kind
            logger.warning("nothing is sent to the journal: %s", text_of(error))


def look_for_owner(disk: Disk) -> None:
    """Have a data directory take no records from its start on that another one owns in the store.

    Only with ``fenced.action=readonly``. It is called before the logs are loaded. A store that does
    not answer delays the start for ``read.timeout.ms``; then the first round finds out.
    """
    catalog = catalog_of(disk)
    config = None if catalog is None else read_remote_config(catalog.local)
    if catalog is None or config is None or config.fenced_action is not FencedAction.READONLY:
        return
    local, fenced = catalog.local, catalog.fenced
    try:
        for one in list_partitions(local):
            if OwnedVersions(local, one.directory).is_lost:
                fenced[one.directory] = f"another data directory has written {one} in {catalog.url}"
        owned = OwnedVersions(local, "")
        if config.freshness_ms and config.directory_id and not owned.is_new:
            error = lost_to(catalog.store(), bytes.fromhex(config.directory_id), owned)
            if error is not None:
                fenced[""] = text_of(error)
                logger.error("%s", error)
    except (LogfsError, OSError) as error:
        logger.warning("the object store does not say which directory owns it: %s", text_of(error))


def heal_from_journal(disk: Disk, host: Host) -> None:
    """Write into a data directory what it has lost in a power cut and its journal has.

    It is called before the logs are loaded. After a power cut a store that does not answer delays
    the start for ``read.timeout.ms``; then the logs begin without these records.
    """
    catalog = catalog_of(disk)
    config = None if catalog is None else read_remote_config(catalog.local)
    if catalog is None or config is None or not config.freshness_ms:
        return
    try:
        lock = disk.lock(LOCK_FILE)
    except LockedError:
        return  # it is told when the logs are loaded
    try:
        if was_clean(disk, host.boot_id) or not may_have_lost(catalog.local, host):
            return
        own = own_directory(catalog.local, host.new_id, machine_id())
        if own.is_copy:
            return
        root = read_root(catalog.store())
        if root is not None and root[0].writer.directory_id == own.directory_id:
            heal(read_journal(catalog.store(), root[0]), catalog.local)
    except (LogfsError, OSError) as error:
        logger.warning(
            "records that the disk may have lost are not read from the journal: %s", text_of(error)
        )
    finally:
        lock.close()
