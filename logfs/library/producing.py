"""Producers: what they append is in the log exactly once; in transactions as a whole or never."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import tzinfo

from logfs.errors import LogfsError
from logfs.library.records import Appendable, check_range, to_record
from logfs.library.writing import Writer
from logfs.log.writing.producerbatches import Appended
from logfs.machine.host import system_clock
from logfs.records.encoded import ProducerBatch
from logfs.records.produced import add_to_sequence
from logfs.types import TopicPartition


class Producer:
    """Writes to a partition with sequence numbers, as Kafka's idempotent producers do.

    A batch that is appended again is found in the log: its offsets are returned and nothing is
    written. So a program that cannot know whether an append arrived (an error came in between, or
    it was killed) makes it again. Get one from ``Partition.producer``. One thread at a time.

    Attributes:
        producer_id: Who writes: who gives it out is the program's business.
        epoch: Of this instance; a higher one fences off those before it.
        sequence: Number of the next record.
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
        """Append records as one batch; ``sequence`` of the producer moves on after them.

        Args:
            records: At least one; together no larger than ``max.message.bytes``.
            sequence: Number of the first one; None: the next. A number from before repeats a batch.
            durable: They are on the disk when this returns.

        Returns:
            The offsets of the first and the last, and whether they were in the log already.

        Raises:
            OutOfOrderSequenceError: Batches in between are missing.
            InvalidProducerEpochError: A newer instance has taken over.
            RecordTooLargeError: The batch is too large.
            ControlError, OSError: It may have been appended or not: make the call again.
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
        """Make what is appended inside one transaction: committed at the end, aborted on an error.

        Readers with ``isolation_level="read_committed"`` see all of it then, or never any of it.
        The transaction is one of this partition. One that was left open by a program that was
        killed is ended by ``abort``. Nothing is written for one in which nothing was appended.
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
        """End the open transaction: its records count. Returns the offset of the marker."""
        return self._end(commit=True)

    def abort(self) -> int:
        """End the open transaction: its records do not count. Returns the offset of the marker."""
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
