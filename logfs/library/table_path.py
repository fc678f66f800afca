"""What the path of a table means: data directories or mount points, or one address in one of them.

/var/lib/logfs                       all its topics, or those that the options choose
/disk1/logs,/disk2/logs              the same of several, as Kafka's log.dirs
/var/lib/logfs/orders                one topic
/var/lib/logfs/orders/0@-1h          one partition, from an hour ago
s3://bucket/prefix/orders/0@-1h      the same of the logs in an object store
"""

import os
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from logfs.disk.remote.urls import is_store_url
from logfs.errors import BadSelectorError, InvalidConfigError, UnknownNameError
from logfs.library.mounted_disk import reading_root
from logfs.library.owner import data_directory
from logfs.library.places import Place, locate
from logfs.log.reading.address import (
    AtByte,
    PartitionAddress,
    Suffix,
    parse_partition_name,
    parse_topic_name,
)


@dataclass(frozen=True, slots=True)
class LogsPath:
    """The meaning of a path: directories, and the topic and the rest of an address, if any."""

    roots: tuple[str, ...]
    topic: str | None = None
    address: PartitionAddress | None = None


def parse_path(
    text: str | None,
    zone: tzinfo,
    example: str = '.load("/var/lib/logfs")',
    *,
    is_written: bool = False,
) -> LogsPath:
    """Parse the path of a table.

    Args:
        is_written: The table is written, which needs access to the data directory itself.

    Raises:
        InvalidConfigError: There is no path.
        NoDataDirectoryError: No leading part is a data directory or a mount point.
        LogfsError: The address in it is none, or none of a table.
    """
    paths = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not paths:
        raise InvalidConfigError(f"a path is missing: expected a data directory, as in {example}")
    paths = [_local(path) for path in paths]
    places = [locate(path) for path in paths]
    if len(places) == 1 and places[0].address:
        root = _root(paths[0], places[0], is_written=is_written)
        return _addressed(root, places[0].address, zone)
    for path, place in zip(paths, places, strict=True):
        if place.address:
            raise InvalidConfigError(
                f"{path} is no data directory: of several paths each has to be one"
            )
    roots = [_root(*pair, is_written=is_written) for pair in zip(paths, places, strict=True)]
    return LogsPath(tuple(dict.fromkeys(roots)))


def _local(path: str) -> str:
    """Return a path without ``file:``, or the URL of a store; refuses URLs of other kinds."""
    if is_store_url(path):
        return path
    scheme, colon, rest = path.partition(":")
    if scheme == "file":
        return f"/{rest.lstrip('/')}" if rest.startswith("/") else rest
    if colon and rest.startswith("//"):
        raise InvalidConfigError(
            f"{path} is a URL; expected the path of a directory that every machine of the cluster "
            "has at the same place, or an object store (s3://, gs://, az://)"
        )
    return path


def _root(path: str, place: Place, *, is_written: bool) -> str:
    """Return the data directory as the workers are to open it.

    A symbolic link stays one: on another machine it may lead to another place. A mount means
    its data directory, unless it is read by a user that may only use the mount.
    """
    if place.is_remote:
        return place.root
    if place.is_mount:
        return data_directory(place) if is_written else reading_root(place)
    given = Path(os.path.abspath(path))  # noqa: PTH100 - links are not followed
    root = given.parents[len(place.address) - 1] if place.address else given
    return str(root) if os.path.realpath(root) == place.root else place.root


def _addressed(root: str, address: tuple[str, ...], zone: tzinfo) -> LogsPath:
    topic = parse_topic_name(address[0])
    if len(address) == 1:
        return LogsPath((root,), topic)
    name = "/".join(address[1:])
    found = parse_partition_name(name, zone)
    if found.view is not Suffix.TEXT:
        raise UnknownNameError(
            f"{name!r}: a table has no view {found.view}, its columns are key, value, ...; "
            f"leave {found.view} out"
        )
    if isinstance(found.start, AtByte) or isinstance(found.end, AtByte):
        raise BadSelectorError(f"{name!r}: a byte is no place in a table; use offset=N")
    return LogsPath((root,), topic, found)
