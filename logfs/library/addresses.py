"""What an address of a data directory means when its files are read, without a mount.

``find`` returns it as a file to read. A mount has its own way to the same: ``fs.tree``.
"""

from contextlib import ExitStack
from datetime import tzinfo
from functools import partial
from typing import NamedTuple, Protocol

from logfs.errors import LogOfflineError, UnknownNameError
from logfs.library.directory import chosen, no_topic, open_for_reading, partitions_of
from logfs.library.places import Place
from logfs.library.points import why_empty
from logfs.log import names
from logfs.log.reading.address import (
    SEGMENTS_NAME,
    PartitionAddress,
    Suffix,
    names_topic_range,
    parse_partition_name,
    parse_topic_range,
)
from logfs.log.reading.readable import ReadableLog
from logfs.machine.disks import disk_of
from logfs.machine.host import system_clock
from logfs.services.views.files import RawFile
from logfs.services.views.merging import MergedFile, MergedPart
from logfs.services.views.resolve import (
    VIEWS,
    Resolved,
    resolve,
    resolve_records,
    resolve_segment,
)
from logfs.types import IsolationLevel, View

_TEXT_SUFFIX = ".txt"


class ReadableFile(Protocol):
    """An open file of the log."""

    def read_into(self, out: memoryview, offset: int) -> int:
        """Read bytes from an offset; 0 at the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class FoundAddress(NamedTuple):
    """What an address means: one of three.

    Attributes:
        resolved: Records of one partition.
        file: Records of several partitions, or a file of a partition directory.
        text: The bytes themselves.
        why_empty: Why the range cannot contain a record; None if it can, see ``why_empty``.
    """

    resolved: Resolved | None = None
    file: ReadableFile | None = None
    text: bytes = b""
    why_empty: str | None = None


def find(place: Place, level: IsolationLevel, zone: tzinfo) -> FoundAddress:
    """Return what an address means now.

    Args:
        place: A data directory and the names below it.
        zone: That of dates without one.

    Raises:
        LogfsError: It is not a file, does not exist, or its partition cannot be loaded.
        OSError: The disk failed.
    """
    if len(place.address) == 3 and place.address[0] == SEGMENTS_NAME:
        return _find_raw(place, level)
    if place.address and names_topic_range(place.address[0]):
        return _find_range(place, level, zone)
    return _find_partition(place, level, zone)


def _find_partition(place: Place, level: IsolationLevel, zone: tzinfo) -> FoundAddress:
    topic, name, *more = *place.address, "", ""
    if topic and topic != SEGMENTS_NAME and topic not in partitions_of(disk_of(place.root)):
        raise no_topic(topic)
    if len(place.address) < 2 or topic == SEGMENTS_NAME:
        raise no_file(place)
    if any(more):
        raise no_directory(topic, name)
    address = parse_partition_name(name, zone)
    (log,) = _load(place.root, topic, address.partition)
    if address.uses_groups:
        from logfs.library.groups import Groups  # only here: it takes long to import

        with Groups(place) as groups:
            address = address.without_groups(partial(groups.position_in, log))
    if address.view is Suffix.META and not address.has_selector:
        from logfs.services.meta import format_meta, partition_meta

        return FoundAddress(text=format_meta(partition_meta(log, level)))
    why = empty_range(address, log.log_end_offset)
    return FoundAddress(_resolve(log, address, name, level), why_empty=why)


def _resolve(
    log: ReadableLog, address: PartitionAddress, name: str, level: IsolationLevel
) -> Resolved:
    if address.view is Suffix.META:
        raise UnknownNameError(f"{name!r}: .meta goes without a selector")
    if address.view is Suffix.FOLLOW:
        raise UnknownNameError(
            f"{name!r} waits for records to come, which only a mount can show: "
            "'logfs mount', then read it there"
        )
    return resolve(log, address, system_clock().now_ms(), level)


def _find_range(place: Place, level: IsolationLevel, zone: tzinfo) -> FoundAddress:
    """Return a range of a topic, all partitions merged by time."""
    name, *more = place.address
    found = parse_topic_range(name, zone)
    if more:
        raise UnknownNameError(f"a range of a topic is a file: nothing lies below {name}")
    logs, now_ms = _load(place.root, found.topic), system_clock().now_ms()
    with ExitStack() as stack:
        groups = None
        if found.in_partition(0).uses_groups:
            from logfs.library.groups import Groups  # only here: it takes long to import

            groups = stack.enter_context(Groups(place))
        parts = []
        for log in logs:
            address = found.in_partition(log.topic_partition.partition)
            if groups is not None:
                address = address.without_groups(partial(groups.position_in, log))
            parts.append(MergedPart(*resolve_records(log, address, now_ms, level)))
    return FoundAddress(file=MergedFile(parts, VIEWS[found.view]))


def _find_raw(place: Place, level: IsolationLevel) -> FoundAddress:
    """Return a file of ``.segments``: one of a partition directory, or a segment as text."""
    data, (_, directory, name) = place.root, place.address
    parsed = names.parse_partition_directory(directory)
    if parsed is None or parsed.state is not names.DirectoryState.NONE:
        raise UnknownNameError(f"{directory!r}: expected TOPIC-PARTITION, as orders-0")
    (log,) = _load(data, parsed.topic, parsed.partition)
    base, dot, _ = name.partition(_TEXT_SUFFIX)
    if dot and name == f"{base}{_TEXT_SUFFIX}" and base.isdecimal() and len(base) == 20:
        segment = next((s for s in log.snapshot.segments if s.base_offset == int(base)), None)
        if segment is not None:
            return FoundAddress(resolve_segment(log, segment, View.TEXT, level))
    path = f"{log.directory}/{name}"
    if not log.disk.exists(path) or log.disk.stat(path).is_directory:
        raise UnknownNameError(f"{directory} has no file {name}")
    return FoundAddress(file=RawFile(log.disk, path))


def _load(data: str, topic: str, number: int | None = None) -> list[ReadableLog]:
    """Return a partition of a topic, or all (None), opened for reading."""
    disk = disk_of(data)
    found = chosen(partitions_of(disk), topic, number)
    store = open_for_reading(disk, found)
    logs: list[ReadableLog] = [store.partition(*one) for one in found]
    for log in logs:
        if log.is_unreadable:
            raise LogOfflineError(f"{log.topic_partition}: {log.offline}")
    return logs


def empty_range(address: PartitionAddress, log_end_offset: int) -> str | None:
    """Return why the range of an address cannot contain a record; None if it can."""
    if address.start is None:
        return None
    return why_empty(address.start, address.end, log_end_offset, system_clock().now_ms())


def no_file(place: Place) -> UnknownNameError:
    """Return the error for an address that is a directory."""
    path = "/".join([place.root, *place.address])
    if not place.address:
        return UnknownNameError(f"expected one of its partitions, as in {path}/TOPIC/0")
    if place.address[0] == SEGMENTS_NAME:
        example = f"{place.root}/{SEGMENTS_NAME}/TOPIC-PARTITION/NAME"
        return UnknownNameError(f"a directory; expected one of the files, {example}")
    return UnknownNameError(f"a directory; expected one of its partitions, as in {path}/0")


def no_directory(topic: str, name: str) -> UnknownNameError:
    """Return the error for names below a partition."""
    return UnknownNameError(f"a partition is a file: nothing lies below {topic}/{name}")
