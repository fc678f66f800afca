"""Producer snapshots: ``<offset>.snapshot``, the producers at an offset.

    bytes   field                 type
    0-1     version               int16   1
    2-5     CRC                   uint32  CRC-32C of bytes 6 to the end
    6-9     number of entries     int32

    entry, 46 bytes
    0-7     producer id           int64
    8-9     producer epoch        int16
    10-13   last sequence         int32   -1: no batch of this epoch
    14-21   last offset           int64   of the last record; -1: no batch of this epoch
    22-25   offset delta          int32   last offset less base offset of that batch
    26-33   timestamp             int64   of the last batch or marker
    34-37   coordinator epoch     int32   of the last marker; -1: none
    38-45   transaction offset    int64   first offset of the open transaction; -1: none is open

A snapshot is written at the start of a segment, at a clean stop and after recovery. Only batches
after the newest snapshot have to be read again. A torn snapshot is ignored, and the one before it
is used. It holds the last of the last five batches of a producer.

Source: Kafka ProducerStateManager.writeSnapshot, readSnapshot; ProducerSnapshot.json.
"""

import contextlib
import logging
import struct
from collections import deque
from collections.abc import Iterable

from logfs.disk.vfs import LARGER_FILE_BYTES, Disk, File
from logfs.errors import CorruptIndexError
from logfs.log.names import FileKind, format_segment_file
from logfs.log.producers.state import BATCHES_KEPT, ProducerEntry, ProducerState, WrittenBatch
from logfs.records.checksum import crc32c

logger = logging.getLogger(__name__)

VERSION = 1
HEADER = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
CHECKED_FROM = 6


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the contents of a snapshot file."""
    rows = [_encode_entry(entry) for entry in entries]
    data = bytearray(HEADER.pack(VERSION, 0, len(rows)) + b"".join(rows))
    HEADER.pack_into(data, 0, VERSION, crc32c(memoryview(data)[CHECKED_FROM:]), len(rows))
    return bytes(data)


def decode_snapshot(data: bytes, name: str) -> list[ProducerEntry]:
    """Decode a snapshot; raise CorruptIndexError if it is torn or of another version."""
    if len(data) < HEADER.size:
        raise CorruptIndexError(f"{name}: {len(data)} bytes, expected at least {HEADER.size}")
    version, crc, count = HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptIndexError(f"{name}: version {version}, expected {VERSION}")
    if crc32c(data[CHECKED_FROM:]) != crc or len(data) != HEADER.size + count * ENTRY.size:
        raise CorruptIndexError(f"{name}: the checksum of its {len(data)} bytes differs")
    return [_decode_entry(row) for row in ENTRY.iter_unpack(data[HEADER.size :])]


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else WrittenBatch(-1, -1, 0, -1)
    offset = entry.transaction_offset
    return ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        -1 if offset is None else offset,
    )


def _decode_entry(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction = row
    batches = [WrittenBatch(sequence, offset, delta, timestamp)] if offset >= 0 else []
    return ProducerEntry(
        producer_id,
        epoch,
        coordinator_epoch,
        timestamp,
        transaction if transaction >= 0 else None,
        deque(batches, BATCHES_KEPT),
    )


def snapshot_name(directory: str, offset: int) -> str:
    """Return the name of the snapshot at an offset, below the data directory."""
    return f"{directory}/{format_segment_file(offset, FileKind.SNAPSHOT)}"


def write_snapshot(
    disk: Disk, directory: str, offset: int, state: ProducerState, *, is_told: bool = False
) -> File | None:
    """Write the snapshot at an offset, replacing one that is there; not durable yet.

    Args:
        is_told: The log already says that it cannot be written.

    Returns:
        The open file; None if it could not be written. Then only the next start takes longer.
    """
    name = snapshot_name(directory, offset)
    try:
        file = disk.open(name, write=True, create=True)
        file.truncate(0)
        file.pwrite(encode_snapshot(state.entries.values()), 0)
    except OSError as error:
        level = logging.DEBUG if is_told else logging.WARNING
        logger.log(level, "%s could not be written: %s", name, error)
        with contextlib.suppress(OSError):
            remove_snapshot(disk, directory, offset)
        return None
    return file


def read_snapshot(disk: Disk, directory: str, offset: int) -> ProducerState | None:
    """Read the snapshot at an offset; if it cannot be read, log a warning and return None."""
    name = snapshot_name(directory, offset)
    try:
        return ProducerState(decode_snapshot(disk.read(name, LARGER_FILE_BYTES), name))
    except (CorruptIndexError, OSError) as error:
        logger.warning("%s; the one before it is used", error)
        return None


def remove_snapshot(disk: Disk, directory: str, offset: int) -> None:
    """Remove the snapshot at an offset, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(snapshot_name(directory, offset))
