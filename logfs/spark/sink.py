"""Writing to logs: tasks stage, the driver publishes, exactly once for each batch of a stream.

Spark runs ``write`` on the workers, and ``commit`` and ``abort`` in processes of the driver that
know only what the tasks have returned. A table is a query of one batch, which leaves nothing; with
an application and a number it is a batch of a query of that name, which is appended once.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from logfs.client import Daemon
from logfs.disk.posix import PosixDisk
from logfs.errors import InvalidConfigError, LogfsError
from logfs.library.owner import act_patiently
from logfs.library.places import locate
from logfs.library.stored_partitions import now_ms
from logfs.log.publishing.ledger import read_ledger, read_ledgers
from logfs.log.publishing.publish import forget, publish
from logfs.log.publishing.staging import PublishOptions, StagedFile, remove_staged
from logfs.log.store import LogStore
from logfs.services.overview import topic_overview
from logfs.spark.target import BYTES_OF_A_BATCH, TRANSACTION, SinkTarget, advice_on

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """The rows that a task has staged."""

    query: str
    files: tuple[StagedFile, ...]


class LogfsWriter(DataSourceArrowWriter):
    """Appends a table."""

    def __init__(self, target: SinkTarget) -> None:
        self.target = target
        once = target.transaction
        self._query = (
            f"batch {os.urandom(16).hex()}" if once is None else TRANSACTION + once.application
        )
        self._batch = 0 if once is None else once.number
        self._is_single = once is None

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Staged:
        """Stage the rows of a task."""
        _advise(self.target)
        root, topic = self.target.root, self.target.topic
        return _stage(root, topic, self._query, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        files = _files(messages)
        publish_batch(self.target, self._query, self._batch, files, is_single=self._is_single)
        _warn_of_retention(self.target.root, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks have staged, unless it is being published."""
        remove_batch(self.target.root, self._query, self._batch, _files(messages))


class LogfsStreamWriter(DataSourceStreamArrowWriter):
    """Appends the batches of a stream, each exactly once."""

    def __init__(self, target: SinkTarget) -> None:
        self.target = target

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Staged:
        """Stage the rows of a task."""
        _advise(self.target)
        context = TaskContext.get()
        query = context and context.getLocalProperty(_QUERY)
        batch = context and context.getLocalProperty(_BATCH)
        if not query or batch is None:
            raise InvalidConfigError("Spark does not tell the id of the query: is it a stream?")
        return _stage(self.target.root, self.target.topic, query, int(batch), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish what the tasks have staged, unless that was done before."""
        files = _files(messages)
        for query in _queries(messages):
            publish_batch(self.target, query, batchId, files, is_single=False)
            if batchId == 0:
                _tell_of_other_queries(self.target.root, query, {file.topic for file in files})

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Remove what the tasks have staged, unless it is being published."""
        for query in _queries(messages):
            remove_batch(self.target.root, query, batchId, _files(messages))


def publish_batch(
    target: SinkTarget, query: str, batch: int, files: Sequence[StagedFile], *, is_single: bool
) -> None:
    """Publish through the daemon that owns the directory, or under the lock."""
    options = PublishOptions(is_single, target.fails_on_loss)

    def ask(daemon: Daemon) -> None:
        daemon.publish(query, batch, files, options)
        if is_single:
            daemon.forget(query)

    def do(store: LogStore) -> None:
        publish(store, query, batch, files, now_ms(), options)
        if is_single:
            forget(store, query)

    # What is published is flushed.
    act_patiently(locate(target.root), ask, do, is_durable=False)


def _stage(
    root: str, topic: str | None, query: str, batch: int, rows: "Iterator[pa.RecordBatch]"
) -> Staged:
    from logfs.spark.staging import Stager  # not for a commit: pyarrow takes long to import

    return Staged(query, tuple(Stager(root, topic, query, batch).stage(rows)))


def _tell_of_other_queries(root: str, query: str, topics: set[str]) -> None:
    """Log which streams have written to the topics before a stream that has just begun.

    One of them may be the same stream before it lost its checkpoint.
    """
    for ledger in read_ledgers(PosixDisk(root)):
        both = topics & ledger.topics
        is_stream = not (ledger.is_single or ledger.query.startswith(TRANSACTION))
        if both and is_stream and ledger.query != query:
            logger.warning(
                "query %s begins with a new checkpoint; query %s has written up to batch %d to %s: "
                "if it is the same stream, its records are there twice now",
                query, ledger.query, ledger.done, ", ".join(sorted(both)),
            )  # fmt: skip


def _warn_of_retention(root: str, files: Sequence[StagedFile]) -> None:
    """Warn of published records that retention is about to delete, such as imported ones."""
    topics = sorted({file.topic for file in files})

    def ask(daemon: Daemon) -> list[str]:
        at = now_ms()
        return [f"{one}: {text}" for one in topics for text in daemon.overview(one, 0, at).expired]

    def do(store: LogStore) -> list[str]:
        at = now_ms()
        return [
            f"{one}: {text}" for one in topics for text in topic_overview(store, one, at).expired
        ]

    with contextlib.suppress(LogfsError, OSError):  # the records are published all the same
        for warning in act_patiently(locate(root), ask, do, is_durable=False):
            logger.warning("%s", warning)


def remove_batch(root: str, query: str, batch: int, files: Sequence[StagedFile]) -> None:
    """Remove staged files that no intent names: Spark aborts even what was published."""
    disk = PosixDisk(root)
    ledger = read_ledger(disk, query)
    if ledger.intent is not None and ledger.intent.batch == batch:
        return
    for file in files:
        remove_staged(disk, file.path)


def _advise(target: SinkTarget) -> None:
    """Log what makes it slow; the first task does."""
    context = TaskContext.get()
    if context is not None and context.partitionId() == 0:
        # Spark tells its tasks what was set.
        advice = advice_on(target, context.getLocalProperty(BYTES_OF_A_BATCH))
        if advice is not None:
            logger.warning("%s", advice)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[StagedFile]:
    return [file for message in messages if isinstance(message, Staged) for file in message.files]


def _queries(messages: Sequence[WriterCommitMessage | None]) -> set[str]:
    return {message.query for message in messages if isinstance(message, Staged)}
