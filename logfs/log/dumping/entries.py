"""Producer snapshots, transaction indexes and checkpoints: files of entries that are only printed.

    producer snapshot, .snapshot; a file that is not sound in every byte is not used
    bytes  field            type
    0-1    version          int16   1
    2-5    CRC              uint32  CRC-32C of bytes 6 to the end
    6-9    count            int32   of the entries, 46 bytes each:
    0-7    producer id      int64
    8-9    producer epoch   int16
    10-13  last sequence    int32   -1: no batch known
    14-21  last offset      int64   -1: no batch known
    22-25  offset delta     int32   last offset - base offset of the last batch
    26-33  timestamp        int64   of the last batch or marker
    34-37  coordinator      int32   its epoch, -1: none
    38-45  transaction      int64   first offset of the open one, -1: none

    leader-epoch-checkpoint    epoch: <n> startOffset: <n>
    offset checkpoint          topic: <name> partition: <n> offset: <n>

Source: Kafka ProducerStateManager.readSnapshot, DumpLogSegments.
"""

import struct

from logfs.log.checkpoints import parse_leader_epochs, parse_offsets
from logfs.log.dumping.findings import Findings
from logfs.log.dumping.source import Source, Streams
from logfs.log.producers.txnindex import VERSION, decode_txn_index
from logfs.records.checksum import crc32c

_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEADER = struct.Struct(">hIi")
_CRC_START = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_MAX_INT32 = 2**31 - 1


def dump_snapshot(source: Source, streams: Streams, findings: Findings) -> None:
    """Print a producer snapshot; what is wrong with it goes to stderr, as in Kafka's tool."""
    data = source.disk.read(source.name)
    problem = _snapshot_problem(data)
    if problem is not None:
        findings.is_damaged = True
        streams.complain(problem)
        return
    count = _SNAPSHOT_HEADER.unpack_from(data)[2]
    stop = _SNAPSHOT_HEADER.size + count * _ENTRY.size
    for entry in _ENTRY.iter_unpack(data[_SNAPSHOT_HEADER.size : stop]):
        streams.print(_producer_line(*entry))


def dump_txn_index(source: Source, streams: Streams) -> None:
    """Print a transaction index.

    Raises:
        CorruptIndexError: An entry has an unknown version.
    """
    for entry in decode_txn_index(source.disk.read(source.name)):
        streams.print(
            f"version: {VERSION} producerId: {entry.producer_id} "
            f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )


def dump_leader_epochs(source: Source, streams: Streams) -> None:
    """Print a leader epoch checkpoint.

    Raises:
        CorruptCheckpointError: It does not parse.
    """
    for entry in parse_leader_epochs(source.disk.read(source.name), source.path):
        streams.print(f"epoch: {entry.epoch} startOffset: {entry.start_offset}")


def dump_offset_checkpoint(source: Source, streams: Streams) -> None:
    """Print an offset checkpoint.

    Raises:
        CorruptCheckpointError: It does not parse.
    """
    offsets = parse_offsets(source.disk.read(source.name), source.path)
    for (topic, partition), offset in offsets.items():
        streams.print(f"topic: {topic} partition: {partition} offset: {offset}")


def _snapshot_problem(data: bytes) -> str | None:
    """Return what Kafka says of a snapshot that it does not use, None of a sound one."""
    invalid = "Snapshot failed schema validation: "
    if len(data) < _SNAPSHOT_HEADER.size:
        return f"{invalid}null"
    version, stored, count = _SNAPSHOT_HEADER.unpack_from(data)
    left = len(data) - _SNAPSHOT_HEADER.size
    computed = crc32c(data[_CRC_START:])
    problem = None
    if version != _SNAPSHOT_VERSION:
        problem = f"{invalid}Snapshot contained an unknown file version {version}"
    elif count < 0:
        problem = f"{invalid}non-nullable field producerEntries was serialized as null"
    elif count > left:
        problem = (
            f"{invalid}Tried to allocate a collection of size {count}, but there are only {left} "
            "bytes remaining."
        )
    elif count * _ENTRY.size > left:
        problem = f"{invalid}null"
    elif stored != computed:
        problem = (
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. "
            f"Computed crc: {computed}"
        )
    return problem


def _producer_line(*entry: int) -> str:
    (
        producer_id,
        epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
        coordinator_epoch,
        transaction,
    ) = entry
    first = "OptionalLong.empty" if transaction < 0 else f"OptionalLong[{transaction}]"
    line = (
        f"producerId: {producer_id} producerEpoch: {epoch} coordinatorEpoch: {coordinator_epoch} "
        f"currentTxnFirstOffset: {first} lastTimestamp: {timestamp} "
    )
    if last_offset < 0:
        return line
    first_sequence = last_sequence - offset_delta
    if first_sequence < 0:  # sequences go on with 0 behind 2^31 - 1
        first_sequence += _MAX_INT32 + 1
    return (
        f"{line}firstSequence: {first_sequence} lastSequence: {last_sequence} "
        f"lastOffset: {last_offset} offsetDelta: {offset_delta} timestamp: {timestamp}"
    )
