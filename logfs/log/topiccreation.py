"""Creating the partitions of a topic: all of them become visible together.

Each directory is filled under the name of a deleted partition, and then renamed. After a stop the
next start finds all partitions, or completes the rest, or removes what it finds.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from logfs.config import TopicConfig
from logfs.log import names
from logfs.log.checkpointing import forget_partitions
from logfs.log.cleanercheckpoint import forget_cleaner_offsets
from logfs.log.host import Host
from logfs.log.loading.context import LoadContext
from logfs.log.loading.loader import load_partition
from logfs.log.mirrorfile import MirrorSource, write_mirror
from logfs.log.partition import PartitionLog
from logfs.log.topicdeletion import free_deleted_name
from logfs.log.topics import fill_partition
from logfs.types import TopicPartition

T = TypeVar("T")

_MANY, _THREADS = 8, 16


def new_topic_id(host: Host) -> UUID:
    """Return a random topic id that Kafka allows."""
    while not names.is_usable_topic_id(topic_id := UUID(bytes=host.new_id())):
        pass
    return topic_id


def create_partitions(
    context: LoadContext,
    wanted: Sequence[TopicPartition],
    topic_id: UUID,
    config: TopicConfig,
    mirror: MirrorSource | None = None,
) -> dict[int, PartitionLog]:
    """Create partitions, durable on return, and return them by number; all or (OSError) none.

    ``mirror`` is what they are mirrors of, from their first moment on; None: ordinary ones.
    """
    disk, context = context.disk, _without_old_rows(context, wanted)
    made: dict[TopicPartition, str] = {}

    def fill(topic_partition: TopicPartition) -> None:
        directory = free_deleted_name(disk, topic_partition, topic_id, context.host)
        made[topic_partition] = directory
        disk.make_directory(directory)
        fill_partition(disk, directory, topic_id, config.overrides())
        if mirror is not None:
            write_mirror(disk, directory, mirror)

    try:
        _for_each(context, fill, wanted)
        disk.sync_directory("")
        for topic_partition in wanted:
            disk.rename(made[topic_partition], topic_partition.directory)
            made[topic_partition] = topic_partition.directory
        disk.sync_directory("")
        logs = _for_each(context, partial(load_partition, context), wanted)
        return {log.topic_partition.partition: log for log in logs}
    except OSError:
        for directory in made.values():
            with contextlib.suppress(OSError):
                disk.remove_tree(directory)
        raise


def _for_each(
    context: LoadContext, call: Callable[[TopicPartition], T], wanted: Sequence[TopicPartition]
) -> Sequence[T]:
    """Call a function for each partition; for many of them in threads, which wait for fsyncs."""
    if len(wanted) < _MANY:
        return [call(one) for one in wanted]
    with context.host.pool(_THREADS, "creation") as pool:
        return list(pool.map(call, wanted))


def _without_old_rows(context: LoadContext, wanted: Sequence[TopicPartition]) -> LoadContext:
    """Remove the rows of new partitions from the checkpoint files.

    Such rows remain when a topic of that name was deleted on a full disk. They must not determine
    where the new partitions start, or up to where they are durable.
    """
    points, starts = context.recovery_points, context.start_offsets
    if (points.keys() | starts.keys() | context.compacted).isdisjoint(wanted):
        return context
    forget_partitions(context.disk, wanted)
    forget_cleaner_offsets(context.disk, wanted)
    return replace(
        context,
        recovery_points={one: at for one, at in points.items() if one not in wanted},
        start_offsets={one: at for one, at in starts.items() if one not in wanted},
        compacted=context.compacted.difference(wanted),
    )
