"""The objects of a journal: their names and bytes. Pure.

PREFIX/logfs-journal/root                 the owner; see ``root``
PREFIX/logfs-journal/EPOCH10-SEQUENCE10   rows of many partitions, or a fence

bytes   field         type
0-3     magic         "LFTJ"
4-7     version       int32     1; an older logfs refuses a newer object
8-11    length        int32     of what follows, decompressed
12-     body          zstd: length of the description (int32), the description as JSON, the bytes of
all rows in their order, and the bytes of all notes
last 4  CRC           uint32    CRC-32C of all bytes before
"""

import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from logfs.disk.remote.objects import ObjectStore
from logfs.errors import CorruptIndexError, CorruptRecordError
from logfs.log.checkpoints import EpochEntry
from logfs.log.remote.framing import framed, unframed
from logfs.log.segments.snapshot import LogPoint
from logfs.records.compression import Compression, compress, decompress_to
from logfs.records.jsontext import decode_json
from logfs.types import Positions, TopicPartition

PREFIX = "logfs-journal/"
ROOT = PREFIX + "root"
VERSION = 1
MOST_PAYLOAD_BYTES = 8 << 20
"""Bytes of the rows of one object."""
MOST_OBJECT_BYTES = 64 << 20
_MAGIC = b"LFTJ"
_LENGTH = struct.Struct(">i")
_NAME = re.compile(re.escape(PREFIX) + r"([0-9]{10})-([0-9]{10})")
_FASTEST = 1
"""The level of zstd."""


class ObjectName(NamedTuple):
    """Which object of the journal: the epoch of its writer, and its number in that epoch."""

    epoch: int
    sequence: int

    @property
    def key(self) -> str:
        """The key in the store."""
        return f"{PREFIX}{self.epoch:010d}-{self.sequence:010d}"


class PartitionId(NamedTuple):
    """A partition, however its topic is named."""

    topic_id: UUID
    partition: int


class PartitionFacts(NamedTuple):
    """What is not in a ``.log`` and is needed to open it.

    Attributes:
        generation: The generation of the positions, as in the segment table.
        start: The log start.
        config: Settings of the topic; None: a broker made it.
    """

    generation: bytes
    start: LogPoint
    config: Mapping[str, str] | None


class Row(NamedTuple):
    """A range of bytes of one ``.log``.

    Attributes:
        topic: The name of the topic.
        id: The partition.
        base_offset, bases: Those of the segment.
        content: Larger than that of other bytes which the segment had before.
        position: First byte in the file.
        length: Bytes of the range.
        next_offset: The offset after the last record if the range ends with the segment; else -1.
        is_whole: The range ends where the log ended when it was read.
        leader_epochs: Those of the log then.
        facts: The facts, in the first row of each content, and where they are others than before.
    """

    topic: str
    id: PartitionId
    base_offset: int
    bases: Positions
    content: int
    position: int
    length: int
    next_offset: int = -1
    is_whole: bool = False
    leader_epochs: Sequence[EpochEntry] = ()
    facts: PartitionFacts | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.id.partition)


class JournalObject(NamedTuple):
    """One object of the journal.

    Attributes:
        nonce: 32 hexadecimal digits, random.
        written_ms: The moment at which the log was read, epoch milliseconds.
        fence: The epoch that begins after this object; 0: it is no fence.
        payload: The bytes of the rows.
        gone: Partitions that were deleted: what other objects have of them is void.
        notes: Name -> contents, of those that are not as in an earlier object; b"": it is gone. See
            ``notes``.
        heads: Partitions whose head may have changed since the object before, for readers.
    """

    nonce: str
    written_ms: int
    rows: Sequence[Row] = ()
    payload: bytes | memoryview = b""
    gone: Sequence[PartitionId] = ()
    fence: int = 0
    notes: Mapping[str, bytes] = MappingProxyType({})
    heads: Sequence[PartitionId] = ()


def parse_name(key: str) -> ObjectName | None:
    """Return which object has a key; None for other keys."""
    match = _NAME.fullmatch(key)
    return None if match is None else ObjectName(int(match[1]), int(match[2]))


class ListedObject(NamedTuple):
    """An object as a list of the store has it."""

    name: ObjectName
    modified_ms: int


def list_objects(store: ObjectStore) -> list[ListedObject]:
    """Return the objects of a journal in their order, fences included."""
    found = []
    for stat in store.list_level(PREFIX).objects:
        name = parse_name(stat.key)
        if name is not None:
            found.append(ListedObject(name, stat.modified_ms))
    return sorted(found)


