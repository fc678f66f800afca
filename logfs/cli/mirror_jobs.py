"""Running ``logfs mirror``: from what was asked for to threads, and to an exit status."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from logfs.cli import failures
from logfs.cli.cluster_clients import check_installed, read_table
from logfs.cli.running import Copies
from logfs.cli.terminal import quantities
from logfs.client import Daemon
from logfs.errors import (
    InvalidConfigError,
    NoDataDirectoryError,
    UnknownNameError,
)
from logfs.library import owner
from logfs.library.places import Place, local_directory, locate
from logfs.library.zones import zone_of
from logfs.log.reading.address import Earliest, Latest, Now, Time, parse_point
from logfs.log.store import LogStore
from logfs.machine.host import Clock, system_clock
from logfs.services.clusters import mirrors

if TYPE_CHECKING:
    from logfs.kafka.mirroring import Mirror
    from logfs.kafka.targets import MirrorTarget

_TEXTS = ("start", "keep", "prefix", "on-recreate")


@dataclass(frozen=True, slots=True)
class MirrorJob:
    """The options of one ``logfs mirror``, or one ``[[mirror]]`` table; texts as given."""

    topics: Sequence[str]
    brokers: str
    properties: Mapping[str, str] = field(default_factory=dict)
    start: str = "earliest"
    keep: str = "source"
    prefix: str = ""
    until_now: bool = False
    on_recreate: str = "stop"


def read_jobs(path: str) -> tuple[str, list[MirrorJob]]:
    """Return the data directory and the ``[[mirror]]`` tables of a file.

    Raises:
        InvalidConfigError: It does not parse, or has no such table.
    """
    from logfs.cli.mount_file import read_mount_file

    found = read_mount_file(path)
    if found.data is None or not found.mirrors:
        raise InvalidConfigError(f"{path}: expected data, and at least one table [[mirror]]")
    return found.data, [_job_of(path, table) for table in found.mirrors]


def _job_of(path: str, table: Mapping[str, object]) -> MirrorJob:
    settings, texts = read_table(path, "mirror", table, ("from", "topics"), _TEXTS)
    topics, brokers = table.get("topics"), table.get("from")
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise InvalidConfigError(f'{path}: mirror.topics: expected a list, as ["orders"]')
    if not isinstance(brokers, str):
        raise InvalidConfigError(f'{path}: mirror.from: expected brokers, as "kafka://b1:9092"')
    return MirrorJob(tuple(topics), brokers, settings, **texts)  # type: ignore[arg-type] # checked


def promote(path: str) -> None:
    """Make the mirror DATA/TOPIC an ordinary topic.

    Raises:
        LogfsError, OSError: See ``mirrors.promote``, ``owner.act``.
    """
    place = locate(path)
    if len(place.address) != 1:
        raise UnknownNameError("expected a topic, DATA/TOPIC")
    (topic,) = place.address

    def ask(daemon: Daemon) -> None:
        daemon.ask("promote", {"topic": topic})

    owner.act(place, ask, lambda store: mirrors.promote(store, topic), failures.progress())


def run(data: str, jobs: Sequence[MirrorJob]) -> int:
    """Mirror until a signal comes or, with ``until_now``, everything is there.

    Returns:
        The exit status.
    """
    with failures.about(data):
        check_installed()
        place = _place(data)
        clock = system_clock()

        def mirror_to(target: "MirrorTarget") -> int:
            made = [_mirror(place, job, target.for_thread(), clock) for job in jobs]
            return Copies(made).run()

        def ask(daemon: Daemon) -> int:
            from logfs.kafka.targets import DaemonTarget

            return mirror_to(DaemonTarget(daemon.data))

        def do(store: LogStore) -> int:
            from logfs.kafka.targets import LocalTarget

            return mirror_to(LocalTarget(store, clock))

        return owner.act(place, ask, do, failures.progress())


def _place(data: str) -> Place:
    """Return the place of a data directory, which may be an empty one."""
    if not Path(local_directory(data)).is_dir():
        raise NoDataDirectoryError("there is no such directory; mkdir makes it")
    place = locate(f"{data}/topic", may_begin=True)
    if place.address != ("topic",):
        raise UnknownNameError("expected a data directory or a mount point, no topic")
    return Place(place.root, (), is_mount=place.is_mount)


def _mirror(place: Place, job: MirrorJob, target: "MirrorTarget", clock: Clock) -> "Mirror":
    from logfs.kafka.cluster import Cluster
    from logfs.kafka.mirroring import Mirror, MirrorPlan
    from logfs.kafka.selection import OnRecreate, TopicSelection
    from logfs.kafka.settings import ClientSettings, parse_bootstrap

    addresses, rest = parse_bootstrap(job.brokers)
    if rest:
        raise InvalidConfigError(f"{job.brokers!r}: expected brokers alone: the topics follow DATA")
    plan = MirrorPlan(
        TopicSelection(job.topics, job.prefix),
        job.brokers.removeprefix("kafka://"),
        _start_of(job.start, place, clock),
        job.keep,
        _keep_ms(job.keep),
        job.until_now,
        OnRecreate(job.on_recreate),
    )
    cluster = Cluster(addresses, ClientSettings.from_properties(job.properties))
    return Mirror(cluster, target, plan, failures.warn)


def _start_of(text: str, place: Place, clock: Clock) -> int:
    """Return where a new mirror begins, as ListOffsets takes it."""
    from logfs.kafka.cluster import EARLIEST, LATEST

    match point := parse_point(text.removeprefix("@"), zone_of(place)):
        case Earliest():
            return EARLIEST
        case Latest() | Now():
            return LATEST
        case Time():
            return point.at(clock.now_ms())
        case _:
            raise InvalidConfigError(f"--start {text}: expected earliest, latest or a moment")


def _keep_ms(text: str) -> str | None:
    """Return ``retention.ms`` for what ``--keep`` says; None: as the source."""
    from logfs.kafka.selection import FOREVER

    if text == "source":
        return None
    return FOREVER if text == "forever" else str(round(quantities.duration(text) * 1000))
