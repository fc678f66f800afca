"""Which programs append to and read which partitions, counted while ``logfs top`` asks.

Nothing is counted unless a request of ``logfs top`` waits for its answer: it names a time, the
counting continues for so long, and the answer has what was seen. A watcher that is gone asks no
more.

Two sources:

    topics     the counters of the partitions, which are counted in any case: all appends and reads
               of the daemon, those of the native thread included
    programs   the requests of the kernel (READ, WRITE, FSYNC), which the hooks see whichever thread
               answers them; and the appends through the control socket

The daemon does not see what the kernel reads by itself: files in its cache, passed-through files
and mapped ones; nor programs that read the data directory without the mount.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import trio

from logfs.errors import ControlError
from logfs.fs.files.handles import FileHandle
from logfs.fs.kernel.hooks import Answered, Hooks, WatchedRow
from logfs.log.reading.readable import ReadableLog
from logfs.services.following.store import AnyStore
from logfs.types import TopicPartition

LONGEST_MS = 60_000
_MOST_CLOSED = 20_000
_OPERATIONS: dict[int, str] = {
    Answered.READ: "read",
    Answered.WRITE: "append",
    Answered.FSYNC: "fsync",
}


class ProgramActivity(NamedTuple):
    """What a program did with a partition; fit for JSON.

    Attributes:
        pid: 0 if the process is not visible to the daemon.
        uid: The user.
        program: The name of the process; empty if it is not known.
        operation: ``append``, ``read`` or ``fsync``.
        requests: The requests of the kernel or, if it is a client of the control socket, of the
            client.
        bytes: What was written, or what reads returned.
    """

    pid: int
    uid: int
    program: str
    topic: str
    partition: int
    operation: str
    requests: int
    bytes: int


class TopicActivity(NamedTuple):
    """What was done with a partition by all programs; fit for JSON.

    Attributes:
        records, bytes_in: What was appended: records, and bytes of batches.
        bytes_out: What readers got, as text.
    """

    topic: str
    partition: int
    appends: int
    records: int
    bytes_in: int
    bytes_out: int


_Key = tuple[int, int, str, TopicPartition, str]
_Counts = dict[_Key, tuple[int, int]]


class Watching:
    """The watchers of a mount. Event loop only.

    Args:
        store: The store, with the counters.
        hooks: See the requests of the kernel; None where they were not built.
        find: Returns an open file by its number; None: it is not open any more.
        monotonic_s: The clock.
    """

    def __init__(
        self,
        store: AnyStore,
        hooks: Hooks | None,
        find: Callable[[int], FileHandle | None],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._monotonic_s = monotonic_s
        self._hooks = hooks
        self._find = find
        self._watchers = 0
        self._closed: dict[int, TopicPartition] = {}
        self._clients: _Counts = {}

    @property
    def is_on(self) -> bool:
        """Whether anything is counted."""
        return self._watchers > 0

    def note_closed(self, number: int, file: FileHandle) -> None:
        """Note an open file that is closed while it is watched."""
        if len(self._closed) < _MOST_CLOSED:
            self._closed[number] = file.partition.topic_partition

    def note_client(
        self, peer: tuple[int, int] | None, topic_partition: TopicPartition, size_bytes: int
    ) -> None:
        """Note an append through the control socket.

        Args:
            peer: The process and the user; None: not known.
        """
        if not self._watchers or peer is None:
            return
        pid, uid = peer
        key = pid, uid, _name_of(pid), topic_partition, "append"
        requests, done = self._clients.get(key, (0, 0))
        self._clients[key] = requests + 1, done + size_bytes

    async def watch(self, milliseconds: int) -> dict[str, object]:
        """Count for so long, and return what was seen, as JSON.

        Raises:
            ControlError: The time is too long.
        """
        if not 0 <= milliseconds <= LONGEST_MS:
            raise ControlError(f"milliseconds={milliseconds}: expected 0 to {LONGEST_MS}")
        with self._watched():
            begun_s, logs = self._monotonic_s(), self._logs()
            programs = self._programs()
            await trio.sleep(milliseconds / 1000)
            seconds = self._monotonic_s() - begun_s
            return {
                "seconds": seconds,
                "topics": [row._asdict() for row in _changes(logs, self._logs())],
                "programs": [row._asdict() for row in self._since(programs)],
                "missed": 0 if self._hooks is None else self._hooks.watched_missed,
                "sees_programs": self._hooks is not None and self._hooks.is_active,
            }

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._watchers += 1
        if self._watchers == 1 and self._hooks is not None:
            self._hooks.watch(is_watched=True)
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._closed.clear()
                self._clients.clear()
                if self._hooks is not None:
                    self._hooks.watch(is_watched=False)

    def _logs(self) -> dict[TopicPartition, tuple[int, ...]]:
        return {log.topic_partition: _counted(log) for log in self._store.all_partitions()}

    def _programs(self) -> _Counts:
        """Return what each program has done since the first watcher came."""
        found = dict(self._clients)
        for row in () if self._hooks is None else self._hooks.watched():
            at = self._place(row)
            if at is None:
                continue
            key = row.pid, row.uid, row.name, at, _OPERATIONS[row.opcode]
            requests, size = found.get(key, (0, 0))
            found[key] = requests + row.requests, size + row.bytes
        return found

    def _place(self, row: WatchedRow) -> TopicPartition | None:
        file = self._find(row.handle)
        if file is None:
            return self._closed.get(row.handle)
        return file.partition.topic_partition if file.node.reads_log else None

    def _since(self, before: _Counts) -> Iterator[ProgramActivity]:
        for key, (requests, size) in self._programs().items():
            old_requests, old_size = before.get(key, (0, 0))
            if requests > old_requests or size > old_size:
                pid, uid, name, (topic, partition), operation = key
                yield ProgramActivity(
                    pid, uid, name, topic, partition, operation,
                    requests - old_requests, size - old_size,
                )  # fmt: skip


def _counted(log: ReadableLog) -> tuple[int, int, int, int]:
    counters = log.counters
    return counters.appends, counters.records, counters.bytes_in, counters.bytes_out


def _changes(
    before: Mapping[TopicPartition, tuple[int, ...]],
    after: Mapping[TopicPartition, tuple[int, ...]],
) -> Iterator[TopicActivity]:
    nothing = (0, 0, 0, 0)
    for (topic, partition), counts in after.items():
        old = before.get(TopicPartition(topic, partition), nothing)
        # The counters of a partition begin again when it is made again under the same name.
        more = [new - then if new >= then else new for new, then in zip(counts, old, strict=True)]
        if any(more):
            appends, records, bytes_in, bytes_out = more
            yield TopicActivity(topic, partition, appends, records, bytes_in, bytes_out)


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""
