"""Printing one file, chosen by its name, and all files that consist of entries.

    leader-epoch-checkpoint    epoch: <n> startOffset: <n>
    offset checkpoint          topic: <name> partition: <n> offset: <n>

Sources: Kafka DumpLogSegments; ProducerStateManager.readSnapshot for the texts about bad snapshots.
"""

from logfs.disk.vfs import LARGER_FILE_BYTES
from logfs.log import names
from logfs.log.checkpoints import parse_leader_epochs, parse_offsets
from logfs.log.indexes.txnindex import VERSION, decode_txn_index
from logfs.log.producers.snapshots import CHECKED_FROM, ENTRY, HEADER, decode_snapshot
from logfs.log.producers.snapshots import VERSION as SNAPSHOT_VERSION
from logfs.log.producers.state import ProducerEntry
from logfs.records.checksum import crc32c
from logfs.services.dumping.indexes import dump_index, dump_time_index
from logfs.services.dumping.logs import dump_log
from logfs.services.dumping.output import DumpOptions, Findings, Streams
from logfs.services.dumping.source import DumpFile

SUFFIXES = (".log", ".checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex")
"""Kinds of files that Kafka's tool prints."""
CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.LOG_START_OFFSET_CHECKPOINT,
    names.REPLICATION_OFFSET_CHECKPOINT,
    names.CLEANER_OFFSET_CHECKPOINT,
)


def is_known(file_name: str) -> bool:
    """Tell whether a file of this name is printed."""
    return (
        file_name in (names.LEADER_EPOCH_CHECKPOINT, *CHECKPOINTS) or _suffix(file_name) in SUFFIXES
    )


def dump_file(source: DumpFile, options: DumpOptions, streams: Streams, findings: Findings) -> None:
    """Print one file.

    Raises:
        LogfsError: It cannot be read to its end. The part before is printed.

    Source: Kafka DumpLogSegments.main.
    """
    streams.print(f"Dumping {source.path}")
    match _suffix(source.file_name):
        case _ if source.is_log:
            dump_log(source, options, streams, findings)
        case ".checkpoint":
            dump_log(source, options, streams, findings)
        case ".index":
            dump_index(source, options, streams, findings)
        case ".timeindex":
            dump_time_index(source, options, streams, findings)
        case ".snapshot":
            dump_snapshot(source, streams, findings)
        case ".txnindex":
            dump_txn_index(source, streams)
        case _ if source.file_name == names.LEADER_EPOCH_CHECKPOINT:
            dump_leader_epochs(source, streams)
        case _ if source.file_name in CHECKPOINTS:
            dump_offset_checkpoint(source, streams)
        case _:
            streams.complain(f"Ignoring unknown file {source.path}")


def _suffix(file_name: str) -> str:
    _, dot, last = file_name.rpartition(".")
    return dot + last


def dump_snapshot(source: DumpFile, streams: Streams, findings: Findings) -> None:
    """Print a producer snapshot; its problems go to stderr, like in Kafka's tool."""
    data = source.disk.read(source.name, LARGER_FILE_BYTES)
    problem = _snapshot_problem(data)
    if problem is not None:
        findings.is_damaged = True
        streams.complain(problem)
        return
    for entry in decode_snapshot(data, source.path):
        streams.print(_producer_line(entry))


def dump_txn_index(source: DumpFile, streams: Streams) -> None:
    """Print a transaction index; raise CorruptIndexError if an entry has an unknown version."""
    for entry in decode_txn_index(source.disk.read(source.name, LARGER_FILE_BYTES)):
        streams.print(
            f"version: {VERSION} producerId: {entry.producer_id} "
            f"firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )


def dump_leader_epochs(source: DumpFile, streams: Streams) -> None:
    """Print a leader epoch checkpoint; raise CorruptCheckpointError if it does not parse."""
    for entry in parse_leader_epochs(source.disk.read(source.name), source.path):
        streams.print(f"epoch: {entry.epoch} startOffset: {entry.start_offset}")


def dump_offset_checkpoint(source: DumpFile, streams: Streams) -> None:
    """Print an offset checkpoint; raise CorruptCheckpointError if it does not parse."""
    offsets = parse_offsets(source.disk.read(source.name), source.path)
    for (topic, partition), offset in offsets.items():
        streams.print(f"topic: {topic} partition: {partition} offset: {offset}")


def _snapshot_problem(data: bytes) -> str | None:
    """Return Kafka's message about a snapshot that it does not use; None for a sound one."""
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
