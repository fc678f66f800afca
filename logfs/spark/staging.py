"""What a task of a sink does: its rows as staged files in the directories of their partitions.

The columns are those of Spark's Kafka sink: ``value``, string or binary, has to be there; ``key``,
``headers``, ``topic``, ``partition`` may be; ``timestamp`` is ours. Others are refused. The topic
is the option's, or that of the row. Rows without partition go where Kafka's default partitioner
sends their keys; those without a key too all to one partition of the topic, another one for every
few rows.

Source: Spark KafkaWriter.validateQuery, KafkaRowWriter.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from logfs.config import TopicConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import (
    InvalidConfigError,
    NoSuchPartitionError,
    NoSuchTopicError,
    RecordTooLargeError,
    UnparsableLineError,
)
from logfs.library.stored_partitions import now_ms
from logfs.log.listing import list_partitions
from logfs.log.publishing.staging import StagedFile, StagingWriter
from logfs.log.topics import effective_config, encode_options, read_properties
from logfs.records._encoding import RowEncoder, spread_rows
from logfs.records.columns import Lists, Numbers, Strings
from logfs.types import TopicPartition

_MICROSECONDS = pa.timestamp("us", tz="UTC")
_PARTITION = pa.int32()


class _StagedPartition:
    """The rows of one partition, on their way into a file."""

    def __init__(self, disk: PosixDisk, one: TopicPartition, query: str, batch: int) -> None:
        config = effective_config(TopicConfig(), read_properties(disk, one.directory))
        options = replace(encode_options(config, 0), log_append_time=False)
        self.encoder = RowEncoder(now_ms(), options)
        self.writer = StagingWriter(disk, one, query, batch, os.urandom(16))


class Stager:
    """Stages the rows of one task, to ``topic`` or (None) to the topic of each row."""

    def __init__(self, root: str, topic: str | None, query: str, batch: int) -> None:
        self._disk = PosixDisk(root)
        self._topic = topic
        self._query = query, batch
        self._counts: dict[str, int] = {}
        for name, _ in list_partitions(self._disk):
            self._counts[name] = self._counts.get(name, 0) + 1
        self._open: dict[TopicPartition, _StagedPartition] = {}

    def stage(self, batches: Iterable[pa.RecordBatch]) -> list[StagedFile]:
        """Stage rows; returns the files, durable. If anything fails nothing is left of them."""
        try:
            for batch in batches:
                self._put(batch)
            for one in self._open.values():
                one.writer.write(one.encoder.take(last=True))
            return [one.writer.finish() for one in self._open.values()]
        except BaseException:
            for one in self._open.values():
                one.writer.discard()
            raise

    def _put(self, batch: pa.RecordBatch) -> None:
        columns = {name.lower(): batch.column(n) for n, name in enumerate(batch.schema.names)}
        keys, values = _strings(columns.get("key")), _strings(columns.get("value"))
        times = _numbers(columns.get("timestamp"), _MICROSECONDS)
        headers, given = (
            _lists(columns.get("headers")),
            _numbers(columns.get("partition"), _PARTITION),
        )
        for topic, rows, count in self._topics(columns.get("topic"), batch.num_rows):
            partitions = self._counts.get(topic, 0)
            if not partitions:
                raise NoSuchTopicError(f"there is no topic {topic}: logfs topic create makes one")
            unkeyed = int.from_bytes(os.urandom(4), "big") % partitions
            try:
                places = spread_rows(keys, given, rows, count, partitions, unkeyed)
            except ValueError as error:
                raise NoSuchPartitionError(f"topic {topic}: {error}") from None
            for number, chosen in enumerate(places):
                if chosen:
                    one = self._partition(TopicPartition(topic, number))
                    try:
                        one.encoder.put(keys, values, times, headers, chosen, len(chosen) // 4)
                    except (RecordTooLargeError, UnparsableLineError) as error:
                        error.args = (f"{TopicPartition(topic, number)}: {error}",)
                        raise
                    one.writer.write(one.encoder.take(last=False))

    def _topics(
        self, column: pa.Array | None, count: int
    ) -> Iterator[tuple[str, pa.Buffer | None, int]]:
        """Return each topic, the numbers of its rows (None: all), and how many these are."""
        if self._topic is not None:
            yield self._topic, None, count
            return
        if column is None or column.null_count:
            raise InvalidConfigError(
                "a row has no topic: the column topic is null there, and no option topic is given"
            )
        import pyarrow.compute as pc  # half a tenth of a second, for each process of a job

        for topic in pc.unique(column):
            rows = pc.indices_nonzero(pc.equal(column, topic)).cast(pa.int32())
            yield topic.as_py(), rows.buffers()[1], len(rows)

    def _partition(self, one: TopicPartition) -> _StagedPartition:
        found = self._open.get(one)
        if found is None:
            found = self._open[one] = _StagedPartition(self._disk, one, *self._query)
        return found


def _strings(column: pa.Array | None) -> Strings | None:
    if column is None:
        return None
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.binary())
    valid, ends, data = column.buffers()
    return Strings(valid, ends or b"", data or b"", column.offset)


def _numbers(column: pa.Array | None, kind: pa.DataType) -> Numbers | None:
    if column is None:
        return None
    if kind is _MICROSECONDS:  # the zone says how it is shown
        column = column.cast(pa.timestamp("us", tz=column.type.tz))
    else:
        column = column.cast(kind)
    valid, data = column.buffers()
    return Numbers(valid, data or b"", column.offset)


def _lists(column: pa.Array | None) -> Lists | None:
    if column is None:
        return None
    valid, ends = column.buffers()[:2]
    pairs = column.values
    keys, values = (_strings(part) for part in pairs.flatten())
    if keys is None or values is None:
        raise InvalidConfigError("headers are array<struct<key:string,value:binary>>")
    return Lists(valid, ends or b"", keys, values, column.offset)
