"""All metrics of a mount, collected in the thread that asks for them.

What is read belongs to the event loop and to appending threads. It is read without a lock. Disk
space, page cache and losses are asked of the disk in the same thread, so only that thread waits.
"""

import errno
import os
import platform
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyfuse3

from logfs import __version__
from logfs.fs.handover.state import Word
from logfs.fs.kernel.hooks import Answered
from logfs.fs.metrics import logs, remote, users
from logfs.fs.metrics.family import Family, Sample, as_json, counter, gauge
from logfs.fs.metrics.groups import GroupMetrics
from logfs.fs.operations.served import Operations
from logfs.fs.tree.replies import OPERATIONS
from logfs.log.reading.readable import ReadableLog
from logfs.machine.host import Clock
from logfs.services.compaction.cleaner import CleanerMetrics
from logfs.services.following.store import AnyStore

LOOK_S = 0.05
"""The longest examination of the page cache in one collection; the rest is done in the next."""
FRESH_MS = 5_000
"""A log that was examined more recently is not examined again."""


_ERRORS_OF_DISKS = (errno.EIO, errno.ENOSPC)

_CLEANER = {
    "max-buffer-utilization-percent": (
        "logfs_log_cleaner_max_buffer_utilization_ratio",
        "How full the map of keys was in the last round, of any thread",
        0.01,
    ),
    "cleaner-recopy-percent": (
        "logfs_log_cleaner_recopy_ratio",
        "Bytes written by the last rounds, of those they read",
        0.01,
    ),
    "max-clean-time-secs": (
        "logfs_log_cleaner_max_clean_time_seconds",
        "Longest of the last rounds",
        1,
    ),
    "max-compaction-delay-secs": (
        "logfs_log_cleaner_max_compaction_delay_seconds",
        "For how long a log has been overdue under max.compaction.lag.ms",
        1,
    ),
    "DeadThreadCount": ("logfs_log_cleaner_dead_threads", "Threads that have ended", 1),
    "uncleanable-partitions-count": (
        "logfs_log_cleaner_uncleanable_partitions",
        "Partitions that failed and are left alone until a restart",
        1,
    ),
    "uncleanable-bytes": (
        "logfs_log_cleaner_uncleanable_bytes",
        "What could be cleaned of those",
        1,
    ),
    "max-dirty-percent": (
        "logfs_log_cleaner_max_dirty_ratio",
        "Share of the dirtiest log that can be cleaned",
        0.01,
    ),
    "time-since-last-run-ms": (
        "logfs_log_cleaner_time_since_last_run_seconds",
        "Since it was last looked for something to clean",
        0.001,
    ),
}
"""Kafka's name -> name, meaning, factor to Prometheus's unit."""
_OF_MANAGER = frozenset({
    "max-dirty-percent", "time-since-last-run-ms", "uncleanable-bytes",
    "uncleanable-partitions-count",
})  # fmt: skip


class MountPlace(NamedTuple):
    """Which mount it is.

    Attributes:
        data: The data directory.
        point: The mount point.
    """

    data: str
    point: str


