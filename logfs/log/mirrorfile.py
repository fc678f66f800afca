"""What a mirror is a mirror of, in the plain file ``logfs.mirror`` of each partition directory.

A partition that has this file is a copy of a partition of a Kafka cluster: it takes what was
fetched from there and nothing else. The file is JSON:

    {"version": 1, "cluster_id": "5Nc…", "bootstrap": "b1:9092", "topic": "orders",
     "topic_id": "dDh…", "keep": "source", "state": "mirroring", "reason": ""}

A topic id is 22 characters of base64; empty if the cluster is too old to have ids.
"""

import json
from typing import Any, NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import CorruptCheckpointError, UnsupportedFormatError
from logfs.log import names
from logfs.records.jsontext import decode_object

VERSION = 1
MIRRORING = "mirroring"
STOPPED = "stopped"
FAILED = "failed"
STATES = (MIRRORING, STOPPED, FAILED)
"""Ended by its user; or by something that its user has to decide, see ``MirrorSource.reason``."""


class MirrorSource(NamedTuple):
    """The source of a mirror.

    Attributes:
        cluster_id: The id of the cluster, as it names itself.
        bootstrap: Brokers that it was found by, as given: ``host:port,…``.
        topic: Its name there, which may differ from the local one.
        topic_id: Its id there.
        keep: ``source``, ``forever`` or a duration: which records the mirror keeps.
        state: One of ``STATES``.
        reason: Why it failed.
    """

    cluster_id: str
    bootstrap: str
    topic: str
    topic_id: str = ""
    keep: str = "source"
    state: str = MIRRORING
    reason: str = ""

    def as_json(self, facts: "MirrorFacts | None") -> dict[str, object]:
        """Return what ``.meta`` shows of it; ``facts`` are of the process that mirrors it."""
        said = {} if facts is None else {**facts.values, "reported": facts.time_ms}
        return {
            "source": self.topic,
            "cluster_id": self.cluster_id,
            "topic_id": self.topic_id,
            "bootstrap": self.bootstrap,
            "keep": self.keep,
            "state": self.state,
            "error": self.reason,
            **said,
        }

    def describe(self) -> str:
        """Return the source in words."""
        return f"topic {self.topic} of the Kafka cluster {self.cluster_id or self.bootstrap}"

    def is_same_topic(self, other: "MirrorSource") -> bool:
        """Whether both are the same topic of the same cluster, not one that was made again."""
        return (self.cluster_id, self.topic, self.topic_id) == (
            other.cluster_id,
            other.topic,
            other.topic_id,
        )


class MirrorFacts(NamedTuple):
    """The last report of the process that mirrors a partition, and its time."""

    values: dict[str, object]
    time_ms: int


def read_mirror(disk: Disk, directory: str) -> MirrorSource | None:
    """Return the source of the mirror in a partition directory; None if it is no mirror.

    Raises:
        CorruptCheckpointError: The file does not parse.
        UnsupportedFormatError: A newer logfs wrote it.
        OSError: It cannot be read.
    """
    name = f"{directory}/{names.MIRROR}"
    try:
        data = disk.read(name)
    except FileNotFoundError:
        return None
    try:
        row = decode_object(data)
    except ValueError:
        row = {}
    if "version" not in row:
        raise CorruptCheckpointError(
            f"{name} does not parse: expected JSON with a version. Restore it from another "
            "partition of the topic, or remove it to make the partition an ordinary one",
            name,
        )
    if row.pop("version") != VERSION:
        raise UnsupportedFormatError(
            f"{name}: another version than {VERSION}, which this logfs reads: use a newer logfs"
        )
    return source_of(row, name)


def source_of(row: dict[str, Any], name: str) -> MirrorSource:
    """Return the source that JSON fields describe; raise CorruptCheckpointError naming ``name``."""
    is_known = {"cluster_id", "bootstrap", "topic"} <= row.keys() <= set(MirrorSource._fields)
    if not is_known or not all(isinstance(value, str) for value in row.values()):
        raise CorruptCheckpointError(f"{name}: expected the fields of a mirror, as text", name)
    source = MirrorSource(**row)
    if source.state not in STATES:
        problem = f"{name}: state {source.state!r}, expected one of {', '.join(STATES)}"
        raise CorruptCheckpointError(problem, name)
    return source


def write_mirror(disk: Disk, directory: str, source: MirrorSource) -> None:
    """Note the source in a partition directory, durable when this returns."""
    text = json.dumps({"version": VERSION, **source._asdict()}) + "\n"
    disk.replace(f"{directory}/{names.MIRROR}", text.encode())


def remove_mirror(disk: Disk, directory: str) -> None:
    """Make the partition an ordinary one, durable when this returns."""
    name = f"{directory}/{names.MIRROR}"
    if disk.exists(name):
        disk.remove(name)
        disk.sync_directory(directory)
