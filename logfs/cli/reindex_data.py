"""How ``logfs reindex`` goes about it: segments are shared out to threads, or to a Spark job.

This process holds the lock of the directory meanwhile. Index files are replaced by a rename each,
so a worker that is killed, or that repeats a segment, leaves whole ones.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from logfs.cli.sharing import Progress, share_out
from logfs.config import TopicConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import LockedError, text_of
from logfs.library.directory import all_partitions, data_and_partitions
from logfs.library.owner import opened_store, owned
from logfs.library.places import Place
from logfs.log import names
from logfs.machine.host import current_host
from logfs.services.reindexing import Reindexed, ReindexTask, reindex_segment, tasks_of
from logfs.services.verifying.smallfiles import read_root
from logfs.types import TopicPartition


def reindex_data(
    place: Place,
    worker: Any,  # noqa: ANN401 - a Spark session is not typed here
    progress: Progress,
    say: Callable[[str], None] | None,
) -> tuple[list[Reindexed], bool]:
    """Rebuild the indexes of partitions.

    Args:
        worker: A Spark session; or how many segments to read at once, None: one for each core.
        say: Called with the progress of a recovery.

    Returns:
        What was done to each segment, and whether a recovery came first.

    Raises:
        LockedError: Another process owns the directory.
        SparkJobError, LogfsError, OSError: It failed; the next run continues.
    """
    data, only = data_and_partitions(place)
    disk, defaults = PosixDisk(data), TopicConfig.from_properties({})
    with _nobody_elses(place, data):
        is_recovered = not read_root(disk, defaults, current_host().boot_id).is_clean
        if is_recovered:
            with opened_store(data, say):
                pass  # recovered, and stopped cleanly
        lock = disk.lock(names.LOCK_FILE)
        try:
            wanted = all_partitions(disk) if only is None else only
            tasks, unread = _tasks(disk, wanted, defaults)
            sizes = [task.size_bytes for task in tasks]
            name, run = f"logfs reindex {data}", partial(_reindex_segment, data)
            done = list(share_out(worker, name, progress, run, tasks, sizes))
            return done + unread, is_recovered
        finally:
            lock.close()


def _tasks(
    disk: PosixDisk, wanted: Iterable[TopicPartition], defaults: TopicConfig
) -> tuple[list[ReindexTask], list[Reindexed]]:
    """Return the segments of partitions; and the partitions that the disk cannot read."""
    tasks, unread = list[ReindexTask](), list[Reindexed]()
    for one in wanted:
        try:
            tasks += tasks_of(disk, one, defaults)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            unread.append(Reindexed(one.directory, 0, (), False, unreadable=text_of(error)))
    return tasks, unread


@contextmanager
def _nobody_elses(place: Place, data: str) -> Iterator[None]:
    if place.is_mount:
        raise LockedError("it is mounted: 'logfs umount' it, then name its data directory")
    try:
        yield
    except LockedError as error:
        raise owned(data, error) from error


def _reindex_segment(root: str, task: ReindexTask) -> Reindexed:
    return reindex_segment(PosixDisk(root), task)
