"""A reader in memory that follows the store of a ``JournalBench``."""

import contextlib
from collections.abc import Callable

from logfs.config import StoreConfig
from logfs.disk.remote.overlay import OverlayDisk
from logfs.log.host import Host
from logfs.log.manifest import STANDBY, UNFINISHED, BackupManifest, write_manifest
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.catalog import DirectoryCatalog
from logfs.log.remote.head import WritingDirectory
from logfs.services.journaling.promotion import NextOwner
from logfs.services.journaling.standby import Standby
from logfs.services.journaling.standbystore import StandbyRounds, StandbyStore
from tests.fakes import FakeDisk
from tests.remote.buckets import Clock, unique_id
from tests.remote.fakestore import FakeStore
from tests.remote.journals import JournalBench
from tests.remote.partfiles import parts_of


def at_once(function: Callable[[], object]) -> None:
    function()


class Reader:
    """A mount that follows a store.

    Attributes:
        store: Its topics.
        clock: Its clock.
        disk: The disk of its directory.
        after_each_look: Called while nothing is known yet to be complete.
    """

    def __init__(self, objects: FakeStore, now_ms: int, disk: FakeDisk | None = None) -> None:
        self.clock, self.disk = Clock(), disk or FakeDisk()
        self.now_ms, self.objects = now_ms, objects
        self.after_each_look: Callable[[], object] = lambda: None
        write_manifest(self.disk, BackupManifest(UNFINISHED, STANDBY, objects.url, now_ms))
        catalog = DirectoryCatalog(self.disk, lambda: objects, objects.url)
        overlay = OverlayDisk(self.disk, catalog, parts_of(objects))
        standby = Standby(objects, self.disk, self.clock)
        self.rounds = StandbyRounds(standby, self.disk, self.clock, at_once, is_kept=True)
        self.rounds.begin()
        self.store = StandbyStore.follow(
            overlay, StoreConfig(), Host("reader", unique_id), None, now_ms=self.now_ms
        )
        self.store.rounds = self.rounds

    def look(self, seconds: float = 20.0) -> None:
        """Let a round be due, and look until nothing changes any more."""
        self.clock.now_s += seconds
        for _ in range(4):
            self.now_ms += 200
            self.disk.now_ms = self.now_ms
            self.store.look_around(self.now_ms)
            for log in self.store.followed():
                with contextlib.suppress(OSError):  # a segment that the store has may be read
                    while log.refresh(self.now_ms):
                        pass
            self.after_each_look()

    def log(self, topic: str = "t") -> ReadableLog:
        return self.store.partition(topic, 0)

    def promote(self, machine: str) -> JournalBench:
        """Own the store, and start as the owner."""
        writer = WritingDirectory(machine.encode() * 16, machine, self.now_ms)
        owner = NextOwner(self.objects, self.disk, writer, unique_id)
        done, _ = self.store.promote(owner, lambda: None, self.now_ms)
        assert not done.problems
        self.store.close(self.now_ms)
        found = JournalBench(machine=machine, disk=self.disk, objects=self.objects)
        found.now_ms = self.now_ms
        return found
