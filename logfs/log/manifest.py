"""``logfs.backup`` in the root of a backup: whether it is whole, and of what.

    {"version": 1, "state": "whole", "kind": "backup", "source": "/var/lib/logfs",
     "begun_ms": 1700000000000, "ended_ms": 1700000001000,
     "partitions": [{"topic": "orders", "partition": 0, …}], "problems": []}

A backup of a directory with an object store has version 2, and three fields more: ``store``,
``needs`` with the keys of the objects without which it is not complete, and ``store_warning``, why
it has no copies of the heads.

It is written first, with the state ``unfinished``, and replaced last. A directory with an
unfinished one is not opened: a backup was interrupted there (or a restore, its ``kind`` says), and
doing the same again completes it. A whole backup keeps it, and is opened read-only because of it.
A restored directory has none.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import BackupError, UnsupportedFormatError
from logfs.log import names
from logfs.records.jsontext import decode_json
from logfs.types import TopicPartition

VERSION = 1
VERSION_WITH_STORE = 2
UNFINISHED, WHOLE = "unfinished", "whole"
STANDBY = "standby"
"""The kind of a directory that follows an object store; it is never whole."""


class BackedUp(NamedTuple):
    """A partition of a backup.

    Attributes:
        start_offset, end_offset: The offsets it holds.
        start_position, end_position: The positions they have as text.
        size_bytes: The size of their ``.log`` files.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    start_position: int
    end_position: int
    segments: int
    size_bytes: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""
        return TopicPartition(self.topic, self.partition)


class BackupManifest(NamedTuple):
    """See the format above."""

    state: str
    kind: str
    source: str
    begun_ms: int
    ended_ms: int | None = None
    partitions: Sequence[BackedUp] = ()
    problems: Sequence[str] = ()
    store: str | None = None
    needs: Sequence[str] = ()
    store_warning: str | None = None


def write_manifest(disk: Disk, manifest: BackupManifest) -> None:
    """Put a manifest in place, durable when this returns."""
    fields: dict[str, Any] = {"version": VERSION, **manifest._asdict()}
    fields["partitions"] = [partition._asdict() for partition in manifest.partitions]
    fields["problems"] = list(manifest.problems)
    fields["needs"] = list(manifest.needs)
    if manifest.store is None:  # versions that know no stores read it
        del fields["store"], fields["needs"], fields["store_warning"]
    else:
        fields["version"] = VERSION_WITH_STORE
    disk.replace(names.BACKUP, (json.dumps(fields, indent=1) + "\n").encode())


def read_manifest(disk: Disk) -> BackupManifest | None:
    """Read the manifest of a directory; None if it has none.

    Raises:
        BackupError: It does not parse.
        UnsupportedFormatError: A newer logfs wrote it.
    """
    try:
        return decode_json(disk.read(names.BACKUP), _manifest)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BackupError(f"{names.BACKUP} does not parse: {error}") from error


def _manifest(fields: dict[str, Any]) -> BackupManifest:
    version = fields.pop("version")
    if version not in (VERSION, VERSION_WITH_STORE):
        raise UnsupportedFormatError(
            f"{names.BACKUP}: version {version}, "
            f"this logfs reads up to version {VERSION_WITH_STORE}: use a newer logfs"
        )
    fields["partitions"] = [BackedUp(**row) for row in fields["partitions"]]
    return BackupManifest(**fields)


def check_whole(disk: Disk) -> None:
    """Refuse by a BackupError a directory in which a backup or a restore was interrupted."""
    if not disk.exists(names.BACKUP):
        return
    manifest = read_manifest(disk)
    if manifest is not None and manifest.kind == STANDBY:
        raise BackupError(
            f"it is a standby of {manifest.source}: 'logfs mount' shows it, 'logfs promote' makes "
            "it the owner"
        )
    if manifest is not None and manifest.state != WHOLE:
        raise BackupError(
            f"a {manifest.kind} of {manifest.source} was interrupted here, or is still under way: "
            f"what is here is not whole; 'logfs {manifest.kind}' as before completes it"
        )


def check_may_write(disk: Disk) -> None:
    """Refuse by a BackupError to write into a backup; see ``check_whole``."""
    check_whole(disk)
    manifest = read_manifest(disk)
    if manifest is not None:
        raise BackupError(
            f"it is a backup of {manifest.source}, and backups are read-only: 'logfs restore' "
            "makes a data directory of it, 'logfs mount -o ro' shows it as it is"
        )
