"""What a second machine needs beside records: small, sent only when it has changed.

    group/NAME              the positions of a consumer group, as JSON
    attributes              the file ``logfs.attributes``: owners and modes
    file/TOPIC-0/NAME       a file of a partition: ``logfs.mirror``, or ``logfs.forward-*`` without
                            the report of its process

A position beyond the end of its log is the end after a promotion: the records before it are lost.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from logfs.config import TopicConfig
from logfs.config.kinds import MAX_LONG
from logfs.disk.remote.overlay import local_part
from logfs.errors import LogfsError
from logfs.log import names
from logfs.log.forwardfile import portable_note
from logfs.log.groups.coding import (
    OFFSETS_CONFIG,
    OFFSETS_PARTITIONS,
    Position,
    partition_of,
)
from logfs.log.groups.table import commit_records
from logfs.log.partition import PartitionLog
from logfs.log.store import LogStore
from logfs.log.topics import encode_options
from logfs.records._encoding import encode_records
from logfs.records.jsontext import decode_json, decode_object
from logfs.records.record import Record
from logfs.services.journaling.kept import FoundNotes
from logfs.types import TopicPartition

_GROUP, _ATTRIBUTES, _FILE = "group/", "attributes", "file/"


def notes_of(store: LogStore, logs: Iterable[PartitionLog]) -> FoundNotes:
    """Return the notes of a data directory.

    Args:
        store: The directory.
        logs: The partitions that are in its journal.
    """
    found: dict[str, bytes] = {}
    unknown = []
    try:
        for name, group in store.groups.groups().items():
            if group.positions:
                found[_GROUP + name] = _encoded(group.positions)
    except (LogfsError, OSError):
        unknown.append(_GROUP)
    local = local_part(store.disk)
    try:
        found[_ATTRIBUTES] = local.read(names.ATTRIBUTES)
    except FileNotFoundError:
        pass
    except (LogfsError, OSError):
        unknown.append(_ATTRIBUTES)
    for log in logs:
        prefix = f"{_FILE}{log.directory}/"
        try:
            for note in log.state.forward_notes.read(local, log.directory):
                data = local.read(f"{log.directory}/{note.name}")
                found[prefix + note.name] = portable_note(data)
            if log.state.mirror is not None:
                found[prefix + names.MIRROR] = local.read(f"{log.directory}/{names.MIRROR}")
        except (LogfsError, OSError):
            unknown.append(prefix)
    return FoundNotes({name: data for name, data in found.items() if data}, unknown)


def attributes_file(
    notes: Mapping[str, bytes], before: bytes | None, topics: Collection[str]
) -> bytes | None:
    """Return the contents of ``logfs.attributes``; None: there is nothing to write.

    Args:
        notes: The notes.
        before: The file that is there, of which entries of other topics stay.
        topics: The topics that the notes are of.
    """
    if _ATTRIBUTES not in notes:
        return None
    try:
        entries = {} if before is None else decode_object(before)["entries"]
        kept = {key: one for key, one in entries.items() if key.partition("/")[0] not in topics}
        found = decode_object(notes[_ATTRIBUTES])
        return json.dumps({**found, "entries": kept | found["entries"]}, indent=1).encode() + b"\n"
    except (ValueError, KeyError, AttributeError):
        return notes[_ATTRIBUTES]


def partition_files(notes: Mapping[str, bytes]) -> dict[tuple[str, str], bytes]:
    """Return the files that notes have of partitions: directory and name -> contents."""
    found = {}
    for name, data in notes.items():
        directory, _, file = name.removeprefix(_FILE).partition("/")
        if name.startswith(_FILE) and (file == names.MIRROR or names.is_forward_note(file)):
            found[directory, file] = data
    return found


def offsets_logs(
    notes: Mapping[str, bytes], ends: Mapping[TopicPartition, int], now_ms: int
) -> dict[int, bytes]:
    """Return the ``.log`` files of ``__consumer_offsets`` with the positions of all groups.

    Args:
        notes: The notes.
        ends: The log end offset of each partition that is there; others have no positions.
        now_ms: The clock.

    Returns:
        Partition -> contents; empty without groups.

    Raises:
        ValueError: A note does not parse.
    """
    found: dict[int, list[Record]] = {}
    for name, data in sorted(notes.items()):
        if name.startswith(_GROUP):
            group = name.removeprefix(_GROUP)
            positions = {
                one: position._replace(offset=min(position.offset, ends[one]))
                for one, position in decode_json(data, _positions).items()
                if one in ends
            }
            number = partition_of(group, OFFSETS_PARTITIONS)
            found.setdefault(number, []).extend(commit_records(group, positions))
    options = encode_options(TopicConfig.from_properties(OFFSETS_CONFIG), 0)
    options = replace(options, timestamp_after_max_ms=MAX_LONG)  # clocks differ
    logs = {}
    for number in range(OFFSETS_PARTITIONS) if found else ():
        encoded = encode_records(found.get(number, ()), 0, now_ms, options)
        logs[number] = b"".join(batch.data for batch in encoded.batches)
    return logs


def _encoded(positions: Mapping[TopicPartition, Position]) -> bytes:
    rows = [[*one, *position] for one, position in sorted(positions.items())]
    return json.dumps(rows, separators=(",", ":")).encode()


def _positions(rows: list[list[Any]]) -> dict[TopicPartition, Position]:
    return {
        TopicPartition(topic, partition): Position(*position)
        for topic, partition, *position in rows
    }
