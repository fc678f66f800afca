"""Remembered owners and modes, in the plain file ``logfs.attributes`` of the data directory.

A topic has no directory on the disk, and a partition file of the mount is a directory there. So
chmod and chown on the mount cannot be applied to inodes. The file is JSON:

    {"version": 1, "entries": {"orders": {"mode": 448}, "orders/0": {"uid": 33, "gid": 33}}}
"""

import errno
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import UnsupportedFormatError
from logfs.log import names
from logfs.records.jsontext import decode_json

logger = logging.getLogger(__name__)

VERSION = 1


class Ownership(NamedTuple):
    """The attributes that were set; None where none was."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None


NOTHING_SET = Ownership()
_CLOSED_TOPIC, _CLOSED_PARTITION = Ownership(mode=0o700), Ownership(mode=0o600)
"""If the settings are unknown: only the owner has access, as no lost mode denied more."""


class Attributes:
    """The remembered attributes of all topics and partitions. Any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._writing = threading.Lock()
        self._is_unreadable = False
        try:
            self._entries = _read(disk)
        except OSError as error:
            self._is_unreadable = True
            self._entries = {}
            logger.warning(
                "%s: owners and modes are not known: only the owner of the mount may use what "
                "has none set from now on, and what is set is forgotten at the next start", error
            )  # fmt: skip
        self._is_saved = True

    def get(self, topic: str, partition: int | None) -> Ownership:
        """Return what was set for a topic, or for one of its partitions."""
        if not (self._entries or self._is_unreadable):  # asked by every stat(2)
            return NOTHING_SET
        unset = NOTHING_SET
        if self._is_unreadable:
            unset = _CLOSED_TOPIC if partition is None else _CLOSED_PARTITION
        return self._entries.get(_key(topic, partition), unset)

    def all(self) -> list[tuple[str, int | None, Ownership]]:
        """Return what was set: topic, partition or None, attributes."""
        rows: list[tuple[str, int | None, Ownership]] = []
        for key, ownership in self._entries.items():
            topic, _, number = key.partition("/")
            if not number or number.isdecimal():
                rows.append((topic, int(number) if number else None, ownership))
        return rows

    def set(
        self,
        topic: str,
        partition: int | None,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> None:
        """Remember what is given; None leaves a value as it is. Durable when this returns."""
        with self._writing:
            old = self.get(topic, partition)
            changed = Ownership(
                old.mode if mode is None else mode,
                old.uid if uid is None else uid,
                old.gid if gid is None else gid,
            )
            self._write(self._entries | {_key(topic, partition): changed})

    def put(self, topic: str, ownerships: Mapping[int | None, Ownership]) -> None:
        """Remember durably what is given by partition (None: the topic), and nothing else."""
        new = {_key(topic, number): ownership for number, ownership in ownerships.items()}
        with self._writing:
            changed = {
                key: ownership
                for key, ownership in new.items()
                if self._entries.get(key, NOTHING_SET) != ownership
            }
            if changed:
                self._write(self._entries | changed)

    def forget(self, topic: str) -> None:
        """Drop a deleted topic; after an OSError the file still has it, see ``save``."""
        with self._writing:
            kept = {
                key: ownership
                for key, ownership in self._entries.items()
                if key != topic and not key.startswith(f"{topic}/")
            }
            if len(kept) < len(self._entries):
                self._entries, self._is_saved = kept, False
                self._write(kept)

    def save(self) -> None:
        """Write the file if the last attempt failed; durable when this returns."""
        with self._writing:
            if not self._is_saved:
                self._write(self._entries)

    def _write(self, entries: dict[str, Ownership]) -> None:
        """Store entries and use them from then on."""
        if self._is_unreadable:
            # Not to be overwritten: another start may be able to read it.
            self._entries, self._is_saved = entries, True
            return
        rows = {key: set_fields(ownership) for key, ownership in entries.items()}
        data = json.dumps({"version": VERSION, "entries": rows}, indent=1) + "\n"
        self._disk.replace(names.ATTRIBUTES, data.encode())
        self._entries, self._is_saved = entries, True


def _key(topic: str, partition: int | None) -> str:
    return topic if partition is None else f"{topic}/{partition}"


def set_fields(ownership: Ownership) -> dict[str, int]:
    """Return the fields of an owner and a mode that were set, as in the file."""
    return {name: value for name, value in ownership._asdict().items() if value is not None}


def ownership_of(entry: dict[str, int]) -> Ownership:
    """Return an owner and a mode; raise TypeError, AttributeError if fields are no numbers."""
    if not all(type(value) is int for value in entry.values()):
        raise TypeError(f"{entry}: expected numbers")
    return Ownership(**entry)


def _read(disk: Disk) -> dict[str, Ownership]:
    try:
        return decode_json(disk.read(names.ATTRIBUTES), _entries)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        problem = f"it does not parse ({error}); restore it, or remove it and set all modes again"
        raise OSError(errno.EIO, problem, names.ATTRIBUTES) from None


def _entries(data: Mapping[str, Any]) -> dict[str, Ownership]:
    if data["version"] != VERSION:
        raise UnsupportedFormatError(
            f"{names.ATTRIBUTES}: version {data['version']}, "
            f"this logfs reads version {VERSION}: use a newer logfs"
        )
    return {key: ownership_of(entry) for key, entry in data["entries"].items()}
