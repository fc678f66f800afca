"""A data directory in memory whose journal goes to a store in memory, and its promotion."""

from collections.abc import Mapping

from logfs.log.host import Host
from logfs.log.remote.head import WritingDirectory
from logfs.log.store import LogStore
from logfs.services.journaling.assembly import read_journal
from logfs.services.journaling.diverging import DivergedLog, diverged_logs, stored_logs
from logfs.services.journaling.healing import compare, heal, may_have_lost
from logfs.services.journaling.notes import notes_of
from logfs.services.journaling.promotion import Promoted, Promotion
from logfs.services.journaling.rejoining import Rejoining
from logfs.services.journaling.root import begin_epoch, read_root
from logfs.services.journaling.writing import RemoteJournal, is_journaled
from logfs.services.tiering.ownership import OwnedVersions
from tests.fakes import FakeDisk
from tests.remote.fakestore import FakeStore
from tests.remote.tiering import TIERED, TieredBench


class JournalBench(TieredBench):
    """One store with the tiered topic ``t``, and its journal.

    Attributes:
        machine: The name of the machine; its directory id is made of it.
    """

    def __init__(
        self,
        properties: Mapping[str, str] = TIERED,
        *,
        machine: str = "a",
        disk: FakeDisk | None = None,
        objects: FakeStore | None = None,
    ) -> None:
        super().__init__(properties, disk=disk, objects=objects)
        self.machine = machine
        self.directory_id = machine.encode() * 16
        self._journal: RemoteJournal | None = None

    @property
    def journal(self) -> RemoteJournal:
        """The journal of this process; an epoch begins when it is first asked for."""
        if self._journal is None:
            owned = OwnedVersions(self.disk, "")
            root = begin_epoch(self.objects, self._writer(), owned, self._new_id)
            found = read_journal(self.objects, root)
            assert not found.problems
            same = compare(found, self.store.all_partitions())
            self._journal = RemoteJournal(self.objects, root, found, same, self._new_id)
        return self._journal

    def send(self) -> None:
        """Do a round."""
        logs = self.store.all_partitions()
        kept = [log for log in logs if is_journaled(log.config)]
        self.journal.round(logs, self.now_ms, notes_of(self.store, kept))

    def open(self, disk: FakeDisk | None = None, *, read_only: bool = False) -> LogStore:
        self._journal = None
        return super().open(disk, read_only=read_only)

    def crash_and_heal(self, seed: int) -> int:
        """Cut the power; the next start takes from the journal what the disk has lost."""
        self.disk.crash(seed)
        self.new_boot()
        assert may_have_lost(self.disk, Host(self.boot, self._new_id))
        found = read_root(self.objects)
        assert found is not None
        size = heal(read_journal(self.objects, found[0]), self.disk)
        self.store = self.open()
        return size

    def _writer(self) -> WritingDirectory:
        return WritingDirectory(self.directory_id, self.machine, self.now_ms)

    def promotion(self, machine: str, disk: FakeDisk) -> Promotion:
        """The promotion of another machine, with an empty disk."""
        writer = WritingDirectory(machine.encode() * 16, machine, self.now_ms)
        return Promotion(self.objects, disk, writer, self._new_id)

    def diverged(self) -> list[DivergedLog]:
        """What this directory has and the store does not."""
        root = read_root(self.objects)
        journal = None if root is None else read_journal(self.objects, root[0])
        stored = stored_logs(self.objects, journal)
        return diverged_logs(self.objects, stored, self.store.all_partitions())

    def rejoin(self, stop: int | None = None) -> Promoted:
        """Make the directory a copy of the store, and start it again.

        The process dies before the change ``stop`` of the disk.
        """
        self._die_before(stop)
        done = Rejoining(self.objects, self.disk, self._writer(), self._new_id).run()
        self.store = self.open()
        return done

    def promoted_again(self, stop: int | None = None) -> Promoted:
        """Promote this directory, which has its files, and start it again; see ``rejoin``."""
        self._die_before(stop)
        done = self.promotion(self.machine, self.disk).run()
        self.store = self.open()
        return done

    def promoted(self, machine: str = "b") -> "tuple[JournalBench, Promoted]":
        """Promote another machine, and start it."""
        disk = FakeDisk()
        done = self.promotion(machine, disk).run()
        found = JournalBench(machine=machine, disk=disk, objects=self.objects)
        found.now_ms = self.now_ms
        return found, done

    def _die_before(self, stop: int | None) -> None:
        self.disk.kill()
        if stop is not None:
            self.disk.stop_before(stop)
