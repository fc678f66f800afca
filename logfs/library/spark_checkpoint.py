"""How far a streaming query of Spark has come, from the files of its checkpoint.

    CHECKPOINT/offsets/N    where batch N ends: a version, metadata, a line for each source
    CHECKPOINT/commits/N    batch N was completed

Source: Spark OffsetSeqLog, CommitLog, HDFSMetadataLog.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from logfs.errors import InvalidConfigError
from logfs.library.group_lags import GroupLag, group_lags
from logfs.library.places import Place
from logfs.log.groups.coding import Position
from logfs.log.groups.table import Group
from logfs.records.jsontext import decode_json
from logfs.types import IsolationLevel, TopicPartition

_VERSION = "v1"


def read_checkpoint(path: str | os.PathLike[str]) -> dict[TopicPartition, Position]:
    """Return the offset of the next record of each partition, after the last completed batch.

    Raises:
        InvalidConfigError: It is not the checkpoint of a query over logs, or no batch is completed.
        OSError: It cannot be read.
    """
    root = Path(path)
    if not (root / "offsets").is_dir():
        raise InvalidConfigError(f"{root}: no checkpoint of Spark; expected a directory offsets")
    done = _batches(root / "commits")
    if not done:
        raise InvalidConfigError(f"{root}: no batch of the query is completed yet")
    batch = max(done)
    file = root / "offsets" / str(batch)
    try:
        version, _, *sources = file.read_text().splitlines()
    except (ValueError, FileNotFoundError):
        raise InvalidConfigError(
            f"{file}: expected {_VERSION}, metadata and offsets, as Spark writes them"
        ) from None
    if version != _VERSION:
        raise InvalidConfigError(f"{file}: version {version[:20]!r}; expected {_VERSION}")
    committed_ms = (root / "commits" / str(batch)).stat().st_mtime_ns // 1_000_000
    found: dict[TopicPartition, Position] = {}
    for source in sources:
        for one, offset in _offsets(source).items():
            found[one] = Position(offset, f"batch {batch}", committed_ms)
    if not found:
        raise InvalidConfigError(
            f"{file}: none of its {len(sources)} sources has offsets of topics; it belongs to a "
            "query over something else"
        )
    return found


def checkpoint_lags(
    place: Place,
    checkpoint: str,
    positions: Mapping[TopicPartition, Position],
    level: IsolationLevel,
) -> list[GroupLag]:
    """Return the positions of a checkpoint with their lags, by topic and partition."""
    group = Group(checkpoint, dict(positions))
    return list(group_lags(place, {checkpoint: group}, level))


def _batches(directory: Path) -> list[int]:
    try:
        return [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return []


def _offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets of a source; none if it is a source of something else."""
    try:
        return decode_json(text, by_partition)
    except ValueError:
        return {}


def by_partition(rows: Mapping[str, Mapping[str, object]]) -> dict[TopicPartition, int]:
    """Return the next offset of each partition in the offsets of a checkpoint.

    Raises:
        ValueError, TypeError, AttributeError: They are of another source.
    """
    return {
        TopicPartition(topic, int(number)): int(offset)  # type: ignore[call-overload]
        for topic, row in rows.items()
        for number, offset in row.items()
    }