def read_object(store: ObjectStore, name: ObjectName) -> JournalObject:
    """Read an object.

    Raises:
        FileNotFoundError: There is none.
        CorruptIndexError, UnsupportedFormatError: See ``decode_object``.
        OSError: The store failed.
    """
    data, _ = store.get(name.key, MOST_OBJECT_BYTES)
    return decode_object(data, f"{store.url}/{name.key}")


def encode_object(one: JournalObject) -> bytes:
    """Return the bytes of an object."""
    ids = sorted({(row.topic, row.id.topic_id.hex) for row in one.rows})
    numbers = {pair: number for number, pair in enumerate(ids)}
    facts = {
        "nonce": one.nonce,
        "ms": one.written_ms,
        "fence": one.fence,
        "gone": [[topic_id.hex, partition] for topic_id, partition in one.gone],
        "heads": [[topic_id.hex, partition] for topic_id, partition in one.heads],
        "topics": ids,
        "rows": [_row_as_json(row, numbers[row.topic, row.id.topic_id.hex]) for row in one.rows],
        "notes": [[name, len(data)] for name, data in one.notes.items()],
    }
    text = json.dumps(facts, separators=(",", ":")).encode()
    body = b"".join((_LENGTH.pack(len(text)), text, one.payload, *one.notes.values()))
    return framed(_MAGIC, VERSION, len(body), compress(Compression.ZSTD, body, _FASTEST))


def decode_object(data: bytes, source: str) -> JournalObject:
    """Decode an object.

    Args:
        data: The whole object.
        source: Its address, for errors.

    Raises:
        UnsupportedFormatError: A newer logfs wrote it.
        CorruptIndexError: It is no object of a journal, or damaged.
    """
    length, packed = unframed(data, _MAGIC, VERSION, "an object of a journal", source)
    try:
        body = decompress_to(length, packed)
        payload_at = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        payload = body[payload_at:]
        found = decode_json(
            bytes(body[_LENGTH.size : payload_at]), lambda facts: _object_of(facts, payload)
        )
    except (ValueError, struct.error, CorruptRecordError) as error:
        raise CorruptIndexError(f"{source}: {error}") from None
    if sum(row.length for row in found.rows) != len(found.payload):
        raise CorruptIndexError(f"{source}: its rows have another length than their bytes")
    return found


def _row_as_json(row: Row, topic: int) -> list[object]:
    found: list[object] = [
        topic, row.id.partition, row.base_offset, list(row.bases), row.content, row.position,
        row.length, row.next_offset, int(row.is_whole),
        [list(one) for one in row.leader_epochs],
    ]  # fmt: skip
    if row.facts is not None:
        generation, start, config = row.facts
        settings = None if config is None else dict(config)
        found += [generation.hex(), [start.offset, *start.positions], settings]
    return found


def _object_of(facts: Mapping[str, Any], payload: memoryview) -> JournalObject:
    topics = [(name, UUID(hex=topic_id)) for name, topic_id in facts["topics"]]
    rows = [_row_of(row, topics) for row in facts["rows"]]
    gone, heads = _ids_of(facts["gone"]), tuple(_ids_of(facts.get("heads", ())))
    end = len(payload) - sum(length for _, length in facts["notes"])
    notes, at = {}, end
    for name, length in facts["notes"]:
        notes[name] = bytes(payload[at : at + length])
        at += length
    return JournalObject(
        facts["nonce"], facts["ms"], rows, payload[:end], gone, facts["fence"], notes, heads
    )


def _ids_of(found: Iterable[tuple[str, int]]) -> list[PartitionId]:
    return [PartitionId(UUID(hex=topic_id), partition) for topic_id, partition in found]


def _row_of(found: list[Any], topics: list[tuple[str, UUID]]) -> Row:
    number, partition, base_offset, bases, content, position, length, *more = found
    after, whole, epochs, *rest = more
    leader_epochs = [EpochEntry(*one) for one in epochs]
    name, topic_id = topics[number]
    facts = None
    if rest:
        generation, (offset, *positions), config = rest
        start = LogPoint(offset, Positions(*positions))
        facts = PartitionFacts(bytes.fromhex(generation), start, config)
    return Row(
        name, PartitionId(topic_id, partition), base_offset, Positions(*bases), content, position,
        length, after, whole == 1, leader_epochs, facts,
    )  # fmt: skip