class MountMetrics:
    """The metrics of one mount. Any thread may ask.

    Args:
        store: The store.
        operations: The file system over it.
        clock: The clocks.
        where: Which mount it is.
    """

    def __init__(
        self, store: AnyStore, operations: Operations, clock: Clock, where: MountPlace
    ) -> None:
        self._store = store
        self._operations = operations
        self._clock = clock
        self._where = where
        self._looking = threading.Lock()
        self._groups = GroupMetrics(store, operations.options.isolation_level)

    def families(self) -> Iterator[Family]:
        """Yield all metrics."""
        store = self._store
        found = store.all_partitions()
        self._look_at_caches(found)
        yield from self._of_process()
        yield from logs.totals(found, store.retired)
        by_topic = not self._operations.options.no_topic_metrics
        yield from logs.families(found, self._clock.now_ms(), by_topic=by_topic)
        yield from remote.reads(store.disk)
        yield from remote.journal(store.disk)
        if not self._operations.options.no_topic_metrics:
            yield from self._groups.families(self._clock.now_ms())

    def summary(self) -> dict[str, Any]:
        """Return, for JSON, the metrics that are not of single partitions or topics, by name."""
        found = self._store.all_partitions()
        return as_json([*self._of_process(), *logs.totals(found, self._store.retired)])

    def _of_process(self) -> Iterator[Family]:
        store, operations = self._store, self._operations
        yield _info(
            "logfs_build_info",
            "What runs here.",
            {
                "version": __version__,
                "python": platform.python_version(),
                "pyfuse3": pyfuse3.__version__,
                "kernel": os.uname().release,
            },
        )
        yield _info("logfs_mount_info", "What is mounted where.", self._mount_labels())
        yield from _of_store(store)
        yield from _of_requests(operations)
        yield from _of_handles(store, operations)
        yield from users.families(operations.options, operations.quotas.usages())
        yield from _of_state(operations)
        yield from _of_executors(operations)
        if not store.read_only:
            cleaner = operations.tasks.rewriting.cleaner
            yield from _of_cleaner(cleaner.metrics(self._clock.now_ms()))

    def _mount_labels(self) -> Mapping[str, str]:
        return {
            "data": self._where.data,
            "mountpoint": self._where.point,
            "read_only": str(self._store.read_only).lower(),
        }

    def _look_at_caches(self, found: Sequence[ReadableLog]) -> None:
        """Look at the page cache, where that was longest ago first, and not for long."""
        if not self._looking.acquire(blocking=False):
            return
        now_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()

        def is_over() -> bool:
            return self._clock.monotonic_s() - started_s > LOOK_S

        try:
            old = [log for log in found if _looked_ms(log) < now_ms - FRESH_MS]
            for log in sorted(old, key=_looked_ms):
                if is_over():
                    return
                log.look_at_cache(now_ms, is_over)
        finally:
            self._looking.release()


def _looked_ms(log: ReadableLog) -> int:
    return 0 if log.residency is None else log.residency.time_ms


_WITHOUT_PYTHON: tuple[tuple[Answered, str, str, str], ...] = (
    (
        Answered.AHEAD,
        "read",
        "logfs_reads_ahead_total",
        "Reads among those that the C library answered from bytes rendered ahead.",
    ),
    (
        Answered.READ,
        "read",
        "logfs_native_reads_total",
        "Reads among those that were rendered natively.",
    ),
    (
        Answered.WRITE,
        "write",
        "logfs_native_writes_total",
        "Writes among those that were applied natively.",
    ),
    (
        Answered.FSYNC,
        "fsync",
        "logfs_native_fsyncs_total",
        "Fsyncs among those that were answered natively.",
    ),
    (
        Answered.OPEN,
        "open",
        "logfs_native_opens_total",
        "Opens among those that were answered natively.",
    ),
    (
        Answered.GETATTR,
        "getattr",
        "logfs_native_stats_total",
        "Stats among those that were answered natively.",
    ),
    (
        Answered.LOOKUP,
        "lookup",
        "logfs_native_lookups_total",
        "Look-ups of names among those that were answered natively.",
    ),
    (Answered.FLUSH, "flush", "", ""),
    (Answered.RELEASE, "release", "", ""),
)
"""The counters of the hooks: kind, request; name and help of a separate metric, if there is one."""


def _of_requests(operations: Operations) -> Iterator[Family]:
    """Yield what the kernel asked, and what it was answered."""
    requests, hooks = operations.request_counts, operations.hooks
    done = requests.done.copy()
    metrics = []
    for kind, name, metric, text in _WITHOUT_PYTHON:
        count = 0 if hooks is None else hooks.answered(kind)
        if count:
            done[name] += count
        if metric:
            metrics.append(counter(metric, text, count))
    yield Family(
        "logfs_requests_total",
        "counter",
        "Requests of the kernel that were answered with what they asked for.",
        ("operation",),
        [Sample((name,), count) for name, count in sorted(done.items())],
    )
    yield from metrics
    # From the start, and not from the first error on: a counter that begins at 1 never grew.
    expected = {(name, number): 0 for name in OPERATIONS for number in _ERRORS_OF_DISKS}
    failed = sorted((expected | requests.failed).items())
    yield Family(
        "logfs_request_errors_total",
        "counter",
        "Requests of the kernel that were answered with an error.",
        ("operation", "errno"),
        [
            Sample((name, errno.errorcode.get(number, str(number))), count)
            for (name, number), count in failed
        ],
    )


