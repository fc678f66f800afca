"""What can be asked of the daemon about its partitions, without changing any of them."""

import trio

from logfs.errors import LogOfflineError
from logfs.fs.appending import find_partition
from logfs.fs.operations import Operations
from logfs.fs.options import (
    USER_MAX_MESSAGE_BYTES,
    USER_MAX_OPEN_FILES,
    USER_MAX_PARTITIONS,
    MountOptions,
)
from logfs.fs.requests import Request
from logfs.log.backup.point import take_point
from logfs.log.overview import topic_overview
from logfs.log.store import LogStore
from logfs.machine.host import Clock
from logfs.types import IsolationLevel

PARTITIONS_AT_ONCE = 500
"""In one answer to ``overview``: more might be too long for one."""


class LookingCommands:
    """Carries them out. Event loop only.

    Args:
        store: The store.
        operations: The file system, whose executors are those of everybody.
        clock: The clocks.
    """

    def __init__(self, store: LogStore, operations: Operations, clock: Clock) -> None:
        self._store = store
        self._operations = operations
        self._clock = clock

    async def overview(self, request: Request) -> object:
        """Say of a topic, from one of its partitions on, what ``logfs status`` shows."""
        found = await trio.to_thread.run_sync(
            topic_overview,
            self._store,
            request.get("topic", str),
            self._clock.now_ms(),
            request.get("since_ms", int),
            request.get("first", int),
            PARTITIONS_AT_ONCE,
        )
        return {**found._asdict(), "partitions": [row._asdict() for row in found.partitions]}

    async def point(self, request: Request) -> object:
        """Make what a partition holds durable, and tell where it stands."""
        partition = await find_partition(self._operations, request)
        log = partition.log
        if log.is_unreadable:
            raise LogOfflineError(str(log.offline))
        if log.offline is None:
            await self._operations.files.fsyncs.flush(partition)
        point = await partition.executor.alone(take_point, log)
        return point._asdict()


def option_words(options: MountOptions) -> list[str]:
    """Return the options of a mount that are not the defaults, as behind ``-o``."""
    flags = {
        "ro": options.read_only,
        "allow_other": options.allow_other,
        "create": options.create,
        "rmdir=delete": options.rmdir_deletes,
        "keep_awake": options.keep_awake,
        "no_passthrough": options.no_passthrough,
        "no_topic_metrics": options.no_topic_metrics,
        "sync": options.sync,
    }
    words = [word for word, is_set in flags.items() if is_set]
    for name, value in (("uid", options.uid), ("gid", options.gid)):
        words += [] if value is None else [f"{name}={value}"]
    words += [] if options.umask is None else [f"umask={options.umask:03o}"]
    if options.user_max_partitions != USER_MAX_PARTITIONS:
        words.append(f"user_max_partitions={options.user_max_partitions}")
    if options.user_max_open_files != USER_MAX_OPEN_FILES:
        words.append(f"user_max_open_files={options.user_max_open_files}")
    if options.user_max_message_bytes != USER_MAX_MESSAGE_BYTES:
        words.append(f"user_max_message_bytes={options.user_max_message_bytes}")
    if options.isolation_level is not IsolationLevel.READ_UNCOMMITTED:
        words.append(f"isolation.level={options.isolation_level}")
    return words + [f"{key}={value}" for key, value in options.store.overrides().items()]
