"""Work that is shared out: to threads of this machine, or as a Spark job to a cluster."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Answer = TypeVar("Answer")

Progress = Callable[[int, int], object]
"""Called with the bytes that are done and those there are."""


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def share_out(
    worker: Any,  # noqa: ANN401 - a Spark session is not typed here
    name: str,
    progress: Progress,
    function: Callable[[Piece], Answer],
    pieces: Sequence[Piece],
    sizes: Sequence[int],
) -> Iterable[Answer]:
    """Return what a function answers for each piece, in order.

    Args:
        worker: A Spark session; or how many threads, None: one for each core.
        name: The name of the job on the cluster.
        function: Native for the most part, so that threads help; of a module, or a ``partial`` of
            one, which the workers import.
        sizes: The sizes of the pieces, in bytes.
    """
    if worker is None or isinstance(worker, int):
        return _in_threads(worker or cores(), progress, function, pieces, sizes)
    from logfs.spark.jobs.running import SparkJob

    return SparkJob(worker, name, progress).map(function, pieces, sizes)


def _in_threads(
    jobs: int,
    progress: Progress,
    function: Callable[[Piece], Answer],
    pieces: Sequence[Piece],
    sizes: Sequence[int],
) -> Iterator[Answer]:
    done, total = 0, sum(sizes)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for answer, size in zip(pool.map(function, pieces), sizes, strict=True):
                done += size
                progress(done, total)
                yield answer
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
