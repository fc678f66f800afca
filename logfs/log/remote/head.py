"""The head of a partition in the store: everything that changes is in this one object. Pure.

    bytes   field     type
    0-3     magic     "LFTM"
    4-7     version   int32     1; an older logfs refuses a newer head
    8-11    length    int32     of the description in bytes
    12-     facts     JSON, UTF-8
            entries   200 bytes each, by base offset; see ``entries``
    last 4  CRC       uint32    CRC-32C of all bytes before

The *nonce* is random in every version of a head. Without it a swap could take an older head for the
one that the writer has read: an ETag is a hash of the contents. The *epoch* tells which writer owns
the partition. A writer that finds a larger one is fenced.

A head has at most 4,096 entries. The oldest ones leave it for tables, which are separate
objects with nothing but entries.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from logfs.errors import CorruptIndexError
from logfs.log.checkpoints import EpochEntry
from logfs.log.remote.entries import TieredEntry, decode_all, encode_tiered
from logfs.log.remote.framing import HEADER_BYTES, framed, unframed
from logfs.log.segments.snapshot import LogPoint
from logfs.records.checksum import crc32c
from logfs.records.jsontext import decode_json
from logfs.types import Positions

VERSION = 1
MOST_ENTRIES = 4096
"""Entries of a head, and of a table."""
MOST_HEAD_BYTES = 64 << 20
_MAGIC = b"LFTM"


class WritingDirectory(NamedTuple):
    """Which data directory writes a partition of the store.

    Attributes:
        directory_id: 16 random bytes that the directory has in ``logfs.remote``.
        host: Name of the machine, for people.
        since_ms: Start of its epoch, epoch milliseconds.
    """

    directory_id: bytes
    host: str
    since_ms: int


class SpilledTable(NamedTuple):
    """A table of entries that are not in the head.

    Attributes:
        key: The object.
        entry_count: Its entries.
        first_offset: Base offset of the first one.
        next_offset: Next offset of the last one.
        max_timestamp: The largest of its segments; -1: they have none.
        size_bytes: Bytes of the .log objects of its segments.
        crc: CRC-32C of the object.
    """

    key: str
    entry_count: int
    first_offset: int
    next_offset: int
    max_timestamp: int
    size_bytes: int
    crc: int


class Doomed(NamedTuple):
    """An object that nothing names any more; it is deleted some time after ``since_ms``."""

    key: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Head:
    """One version of the head of a partition; see the format above.

    Attributes:
        nonce: 16 random bytes.
        counter: One more in each version.
        epoch: One more with each writer.
        generation: The generation of the positions, as in the segment table.
        start: The log start.
        config: Settings of the topic; None: a broker made it.
        leader_epochs: Leader epochs up to the end of the last entry.
        tables: Entries before those of the head, by offset.
        entries: The last tiered segments, by base offset, without gaps between them.
        is_noted: The writer had noted this version before it was sent; see
            ``logfs.services.tiering.ownership``. Earlier versions of logfs note nothing.
    """

    nonce: bytes
    counter: int
    epoch: int
    writer: WritingDirectory
    topic_id: UUID
    generation: bytes
    start: LogPoint
    config: Mapping[str, str] | None = None
    leader_epochs: tuple[EpochEntry, ...] = ()
    doomed: tuple[Doomed, ...] = ()
    tables: tuple[SpilledTable, ...] = ()
    entries: tuple[TieredEntry, ...] = field(default=())
    is_noted: bool = False

    @property
    def next_offset(self) -> int | None:
        """The offset after the last tiered record; None if there is no tiered segment."""
        if self.entries:
            return self.entries[-1].next_offset
        return self.tables[-1].next_offset if self.tables else None


def encode_head(head: Head) -> bytes:
    """Return the bytes of a head."""
    facts = {
        "nonce": head.nonce.hex(),
        "counter": head.counter,
        "epoch": head.epoch,
        "writer": [head.writer.directory_id.hex(), head.writer.host, head.writer.since_ms],
        "topic_id": head.topic_id.hex,
        "generation": head.generation.hex(),
        "start": [head.start.offset, *head.start.positions],
        "config": None if head.config is None else dict(sorted(head.config.items())),
        "leader_epochs": [list(entry) for entry in head.leader_epochs],
        "doomed": [list(row) for row in head.doomed],
        "tables": [list(row) for row in head.tables],
    }
    if head.is_noted:
        facts["noted"] = True
    text = json.dumps(facts, separators=(",", ":")).encode()
    entries = b"".join(map(encode_tiered, head.entries))
    return framed(_MAGIC, VERSION, len(text), text + entries)


def decode_head(data: bytes, source: str) -> Head:
    """Decode a head.

    Args:
        data: The whole object.
        source: Its address, for errors.

    Raises:
        UnsupportedFormatError: A newer logfs wrote it.
        CorruptIndexError: It is no head, or damaged.
    """
    length, body = unframed(data, _MAGIC, VERSION, "the head of a partition", source)
    if not 0 <= length <= len(body):
        raise CorruptIndexError(f"{source}: its description is longer than the object")
    try:
        entries = tuple(decode_all(data[: HEADER_BYTES + len(body)], HEADER_BYTES + length, source))
        return decode_json(bytes(body[:length]), lambda facts: _head_of(facts, entries))
    except ValueError as error:
        raise CorruptIndexError(f"{source}: {error}") from None


def _head_of(facts: Mapping[str, Any], entries: tuple[TieredEntry, ...]) -> Head:
    directory_id, host, since_ms = facts["writer"]
    offset, *positions = facts["start"]
    return Head(
        nonce=bytes.fromhex(facts["nonce"]),
        counter=facts["counter"],
        epoch=facts["epoch"],
        writer=WritingDirectory(bytes.fromhex(directory_id), host, since_ms),
        topic_id=UUID(hex=facts["topic_id"]),
        generation=bytes.fromhex(facts["generation"]),
        start=LogPoint(offset, Positions(*positions)),
        config=facts["config"],
        leader_epochs=tuple(EpochEntry(*row) for row in facts["leader_epochs"]),
        doomed=tuple(Doomed(*row) for row in facts["doomed"]),
        tables=tuple(SpilledTable(*row) for row in facts["tables"]),
        entries=entries,
        is_noted=facts.get("noted") is True,
    )


def encode_table(entries: tuple[TieredEntry, ...]) -> bytes:
    """Return the bytes of a table object."""
    return b"".join(map(encode_tiered, entries))


def decode_table(data: bytes, table: SpilledTable, source: str) -> tuple[TieredEntry, ...]:
    """Decode a table object.

    Raises:
        CorruptIndexError: It is not the one that the head describes.
    """
    if crc32c(data) != table.crc:
        raise CorruptIndexError(f"{source}: its checksum differs, {len(data)} bytes")
    entries = tuple(decode_all(data, 0, source))
    if len(entries) != table.entry_count:
        raise CorruptIndexError(f"{source}: {len(entries)} entries, {table.entry_count} expected")
    return entries
