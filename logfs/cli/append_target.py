"""Where ``logfs append`` is told to append: its PATH taken apart, what is missing made if asked."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from logfs.cli.parameters import VIEWS, view_of_suffix
from logfs.client import Daemon
from logfs.errors import (
    InvalidConfigError,
    NoSuchPartitionError,
    NoSuchTopicError,
    UnknownNameError,
)
from logfs.library.places import Place
from logfs.log.lines.form import LineForm
from logfs.log.reading.address import SEGMENTS_NAME, parse_partition_name, parse_topic_name
from logfs.machine.host import LOCAL_ZONE, system_clock
from logfs.records.record import Header
from logfs.types import MAX_PARTITIONS, View

if TYPE_CHECKING:
    from logfs.cli.mount_target import MountTarget
    from logfs.cli.store_target import StoreTarget
    from logfs.library.topics import Topics
    from logfs.log.store import LogStore

_TAB = "\\t"


class LineTarget(NamedTuple):
    """What lines go to.

    Attributes:
        topic: The topic.
        partition: Its number; None: that to which the key of each line belongs.
        form: What the lines are.
    """

    topic: str
    partition: int | None
    form: LineForm


def parse_target(
    place: Place, form: str | None, key_delimiter: str | None, headers: tuple[Header, ...]
) -> LineTarget:
    """Find out from PATH and options what is to be appended to, and how.

    Args:
        place: PATH.
        form: The name of a view, "text" for none; None: what PATH says.
        key_delimiter: What is between key and value; None: nothing.
        headers: Of every record.

    Raises:
        UnknownNameError: PATH names nothing that could be appended to, or options contradict it.
        LogfsError: It does not parse.
    """
    topic, name, *more = *place.address, "", ""
    if not topic or topic == SEGMENTS_NAME or any(more):
        raise UnknownNameError(
            "expected TOPIC/PARTITION, or TOPIC, after the data directory or mount point"
        )
    parse_topic_name(topic)
    partition, named = None, None
    if name:
        address = parse_partition_name(name, LOCAL_ZONE)
        partition, named = address.partition, view_of_suffix(address.view)
        if address.has_selector or named is None:
            raise UnknownNameError(
                f"{name!r} cannot be written to; append to {topic}/{partition}, or to "
                f"{partition}.tsv or {partition}.jsonl there"
            )
    view = VIEWS[form] if form is not None else named or View.TEXT
    if named not in (None, View.TEXT, view):
        raise UnknownNameError(f"{name!r} and --format {form} contradict each other")
    delimiter = (key_delimiter or "").replace(_TAB, "\t").encode(errors="surrogateescape")
    if key_delimiter is not None and not delimiter:
        raise UnknownNameError("--key-delimiter is empty; expected what is between key and value")
    if delimiter and view is not View.TEXT:
        raise UnknownNameError("--key-delimiter is for text: tsv and jsonl have keys already")
    if b"\n" in delimiter:
        raise UnknownNameError("--key-delimiter has a newline, which ends every line")
    return LineTarget(topic, partition, LineForm(view, delimiter, headers))


def prepare(topics: "Topics", target: LineTarget, *, create: bool) -> None:
    """Check that the topic and the partition exist, or create them.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: One is missing, without ``create``.
        LogfsError, OSError: It could not be created.
    """
    topic = target.topic
    present = topics.partition_count(topic)
    count = _partitions_to_make(target, present, create=create)
    if present is None:
        topics.create_topic(topic, count, {})
    elif count is not None:
        topics.alter_topic(topic, {}, count)


@contextmanager
def of_mount(point: str, target: LineTarget) -> "Iterator[MountTarget]":
    """Append through a mount while this is entered."""
    from logfs.cli.mount_target import MountTarget

    found = MountTarget(point, target.topic, target.partition, target.form)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def of_store(store: "LogStore", target: LineTarget, *, is_durable: bool) -> "Iterator[StoreTarget]":
    """Append to a store while this is entered; ``is_durable``: it is flushed at the end."""
    from logfs.cli.store_target import StoreTarget

    found = StoreTarget(store, target.topic, target.partition, target.form, is_durable=is_durable)
    try:
        yield found
    finally:
        found.close()


def _partitions_to_make(target: LineTarget, present: int | None, *, create: bool) -> int | None:
    """Return how many partitions the topic is to have; None for as many as it has, or by default.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: Something is missing and not to be made.
        InvalidConfigError: It would be absurdly many.
    """
    topic, partition = target.topic, target.partition
    if present is None and not create:
        raise NoSuchTopicError(f"no topic {topic}; --create makes it")
    if partition is None or (present is not None and partition < present):
        return None
    if not create:
        raise NoSuchPartitionError(
            f"topic {topic} has no partition {partition}; --create makes it and those below it"
        )
    if partition >= MAX_PARTITIONS:
        raise InvalidConfigError(
            f"partition {partition}: a topic can be made up to {MAX_PARTITIONS} partitions large"
        )
    return partition + 1


def expired_in_store(store: "LogStore", target: LineTarget) -> Sequence[str]:
    """Return warnings about partitions whose records retention is about to delete.

    Only lines of ``.jsonl`` bring timestamps of their own; all others are new.
    """
    if target.form.view is not View.JSONL:
        return ()
    from logfs.log.overview import topic_overview

    return topic_overview(store, target.topic, system_clock().now_ms()).expired


def expired_by_daemon(daemon: Daemon, target: LineTarget) -> Sequence[str]:
    """Return the same of the topic of a daemon."""
    if target.form.view is not View.JSONL:
        return ()
    now_ms = system_clock().now_ms()
    return daemon.overview(target.topic, target.partition or 0, now_ms).expired
