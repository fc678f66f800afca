"""How ``logfs export`` goes about it: files are written by some threads, or by a Spark job."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from logfs.disk.posix import PosixDisk
from logfs.errors import ExportError
from logfs.library.directory import partitions_of
from logfs.machine.packages import how_to_add
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.spark.exporting.export import Run
    from logfs.spark.exporting.manifest import ExportRange, Written

Progress = Callable[[int, int], object]
"""Called with the bytes that are done and those there are."""


class Exported(NamedTuple):
    """What a run has done.

    Attributes:
        records, files, size_bytes: Written by it, or by the one before it that was killed.
        lost: Partition, first offset and offset after of what retention removed too early.
    """

    records: int
    files: int
    size_bytes: int
    added: int
    ends: dict[TopicPartition, int]
    lost: list[tuple[TopicPartition, int, int]]
    refused: list[str]


def export_to(
    data: str,
    only: Collection[TopicPartition] | None,
    destination: str,
    worker: Any,  # noqa: ANN401 - a Spark session is not typed here
    progress: Progress,
    iceberg: str | None = None,
) -> Exported:
    """Export partitions, and add the files to a table.

    Args:
        only: The partitions; None for all but those of topics that begin with ``__``.
        worker: A Spark session; else how many files at the same time, None for one a core.

    Raises:
        ExportError: pyarrow is missing, or see ``Exporter`` and ``IcebergTable``.
        SparkJobError, LogfsError, OSError: It could not be done; the next run goes on.
    """
    try:
        from logfs.spark.exporting.export import Exporter
        from logfs.spark.exporting.iceberg import IcebergTable
        from logfs.spark.exporting.manifest import read_manifest
    except ImportError as error:
        raise ExportError(
            f"export takes pyarrow and numpy, which are not there ({error}): {how_to_add('export')}"
        ) from error
    table = None if iceberg is None else IcebergTable(iceberg)  # before anything is written
    target = str(Path(destination).resolve())
    if Path(target).is_relative_to(Path(data).resolve()):
        raise ExportError(
            f"{destination} is in the data directory, where no broker starts with a directory that "
            "it does not know: export to another place"
        )
    Path(target).mkdir(parents=True, exist_ok=True)
    run = _runner(data, target, worker, progress)
    exporter = Exporter(data, target, run)
    with exporter.owned():
        written = exporter.export(_all_of(data) if only is None else only)
        added = 0 if table is None else table.add(target)
    return Exported(
        sum(one.records for one in written),
        sum(len(one.files) for one in written),
        sum(one.size_bytes for one in written),
        added,
        read_manifest(PosixDisk(target)).ends,
        exporter.lost,
        exporter.refused,
    )


def _runner(data: str, destination: str, worker: Any, progress: Progress) -> "Run":  # noqa: ANN401
    if worker is None or isinstance(worker, int):
        jobs = worker or len(os.sched_getaffinity(0))
        return partial(_run_here, data, destination, jobs, progress)
    from logfs.spark.jobs.export import SparkExporter

    return SparkExporter(worker, data, destination, progress).run


def _all_of(data: str) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, numbers in partitions_of(PosixDisk(data)).items()
        if not topic.startswith("__")
        for number in numbers
    ]


def _run_here(
    data: str,
    destination: str,
    jobs: int,
    progress: Progress,
    ranges: "Sequence[ExportRange]",
    sizes: Sequence[int],
) -> "Iterator[Written]":
    """Write ranges with some threads: what takes time there is native."""
    from logfs.spark.exporting.ranges import export_range

    done, total = 0, sum(sizes)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            found = pool.map(partial(export_range, data, destination), ranges)
            for written, size in zip(found, sizes, strict=True):
                done += size
                progress(done, total)
                yield written
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
