"""The last offset of each key of a log, worked out in three steps that share nothing.

    scan     of a segment: the last offset of each of its keys, cut by the hash into buckets
    reduce   of a bucket: of each key the last offset of all; which segment that lies in
    mark     of a segment: a bit for each of its offsets, set for the last one of a key

Each takes and returns blobs of some megabytes, so that the shuffle has few rows. A key is
identified by its hash of 128 bits, as in compaction on one machine (``OffsetMap``). The number of
keys is not limited: a segment with more keys than fit into a map gives several blobs, and there are
as many buckets as needed.
"""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from logfs.disk.vfs import Disk
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.segments.snapshot import Snapshot
from logfs.records._compaction import OffsetMap
from logfs.services.compaction.dirtyrange import DirtyRange
from logfs.services.compaction.offsetmap import SegmentLog, read_keys
from logfs.services.compaction.tools import CleaningTools
from logfs.services.compaction.transactions import CleanedTransactions

MAP_BYTES = 128 << 20
"""The size of the map of a task, Kafka's ``log.cleaner.dedupe.buffer.size``."""
_ENTRY = np.dtype([("low", np.uint64), ("high", np.uint64), ("behind", np.int64)])
_LOAD_FACTOR = 0.75
_KEYS_OF_A_BUCKET = 4_000_000
_MOST_BUCKETS = 4096
_PIECE_BYTES = 1 << 20
_MARKED_AT_ONCE = 1 << 24
"""Offsets; a multiple of 8."""


class SegmentKeys(NamedTuple):
    """A segment whose keys are asked for, and the aborted transactions in it."""

    name: str
    size_bytes: int
    base_offset: int
    next_base: int
    aborted: tuple[AbortedTransaction, ...]


class KeyScan(NamedTuple):
    """The settings of all segments of a job: buckets, and memory for the keys of a segment."""

    hash_key: bytes
    buckets: int
    map_bytes: int = MAP_BYTES


def segments_of(snapshot: Snapshot, dirty: DirtyRange) -> list[SegmentKeys]:
    """Return the segments that a round goes through, clean ones too: a later key may be in them."""
    stop = dirty.first_uncleanable
    sealed = [s for s in snapshot.segments[:-1] if s.base_offset < stop]
    next_bases = [*(segment.base_offset for segment in sealed[1:]), stop]
    return [
        SegmentKeys(
            segment.name,
            segment.size_bytes,
            segment.base_offset,
            next_base,
            tuple(
                a
                for a in snapshot.aborted
                if a.last_offset >= segment.base_offset and a.first_offset < next_base
            ),
        )
        for segment, next_base in zip(sealed, next_bases, strict=True)
    ]


def count_buckets(segments: Iterable[SegmentKeys], least: int) -> int:
    """Return how many buckets it takes for the keys of one to fit into a worker's memory."""
    most_keys = sum(segment.next_base - segment.base_offset for segment in segments)
    wanted = -(-most_keys // _KEYS_OF_A_BUCKET)
    return min(max(wanted, least if most_keys > _KEYS_OF_A_BUCKET else 1), _MOST_BUCKETS)


def scan(disk: Disk, segment: SegmentKeys, job: KeyScan) -> Iterator[tuple[int, bytes]]:
    """Give the keys of a segment with the numbers of their buckets; raise CorruptRecordError."""
    tools = CleaningTools(lambda: job.hash_key, lambda: 0.0, piece_bytes=_PIECE_BYTES)
    start, is_done = segment.base_offset, False
    while not is_done:
        offsets = OffsetMap(job.map_bytes, _LOAD_FACTOR, job.hash_key)
        transactions = CleanedTransactions()
        transactions.add_aborted(segment.aborted)
        log = SegmentLog(disk.open(segment.name), segment.name, segment.size_bytes)
        read_keys(log, offsets, start, transactions, tools)
        log.file.close()
        start, is_done = offsets.latest_offset + 1, not offsets.is_full
        yield from _by_bucket(np.frombuffer(offsets.entries(), _ENTRY), job.buckets)


def _by_bucket(entries: "np.ndarray", buckets: int) -> Iterator[tuple[int, bytes]]:
    # By the half that does not place a key in a map: those of a bucket would crowd together there.
    # It is spread evenly; its upper 32 bits say enough, and times the buckets fit 64.
    numbers = ((entries["high"] >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32)
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(buckets + 1, dtype=np.uint64))
    for bucket in range(buckets):
        chosen = order[bounds[bucket] : bounds[bucket + 1]]
        if len(chosen):
            yield bucket, entries[chosen].tobytes()


def reduce(blobs: Sequence[bytes], bases: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Give the last offsets of the keys of a bucket: the number of a segment, and those in it."""
    most = sum(map(len, blobs)) // _ENTRY.itemsize
    memory_bytes = int(most / _LOAD_FACTOR + 2) * _ENTRY.itemsize
    offsets = OffsetMap(memory_bytes, _LOAD_FACTOR, bytes(16))  # hashes nothing
    for blob in blobs:
        offsets.merge(blob)
    found = np.sort(np.frombuffer(offsets.entries(), _ENTRY)["behind"]) - 1
    at = 0
    while at < len(found):
        number = bisect_right(bases, int(found[at])) - 1
        is_last = number + 1 == len(bases)
        stop = len(found) if is_last else int(np.searchsorted(found, bases[number + 1]))
        yield number, (found[at:stop] - bases[number]).astype(np.uint32).tobytes()
        at = stop


def mark(blobs: Iterable[bytes], offsets: int) -> bytes:
    """Return a bit for each offset of a segment, compressed; see ``unpack``."""
    found = np.sort(np.concatenate([np.frombuffer(blob, np.uint32) for blob in blobs]))
    packer, parts = zlib.compressobj(1), []
    for begin in range(0, offsets, _MARKED_AT_ONCE):
        end = min(begin + _MARKED_AT_ONCE, offsets)
        here = found[np.searchsorted(found, begin) : np.searchsorted(found, end)]
        bits = np.zeros(end - begin, np.bool_)
        bits[here - np.uint32(begin)] = True
        parts.append(packer.compress(np.packbits(bits, bitorder="little").tobytes()))
    return b"".join([*parts, packer.flush()])


def unpack(marked: bytes | None, offsets: int) -> bytes:
    """Return the bits of a segment of so many offsets; of one where nothing was marked, zeros."""
    return bytes(-(-offsets // 8)) if marked is None else zlib.decompress(marked)
