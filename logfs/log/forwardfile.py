"""How far a partition was forwarded to a topic of a Kafka cluster: ``logfs.forward-NAME``.

The file is in the partition directory; the process that forwards writes it, others only read it.
Retention and trim keep the records from ``ForwardNote.held_offset`` on. All numbers are big-endian:

    0-4095       identity   JSON, padded with spaces: ``ForwardIdentity`` with a version; written
                            before the first record is sent, and as a new file if it changes
    4096-8191    report     JSON, padded: what the process said last; not valid if it was torn
    8192-8319    slot 0     the offset from which on records are held
    8320 + 128p  slot 1+p   how far partition p of the destination has got

A slot has two copies of 64 bytes. The one with the larger number whose checksum is right is valid.
Writes go to the copy that is not known to be durable, so that a power cut leaves one of them:

    0-7     number               int64   of the write; 0: never written
    8-15    next offset          int64   local: every record before it was acknowledged
    16-23   records              int64   that were acknowledged since the first
    24-31   destination offset   int64   of the last of them; -1: none
    32-39   time                 int64   of the last acknowledgement, epoch milliseconds
    40-43   is clean             int32   1: nothing was under way when the process ended
    44-47   CRC-32C              uint32  of bytes 0 to 43
"""

import contextlib
import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from logfs.disk.vfs import Disk, File, write_again
from logfs.errors import CorruptCheckpointError, InvalidConfigError, UnsupportedFormatError
from logfs.log import names
from logfs.records.checksum import crc32c
from logfs.records.jsontext import decode_object

VERSION = 2
RUNNING = "forwarding"
STOPPED = "stopped"
FAILED = "failed"
NO_LIMIT = -1
"""``ForwardIdentity.hold_bytes``: records are held however many they are."""
NO_HOLD = 0
_BLOCK_BYTES = 4096
_SLOTS_AT = 2 * _BLOCK_BYTES
_COPY_BYTES = 64
_SLOT_BYTES = 2 * _COPY_BYTES
_SLOT = struct.Struct(">qqqqqi")
_CRC = struct.Struct(">I")
_REMEDY = "Restore it, or remove it to let go of the records that it holds"

_REPORTED: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("state", "error"), str),
    **dict.fromkeys(("reported", "acknowledged", "bytes", "records", "retries", "losses"), int),
    **dict.fromkeys(("produce_seconds", "throttled_ms"), (int, float)),
}
"""The report of a process; fields of another type are left out."""


class ForwardIdentity(NamedTuple):
    """What is forwarded where, and as which producer.

    Attributes:
        cluster_id: The id of the cluster, as it names itself.
        bootstrap: Brokers, as given.
        topic: The destination.
        topic_id: Its id; empty if the cluster is too old to have ids.
        partitions: ``same`` or ``key``.
        spread_over: Partitions of the destination that records are spread over.
        producer_id, producer_epoch: The producer id and epoch of the batches that are sent.
        first_offset: Local offset of the first record that is forwarded.
        hold_bytes: How much retention keeps for it; ``NO_LIMIT``, or ``NO_HOLD``.
        home: Machine and inode of the partition directory of which the producer is; another one
            is a copy. Empty: not known.
    """

    cluster_id: str
    bootstrap: str
    topic: str
    topic_id: str
    partitions: str
    spread_over: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    hold_bytes: int = NO_LIMIT
    home: str = ""

    @property
    def destination(self) -> str:
        """The destination as an address; ``unknown`` if the file does not parse."""
        return f"kafka://{self.bootstrap}/{self.topic}" if self.topic else "unknown"


class ForwardPosition(NamedTuple):
    """A slot; see the table of the module."""

    next_offset: int
    records: int = 0
    destination_offset: int = -1
    time_ms: int = 0
    is_clean: bool = False


class ForwardNote(NamedTuple):
    """What a file says.

    Attributes:
        name: The name of the file, without its directory.
        held_offset: Records from this offset on were not acknowledged yet, as far as is known.
        report: The last report of the process; empty: none that can be read.
        problem: Why the file does not parse, and what to do; empty: it does.
    """

    name: str
    identity: ForwardIdentity
    held_offset: int
    acknowledged_ms: int
    report: Mapping[str, Any]
    problem: str = ""

    def as_json(self, log_end_offset: int, oldest_ms: int | None) -> dict[str, object]:
        """Return what ``.meta`` shows.

        Args:
            log_end_offset: The log end offset of the partition.
            oldest_ms: Timestamp of the record at ``held_offset``; None: there is none.
        """
        return {
            "to": self.identity.destination,
            "cluster_id": self.identity.cluster_id,
            "held_offset": self.held_offset,
            "lag_records": max(0, log_end_offset - self.held_offset),
            "oldest": oldest_ms,
            "hold_bytes": self.identity.hold_bytes,
            **self.report,
            "acknowledged": max(self.acknowledged_ms, self.report.get("acknowledged", 0)) or None,
        }