def _of_state(operations: Operations) -> Iterator[Family]:
    """Yield what has happened to the mount since it was mounted, over all its daemons."""
    words = operations.state_words
    for name, text, word in (
        ("takeovers", "Daemons that continued the mount of an earlier one.", Word.ADOPTIONS),
        ("resent_requests", "Requests that the kernel sent again to another daemon.", Word.RESENT),
        (
            "unnoted_writes",
            "Writes without a free slot: they may be done twice if the daemon is killed.",
            Word.WITHOUT_SLOT,
        ),
    ):
        yield counter(f"logfs_{name}_total", text, 0 if words is None else words[word])
    is_kept = operations.kept_by() is not None
    yield gauge("logfs_mount_kept", "1: another daemon can continue the mount.", int(is_kept))


def _of_handles(store: AnyStore, operations: Operations) -> Iterator[Family]:
    """Yield what is open."""
    files = operations.files.open_files()
    modes = Counter("append" if file.appends else "read" for file in files)
    modes["append"] += operations.files.native.opened_count
    yield Family(
        "logfs_open_files",
        "gauge",
        "Files that programs have open in the mount.",
        ("mode",),
        [Sample((mode,), modes[mode]) for mode in ("append", "read")],
    )
    yield gauge(
        "logfs_open_directories",
        "Directories that programs have open in the mount.",
        len(operations.directories.all()),
    )
    yield gauge("logfs_inodes", "Inodes that the kernel knows.", len(operations.inodes))
    yield gauge(
        "logfs_open_segments",
        "Sealed segments that are kept open; each takes up to four descriptors.",
        store.open_segments,
    )


def _of_executors(operations: Operations) -> Iterator[Family]:
    """Yield where the calls of partitions run."""
    executors = operations.tree.executors()
    slow = sum(executor.was_slow for executor in executors)
    yield Family(
        "logfs_lanes",
        "gauge",
        "Partitions in use, by where their calls run: on the event loop, or in threads because "
        "the disk was slow.",
        ("where",),
        [Sample(("loop",), len(executors) - slow), Sample(("thread",), slow)],
    )
    yield gauge(
        "logfs_waiting_changes",
        "Appends and ends of files that wait for one before them.",
        sum(executor.waiting for executor in executors),
    )
    yield gauge(
        "logfs_running_syncs",
        "Fsyncs, maintenance and loads of partitions that are under way in threads.",
        sum(executor.threads for executor in executors),
    )
    yield gauge(
        "logfs_threads",
        "Threads of the daemon.",
        threading.active_count() + operations.files.fsyncs.threads,
    )


def _of_store(store: AnyStore) -> Iterator[Family]:
    """Yield how much there is, what is out of order, and the room that is left."""
    logs = store.all_partitions()
    yield gauge("logfs_topics", "Topics.", len(store.topics()))
    yield gauge(
        "logfs_partitions",
        "Partitions. kafka.server:type=ReplicaManager,name=PartitionCount",
        len(logs),
    )
    yield gauge(
        "logfs_offline_partitions",
        "Partitions that take no appends because of an error of the disk. "
        "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
        sum(log.offline is not None for log in logs),
    )
    room = store.disk.free()
    yield gauge(
        "logfs_disk_size_bytes",
        "Size of the file system of the data directory.",
        room.f_blocks * room.f_frsize,
    )
    yield gauge(
        "logfs_disk_free_bytes",
        "Space that is left there for users other than root.",
        room.f_bavail * room.f_frsize,
    )


def _of_cleaner(metrics: CleanerMetrics) -> Iterator[Family]:
    """Yield the cleaner in numbers."""
    for kafka, value in metrics.by_name().items():
        name, text, factor = _CLEANER[kafka]
        if value is not None:
            kind = "LogCleanerManager" if kafka in _OF_MANAGER else "LogCleaner"
            full = f"{text}. kafka.log:type={kind},name={kafka}"
            yield gauge(name, full, round(value * factor, 6))


def _info(name: str, text: str, facts: Mapping[str, str]) -> Family:
    """Return a metric that says something by its labels; its value is 1."""
    return Family(name, "gauge", text, tuple(facts), [Sample(tuple(facts.values()), 1)])
