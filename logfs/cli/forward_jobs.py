"""Running ``logfs forward``: from what was asked for to threads, and to an exit status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logfs.cli import failures
from logfs.cli.cluster_clients import check_installed, read_table
from logfs.cli.running import Copies
from logfs.cli.terminal import quantities
from logfs.errors import InvalidConfigError, LogfsError, UnknownNameError
from logfs.library.mounted_disk import reading_disk
from logfs.library.places import Place, locate_local
from logfs.log.forwardfile import NO_HOLD, NO_LIMIT

if TYPE_CHECKING:
    from logfs.kafka.forwarding import Forward

_TEXTS = ("partitions", "timestamps", "compression-type", "hold", "start")


@dataclass(frozen=True, slots=True)
class ForwardJob:
    """The options of one ``logfs forward``, or one ``[[forward]]`` table; texts as given."""

    path: str
    to: str
    properties: Mapping[str, str] = field(default_factory=dict)
    partitions: str = "same"
    timestamps: str = "keep"
    compression_type: str = "producer"
    hold: str = "all"
    start: str | None = None
    resume_at: str | None = None
    until_now: bool = False
    skip_too_large: bool = False


def read_jobs(path: str) -> list[ForwardJob]:
    """Return the ``[[forward]]`` tables of a file.

    Raises:
        InvalidConfigError: It does not parse, or has no such table.
    """
    from logfs.cli.mount_file import read_mount_file

    found = read_mount_file(path)
    if found.data is None or not found.forwards:
        raise InvalidConfigError(f"{path}: expected data, and at least one table [[forward]]")
    return [_job_of(path, found.data, table) for table in found.forwards]


def _job_of(path: str, data: str, table: Mapping[str, object]) -> ForwardJob:
    settings, texts = read_table(path, "forward", table, ("topic", "to"), _TEXTS)
    topic, to = table.get("topic"), table.get("to")
    if not isinstance(topic, str) or not isinstance(to, str):
        raise InvalidConfigError(
            f'{path}: forward: expected topic = "web" and to = "kafka://b1:9092"'
        )
    return ForwardJob(f"{data}/{topic}", to, settings, **texts)  # type: ignore[arg-type] # checked


def run(jobs: Sequence[ForwardJob]) -> int:
    """Forward until a signal comes or, with ``until_now``, everything was acknowledged.

    Returns:
        The exit status.
    """
    made = []
    for job in jobs:
        with failures.about(job.path):
            check_installed()
            made.append(_forward(job))
    return Copies(made).run()


def _forward(job: ForwardJob) -> "Forward":
    from logfs.kafka.cluster import Cluster
    from logfs.kafka.forwarding import Forward, ForwardPlan
    from logfs.kafka.settings import ClientSettings, parse_bootstrap
    from logfs.kafka.shipping import codec_of
    from logfs.library.mounted_disk import MountedDisk

    addresses, destination = parse_bootstrap(job.to)
    place = locate_local(job.path)
    topic, partitions = _source(place)
    disk = reading_disk(place)
    if isinstance(disk, MountedDisk):
        raise LogfsError("its data directory cannot be written here: expected to run as its owner")
    plan = ForwardPlan(
        topic,
        partitions,
        job.to.removeprefix("kafka://").partition("/")[0],
        destination or topic,
        by_key=job.partitions == "key",
        compression=codec_of(job.compression_type),
        is_stamped=job.timestamps == "now",
        hold_bytes=_hold_bytes(job.hold),
        start=_start_of(job),
        resumes=job.resume_at is not None,
        until_now=job.until_now,
        skips_too_large=job.skip_too_large,
    )
    cluster = Cluster(addresses, ClientSettings.from_properties(job.properties))
    return Forward(cluster, disk, plan, failures.warn)


def _source(place: Place) -> tuple[str, tuple[int, ...] | None]:
    """Return a topic and a partition of it; None: all of them."""
    names = place.address
    if len(names) == 1:
        return names[0], None
    if len(names) == 2 and names[1].isdecimal():
        return names[0], (int(names[1]),)
    raise UnknownNameError("expected a topic or a partition: DATA/TOPIC or DATA/TOPIC/PARTITION")


def _hold_bytes(text: str) -> int:
    if text == "all":
        return NO_LIMIT
    return NO_HOLD if text == "none" else int(quantities.size(text))


def _start_of(job: ForwardJob) -> str | int | None:
    if job.resume_at is None:
        if job.start not in {None, "start", "end"}:
            raise InvalidConfigError(f"start = {job.start!r}: expected start or end")
        return job.start or "start"
    if job.resume_at == "noted":
        return None
    if not job.resume_at.isdecimal():
        raise InvalidConfigError(f"--resume-at {job.resume_at}: expected an offset, or noted")
    return int(job.resume_at)
