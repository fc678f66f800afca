"""The target of ``logfs append``: its PATH and options parsed, the topic created if necessary."""

from datetime import tzinfo
from typing import TYPE_CHECKING, NamedTuple

from logfs.cli.parameters import VIEWS, view_of_suffix
from logfs.errors import (
    InvalidConfigError,
    NoSuchPartitionError,
    NoSuchTopicError,
    UnknownNameError,
)
from logfs.library.places import Place
from logfs.log.lines.form import LineForm, LineTarget
from logfs.log.reading.address import SEGMENTS_NAME, parse_partition_name, parse_topic_name
from logfs.machine.host import LOCAL_ZONE
from logfs.records.linetimes import LineTimes
from logfs.records.record import Header
from logfs.types import MAX_PARTITIONS, View

if TYPE_CHECKING:
    from logfs.library.topics import Topics

_TAB = "\\t"


class AppendTarget(NamedTuple):
    """Where and how lines are appended.

    Attributes:
        times: Finds the times of lines of text; None: the time of the append applies.
    """

    lines: LineTarget
    times: LineTimes | None = None

    @property
    def has_timestamps(self) -> bool:
        """Whether lines may contain timestamps, which retention may find too old."""
        return self.lines.form.view is View.JSONL or self.times is not None


def parse_target(
    place: Place, form: str | None, key_delimiter: str | None, headers: tuple[Header, ...]
) -> AppendTarget:
    """Return the target that PATH and the options mean.

    Args:
        form: The name of a view; None: the view of PATH.
        key_delimiter: The text between key and value; None: no keys.
        headers: The headers of every record.

    Raises:
        UnknownNameError: PATH cannot be appended to, or options contradict it.
        LogfsError: PATH does not parse.
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
    return AppendTarget(LineTarget(topic, partition, LineForm(view, delimiter, headers)))


def with_times(target: AppendTarget, form: str, zone: tzinfo, now_ms: int) -> AppendTarget:
    """Return a target that takes the times out of the lines.

    Args:
        form: The form of the times; see ``LineTimes``.
        zone: The zone of times that name none.

    Raises:
        InvalidConfigError: The form is no time, or the lines are not text.
    """
    if target.lines.form.view is not View.TEXT:
        raise InvalidConfigError(
            "--timestamp-format is for text: .jsonl has timestamps already, .tsv has none"
        )
    try:
        return target._replace(times=LineTimes(form, zone, now_ms))
    except ValueError as error:
        raise InvalidConfigError(f"--timestamp-format {error}") from None


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


def _partitions_to_make(target: LineTarget, present: int | None, *, create: bool) -> int | None:
    """Return the number of partitions to create; None: no change, or the default of a new topic.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: One is missing, without ``create``.
        InvalidConfigError: More than a topic can have.
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
