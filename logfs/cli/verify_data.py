"""How ``logfs verify`` goes about it: segments are shared out to processes, one a core."""

import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from logfs.cli.sharing import Progress, cores
from logfs.config import TopicConfig
from logfs.log.names import FileKind
from logfs.machine.disks import disk_of, is_url
from logfs.machine.host import current_host
from logfs.machine.storeplace import StorePlace
from logfs.services.verifying.segments import SegmentReport, SegmentTask, verify_segment
from logfs.services.verifying.verify import Run, Verified, verify
from logfs.types import TopicPartition

_WORTH_A_PROCESS_BYTES = 64 << 20
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 2.0


def verify_data(
    data: str,
    only: Collection[TopicPartition] | None,
    jobs: int,
    progress: Progress,
    place: StorePlace | None = None,
) -> Verified:
    """Check partitions on this machine, in ``jobs`` processes; 0: one for each core.

    ``place`` says where the store is, for the URL of one.
    """
    return verify_with(_Runner(data, place, jobs or cores(), progress).run, data, only, place)


def verify_with(
    run: Run,
    data: str,
    only: Collection[TopicPartition] | None,
    place: StorePlace | None = None,
) -> Verified:
    """Check the partitions of a data directory; ``run`` checks segments."""
    defaults = TopicConfig.from_properties({})
    return verify(disk_of(data, place), defaults, only, run, _wait, current_host().boot_id)


class _Runner:
    def __init__(self, data: str, place: StorePlace | None, jobs: int, progress: Progress) -> None:
        self._disk = disk_of(data, place)
        self._place = place
        self._jobs = jobs
        self._progress = progress
        self._done = 0

    def run(self, tasks: Sequence[SegmentTask]) -> Iterator[SegmentReport]:
        sizes = [self._size_of(task) for task in tasks]
        total = self._done + sum(sizes)
        # The interpreter lets one thread of a process run at a time, and small batches keep it.
        jobs = min(self._jobs, len(tasks), 1 + sum(sizes) // _WORTH_A_PROCESS_BYTES)
        if jobs <= 1:
            for task in tasks:
                yield verify_segment(self._disk, task, lambda size: self._advance(size, total))
            return
        with ProcessPoolExecutor(
            jobs, get_context("spawn" if is_url(self._disk.root) else "fork")
        ) as pool:
            reports = pool.map(partial(_verify_segment, self._disk.root, self._place), tasks)
            for report, size in zip(reports, sizes, strict=True):
                self._advance(size, total)
                yield report

    def _size_of(self, task: SegmentTask) -> int:
        try:
            return self._disk.stat(task.name(FileKind.LOG)).size
        except OSError:  # gone, or a finding of the check
            return 0

    def _advance(self, size: int, total: int) -> None:
        self._done += size
        self._progress(self._done, total)


def _verify_segment(root: str, place: StorePlace | None, task: SegmentTask) -> SegmentReport:
    return verify_segment(disk_of(root, place), task)


def _wait(number: int) -> None:
    time.sleep(min(_FIRST_WAIT_S * 2 ** (number - 1), _LONGEST_WAIT_S))
