"""Producers append records exactly once, and transactions as a whole or not at all."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import tzinfo

from logfs.errors import LogfsError
from logfs.library.records import Appendable, check_range, to_record
from logfs.library.writer import Writer
from logfs.log.writing.producerbatches import Appended
from logfs.machine.host import system_clock
from logfs.records.encoded import ProducerBatch
from logfs.records.produced import add_to_sequence
from logfs.types import TopicPartition


class Producer:
    """Appends to a partition with sequence numbers, as Kafka's idempotent producers do.

    A repeated batch is found in the log: the call returns its offsets and writes nothing. So a
    program that does not know whether an append succeeded (after an error or a kill) repeats it.
    Get one from ``Partition.producer``. One thread at a time.

    Attributes:
        producer_id: The producer; the programs that write must not share one.
        epoch: The instance; a higher epoch fences earlier instances.
        sequence: The number of the next record.
    """

    def __init__(
        self,
        writer: Writer,
        zone: tzinfo,
        topic_partition: TopicPartition,
        producer_id: int,
        epoch: int,
        sequence: int,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self._writer = writer
        self._zone = zone
        self._topic_partition = topic_partition
        self._is_transactional = False
        self._is_open = False

    def append_many(
        self,
        records: Iterable[Appendable],
        *,
        sequence: int | None = None,
        durable: bool = False,
    ) -> Appended:
        """Append records as one batch, and advance ``sequence`` by their number.

        Args:
            records: At least one; together no larger than ``max.message.bytes``.
            sequence: The number of the first record; None: the next. A lower one repeats a batch.
            durable: Return when the records are durable.

        Returns:
            The offsets of the first and the last record, and whether the log had them already.

        Raises:
            OutOfOrderSequenceError: Batches before this one are missing.
            InvalidProducerEpochError: An instance with a higher epoch has appended.
            RecordTooLargeError: The batch is too large.
            ControlError, OSError: The batch may be appended or not: repeat the call.
        """
        now_ms = system_clock().now_ms()
        batch = [to_record(record, now_ms, self._zone) for record in records]
        first = self.sequence if sequence is None else sequence
        check_range("sequence", first, 2**31)
        producer = ProducerBatch(self.producer_id, self.epoch, first, self._is_transactional)
        done = self._writer.append(self._topic_partition, batch, producer, is_durable=durable)
        self.sequence = add_to_sequence(first, len(batch))
        self._is_open |= self._is_transactional
        return done

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Append in one transaction: committed at the end of the block, aborted after an error.

        Readers with ``isolation_level="read_committed"`` see all of its records or none. The
        transaction contains this partition alone. ``abort`` ends one that a killed program left
        open. An empty transaction writes nothing.
        """
        self._is_transactional, self._is_open = True, False
        try:
            yield
        except BaseException as error:
            self._abort_after(error)
            raise
        else:
            if self._is_open:
                self.commit()
        finally:
            self._is_transactional = False

    def commit(self) -> int:
        """Commit the open transaction; returns the offset of the marker."""
        return self._end(commit=True)

    def abort(self) -> int:
        """Abort the open transaction; returns the offset of the marker."""
        return self._end(commit=False)

    def _abort_after(self, error: BaseException) -> None:
        try:
            self.abort()
        except (LogfsError, OSError) as second:
            error.add_note(f"the transaction could not be aborted and may still be open: {second}")

    def _end(self, *, commit: bool) -> int:
        return self._writer.end_transaction(
            self._topic_partition, self.producer_id, self.epoch, commit=commit
        )
