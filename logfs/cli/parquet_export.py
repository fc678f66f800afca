"""How ``logfs export`` goes about it: files are written by some threads, or by a Spark job."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from logfs.cli.sharing import Progress, share_out
from logfs.errors import ExportError, UndecodableTextError
from logfs.library.directory import all_partitions
from logfs.library.mounted_disk import disk_at
from logfs.machine.disks import is_url
from logfs.machine.packages import how_to_add
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.spark.exporting.export import Exporter
    from logfs.spark.exporting.manifest import Written
    from logfs.spark.exporting.targets import ExportTarget
    from logfs.spark.exporting.verifying import VerifiedExport


class Exported(NamedTuple):
    """What a run has done.

    Attributes:
        records, files, size_bytes: Written by it, or by the one before it that was killed.
        merged: How many files were merged, and into how many; None: no merge was wanted.
        lost: Partition, first offset and offset after of what retention removed too early.
    """

    records: int
    files: int
    size_bytes: int
    added: int
    ends: dict[TopicPartition, int]
    lost: list[tuple[TopicPartition, int, int]]
    refused: list[str]
    verified: "VerifiedFiles | None" = None
    merged: tuple[int, int] | None = None


class VerifiedFiles(NamedTuple):
    """The findings of reading the files again; see ``spark.exporting.verifying``."""

    files: int
    records: int
    removed: int
    problems: list[str]


def export_to(  # noqa: PLR0913 - an argument for each option of the command
    data: str,
    only: Collection[TopicPartition] | None,
    destination: str,
    worker: Any,  # noqa: ANN401 - a Spark session is not typed here
    progress: Progress,
    iceberg: str | None = None,
    *,
    text: Collection[str] | None = None,
    with_recreated: bool = False,
    min_bytes: int = 0,
    compact: bool = False,
    verify: bool = False,
) -> Exported:
    """Export partitions, and add the files to a table.

    Args:
        data: A ``reading_root``.
        only: The partitions; None for all but those of topics that begin with ``__``.
        text: The columns to write as strings; None: those of earlier runs.
        with_recreated: Continue with topics that were deleted and created again.
        min_bytes: See ``Exporter``.
        compact: Merge small files after that.
        verify: Read all files of the partitions again, and compare them with the log.
        worker: A Spark session; else how many files at the same time, None for one a core.

    Raises:
        ExportError: pyarrow is missing, or see ``Exporter`` and ``IcebergTable``.
        SparkJobError, LogfsError, OSError: It could not be done; the next run continues.
    """
    with _packages():
        from logfs.spark.exporting.export import Exporter
        from logfs.spark.exporting.iceberg import IcebergTable
        from logfs.spark.exporting.manifest import read_manifest
        from logfs.spark.exporting.merging import merge_files
        from logfs.spark.exporting.ranges import export_range
        from logfs.spark.exporting.targets import open_target, refuse_inside
    target = open_target(destination)
    address = target.address
    refuse_inside(address, data if is_url(data) else str(Path(data).resolve()))
    columns = read_manifest(target).settle_text(text)
    # Before anything is written:
    table = None if iceberg is None else IcebergTable(iceberg, columns)
    name = f"logfs export {data} {address}"
    write = partial(export_range, data, address, text=columns)
    merge = partial(merge_files, address, text=columns)
    exporter = Exporter(
        data,
        address,
        partial(share_out, worker, name, progress, write),
        merge=partial(share_out, worker, f"{name} --compact", progress, merge),
        table=iceberg,
        text=columns,
        with_recreated=with_recreated,
        min_bytes=min_bytes,
    )
    with exporter.owned():
        if only is None:
            found = all_partitions(disk_at(data))
            only = [one for one in found if not one.topic.startswith("__")]
        written = _written(exporter, only)
        added = 0 if table is None else table.add(address)
        merged = exporter.compact(only) if compact else None
        verified = None
        if verify:
            share = partial(share_out, worker, f"{name} --verify", progress)
            verified = _verified(data, target, only, share)
        ends = read_manifest(target).ends
    return Exported(
        sum(one.records for one in written),
        sum(len(one.files) for one in written),
        sum(one.size_bytes for one in written),
        added,
        ends,
        exporter.lost,
        exporter.refused,
        verified,
        merged,
    )


@contextmanager
def _packages() -> Iterator[None]:
    """Say how to add the packages if one cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise ExportError(
            f"export takes pyarrow and numpy, which are not there ({error}): {how_to_add('export')}"
        ) from error


def _written(exporter: "Exporter", only: Collection[TopicPartition]) -> "list[Written]":
    """Export partitions; raise ExportError for text that is not UTF-8, and say what to do."""
    try:
        return exporter.export(only)
    except UndecodableTextError as error:
        what = str(error).partition(". ")[0]
        raise ExportError(f"{what}: export to another place without --text") from error


def _verified(
    data: str, target: "ExportTarget", only: Collection[TopicPartition], share: Callable[..., Any]
) -> VerifiedFiles:
    """Read all files of partitions again, and compare them with the log."""
    from logfs.spark.exporting.manifest import read_manifest, written_files
    from logfs.spark.exporting.verifying import files_to_verify, verify_files

    manifest = read_manifest(target)
    files = files_to_verify(manifest, written_files(target, manifest), set(only))
    check = partial(verify_files, data, target.address, text=manifest.text or ())
    sizes = [one.range.end - one.range.start for one in files]
    return _sum_of(list(share(check, files, sizes)))


def _sum_of(found: "Sequence[VerifiedExport]") -> VerifiedFiles:
    """Return what was found in all ranges."""
    return VerifiedFiles(
        sum(one.files for one in found),
        sum(one.records for one in found),
        sum(one.removed for one in found),
        [problem for one in found for problem in one.problems],
    )
