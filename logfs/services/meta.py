"""The content of ``.meta`` and of the extended attributes of a partition."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from logfs.config import SealedCompression
from logfs.disk.remote.chunkedfile import ChunkedPart
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.treedisk import FoundFile
from logfs.log.reading.readable import ReadableLog
from logfs.log.remote.of_disk import bucket_of, catalog_of
from logfs.log.remote.status import remote_as_json
from logfs.log.writing.state import PartitionState
from logfs.types import IsolationLevel, View

if TYPE_CHECKING:
    from logfs.log.remote.bucket import Bucket

_TO_JSON = json.JSONEncoder(ensure_ascii=False).encode


def partition_meta(
    log: ReadableLog, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
) -> dict[str, Any]:
    """Return the facts about a partition, ready for JSON: offsets, positions, sizes, losses.

    ``level`` is the isolation level of readers. It determines only the positions.
    """
    snapshot, indexing = log.snapshot, log.indexing
    highest = max([snapshot.end.max_timestamp, *snapshot.maxima[-1:]])
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "topic_id": log.topic_id,
        "log_start_offset": snapshot.start.offset,
        "log_end_offset": snapshot.end.offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "isolation_level": level,
        "max_timestamp": None if highest < 0 else highest,
        "positions": {
            view.name.lower(): {
                "start": snapshot.start.positions[view],
                "end": snapshot.end_position(level, view),
            }
            for view in View
        },
        "segments": len(snapshot.segments),
        "size_bytes": snapshot.size_bytes,
        "durable": {
            "recovery_point": log.recovery_point,
            "unflushed_since": log.unflushed_since_ms,
        },
        "latency": {
            "append": log.counters.append_s.as_json(),
            "flush": log.counters.flush_s.as_json(),
        },
        "since_start": log.counters.activity_as_json(),
        "page_cache": None if log.residency is None else log.residency.as_json(),
        "retention": log.counters.retention_as_json(),
        **_packing(log),
        "cleaner": log.cleaning.as_json() if log.config.is_compacted else None,
        **_remote(log),
        **({} if indexing is None else {"indexing": _progress(*indexing)}),
        **({} if log.mirror_meta is None else {"mirror": log.mirror_meta}),
        **({} if log.quota_meta is None else {"quota": log.quota_meta}),
        **_forward(log),
        "offline": log.offline,
        "losses": [loss._asdict() for loss in log.losses],
    }


def _forward(log: ReadableLog) -> dict[str, object]:
    found = log.forward_meta
    return {"forward": found} if found else {}


def _packing(log: ReadableLog) -> dict[str, int]:
    if log.config.logfs_sealed_compression_type is SealedCompression.UNCOMPRESSED:
        return {}
    return {"packed_segments": sum(segment.is_packed for segment in log.snapshot.segments)}


def format_meta(facts: Mapping[str, object]) -> bytes:
    """Return facts as the JSON of ``.meta``: a line for each of them.

    Each stat of the file needs its size, so this must be quick. ``json`` does not use its native
    encoder to indent, and most facts are just numbers.
    """
    lines = (f'  "{name}": {_json_of(fact)}' for name, fact in facts.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _json_of(fact: object) -> str:
    if fact is None:
        return "null"
    return str(fact) if type(fact) is int else _TO_JSON(fact)


def _remote(log: ReadableLog) -> dict[str, object]:
    """Return the facts about the object store; nothing if the topic is not in one."""
    bucket = bucket_of(log.disk)
    if bucket is not None:
        return _of_bucket(bucket, log)
    facts = remote_facts(log)
    if facts is None:
        return {}
    state = log.state
    if log.is_followed and isinstance(state, PartitionState) and state.remote is not None:
        complete_ms = state.remote.journal_ms
        if complete_ms is not None:  # the mount follows the journal of a store
            return {"remote": facts, "behind": {"complete_until": complete_ms}}
    return {"remote": facts}


def remote_facts(log: ReadableLog) -> dict[str, object] | None:
    """Return what a data directory knows of its store; None if the topic is not in one."""
    state = log.state
    if not isinstance(state, PartitionState) or state.remote is None:
        return None
    tier = state.tier
    if log.is_followed and (catalog := catalog_of(log.disk)) is not None:
        tier = catalog.partition(log.directory)  # another process changes it
    is_stored = state.config.remote_storage_enable or state.config.is_journaled
    if tier is None and not is_stored:
        return None
    return remote_as_json(state.remote, state.snapshot, tier, log.disk)


def object_of(log: ReadableLog, name: str) -> str | None:
    """Return the address of the object that has a file of a partition; None if the store has not.

    The file may be on the disk as well.
    """
    part: FoundFile | None = None
    url = ""
    if (bucket := bucket_of(log.disk)) is not None:
        files, url = bucket.directory(log.directory), bucket.store.url
        part = None if files is None else files.find(name)
    elif (catalog := catalog_of(log.disk)) is not None:
        partition, url = catalog.partition(log.directory), catalog.url
        part = None if partition is None else partition.find(name)
    if isinstance(part, ChunkedPart):
        part = part.part
    return f"{url}/{part.key}" if isinstance(part, RemotePart) else None


def _of_bucket(bucket: "Bucket", log: ReadableLog) -> dict[str, object]:
    """Return the facts about a log that is read from its store: it ends where the copies do."""
    facts = bucket.facts(log.directory)
    return {"remote": facts, "behind": {"complete_until": log.last_modified_ms}}


def _progress(done_bytes: int, total_bytes: int) -> dict[str, int]:
    return {"done_bytes": done_bytes, "total_bytes": max(total_bytes, done_bytes)}
