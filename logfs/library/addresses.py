"""What an address of a data directory means when its files are read, without a mount.

``find`` returns it as a file to read. ``load_named`` and ``addresses_in`` are its parts for what
only looks at a range. A mount has its own way to the same: ``fs.tree``.
"""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from functools import partial
from typing import NamedTuple, Protocol

from logfs.disk.vfs import Disk
from logfs.errors import LogOfflineError, UnknownNameError
from logfs.library.directory import chosen, no_topic, open_for_reading, partitions_of
from logfs.library.places import Place
from logfs.library.points import why_empty
from logfs.log import names
from logfs.log.reading.address import (
    SEGMENTS_NAME,
    PartitionAddress,
    Suffix,
    TopicRange,
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
    found, logs = load_named(place, zone, lambda _: disk_of(place.root))
    addresses, now_ms = addresses_in(place, found, logs), system_clock().now_ms()
    if isinstance(found, TopicRange):
        parts = [
            MergedPart(*resolve_records(log, address, now_ms, level))
            for log, address in zip(logs, addresses, strict=True)
        ]
        return FoundAddress(file=MergedFile(parts, VIEWS[found.view]))
    (log,), (address,) = logs, addresses
    if address.view is Suffix.META:
        from logfs.services.meta import format_meta, partition_meta

        return FoundAddress(text=format_meta(partition_meta(log, level)))
    if address.view.is_in:
        raise UnknownNameError(
            f"{place.address[1]!r} takes appends only; read it without {address.view}"
        )
    if address.view is Suffix.FOLLOW:
        raise UnknownNameError(
            f"{place.address[1]!r} waits for records to come, which only a mount can show: "
            "'logfs mount', then read it there"
        )
    why = empty_range(address, log.log_end_offset)
    return FoundAddress(resolve(log, address, now_ms, level), why_empty=why)


def load_named(
    place: Place, zone: tzinfo, disk_with: Callable[[str], Disk]
) -> tuple[PartitionAddress | TopicRange, list[ReadableLog]]:
    """Return what the names of a file of a topic mean, and its partitions opened for reading.

    Args:
        place: A root and the names below it.
        zone: That of dates without one.
        disk_with: Returns the disk that has the files of a topic.

    Raises:
        BadSelectorError: The selector does not parse.
        LogfsError: It is not such a file, or in a partition that does not exist or is offline.
    """
    topic, name, *more = *place.address, "", ""
    if names_topic_range(topic):
        span = parse_topic_range(topic, zone)
        if name:
            raise UnknownNameError(f"a range of a topic is a file: nothing lies below {topic}")
        return span, _load(disk_with(span.topic), span.topic)
    if not topic or topic == SEGMENTS_NAME:
        raise no_file(place)
    disk = disk_with(topic)
    if topic not in partitions_of(disk):
        raise no_topic(topic)
    if not name:
        raise no_file(place)
    if any(more):
        raise no_directory(topic, name)
    found = parse_partition_name(name, zone)
    return found, _load(disk, topic, found.partition)


def addresses_in(
    place: Place, found: PartitionAddress | TopicRange, logs: Sequence[ReadableLog]
) -> list[PartitionAddress]:
    """Return the address in each partition, with offsets instead of consumer groups.

    Args:
        place: The root whose groups they are.
        found: The result of ``load_named``, as is ``logs``.
    """
    if isinstance(found, TopicRange):
        addresses = [found.in_partition(log.topic_partition.partition) for log in logs]
    else:
        addresses = [found]
    if not any(address.uses_groups for address in addresses):
        return addresses
    from logfs.library.groups import Groups  # only here: it takes long to import

    with Groups(place._replace(address=())) as groups:
        return [
            address.without_groups(partial(groups.position_in, log))
            for log, address in zip(logs, addresses, strict=True)
        ]


def _find_raw(place: Place, level: IsolationLevel) -> FoundAddress:
    """Return a file of ``.segments``: one of a partition directory, or a segment as text."""
    _, directory, name = place.address
    parsed = names.parse_partition_directory(directory)
    if parsed is None or parsed.state is not names.DirectoryState.NONE:
        raise UnknownNameError(f"{directory!r}: expected TOPIC-PARTITION, as orders-0")
    (log,) = _load(disk_of(place.root), parsed.topic, parsed.partition)
    base, dot, _ = name.partition(_TEXT_SUFFIX)
    if dot and name == f"{base}{_TEXT_SUFFIX}" and base.isdecimal() and len(base) == 20:
        segment = next((s for s in log.snapshot.segments if s.base_offset == int(base)), None)
        if segment is not None:
            return FoundAddress(resolve_segment(log, segment, View.TEXT, level))
    path = f"{log.directory}/{name}"
    if not log.disk.exists(path) or log.disk.stat(path).is_directory:
        raise UnknownNameError(f"{directory} has no file {name}")
    return FoundAddress(file=RawFile(log.disk, path))


def _load(disk: Disk, topic: str, number: int | None = None) -> list[ReadableLog]:
    """Return a partition of a topic, or all (None), opened for reading."""
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
