"""How ``logfs reindex`` goes about it: segments are shared out to threads, or to a Spark job."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from logfs.config import TopicConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import LockedError
from logfs.library.directory import data_and_partitions, partitions_of
from logfs.library.owner import opened_store, owned
from logfs.library.places import Place
from logfs.log import names
from logfs.log.reindexing import Reindexed, ReindexTask, reindex_segment, tasks_of
from logfs.log.verifying.smallfiles import read_root
from logfs.machine.host import current_host
from logfs.types import TopicPartition

Progress = Callable[[int, int], object]
"""Called with the bytes that are done and those there are."""


def reindex_data(
    place: Place,
    worker: Any,  # noqa: ANN401 - a Spark session is not typed here
    progress: Progress,
    say: Callable[[str], None] | None,
) -> list[Reindexed]:
    """Rebuild the indexes of partitions.

    Args:
        worker: A Spark session; or how many segments to read at once, None: one for each core.
        say: Called with the progress of a recovery.

    Raises:
        LockedError: Another process owns the directory.
        SparkJobError, LogfsError, OSError: It failed; the next run continues.
    """
    data, only = data_and_partitions(place)
    disk, defaults = PosixDisk(data), TopicConfig.from_properties({})
    with _nobody_elses(place, data):
        if not read_root(disk, defaults, current_host().boot_id).is_clean:
            with opened_store(data, say):
                pass  # recovered, and stopped cleanly
        lock = disk.lock(names.LOCK_FILE)
        try:
            wanted = _all_of(data) if only is None else only
            tasks = [task for one in wanted for task in tasks_of(disk, one, defaults)]
            sizes = [task.size_bytes for task in tasks]
            if worker is None or isinstance(worker, int):
                return list(_run_here(disk, worker, progress, tasks))
            from logfs.spark.jobs.reindex import SparkReindexer

            return SparkReindexer(worker, data, progress).run(tasks, sizes)
        finally:
            lock.close()


@contextmanager
def _nobody_elses(place: Place, data: str) -> Iterator[None]:
    if place.is_mount:
        raise LockedError("it is mounted: 'logfs umount' it, then name its data directory")
    try:
        yield
    except LockedError as error:
        raise LockedError(f"{owned(data, error)}; unmount it for that time") from error


def _all_of(data: str) -> list[TopicPartition]:
    found = partitions_of(PosixDisk(data))
    return [TopicPartition(topic, number) for topic in found for number in found[topic]]


def _run_here(
    disk: PosixDisk, jobs: int | None, progress: Progress, tasks: Sequence[ReindexTask]
) -> Iterator[Reindexed]:
    """Work on segments in some threads: the scan is native, and lets others run."""
    done, total = 0, sum(task.size_bytes for task in tasks)
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        try:
            for one in pool.map(partial(reindex_segment, disk), tasks):
                done += one.size_bytes
                progress(done, total)
                yield one
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
