"""The progress of a query, in the plain file ``logfs.KEY.ledger`` of the data directory.

    {"version": 2, "query": "…", "is_single": false, "done": 6,
     "batch_records": {"5": 1200, "6": 900}, "topics": ["orders"],
     "intent": {"batch": 7, "partitions": [
         {"topic": "orders", "partition": 0, "log_end_offset": 1500, "base_sequence": 200,
          "topic_id": "MkTRFLDkRMSQo8wQwVx0Gw",
          "files": [{"name": "logfs.….staged", "records": 100, "size_bytes": 12345}]}]}}

It is one JSON object. ``done`` is the last published batch, -1 at first. ``intent`` is null or the
batch that is being published. A query with ``is_single`` has only one batch. ``batch_records`` has
the records of the last batches, ``topics`` what the query has written to; versions before 0.4.0
leave both out. Version 1 has no topic ids. The file is replaced as a whole, durably.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import CorruptCheckpointError, LogfsError, UnsupportedFormatError
from logfs.log import names
from logfs.log.publishing.staging import StagedFile, query_key
from logfs.records.jsontext import decode_json
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 2
_WITHOUT_TOPIC_IDS = 1
NONE_DONE = -1
_KEPT_BATCHES = 100
"""As many batches as Spark keeps in a checkpoint."""


class PartitionShare(NamedTuple):
    """The part of a batch for one partition.

    Attributes:
        log_end_offset: The log end before the intent, durable. No record of the batch is below it.
        base_sequence: Sequence number of the first record.
        files: The staged files, in the order in which they are appended.
        topic_id: 22 characters; a topic of this name with another id is another topic. None if the
            topic has no id, or the intent is of version 1.
    """

    topic: str
    partition: int
    log_end_offset: int
    base_sequence: int
    files: tuple[StagedFile, ...]
    topic_id: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


class Intent(NamedTuple):
    """A batch that is being published."""

    batch: int
    shares: tuple[PartitionShare, ...]


class Ledger(NamedTuple):
    """The progress of a query; see the format above."""

    query: str
    done: int = NONE_DONE
    intent: Intent | None = None
    is_single: bool = False
    batch_records: Mapping[int, int] = MappingProxyType({})
    topics: frozenset[str] = frozenset()

    def completed(self) -> "Ledger":
        """Return the ledger after its intent was carried out."""
        if self.intent is None:
            return self
        batch, shares = self.intent
        records = sum(file.records for share in shares for file in share.files)
        records_of = {**self.batch_records, batch: records}
        kept = dict(sorted(records_of.items())[-_KEPT_BATCHES:])
        topics = self.topics | {share.topic for share in shares}
        return self._replace(done=batch, intent=None, batch_records=kept, topics=topics)


def read_ledger(disk: Disk, query: str) -> Ledger:
    """Read the ledger of a query; an empty one if there is none.

    Raises:
        CorruptCheckpointError: It does not parse.
        UnsupportedFormatError: A newer logfs wrote it.
    """
    name = ledger_name(query)
    try:
        data = disk.read(name)
    except FileNotFoundError:
        return Ledger(query)
    return _decode(name, data)


def read_ledgers(disk: Disk) -> Iterator[Ledger]:
    """Read all ledgers of a data directory; those that cannot be read are logged and left out."""
    for name in disk.inodes(""):
        if names.is_ledger_file(name):
            try:
                yield _decode(name, disk.read(name))
            except (LogfsError, OSError) as error:
                logger.warning("%s", error)


def _decode(name: str, data: bytes) -> Ledger:
    def build(fields: Mapping[str, Any]) -> Ledger:
        version = fields["version"]
        if version not in (_WITHOUT_TOPIC_IDS, VERSION):
            raise UnsupportedFormatError(
                f"{name}: version {version}, this logfs reads version {VERSION}: "
                "use the newer logfs"
            )
        return Ledger(
            str(fields["query"]),
            int(fields["done"]),
            _intent(fields["intent"]),
            bool(fields["is_single"]),
            {int(batch): int(count) for batch, count in fields.get("batch_records", {}).items()},
            frozenset(map(str, fields.get("topics", ()))),
        )

    try:
        return decode_json(data, build)
    except ValueError as error:
        raise CorruptCheckpointError(
            f"{name}: it does not parse ({error}): without it the published batches of its query "
            "are not known; restore it, or remove it and start the query again",
            name,
        ) from None


def write_ledger(disk: Disk, ledger: Ledger) -> None:
    """Replace a ledger; durable on return."""
    intent = None
    if ledger.intent is not None:
        shares = [_encoded(share) for share in ledger.intent.shares]
        intent = {"batch": ledger.intent.batch, "partitions": shares}
    fields = {
        "version": VERSION,
        "query": ledger.query,
        "is_single": ledger.is_single,
        "done": ledger.done,
        "batch_records": dict(ledger.batch_records),
        "topics": sorted(ledger.topics),
        "intent": intent,
    }
    disk.replace(ledger_name(ledger.query), json.dumps(fields).encode() + b"\n")


def ledger_name(query: str) -> str:
    """Return the name of the ledger file of a query."""
    return names.format_ledger_file(query_key(query))


def _encoded(share: PartitionShare) -> dict[str, object]:
    files = [
        {"name": file.name, "records": file.records, "size_bytes": file.size_bytes}
        for file in share.files
    ]
    return {**share._asdict(), "files": files}


def _intent(fields: Any) -> Intent | None:  # noqa: ANN401 - what JSON says
    if fields is None:
        return None
    return Intent(int(fields["batch"]), tuple(_share(row) for row in fields["partitions"]))


def _share(row: dict[str, Any]) -> PartitionShare:
    topic, partition, topic_id = str(row["topic"]), int(row["partition"]), row.get("topic_id")
    return PartitionShare(
        topic,
        partition,
        int(row["log_end_offset"]),
        int(row["base_sequence"]),
        _files(topic, partition, row["files"]),
        None if topic_id is None else str(topic_id),
    )


def _files(topic: str, partition: int, rows: Sequence[dict[str, Any]]) -> tuple[StagedFile, ...]:
    return tuple(
        StagedFile(topic, partition, str(r["name"]), int(r["records"]), int(r["size_bytes"]))
        for r in rows
    )
