"""A store of one topic on a disk in memory, with every kind of reader, and no thread.

``Machine`` is one start of the store. What outlasts it is a ``Scene``: the disk, the objects, the
clock, the boot, and what programs were told. A scene can be copied at any moment, as a stop there
would leave it.
"""

import concurrent.futures
import contextlib
import hashlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from logfs.config import StoreConfig
from logfs.disk.remote.overlay import OverlayDisk
from logfs.disk.vfs import Disk
from logfs.errors import NoSuchPartitionError
from logfs.log.groups.coding import OFFSETS_TOPIC
from logfs.log.host import Host
from logfs.log.names import CLEAN_SHUTDOWN, FileKind, format_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.catalog import DirectoryCatalog
from logfs.log.remote.head import WritingDirectory
from logfs.log.segments.table import SegmentState, SegmentTable
from logfs.log.store import LogStore
from logfs.records._reading import header_ok
from logfs.records.layout import size_of
from logfs.services.following.files import FollowedSegments
from logfs.services.following.listing import list_logs
from logfs.services.following.store import FollowedStore
from logfs.services.scanning.stored import Bounds, RecoveredEnds, StoredLog
from logfs.services.tiering.owning import PartitionTiering
from logfs.types import IsolationLevel, TopicPartition, View
from tests.fakes import START_MS, FakeDisk
from tests.model.account import Account, StopKind
from tests.model.machine import short_leases, short_pages
from tests.model.topic import TopicAccount
from tests.remote.fakestore import FakeStore
from tests.remote.partfiles import parts_of

T = TopicPartition("t", 0)
GROUPS = TopicPartition(OFFSETS_TOPIC, 0)
_CONFIG = StoreConfig(num_recovery_threads_per_data_dir=1)
_FOREVER = {"retention.bytes": "-1", "retention.ms": "-1"}
_SEALED = {"logfs.sealed.compression.type": "zstd"}
_LARGE = {"internal.segment.bytes": "1500000", **_SEALED, **_FOREVER}
_SOON = {"file.delete.delay.ms": "0"}


class Kind(NamedTuple):
    """A kind of topic.

    Attributes:
        name: Its name on the command line.
        view: The view that its programs write and read.
        properties: Its settings: segments are small, so that operations meet the end of one.
        operations: The operations that it has; see ``operations``.
    """

    name: str
    view: View
    properties: dict[str, str]
    operations: str


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "plain",
            View.TEXT,
            {
                "internal.segment.bytes": "700",
                "index.interval.bytes": "100",
                **_SEALED,
                **_FOREVER,
            },
            "WHSCORTXPDGMZFQ",
        ),
        Kind("large", View.TEXT, _LARGE, "WHBSCRXPM"),
        Kind(
            "compacted",
            View.TSV,
            {
                "internal.segment.bytes": "700",
                "index.interval.bytes": "100",
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0",
                **_SOON,
            },
            "WHSCORKGMZF",
        ),
        Kind(
            "tiered",
            View.TEXT,
            {
                "remote.storage.enable": "true",
                "local.retention.bytes": "0",
                "internal.segment.bytes": "400",
                "index.interval.bytes": "0",
                **_SOON,
                **_FOREVER,
            },
            "WHSCORVTXMZL",
        ),
    )
}


class Ids:
    """Ids that are the same in each run, and no others than those of another start."""

    def __init__(self, start: int) -> None:
        self._next = start * 1_000_000

    def __call__(self) -> bytes:
        self._next += 1
        return hashlib.md5(b"%d" % self._next, usedforsecurity=False).digest()


@dataclass
class Told:
    """What programs were told.

    Attributes:
        topic: What they know of the topic and its records.
        committed: The offsets that a group may have committed; the last one was acknowledged.
        lines, files: How many lines were made, and how many files were opened.
        starts: How often a store was opened, so that no id is given twice.
        worst: The worst stop since everything was compared; None: none.
        has_cut: A kill on a full disk may have left half an append, which was cut, maybe not
            durably: after a power cut a store cannot tell it from one that a write returned for.
    """

    topic: TopicAccount
    committed: list[int | None] = field(default_factory=lambda: [None])
    lines: int = 0
    files: int = 0
    starts: int = 0
    worst: StopKind | None = None
    has_cut: bool = False

    @property
    def account(self) -> Account:
        """What they know of the records of the topic, which is there."""
        assert self.topic.account is not None
        return self.topic.account


class Scene(NamedTuple):
    """Everything that outlasts a stop, at a moment."""

    disk: FakeDisk
    objects: dict[str, bytes] | None
    told: bytes
    boot: int
    now_ms: int


