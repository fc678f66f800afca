"""Directories of arbitrary batches whose checksums are right, and what a reader may see of them.

The rule, as plainly as possible: a batch is used if its records decode and its offsets are not
below the end of the batch before it, from the base offset of its segment on. Another one is
refused, and has a place of its size in each view. It keeps its offsets if they are its own.
"""

import struct
from dataclasses import dataclass, field, replace
from random import Random

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.checksum import crc32c
from logfs.records.compression import Compression
from logfs.records.record import Record
from logfs.types import Positions, View
from tests.fakes import START_MS
from tests.log.legacy import foreign
from tests.log.support import Bench
from tests.records.messages import message, wrapper
from tests.records.oracle import lengths, renderings

FAR = 2**31
CLEAN = ".kafka_cleanshutdown"


@dataclass(frozen=True)
class Made:
    """A batch: its bytes, its offsets, the records that are seen; None: they do not decode."""

    data: bytes
    first: int
    last: int
    records: tuple[Record, ...] | None


@dataclass
class Directory:
    """The segments of a partition, as batches."""

    segments: list[tuple[int, list[Made]]] = field(default_factory=list)

    def left(self, *, is_clean: bool) -> Bench:
        """Return a disk on which a broker has left them; none of it is loaded yet."""
        bench = foreign(
            *((base, b"".join(one.data for one in batches)) for base, batches in self.segments)
        )
        if is_clean:
            bench.disk.replace(CLEAN, b"{}")
        return bench


@dataclass
class Seen:
    """What readers see.

    Attributes:
        records: All, in order.
        runs: For each view the bytes between two refused batches, each with its position.
        refused: Refused batches: segment, file position, positions of the place, size.
        next_offset: The end of the log.
        ends: The positions at which it ends.
    """

    records: list[Record] = field(default_factory=list)
    runs: list[tuple[Positions, list[Record]]] = field(default_factory=list)
    refused: list[tuple[int, int, Positions, int]] = field(default_factory=list)
    next_offset: int = 0
    ends: Positions = field(default_factory=Positions)

    def bytes_of(self, view: View) -> list[tuple[int, bytes]]:
        return [(at[view], renderings(view, records)) for at, records in self.runs]


def see(directory: Directory, *, is_clean: bool) -> Seen:
    """Apply the rule. Recovery cuts what is refused at the end of the log."""
    seen = Seen([], [(Positions(), [])], next_offset=directory.segments[0][0])
    end = seen.next_offset, seen.ends, 0
    for base, batches in directory.segments:
        after, position = base, 0
        for one in batches:
            if one.records is not None and one.first >= after:
                after = one.last + 1
                seen.records += one.records
                seen.runs[-1][1].extend(one.records)
                seen.ends = seen.ends.plus(lengths(one.records))
                end = after, seen.ends, len(seen.refused)
            else:
                if one.first >= after:
                    after = one.last + 1
                size = len(one.data)
                seen.refused.append((base, position, seen.ends, size))
                seen.ends = seen.ends.plus((size, size, size))
                seen.runs.append((seen.ends, []))
            position += len(one.data)
        seen.next_offset = after
        if base is not directory.segments[-1][0] or not batches:
            end = after, seen.ends, len(seen.refused)
    if not is_clean:
        last = directory.segments[-1][0]
        if end[0] < last:
            end = last, end[1], end[2]
        seen.next_offset, seen.ends, count = end
        del seen.refused[count:], seen.runs[count + 1 :]
    return seen


def directories(seed: int) -> Directory:
    """Return an arbitrary directory."""
    chance, found, offset = Random(seed), Directory(), 0
    for _ in range(chance.choice((1, 1, 2, 3))):
        base = offset + chance.choice((0, 0, 0, 1007))
        batches, after = [], base
        for _ in range(chance.choice((0, 1, 3, 5, 9))):
            batch = _batch(chance, _first(chance, after))
            batches.append(batch)
            if batch.first >= after:
                after = batch.last + 1
        found.segments.append((base, batches))
        offset = max(after, base + 1000)
    return found


def _first(chance: Random, after: int) -> int:
    match chance.choice(("next",) * 5 + ("gap", "back", "back", "far")):
        case "gap":
            return after + 1000 + chance.randrange(30)  # too far to be proven wrong
        case "back":
            return max(after - chance.randrange(1, 12), 0)
        case "far":
            return after + FAR + chance.randrange(10)
    return after


def _records(chance: Random, first: int, count: int, *, is_old: bool = False) -> list[Record]:
    offset, found = first, []
    for number in range(count):
        headers = ((b"h", b"v"),) if not is_old and chance.random() < 0.1 else ()
        value = chance.choice((None, b"", b"value %d" % offset, b"x\ny\t" * chance.randrange(30)))
        key = chance.choice((None, b"k%d" % number))
        found.append(Record(offset, START_MS + offset % 1000, key, value, headers))
        offset += 1 if is_old else chance.choice((1, 1, 1, 3))
    return found


def _batch(chance: Random, first: int) -> Made:
    kind = chance.choice(("plain", "plain", "codec", "bits", "control", "empty", "old", "bad"))
    count = chance.choice((1, 2, 5, 40))
    if kind == "old":
        return _old(chance, first, count)
    records = _records(chance, first, count)
    last = records[-1].offset + chance.choice((0, 0, 2))
    fields = BatchFields(base_offset=first, last_offset=last)
    match kind:
        case "codec":
            fields = replace(fields, compression=chance.choice(list(Compression)))
        case "control":
            control = Record(first, START_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")
            fields = BatchFields(producer_id=7, producer_epoch=0, is_control=True)
            return Made(encode_batch([control], fields), first, first, ())
        case "empty":
            fields = replace(fields, max_timestamp=START_MS)
            return Made(encode_batch([], fields), first, last, ())
        case "bits":
            return Made(
                with_bits(encode_batch(records, fields), chance.choice((64, 128, 0x4000))),
                *(first, last, tuple(records)),
            )
        case "bad":
            return Made(_spoilt(chance, encode_batch(records, fields)), first, last, None)
    return Made(encode_batch(records, fields), first, last, tuple(records))


def _old(chance: Random, first: int, count: int) -> Made:
    magic = chance.randrange(2)
    codec = chance.choice((Compression.NONE, Compression.GZIP, Compression.SNAPPY))
    records = _records(chance, first, 1 if codec is Compression.NONE else count, is_old=True)
    if magic == 0:
        records = [record._replace(timestamp=-1) for record in records]
    if codec is Compression.NONE:
        data = message(magic, records[0])
    else:
        data = wrapper(magic, codec, records)
    return Made(data, first, records[-1].offset, tuple(records))


def sealed(data: bytes) -> bytes:
    """Give a batch the right length and checksum."""
    data = data[:8] + struct.pack(">i", len(data) - 12) + data[12:]
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def with_bits(data: bytes, bits: int) -> bytes:
    """Set attribute bits of a batch."""
    attributes = struct.unpack_from(">H", data, 21)[0] | bits
    return sealed(data[:21] + struct.pack(">H", attributes) + data[23:])


def _spoilt(chance: Random, data: bytes) -> bytes:
    """Return a batch whose records do not decode, with the right checksum."""
    count = struct.unpack_from(">i", data, 57)[0]
    match chance.choice(("count", "rest", "codec", "record")):
        case "count":
            return sealed(data[:57] + struct.pack(">i", count + 1) + data[61:])
        case "rest":
            return sealed(data + b"\0\0")
        case "codec":
            return with_bits(data, 7)
    return sealed(data[:61] + b"\x01" + data[62:])
