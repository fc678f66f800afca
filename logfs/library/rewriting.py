"""Rewriting segments of a partition or a topic on request: compaction and packing."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from logfs.errors import UnknownNameError
from logfs.library import owner
from logfs.library.places import locate_local
from logfs.log.partition import PartitionLog
from logfs.log.reading.address import parse_topic_name
from logfs.machine.host import system_clock
from logfs.services.compaction.manual import Compacted, logs_of, watched
from logfs.services.compaction.tools import CleaningTools, tools_for
from logfs.services.packing.packer import Packed

if TYPE_CHECKING:
    from logfs.client import Daemon
    from logfs.log.store import LogStore, Progress

Done = TypeVar("Done", Compacted, Packed)
Rewrite: TypeAlias = Callable[[PartitionLog, int, CleaningTools], Done]


def rewrite_now(
    path: str,
    ask: "Callable[[Daemon, str, int | None], list[Done]]",
    check: Callable[[PartitionLog], None],
    opened: Callable[[str], AbstractContextManager[Rewrite[Done]]],
    report: Callable[[str], None],
    progress: "Progress | None",
) -> tuple[str, list[Done]]:
    """Rewrite segments; return the topic and what was done to each partition.

    Args:
        path: ``DATA/TOPIC`` or ``DATA/TOPIC/PARTITION``.
        ask: Asks the daemon to do it.
        check: Refuses a log that must not be rewritten.
        opened: Called with the data directory; its context rewrites one log.
        report: Takes lines about the progress.
        progress: Called while loading a store takes long.

    Raises:
        UnknownNameError: The path is neither a topic nor a partition.
        LogfsError, OSError: See ``owner.act``, ``check`` and ``opened``.
    """
    place = locate_local(path)
    names = place.address
    if not 1 <= len(names) <= 2 or (len(names) == 2 and not names[1].isdecimal()):
        raise UnknownNameError("expected a partition, TOPIC/PARTITION, or a topic, TOPIC")
    topic, number = parse_topic_name(names[0]), int(names[1]) if len(names) == 2 else None

    def do(store: "LogStore") -> list[Done]:
        clock = system_clock()
        tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
        with opened(place.root) as rewrite:
            return [
                rewrite(log, clock.now_ms(), watched(tools, log, report))
                for log in logs_of(store, topic, number, check)
            ]

    return topic, owner.act(place, lambda daemon: ask(daemon, topic, number), do, progress)
