"""``logfs reindex``: make the indexes of a stopped directory again."""

import json
from typing import TYPE_CHECKING, Any

import click

from logfs.cli import failures
from logfs.cli.parameters import json_option
from logfs.cli.spark_options import (
    SparkRequest,
    chosen_session,
    jobs_option,
    refuse_jobs,
    spark_options,
)
from logfs.cli.terminal import tables
from logfs.cli.terminal.progress import ProgressLine
from logfs.library.places import locate_local

if TYPE_CHECKING:
    from logfs.services.reindexing import Reindexed


@click.command()
@click.argument("path")
@jobs_option("Read N segments")
@json_option("Print a JSON object.")
@spark_options
def reindex(path: str, jobs: int | None, *, spark: SparkRequest, as_json: bool) -> int:
    """Rebuild the indexes of a stopped data directory from its logs.

    PATH is a data directory, DATA/TOPIC or DATA/TOPIC/PARTITION. The command reads every segment
    and replaces its offset, time and text index where they are wrong or missing. 'logfs verify'
    says whether that is necessary: a start rebuilds missing indexes by itself, and look-ups
    tolerate wrong entries.

    The text index of a compacted segment and the segment table are not changed, since the length of
    removed records is unknown. Corrupt batches are skipped and named; then the exit status is 1.
    A segment that the disk cannot read keeps its indexes, and is named in the same way.

    No daemon may serve the directory. It is recovered first if it was not stopped cleanly. After a
    kill at any moment every index is complete, old or new; the same command again continues.

    With --spark the machines of a cluster, which have the directory at the same path, read the
    segments. 'spark-submit $(logfs spark-job) reindex PATH' is the same job.

    \b
    Examples:
        logfs reindex /var/lib/logfs
        logfs reindex --json /var/lib/logfs/orders/0
    """  # noqa: D301 - click's mark for text it does not fill
    from logfs.cli.reindex_data import reindex_data

    refuse_jobs(jobs, spark)
    with (
        failures.about(path),
        chosen_session(spark, "logfs reindex") as session,
        ProgressLine("read") as shown,
    ):
        place = locate_local(path)
        done, is_recovered = reindex_data(place, session or jobs, shown.show, failures.progress())
    for one in done:
        if one.unreadable is not None:
            failures.warn(
                f"{place.root}/{one.name}: its indexes are as before: {one.unreadable}; restore it "
                "from a backup"
            )
        for position, size, why, *_ in one.corrupt:
            failures.warn(
                f"{place.root}/{one.name}: byte {position}: the batch ({size} bytes) cannot be "
                f"used: {why}; it stays, restore the segment from a backup"
            )
    if as_json:
        click.echo(json.dumps(_as_json(place.root, done), indent=2))
    else:
        click.echo(_sentence(path, done, is_recovered=is_recovered))
    return failures.FAILED if any(one.corrupt or one.unreadable for one in done) else 0


def _sentence(path: str, done: "list[Reindexed]", *, is_recovered: bool) -> str:
    size = tables.format_bytes(sum(one.size_bytes for one in done))
    written = sum(len(one.written) for one in done)
    kept = sum(one.keeps_text for one in done)
    text = f"{path}: {tables.counted(len(done), 'segment')}, {size} read: "
    text += f"{tables.counted(written, 'index file')} rewritten"
    if is_recovered:
        text += ", after a recovery that has rebuilt those of the segments it read"
    return (
        f"{text}; text indexes of {tables.counted(kept, 'compacted segment')} left alone"
        if kept
        else text
    )


def _as_json(data: str, done: "list[Reindexed]") -> dict[str, Any]:
    return {
        "data": data,
        "segments": len(done),
        "bytes": sum(one.size_bytes for one in done),
        "written": [name for one in done for name in one.written],
        "left_alone": sum(one.keeps_text for one in done),
        "corrupt": [
            {"file": one.name, "position": position, "bytes": size, "problem": why}
            for one in done
            for position, size, why, *_ in one.corrupt
        ],
        "unreadable": [
            {"file": one.name, "problem": one.unreadable} for one in done if one.unreadable
        ],
    }
