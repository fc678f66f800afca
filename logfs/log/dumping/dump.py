"""What is printed of a file, chosen by its name: see the package for the table."""

from logfs.log import names
from logfs.log.dumping.entries import (
    dump_leader_epochs,
    dump_offset_checkpoint,
    dump_snapshot,
    dump_txn_index,
)
from logfs.log.dumping.findings import Findings
from logfs.log.dumping.indexes import dump_index, dump_time_index
from logfs.log.dumping.logs import dump_log
from logfs.log.dumping.options import DumpOptions
from logfs.log.dumping.source import Source, Streams

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


def dump_file(source: Source, options: DumpOptions, streams: Streams, findings: Findings) -> None:
    """Print one file.

    Raises:
        LogfsError: It cannot be read to its end; what could be read is printed.
        OSError: It cannot be opened or read.

    Source: Kafka DumpLogSegments.main.
    """
    streams.print(f"Dumping {source.path}")
    match _suffix(source.file_name):
        case ".log" | ".checkpoint":
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
