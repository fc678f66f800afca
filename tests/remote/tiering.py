"""A data directory in memory, with a store in memory for its sealed segments."""

import hashlib
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from logfs.disk.remote.overlay import OverlayDisk
from logfs.log.names import parse_topic_id
from logfs.log.partition import PartitionLog
from logfs.log.remote.catalog import DirectoryCatalog, TieredPartition
from logfs.log.remote.head import Head, WritingDirectory, encode_head
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.of_disk import catalog_of
from logfs.log.remote.reading import read_head
from logfs.log.store import LogStore
from logfs.services.tiering.owning import PartitionTiering
from logfs.services.tiering.topics import DeletedTopics
from tests.fakes import FakeDisk
from tests.log.support import Bench
from tests.remote.fakestore import FakeStore
from tests.remote.partfiles import parts_of

TIERED: Mapping[str, str] = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.bytes": "0",
    "internal.segment.bytes": "200",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "0",
}
"""Settings of a topic whose sealed segments are in the store alone."""


_ids = itertools.count()
"""Two benches have no id in common, as two processes have none."""


def no_throttle(_: int) -> None:
    """Send at once."""


class TieredBench(Bench):
    """One store with the tiered topic ``t`` of one partition.

    Attributes:
        objects: The object store.
        directory_id: The directory id of the data directory.
        tiering: The work on ``t/0`` of this process; made when it is first asked for.
    """

    def __init__(
        self,
        properties: Mapping[str, str] = TIERED,
        *,
        disk: FakeDisk | None = None,
        objects: FakeStore | None = None,
    ) -> None:
        self.objects = objects or FakeStore()
        self.directory_id = b"d" * 16
        self._tiering: PartitionTiering | None = None
        super().__init__(properties, disk=disk)

    def open(self, disk: FakeDisk | None = None, *, read_only: bool = False) -> LogStore:
        self._tiering = None
        return super().open(self.overlay(disk or self.disk), read_only=read_only)  # type: ignore[arg-type]

    def _new_id(self) -> bytes:
        return hashlib.md5(b"%d" % next(_ids), usedforsecurity=False).digest()

    def clone(self) -> "TieredBench":
        """Return what the clone of the whole machine finds, with the same store and the same id."""
        return TieredBench(disk=self.disk.after_kill(), objects=self.objects)

    def write_head_as_earlier_versions(self) -> None:
        """Let the head be as logfs 0.3.0 wrote it, which noted nothing."""
        data = encode_head(replace(self.head, is_noted=False))
        self.objects.objects[self.place.head] = data

    def overlay(self, disk: FakeDisk) -> OverlayDisk:
        """Return a disk with the files of the store."""
        catalog = DirectoryCatalog(disk, lambda: self.objects, self.objects.url)
        return OverlayDisk(disk, catalog, parts_of(self.objects))

    @property
    def tiering(self) -> PartitionTiering:
        if self._tiering is None:
            writer = WritingDirectory(self.directory_id, "here", self.now_ms)
            self._tiering = PartitionTiering(self.log, self.objects, writer, self._new_id)
        return self._tiering

    def forget_tiering(self) -> None:
        """Begin again with the log of another topic of the same name."""
        self._tiering = None

    def deleted_topics(self, given_up: Collection[PartitionPlace] = ()) -> DeletedTopics:
        """What removes the objects of deleted topics."""
        catalog = catalog_of(self.store.disk)
        assert catalog is not None
        writer = WritingDirectory(self.directory_id, "here", self.now_ms)
        return DeletedTopics(self.store, catalog, writer, given_up)

    def fill(self, lines: int = 20, first: int = 0) -> bytes:
        """Append lines, each in its own batch; returns their text."""
        rows = [f"line {n} {'x' * 20}".encode() for n in range(first, first + lines)]
        self.write(*rows)
        self.log.flush()
        self.log.maintain()
        return b"".join(row + b"\n" for row in rows)

    def tier_all(self) -> None:
        """Copy every sealed segment, and remove the local files."""
        self.tiering.copy(no_throttle)
        self.tiering.drop(self.now_ms)
        self.log.remove_due_files(self.now_ms)

    @property
    def place(self) -> PartitionPlace:
        log = self.log
        assert log.topic_id is not None
        return PartitionPlace(log.topic_partition, parse_topic_id(log.topic_id))

    @property
    def head(self) -> Head:
        found = read_head(self.objects, self.place)
        assert found is not None
        return found[0]

    @property
    def tier(self) -> TieredPartition:
        assert self.log.tier is not None
        return self.log.tier

    def local_names(self, suffix: str = "") -> list[str]:
        """The local files of the partition directory."""
        return self.names(suffix)


Stop = Callable[[TieredBench], PartitionLog]
