"""What of a query was published, in the plain file ``logfs.KEY.ledger`` of the data directory.

    {"version": 2, "query": "…", "is_single": false, "done": 6,
     "intent": {"batch": 7, "partitions": [
         {"topic": "orders", "partition": 0, "log_end_offset": 1500, "base_sequence": 200,
          "topic_id": "MkTRFLDkRMSQo8wQwVx0Gw",
          "files": [{"name": "logfs.….staged", "records": 100, "size_bytes": 12345}]}]}}

One JSON object; ``done`` is the last batch that is over, -1 at first; ``intent`` is null or the one
that is being published; a query that is single has but one batch. Version 1 has no topic ids.
Replaced whole, durable on return.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from logfs.disk.vfs import Disk
from logfs.errors import CorruptCheckpointError, LogfsError, UnsupportedFormatError
from logfs.log import names
from logfs.log.publishing.staging import StagedFile, query_key
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 2
_WITHOUT_TOPIC_IDS = 1
NONE_DONE = -1


class Share(NamedTuple):
    """What one partition gets of a batch.

    Attributes:
        topic, partition: Which.
        log_end_offset: Where its log ended, durable, before the intent: nothing of it is in front.
        base_sequence: Sequence number of the first record.
        files: Whose records it gets, in this order.
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
        """Which partition."""
        return TopicPartition(self.topic, self.partition)


class Intent(NamedTuple):
    """A batch that is being published."""

    batch: int
    shares: tuple[Share, ...]


class Ledger(NamedTuple):
    """What of a query was published; see the format above."""

    query: str
    done: int = NONE_DONE
    intent: Intent | None = None
    is_single: bool = False


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
    try:
        fields = json.loads(data)
        version = fields["version"]
        if version in (_WITHOUT_TOPIC_IDS, VERSION):
            return Ledger(
                str(fields["query"]),
                int(fields["done"]),
                _intent(fields["intent"]),
                bool(fields["is_single"]),
            )
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise CorruptCheckpointError(
            f"{name}: it does not parse ({error!r}): without it nobody knows what its query has "
            "published; restore it, or remove it and begin the query again",
            name,
        ) from None
    raise UnsupportedFormatError(
        f"{name}: version {version}, this logfs reads version {VERSION}: use the newer logfs"
    )


def write_ledger(disk: Disk, ledger: Ledger) -> None:
    """Put a ledger in the place of the one before it; durable on return."""
    intent = None
    if ledger.intent is not None:
        shares = [_encoded(share) for share in ledger.intent.shares]
        intent = {"batch": ledger.intent.batch, "partitions": shares}
    fields = {
        "version": VERSION,
        "query": ledger.query,
        "is_single": ledger.is_single,
        "done": ledger.done,
        "intent": intent,
    }
    disk.replace(ledger_name(ledger.query), json.dumps(fields).encode() + b"\n")


def ledger_name(query: str) -> str:
    """Name the file in the root that is the ledger of a query."""
    return names.format_ledger_file(query_key(query))


def _encoded(share: Share) -> dict[str, object]:
    files = [
        {"name": file.name, "records": file.records, "size_bytes": file.size_bytes}
        for file in share.files
    ]
    return {**share._asdict(), "files": files}


def _intent(fields: Any) -> Intent | None:  # noqa: ANN401 - what JSON says
    if fields is None:
        return None
    return Intent(int(fields["batch"]), tuple(_share(row) for row in fields["partitions"]))


def _share(row: dict[str, Any]) -> Share:
    topic, partition, topic_id = str(row["topic"]), int(row["partition"]), row.get("topic_id")
    return Share(
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
