"""A sealed segment becomes a tiered one: its objects are put, the head names them, and the rows.

Only segments that cannot change any more are copied, the oldest first: sealed, durable, below the
high watermark and the last stable offset. Nothing here takes the lock of the partition while the
store is asked.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import local_part
from logfs.disk.vfs import Disk, ReadableBuffer
from logfs.errors import DivergedError, RemoteStorageError
from logfs.log.checkpoints import EpochEntry, format_leader_epochs
from logfs.log.names import FileKind, format_segment_file
from logfs.log.partition import PartitionLog
from logfs.log.remote.entries import BLOCK_BYTES, PartLengths, TieredEntry
from logfs.log.remote.keys import INDEXES, PartitionPlace
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import LogPoint
from logfs.log.segments.table import SegmentState
from logfs.records.checksum import crc32c
from logfs.services.packing.packer import is_packing
from logfs.services.tiering.heads import HeadWriter

logger = logging.getLogger(__name__)

CHUNK_BYTES = 8 * BLOCK_BYTES
"""Bytes that are read and sent at once."""

Throttle = Callable[[int], None]
"""Called before so many bytes are sent; may wait, and raises what ends the copy."""


class SegmentToCopy(NamedTuple):
    """A segment to copy, and the base offset of the one after it."""

    segment: Segment
    following: int


class Checksums(NamedTuple):
    """The CRC-32C of a ``.log``, and of each of its blocks."""

    log: int
    blocks: bytes


def segments_to_copy(log: PartitionLog) -> list[SegmentToCopy]:
    """Return the segments of a partition that may be copied and are not, oldest first."""
    state = log.state
    if state.deferred is not None or log.offline is not None or log.is_deleted:
        return []
    snapshot = log.snapshot
    limit = min(log.recovery_point, log.high_watermark, log.last_stable_offset)
    done = -1 if log.tier is None else log.tier.next_offset or -1
    found = []
    packs = is_packing(log.config)
    for number, segment in enumerate(snapshot.segments[:-1]):
        if segment.next_offset > limit or (packs and _will_be_packed(log, segment)):
            break
        if segment.base_offset >= done and segment.size_bytes:
            found.append(SegmentToCopy(segment, snapshot.segments[number + 1].base_offset))
    return found


def _will_be_packed(log: PartitionLog, segment: Segment) -> bool:
    """Whether a segment is to be packed first: in the store it is never changed."""
    if not segment.size_bytes or segment.has_gaps or segment.base_offset in log.packing.failed:
        return False
    return not segment.is_packed


def put_segment(
    log: PartitionLog,
    wanted: SegmentToCopy,
    store: ObjectStore,
    place: PartitionPlace,
    segment_id: bytes,
    throttle: Throttle,
) -> TieredEntry:
    """Store the objects of a segment under a new segment id; returns the entry for the head.

    Raises:
        FileNotFoundError: The log has dropped the segment meanwhile.
        RemoteStorageError: Its files are not those of a sealed segment.
        OSError: The disk or the store failed; what is in the store is an orphan.
    """
    segment, disk = wanted.segment, local_part(log.disk)
    base_offset = segment.base_offset
    name = segment.name
    mtime_ms = disk.stat(name).mtime_ms
    checksums: list[Checksums] = []
    store.put(
        place.log(base_offset, segment_id), _sent(_chunks(disk, segment, checksums), throttle)
    )
    parts = _index_parts(log, wanted, checksums[0].blocks)
    data = b"".join(parts)
    store.put(place.indexes(base_offset, segment_id), _sent(_pieces(data), throttle))
    return TieredEntry(
        segment.entry(SegmentState.SEALED),
        segment_id,
        mtime_ms,
        PartLengths(*map(len, parts)),
        checksums[0].log,
        crc32c(data),
    )


def put_again(
    writer: HeadWriter,
    log: PartitionLog,
    wanted: SegmentToCopy,
    entry: TieredEntry,
    missing: Collection[str],
    throttle: Throttle,
) -> None:
    """Store objects of a tiered segment again, under the same keys and with the same bytes.

    Args:
        writer: The writer of the head.
        log: The partition.
        wanted: The segment, which has local files.
        entry: The entry of the segment.
        missing: The keys of those that the store does not have.
        throttle: Called before bytes are sent.

    Raises:
        RemoteStorageError: The local files are not the ones that were copied.
        OSError: The disk or the store failed.
    """
    disk, segment = local_part(log.disk), wanted.segment
    store, place = writer.store, writer.place
    checksums: list[Checksums] = []
    for _ in _chunks(disk, segment, checksums):
        pass
    indexes = b"".join(_index_parts(log, wanted, checksums[0].blocks))
    for key, is_same in (
        (place.indexes(entry.base_offset, entry.segment_id), crc32c(indexes) == entry.indexes_crc),
        (place.log(entry.base_offset, entry.segment_id), checksums[0].log == entry.log_crc),
    ):
        if key in missing and not is_same:
            raise RemoteStorageError(
                f"{store.url}/{key}: the object is gone, and cannot be made again of the local "
                "files. They stay"
            )
        if key in missing and key.endswith(INDEXES):
            store.put(key, _sent(_pieces(indexes), throttle))
        elif key in missing:
            store.put(key, _sent(_chunks(disk, segment, []), throttle))


def check_same(local: TieredEntry, stored: TieredEntry, source: str) -> None:
    """See that the store has the segment that the data directory has.

    Raises:
        DivergedError: It has another one; nothing must be dropped.
    """
    same = stored._replace(entry=stored.entry._replace(is_packed=local.entry.is_packed))
    if (local.entry, local.log_crc) != (same.entry, same.log_crc):
        raise DivergedError(
            f"{source}: the segment at offset {stored.base_offset} is another one than in the data "
            f"directory ({_described(stored)}; local: {_described(local)}). Nothing is copied or "
            "dropped any more. Perhaps two copies of this directory were written at once"
        )


def describe_local(log: PartitionLog, segment: Segment, like: TieredEntry) -> TieredEntry:
    """Return what the entry of a segment would be by its local files; reads the whole ``.log``."""
    checksums: list[Checksums] = []
    for _ in _chunks(local_part(log.disk), segment, checksums):
        pass
    return like._replace(entry=segment.entry(SegmentState.SEALED), log_crc=checksums[0].log)


def epochs_below(log: PartitionLog, offset: int) -> list[EpochEntry]:
    """Return the leader epochs that begin below an offset."""
    return [entry for entry in log.state.epochs.entries if entry.start_offset < offset]


def start_of(log: PartitionLog) -> LogPoint:
    """Return the log start of a partition."""
    return log.snapshot.start


def _described(entry: TieredEntry) -> str:
    return f"{entry.size_bytes} bytes to offset {entry.next_offset}, CRC {entry.log_crc:08x}"


def _chunks(disk: Disk, segment: Segment, checksums: list[Checksums]) -> Iterator[ReadableBuffer]:
    """Return the bytes of a ``.log``; after the last ones ``checksums`` has those of the file."""
    file = disk.open(segment.name, uncached=True)
    try:
        size = file.size()
        if size != segment.size_bytes:
            raise RemoteStorageError(
                f"{segment.name} has {size} bytes; expected {segment.size_bytes}, its size "
                "when it was sealed. It is not copied. Run 'logfs verify'"
            )
        whole, blocks = 0, []
        for position in range(0, size, CHUNK_BYTES):
            data = file.pread(min(CHUNK_BYTES, size - position), position)
            if len(data) < min(CHUNK_BYTES, size - position):
                raise RemoteStorageError(f"{segment.name} became shorter while it was copied")
            view = memoryview(data)
            whole = crc32c(view, whole)
            blocks += [
                crc32c(view[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)
            ]
            yield data
        checksums.append(Checksums(whole, b"".join(crc.to_bytes(4, "big") for crc in blocks)))
    finally:
        file.close()


def _sent(
    chunks: Iterator[ReadableBuffer] | list[bytes], throttle: Throttle
) -> Iterator[ReadableBuffer]:
    for chunk in chunks:
        throttle(len(chunk))
        yield chunk


def _pieces(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def _index_parts(log: PartitionLog, wanted: SegmentToCopy, blocks: bytes) -> list[bytes]:
    """Return the parts of the ``.indexes`` object of a segment, in their order."""
    segment, disk = wanted.segment, local_part(log.disk)
    indexes = segment.files().indexes
    parts = []
    for index in (indexes.offset, indexes.time, indexes.text):
        index.entries()  # refuses a header that is wrong
        parts.append(disk.read(index.name, None))
    offset, time, text = parts
    snapshot = f"{log.directory}/{format_segment_file(wanted.following, FileKind.SNAPSHOT)}"
    return [
        offset,
        time,
        _read_if_there(disk, snapshot),
        format_leader_epochs(epochs_below(log, segment.next_offset)),
        _read_if_there(disk, segment.file_name(FileKind.TXN_INDEX)),
        text,
        blocks,
    ]


def _read_if_there(disk: Disk, name: str) -> bytes:
    try:
        return disk.read(name, None)
    except FileNotFoundError:
        return b""
