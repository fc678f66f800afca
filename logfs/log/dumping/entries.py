"""Producer snapshots, transaction indexes and checkpoints: files of entries that are only printed.

    leader-epoch-checkpoint    epoch: <n> startOffset: <n>
    offset checkpoint          topic: <name> partition: <n> offset: <n>

Sources: Kafka DumpLogSegments; ProducerStateManager.readSnapshot, what it says of a bad snapshot.
"""

from logfs.disk.vfs import LARGER_FILE_BYTES
from logfs.log.checkpoints import parse_leader_epochs, parse_offsets
from logfs.log.dumping.findings import Findings
from logfs.log.dumping.source import Source, Streams
from logfs.log.indexes.txnindex import VERSION, decode_txn_index
from logfs.log.producers.snapshots import CHECKED_FROM, ENTRY, HEADER, decode_snapshot
from logfs.log.producers.snapshots import VERSION as SNAPSHOT_VERSION
from logfs.log.producers.state import ProducerEntry
from logfs.records.checksum import crc32c


def dump_snapshot(source: Source, streams: Streams, findings: Findings) -> None:
    """Print a producer snapshot; what is wrong with it goes to stderr, as in Kafka's tool."""
    data = source.disk.read(source.name, LARGER_FILE_BYTES)
    problem = _snapshot_problem(data)
    if problem is not None:
        findings.is_damaged = True
        streams.complain(problem)
        return
    for entry in decode_snapshot(data, source.path):
        streams.print(_producer_line(entry))


def dump_txn_index(source: Source, streams: Streams) -> None:
    """Print a transaction index.

    Raises:
        CorruptIndexError: An entry has an unknown version.
    """
    for entry in decode_txn_index(source.disk.read(source.name, LARGER_FILE_BYTES)):
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
    if len(data) < HEADER.size:
        return f"{invalid}null"
    version, stored, count = HEADER.unpack_from(data)
    left = len(data) - HEADER.size
    computed = crc32c(data[CHECKED_FROM:])
    problem = None
    if version != SNAPSHOT_VERSION:
        problem = f"{invalid}Snapshot contained an unknown file version {version}"
    elif count < 0:
        problem = f"{invalid}non-nullable field producerEntries was serialized as null"
    elif count > left:
        problem = (
            f"{invalid}Tried to allocate a collection of size {count}, but there are only {left} "
            "bytes remaining."
        )
    elif count * ENTRY.size > left:
        problem = f"{invalid}null"
    elif stored != computed:
        problem = (
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. "
            f"Computed crc: {computed}"
        )
    return problem


def _producer_line(entry: ProducerEntry) -> str:
    offset = entry.transaction_offset
    first = "OptionalLong.empty" if offset is None else f"OptionalLong[{offset}]"
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {first} "
        f"lastTimestamp: {entry.last_timestamp} "
    )
    if not entry.batches:
        return line
    batch = entry.batches[-1]
    return (
        f"{line}firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
        f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
        f"timestamp: {batch.timestamp}"
    )