class ForwardNotes:
    """The forwards of a partition, read often: a directory is listed only if it changed."""

    def __init__(self) -> None:
        self._modified_ms = -1
        self._names: tuple[str, ...] = ()
        self._oldest: dict[str, tuple[int, int]] = {}

    def oldest(self, note: ForwardNote, find: Callable[[int], int | None]) -> int | None:
        """Return the timestamp of the record at the held offset; None if there is none.

        Args:
            note: The note of the forward.
            find: Returns the timestamp of the record at an offset; called if the offset is another.
        """
        offset, found = self._oldest.get(note.name, (-1, None))
        if offset != note.held_offset:
            found = find(note.held_offset)
            if found is not None:  # a record may come
                self._oldest[note.name] = note.held_offset, found
        return found

    def read(self, disk: Disk, directory: str) -> list[ForwardNote]:
        """Return them; none if the directory cannot be read."""
        try:
            modified_ms = disk.stat(directory).mtime_ms
            if modified_ms != self._modified_ms:
                files = disk.contents(directory).files
                found = [name for name in files if names.is_forward_note(name)]
                self._names = tuple(sorted(found))
                self._modified_ms = modified_ms
            return [read_note(disk, directory, name) for name in self._names]
        except OSError:
            return []


@dataclass(slots=True)
class _Slot:
    """The state of a slot: the number of the last write, and its copies."""

    number: int
    durable_copy: int
    last_copy: int


class ForwardFile:
    """The file of a process that forwards. One thread; another one may ``report``. Close it."""

    def __init__(self, disk: Disk, name: str, file: File) -> None:
        self._disk = disk
        self._file = file
        self.name = name
        self.identity = _identity(_block(file, 0), name)
        self._slots: dict[int, _Slot] = {}
        self._replacing = threading.Lock()
        self._has_failed = False
        self.sync()  # so that every copy that is read is durable

    @classmethod
    def create(cls, disk: Disk, name: str, identity: ForwardIdentity) -> "ForwardFile":
        """Write a new file, durable on return; replaces one that is there.

        Raises:
            InvalidConfigError: The identity does not fit into its block.
        """
        disk.replace(name, _identity_block(identity))
        return cls.open(disk, name)

    @classmethod
    def open(cls, disk: Disk, name: str) -> "ForwardFile":
        """Open a file that exists.

        Raises:
            FileNotFoundError: There is none.
            CorruptCheckpointError, UnsupportedFormatError: Its identity does not parse.
        """
        return cls(disk, name, disk.open(name, write=True))

    def change(self, identity: ForwardIdentity) -> None:
        """Change what the identity says; the positions stay.

        Raises:
            InvalidConfigError: The identity does not fit into its block.
        """
        block = _identity_block(identity)
        with self._replacing:
            data = bytearray(self._file.pread(self._file.size(), 0))
            data[:_BLOCK_BYTES] = block
            self._disk.replace(self.name, bytes(data))
            self._file.close()
            self._file = self._disk.open(self.name, write=True)
            self.identity = identity

    def position(self, partition: int) -> ForwardPosition | None:
        """Return how far a partition of the destination has got; None: nothing was sent to it."""
        return self._read(1 + partition)

    def held(self) -> ForwardPosition:
        """Return the position that is held."""
        return self._read(0) or ForwardPosition(self.identity.first_offset)

    def put(self, partition: int, position: ForwardPosition) -> None:
        """Note how far a partition of the destination has got; a kill does not lose it."""
        self._write(1 + partition, position)

    def hold(self, position: ForwardPosition) -> None:
        """Make all positions durable, then note the position that is held.

        In this order, so that after a power cut no position is before the one that is held.
        """
        self.sync()
        self._write(0, position)

    def report(self, values: Mapping[str, object]) -> None:
        """Note what ``.meta`` and the metrics show; the end of a long ``error`` is left out."""
        shown = dict(values)
        while (error := str(shown.get("error", ""))) and len(json.dumps(shown)) >= _BLOCK_BYTES:
            shown["error"] = error[: len(error) // 2]
        with self._replacing:
            self._file.pwrite(_padded(shown), _BLOCK_BYTES)

    def sync(self) -> None:
        """Make everything durable; raise OSError if the disk fails a second time as well."""
        try:
            if not self._has_failed:
                self._file.sync()
        except OSError:
            self._has_failed = True  # until the file is another one: see ``write_again``
        if self._has_failed:
            with self._replacing:
                write_again(self._disk, self.name)
                self._file.close()
                self._file = self._disk.open(self.name, write=True)
            self._has_failed = False
        for slot in self._slots.values():
            slot.durable_copy = slot.last_copy

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, slot: int) -> ForwardPosition | None:
        number, copy, found = _read_slot(self._file, slot)
        if slot not in self._slots:
            self._slots[slot] = _Slot(number, copy, copy)
        return found

    def _write(self, slot: int, position: ForwardPosition) -> None:
        if slot not in self._slots:
            self._read(slot)
        known = self._slots[slot]
        known.number, known.last_copy = known.number + 1, 1 - known.durable_copy
        data = _SLOT.pack(known.number, *position[:4], int(position.is_clean))
        at = _SLOTS_AT + _SLOT_BYTES * slot + _COPY_BYTES * known.last_copy
        self._file.pwrite(data + _CRC.pack(crc32c(data)), at)


