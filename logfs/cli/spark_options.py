"""``--spark`` and ``--master``: a command as a Spark job."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class SparkRequest(NamedTuple):
    """Whether a command is a Spark job, and its master; None: that of the environment."""

    is_wanted: bool
    master: str | None = None


def spark_options(command: Command) -> Command:
    """Add ``--spark`` and ``--master``; the command gets ``spark``, a ``SparkRequest``."""
    master = click.option(
        "--master",
        metavar="MASTER",
        callback=_take_master,
        expose_value=False,
        help="The cluster, as spark-submit takes it: local[8], yarn, spark://HOST:7077; "
        "implies --spark.",
    )
    spark = click.option(
        "--spark",
        is_flag=True,
        is_eager=True,
        callback=_take_spark,
        help="Run as a Spark job: on the cluster that the environment names, else on all cores "
        "of this machine.",
    )
    return spark(master(command))


def jobs_option(what: str) -> Callable[[Command], Command]:
    """Return the decorator for ``--jobs``, which says how many times ``what`` is done at once."""
    text = f"{what} at the same time; default: one for each core."
    return click.option("-j", "--jobs", metavar="N", type=click.IntRange(1), help=text)


def _take_spark(context: click.Context, _option: click.Parameter, value: bool) -> SparkRequest:
    return SparkRequest(value)


def _take_master(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.params["spark"] = SparkRequest(True, value)


@contextmanager
def chosen_session(request: SparkRequest, name: str) -> Iterator[Any]:
    """Give the Spark session of a job, or None; raise SparkJobError if Spark does not start."""
    if not request.is_wanted:
        yield None
        return
    from logfs.spark.jobs.session import session

    debug = bool(getattr(click.get_current_context().obj, "debug", False))
    with session(request.master, name, is_loud=debug) as spark:
        yield spark


def refuse_jobs(jobs: int | None, spark: SparkRequest) -> None:
    """Refuse ``--jobs`` together with ``--spark``."""
    if jobs is not None and spark.is_wanted:
        raise click.UsageError(
            "--jobs and --spark exclude each other: the Spark master sets the parallelism"
        )
