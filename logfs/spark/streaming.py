"""Reading logs as a stream: what is new at every trigger, from one offset of each partition on.

The offsets of a batch are in the checkpoint before it is read, so a batch that did not end is read
again between the same ones. Partitions that appear begin at their earliest record; for one that is
gone, or ends before where the last batch ended, ``failOnDataLoss`` decides. The checkpoint has the
next offset of each partition, as Spark's Kafka source writes it, and the ids of the topics. A topic
that was deleted and created again has another id: its records are not those that were read.

    {"orders": {"0": 123}, "@id orders b8c0...": {}}

To the Kafka source, and to earlier versions, the last member is a topic without partitions.

Source: Spark KafkaMicroBatchStream, JsonUtils.partitionOffsets.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from logfs.arrow.columns import ArrowColumn
from logfs.errors import DataLossError, InvalidConfigError
from logfs.library.spark_checkpoint import by_partition
from logfs.library.stored_partitions import Directories, SeenLog, now_ms
from logfs.machine.host import system_clock
from logfs.spark.batch import share_out
from logfs.spark.bounds import start_of
from logfs.spark.limits import has_enough, share, share_bytes
from logfs.spark.options import ReadOptions
from logfs.spark.tasks import LogfsPartition, Work
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.spark.jsonvalues import JsonColumns

_ID = "@id "
"""The beginning of the members with ids; no topic has such a name."""

Ids = Mapping[str, str]
Json = dict[str, dict[str, int]]


def to_json(offsets: Mapping[TopicPartition, int], ids: Ids = MappingProxyType({})) -> Json:
    """Return offsets as they go into a checkpoint, in order, with the ids of topics."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found | {f"{_ID}{topic} {one}": {} for topic, one in sorted(ids.items())}


def from_json(offsets: Mapping[str, Mapping[str, object]]) -> dict[TopicPartition, int]:
    """Return offsets as they come from a checkpoint; raise InvalidConfigError."""
    try:
        return by_partition(offsets)
    except (ValueError, TypeError, AttributeError):
        raise InvalidConfigError(
            f'the checkpoint holds {offsets!r}: expected {{"TOPIC": {{"PARTITION": OFFSET}}}}; '
            "it belongs to another source"
        ) from None


def ids_of(offsets: Mapping[str, Mapping[str, object]]) -> Ids:
    """Return the ids of topics as they come from a checkpoint; none of an earlier version."""
    members = [member.removeprefix(_ID).split() for member in offsets if member.startswith(_ID)]
    return {parts[0]: parts[1] for parts in members if len(parts) == 2}


Offsets = dict[TopicPartition, int]


class LogfsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A ``DataSourceStreamReader``; on the driver it lives as long as its query."""

    def __init__(
        self,
        options: ReadOptions,
        columns: tuple[ArrowColumn, ...],
        json: "JsonColumns | None" = None,
    ) -> None:
        self._options = options
        self._work = Work(columns, options.level, options.fails_on_loss, options.contains, json)
        self._begin()

    def _begin(self) -> None:
        self._directories = Directories(self._options.roots, self._options.level)
        self._initial: Offsets | None = None
        self._initial_ids: Ids = {}
        self._target: Offsets | None = None
        self._seen: dict[TopicPartition, SeenLog] = {}
        self._triggered_s: float | None = None
        self._served: TopicPartition | None = None

    def __getstate__(self) -> tuple[ReadOptions, Work]:
        """The settings of workers, which only read."""
        return self._options, self._work

    def __setstate__(self, state: tuple[ReadOptions, Work]) -> None:
        self._options, self._work = state
        self._begin()

    # On the driver; the names are Spark's.

    def initialOffset(self) -> Json:  # noqa: N802
        """Return where a query begins that has no checkpoint; asked more than once."""
        if self._initial is None:
            options = self._options
            wanted = options.selection.choose(self._directories.partitions())
            options.start.check(wanted)
            at = now_ms()
            logs = self._directories.refresh(wanted)
            self._initial = {one: self._start_of(one, log, at) for one, log in logs.items()}
            self._initial_ids = _present_ids(logs)
        return to_json(self._initial, self._initial_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return what means all limits of the options; see ``latestOffset``."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there: the query ends when it has read that."""
        self._target = {one: log.latest() for one, log in self._look().items()}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Return where the next batch ends, ``start`` if there is none; raise DataLossError."""
        logs = self._seen = self._look()
        known = self._continued(start, logs)
        for gone in known.keys() - logs.keys():
            self._work.lose(f"{gone} {self._why_left_out(gone, known[gone])}")
        # Limits are about records that are there: ``partitions`` says which are gone.
        begins = {
            one: max(self._begin_of(one, log, known), log.earliest()) for one, log in logs.items()
        }
        ends = {one: self._end_of(one, log, begins[one]) for one, log in logs.items()}
        if not isinstance(limit, ReadAllAvailable):
            ends = self._limited(logs, begins, ends)
        return start if ends == from_json(start) else to_json(ends, _present_ids(logs))

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Return where the logs end, for the lag in the progress of the query."""
        logs, self._seen = self._seen or self._look(), {}  # Spark asks directly after latestOffset
        return to_json({one: log.latest() for one, log in logs.items()})

    def partitions(self, start: Json, end: Json) -> Sequence[LogfsPartition]:
        """Share out what lies between two offsets; raise DataLossError if records are gone."""
        before, ids, later_ids = from_json(start), ids_of(start), ids_of(end)
        # A look costs two calls for each partition, and one with nothing new needs none.
        ends = {
            one: last
            for one, last in from_json(end).items()
            if before.get(one) != last or ids.get(one.topic) != later_ids.get(one.topic)
        }
        logs = self._directories.refresh(ends)
        known = self._continued(start, logs)
        for topic in _recreated(end, logs):
            self._work.lose(f"topic {topic} was deleted and created again: its batch is gone")
            ends = {one: last for one, last in ends.items() if one.topic != topic}
        ranges = {}
        for one, last in ends.items():
            log = logs.get(one)
            if log is None:
                self._work.lose(f"{one} is gone, of which offsets up to {last - 1} were to be read")
                continue
            first = self._begin_of(one, log, known)
            if first < log.earliest() and first < last:
                self._work.lose(
                    f"{one}: offsets {first} to {min(log.earliest(), last) - 1} are gone"
                )
                first = log.earliest()
            if first < last:
                ranges[one] = first, last
        return share_out(self._options, logs, ranges)

    # On workers

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read what a task is to read; see ``Work.read``."""
        return self._work.read(partition)

    def _continued(self, start: Json, logs: Mapping[TopicPartition, SeenLog]) -> Offsets:
        """Return the offsets from which to read on; none of topics that were created again."""
        known = from_json(start)
        for topic in _recreated(start, logs):
            read = {one: offset for one, offset in known.items() if one.topic == topic}
            self._work.lose(
                f"topic {topic} was deleted and created again after it was read up to "
                f"{', '.join(f'{one} offset {offset - 1}' for one, offset in read.items())}: what "
                "was not read of the old one is gone. Its new records are read from the beginning"
            )
            known = {one: offset for one, offset in known.items() if one not in read}
        return known

    def _look(self) -> dict[TopicPartition, SeenLog]:
        present = self._directories.partitions()
        return self._directories.refresh(self._options.selection.choose_present(present))

    def _why_left_out(self, one: TopicPartition, end: int) -> str:
        if one in self._directories.partitions():
            return (
                f"was read up to offset {end - 1}, but the options do not ask for it any more: "
                "its records would be left out"
            )
        return f"is gone, which was read up to offset {end - 1}"

    def _start_of(self, one: TopicPartition, log: SeenLog, at: int) -> int:
        try:
            start = start_of(self._options.start, one, log, at)
        except DataLossError as error:
            self._work.lose(str(error))
            return log.latest()
        if start < log.earliest():
            self._work.lose(f"{one}: offsets {start} to {log.earliest() - 1} are gone")
        return max(start, log.earliest())

    def _begin_of(
        self, one: TopicPartition, log: SeenLog, known: Mapping[TopicPartition, int]
    ) -> int:
        """Return where a batch begins in a partition, which may have appeared since the last."""
        if one in known:
            return known[one]
        if log.earliest() > 0:
            self._work.lose(f"{one} is new and begins at {log.earliest()}: what was before is gone")
        return log.earliest()

    def _end_of(self, one: TopicPartition, log: SeenLog, begin: int) -> int:
        latest = log.latest()
        if self._target is not None:
            latest = min(latest, self._target.get(one, begin))
            return max(latest, begin)
        if latest < begin:
            self._work.lose(f"{one}: the log ends at {latest}, but was read up to {begin - 1}")
        return latest

    def _limited(
        self, logs: Mapping[TopicPartition, SeenLog], begins: Offsets, ends: Offsets
    ) -> Offsets:
        """Take of what there is as much as the options want; nothing while it is too little."""
        limits, now_s = self._options.limits, system_clock().monotonic_s()
        if self._target is None:
            waited_s = float("inf") if self._triggered_s is None else now_s - self._triggered_s
            if not has_enough(limits, begins, ends, waited_s * 1000):
                return begins
        self._triggered_s = now_s
        if limits.max_offsets is not None:
            counts = {one: max(end - begins[one], 0) for one, end in ends.items()}
            ends = share(limits.max_offsets, begins, ends, counts)
        if limits.max_bytes is not None:
            last = ends
            sizes = {one: logs[one].size_of(begins[one], end) for one, end in last.items()}
            ends, self._served = share_bytes(
                limits.max_bytes,
                begins,
                ends,
                sizes,
                lambda one, least: logs[one].first_piece(begins[one], last[one], least),
                self._served,
            )
        return ends


def _present_ids(logs: Mapping[TopicPartition, SeenLog]) -> Ids:
    """Return the id of each topic, by its first partition."""
    firsts = {one.topic: log for one, log in sorted(logs.items(), reverse=True)}
    found = {topic: log.topic_id() for topic, log in firsts.items()}
    return {topic: one for topic, one in found.items() if one is not None}


def _recreated(offsets: Json, logs: Mapping[TopicPartition, SeenLog]) -> list[str]:
    """Return the topics that are others than those of a checkpoint."""
    present = _present_ids(logs)
    before = ids_of(offsets)
    return [topic for topic, one in before.items() if present.get(topic, one) != one]