def read_notes(disk: Disk, directory: str) -> Iterator[ForwardNote]:
    """Read what is forwarded of a partition; a file that does not parse holds everything.

    Raises:
        OSError: The directory cannot be read.
    """
    for name in sorted(disk.contents(directory).files):
        if names.is_forward_note(name):
            with contextlib.suppress(FileNotFoundError):
                yield read_note(disk, directory, name)


def read_note(disk: Disk, directory: str, name: str) -> ForwardNote:
    """Read one file; of one that does not parse only that it holds everything.

    Raises:
        OSError: It cannot be read.
    """
    path = f"{directory}/{name}"
    file = disk.open(path)
    try:
        identity = _identity(_block(file, 0), path)
        _, _, held = _read_slot(file, 0)
        report = _report(_block(file, _BLOCK_BYTES))
    except (CorruptCheckpointError, UnsupportedFormatError) as error:
        unknown = ForwardIdentity("", "", "", "", "", 0, -1, -1, 0)
        problem = str(error)
        return ForwardNote(name, unknown, 0, 0, {"state": FAILED, "error": problem}, problem)
    finally:
        file.close()
    offset = identity.first_offset if held is None else held.next_offset
    return ForwardNote(name, identity, offset, 0 if held is None else held.time_ms, report)


def portable_note(data: bytes) -> bytes:
    """Return the bytes of a file that says the same, without report and numbers of writes.

    They change only if a position or the identity does.
    """
    slots = []
    for at in range(_SLOTS_AT, len(data), _SLOT_BYTES):
        number, _, found = _best_copy(data[at : at + _SLOT_BYTES])
        copy = b""
        if number and found is not None:
            copy = _SLOT.pack(1, *found[:4], int(found.is_clean))
            copy += _CRC.pack(crc32c(copy))
        slots.append(copy.ljust(_SLOT_BYTES, b"\0"))
    return data[:_BLOCK_BYTES] + bytes(_BLOCK_BYTES) + b"".join(slots)


def _read_slot(file: File, slot: int) -> tuple[int, int, ForwardPosition | None]:
    """Return the number of the last write, the copy that has it, and the position."""
    return _best_copy(file.pread(_SLOT_BYTES, _SLOTS_AT + _SLOT_BYTES * slot))


def _best_copy(data: bytes) -> tuple[int, int, ForwardPosition | None]:
    best: tuple[int, int, ForwardPosition | None] = (0, 0, None)
    for number_of_copy in (0, 1):
        at = _COPY_BYTES * number_of_copy
        copy = data[at : at + _SLOT.size + _CRC.size]
        if len(copy) < _SLOT.size + _CRC.size:
            continue
        number, offset, records, there, time_ms, is_clean = _SLOT.unpack_from(copy)
        if number > best[0] and _CRC.unpack_from(copy, _SLOT.size)[0] == crc32c(copy[: _SLOT.size]):
            best = (
                number,
                number_of_copy,
                ForwardPosition(offset, records, there, time_ms, bool(is_clean)),
            )
    return best


def _block(file: File, at: int) -> bytes:
    return file.pread(_BLOCK_BYTES, at)


def _padded(values: Mapping[str, object]) -> bytes:
    """Return a block; the values must fit."""
    return json.dumps(values).encode().ljust(_BLOCK_BYTES - 1) + b"\n"


def _identity_block(identity: ForwardIdentity) -> bytes:
    block = _padded({"version": VERSION, **identity._asdict()})
    if len(block) > _BLOCK_BYTES:
        raise InvalidConfigError(
            f"the names of the brokers have {len(identity.bootstrap)} characters, "
            f"{len(block) - _BLOCK_BYTES} too many: name fewer, they tell of the others"
        )
    return block


def _parsed(data: bytes) -> dict[str, Any]:
    """Return an object; an empty one if it does not parse."""
    try:
        return decode_object(data)
    except ValueError:
        return {}


def _report(data: bytes) -> dict[str, Any]:
    found = _parsed(data)
    return {key: value for key, value in found.items() if isinstance(value, _REPORTED.get(key, ()))}


def _identity(data: bytes, name: str) -> ForwardIdentity:
    row = _parsed(data)
    if "version" not in row:
        raise CorruptCheckpointError(
            f"{name} does not parse: expected JSON with a version. {_REMEDY}", name
        )
    match row.pop("version"):
        case 1:
            row.setdefault("home", "")
        case 2:
            pass
        case _:
            raise UnsupportedFormatError(
                f"{name}: a version after {VERSION}, the last that this logfs reads: use a newer "
                "logfs"
            )
    types = ForwardIdentity.__annotations__
    if row.keys() != types.keys() or any(type(row[key]) is not types[key] for key in row):
        raise CorruptCheckpointError(
            f"{name} does not parse: expected the fields of a forward. {_REMEDY}", name
        )
    return ForwardIdentity(**row)