class Machine:
    """A store that is open, and what outlasts it.

    Attributes:
        store: The open store.
        objects: The object store of a tiered topic.
    """

    def __init__(self, kind: Kind, scene: Scene | None = None) -> None:
        self.kind = kind
        self.view = kind.view
        self.objects = FakeStore() if kind.name == "tiered" else None
        self._tiering: PartitionTiering | None = None
        self._change: Callable[[], object] | None = None
        self.new_id = Ids(0)
        if scene is None:
            self.disk, self.boot, self.now_ms = FakeDisk(), 1, START_MS
            self.told = Told(TopicAccount("t", None))
        else:
            self.disk, self.boot, self.now_ms = scene.disk, scene.boot, scene.now_ms
            self.told = pickle.loads(scene.told)
            if self.objects is not None:
                self.objects.objects = dict(scene.objects or {})

    def scene(self) -> Scene:
        """Return everything as a stop would find it now."""
        objects = None if self.objects is None else dict(self.objects.objects)
        told = pickle.dumps(self.told, pickle.HIGHEST_PROTOCOL)
        return Scene(self.disk.after_kill(), objects, told, self.boot, self.now_ms)

    # The store, and readers

    def host(self) -> Host:
        return Host(f"{self.boot:08}", self.new_id)

    def whole_disk(self) -> Disk:
        """The disk, with the objects of a tiered topic."""
        objects = self.objects
        if objects is None:
            return self.disk
        catalog = DirectoryCatalog(self.disk, lambda: objects, objects.url)
        return OverlayDisk(self.disk, catalog, parts_of(objects))

    def start(self) -> None:
        """Open the store, which recovers."""
        self._tiering = None
        self.told.starts += 1
        self.new_id = Ids(self.told.starts)
        self.store = LogStore.open(self.whole_disk(), _CONFIG, self.host(), now_ms=self.now_ms)

    @property
    def has_topic(self) -> bool:
        return "t" in self.store.topics()

    @property
    def log(self) -> PartitionLog:
        return self.store.partition(*T)

    @property
    def tiering(self) -> PartitionTiering:
        """What copies and drops segments."""
        if self._tiering is None:
            assert self.objects is not None
            here = WritingDirectory(b"d" * 16, "here", self.now_ms)
            self._tiering = PartitionTiering(self.log, self.objects, here, self.new_id)
        return self._tiering

    def open_read_only(self) -> LogStore:
        """Open the partition as the library and commands do without a daemon."""
        return LogStore.open(
            self.whole_disk(),
            _CONFIG,
            Host(f"{self.boot:08}", Ids(900)),
            now_ms=self.now_ms,
            read_only=True,
            only=[T],
        )

    def follow(self) -> FollowedStore:
        """Open the directory as a read-only mount does."""
        host = Host(f"{self.boot:08}", Ids(901))
        return FollowedStore.follow(self.whole_disk(), _CONFIG, host, None, now_ms=self.now_ms)

    def stored_end(self) -> int:
        """Return the offset at which a query that plans sees the partition end."""
        disk = self.whole_disk()
        log = StoredLog(disk, FollowedSegments(disk, 16), T)
        ends = RecoveredEnds(disk, lambda _: self.open_read_only())
        ends.look()
        try:
            log.refresh(self.now_ms, Bounds(recovered_end=ends.of(T)))
        except NoSuchPartitionError:
            return 0
        return log.latest(IsolationLevel.READ_UNCOMMITTED, self.now_ms)

    def committed(self) -> int | None:
        """Return what the group has committed."""
        return self.store.groups.committed("g", T)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.disk.now_ms = self.now_ms

    def maintain(self, after_ms: int) -> None:
        """Have time pass, and do what a daemon does in it."""
        self.pass_time(after_ms)
        for log in self.store.all_partitions():
            log.maintain()
        self.store.remove_due_files(self.now_ms)
        self.store.checkpoint()
        self.store.tidy(self.now_ms)

    # Stops

    def stop(self, kind: StopKind, seed: int | None) -> None:
        """Stop everything; see ``FakeDisk`` for the seed."""
        self.disk.before = None
        self.told.has_cut |= kind is StopKind.KILL and self.disk.space_bytes is not None
        self.disk.space_bytes, self.disk.names_need_room = None, False
        if kind is StopKind.KILL:
            self.disk.kill()
        elif kind is StopKind.POWER:
            self.disk.crash(seed)
            self.boot += 1
        else:
            self.disk.lose_cache(seed)
        if self.told.worst is None or not self.told.worst.is_lossy:
            self.told.worst = kind

    def damage_end(self) -> None:
        """Have another byte in the last batch of the log, if the next start looks at it."""
        disk, directory = self.disk, T.directory
        try:
            entries = SegmentTable.load(disk, directory).entries
        except FileNotFoundError:
            return
        bases = list_logs(disk, directory, self.now_ms).logs or [0]
        entry = entries.get(max(bases))
        is_closed = entry is not None and entry.state is SegmentState.CLOSED
        if is_closed or disk.exists(CLEAN_SHUTDOWN):
            return
        name = f"{directory}/{format_segment_file(max(bases), FileKind.LOG)}"
        data, begin, end = disk.read(name, None) if disk.exists(name) else b"", 0, 0
        while header_ok(data, end, len(data)):
            begin, end = end, end + size_of(data, end)
        if not end:
            return
        file = disk.open(name, write=True)
        file.pwrite(bytes([data[end - 1] ^ 1]), end - 1)
        file.sync()
        self.told.account.damaged(data[begin:end])
        self.told.worst = StopKind.CACHE


def places_of(log: ReadableLog, view: View) -> dict[int, int]:
    """Return the position to which each offset of a log leads."""
    snapshot = log.snapshot
    offsets = range(log.log_start_offset, log.log_end_offset)
    return {offset: positions_of_offset(snapshot, offset)[view] for offset in offsets}


class Inline(concurrent.futures.Executor):
    """A pool of threads that has none: each call is made when it is submitted."""

    def __init__(self, *_args: object, **_options: object) -> None: ...

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN002, ANN003, ANN201
        future: concurrent.futures.Future[object] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the caller of result() gets it
            future.set_exception(error)
        return future


@contextlib.contextmanager
def without_threads() -> Iterator[None]:
    """Have pools make each call at once; leases and pages be short, as in the model."""
    usual = concurrent.futures.ThreadPoolExecutor
    concurrent.futures.ThreadPoolExecutor = Inline  # type: ignore[assignment, misc]
    try:
        with short_leases(), short_pages():
            yield
    finally:
        concurrent.futures.ThreadPoolExecutor = usual  # type: ignore[misc]
