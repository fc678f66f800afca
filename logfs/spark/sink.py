"""Writing to logs: tasks stage, the driver publishes, exactly once for each batch of a stream."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logfs.disk.posix import PosixDisk
from logfs.errors import InvalidConfigError
from logfs.library.owner import act
from logfs.library.places import locate
from logfs.log.publishing.ledger import read_ledger
from logfs.log.publishing.publish import publish
from logfs.log.publishing.staging import StagedFile, remove_staged
from logfs.spark.directories import now_ms
from logfs.spark.staging import Stager

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task has staged."""

    query: str
    files: tuple[StagedFile, ...]


class LogfsWriter(DataSourceArrowWriter):
    """Appends a table: a query of one batch."""

    def __init__(self, root: str, topic: str | None) -> None:
        self._root, self._topic = root, topic
        self._query = f"batch {os.urandom(16).hex()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        files = Stager(self._root, self._topic, self._query, 0).stage(iterator)
        return Staged(self._query, tuple(files))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        publish_batch(self._root, self._query, 0, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged, unless it is being published."""
        remove_batch(self._root, self._query, 0, _files(messages))


class LogfsStreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a stream, each exactly once."""

    def __init__(self, root: str, topic: str | None) -> None:
        self._root, self._topic = root, topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of a task."""
        context = TaskContext.get()
        query = context and context.getLocalProperty(_QUERY)
        batch = context and context.getLocalProperty(_BATCH)
        if not query or batch is None:
            raise InvalidConfigError("Spark does not tell the id of the query: is it a stream?")
        return Staged(
            query, tuple(Stager(self._root, self._topic, query, int(batch)).stage(iterator))
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks have staged, unless that was done before."""
        for query in _queries(messages):
            publish_batch(self._root, query, batchId, _files(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what the tasks have staged, unless it is being published."""
        for query in _queries(messages):
            remove_batch(self._root, query, batchId, _files(messages))


def publish_batch(root: str, query: str, batch: int, files: Sequence[StagedFile]) -> None:
    """Publish through the daemon that owns the directory, or under the lock."""
    act(
        locate(root),
        lambda daemon: daemon.publish(query, batch, files),
        lambda store: publish(store, query, batch, files, now_ms()),
    )


def remove_batch(root: str, query: str, batch: int, files: Sequence[StagedFile]) -> None:
    """Remove staged files that no intent names: Spark aborts even what was published."""
    disk = PosixDisk(root)
    ledger = read_ledger(disk, query)
    if ledger.intent is not None and ledger.intent.batch == batch:
        return
    for file in files:
        remove_staged(disk, file.path)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages if isinstance(message, Staged) for file in message.files]


def _queries(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    return {message.query for message in messages if isinstance(message, Staged)}
