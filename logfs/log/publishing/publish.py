"""Publishing: what was staged for a batch gets offsets and positions, exactly once.

The protocol is in the docstring of the package. Works on the store that holds the lock of the
data directory: a daemon's, or one that was opened for this.
"""

import contextlib
import logging
import threading
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from logfs.errors import (
    NoSuchPartitionError,
    NoSuchTopicError,
    PolicyViolationError,
    ReadOnlyError,
    RecordTooLargeError,
)
from logfs.log.catalog import Catalog
from logfs.log.partition import PartitionLog
from logfs.log.publishing.ledger import (
    Intent,
    Ledger,
    Share,
    ledger_name,
    read_ledger,
    write_ledger,
)
from logfs.log.publishing.staging import (
    StagedFile,
    check_staged,
    query_key,
    remove_staged_of,
    staged_batches,
)
from logfs.log.reading.batches import batches_from
from logfs.log.reading.lookup import offset_hint
from logfs.log.writing.producerbatches import decode_batches
from logfs.records.encoded import ProducerBatch
from logfs.records.produced import MAX_SEQUENCE, add_to_sequence
from logfs.records.record import Record
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_topic_partition = attrgetter("topic_partition")
_EPOCH = 0
_OURS = 1 << 62
"""Producer ids from here on: brokers count theirs from 0."""
PUBLISHING = threading.Lock()
"""Two who publish the same batch at once would both find that nobody has."""


def publish(
    store: Catalog[PartitionLog],
    query: str,
    batch: int,
    staged: Sequence[StagedFile],
    now_ms: int,
    *,
    is_single: bool = False,
) -> bool:
    """Append what was staged for a batch of a query, unless that was done before.

    Args:
        store: Holds the lock of the data directory.
        query: Who writes.
        batch: The number of the batch; those of a query only grow.
        staged: The files of the tasks that count, in the order of their records; perhaps none.
        now_ms: The clock.
        is_single: The query has no other batch; ``forget`` is to follow.

    Returns:
        Whether it was this call that brought the batch to its end. When it returns all records are
        durable and seen, and the staged files are gone.

    Raises:
        DataLossError: Staged records are gone; nothing was begun.
        CorruptRecordError: They are damaged.
        ReadOnlyError: Nothing can be published here.
        LogfsError, OSError: See ``PartitionLog.append_encoded``, ``read_ledger``. Whatever it is,
            the call may be repeated.
    """
    if store.read_only:
        raise ReadOnlyError("the data directory is open read-only")
    with PUBLISHING:
        ledger, was_begun = read_ledger(store.disk, query), False
        if ledger.intent is not None:
            ledger = carry_out(store, ledger, ledger.intent, now_ms)
            was_begun = ledger.done == batch
        is_new = ledger.done < batch
        if is_new:
            intent = _intend(store, query, batch, staged)
            ledger = ledger._replace(intent=intent, is_single=is_single)
            write_ledger(store.disk, ledger)
            ledger = carry_out(store, ledger, intent, now_ms)
        _clear(store, ledger, {file.topic_partition for file in staged})
        return is_new or was_begun


def forget(store: Catalog[PartitionLog], query: str) -> None:
    """Remove the ledger of a query that will not come back, unless a batch of it is unfinished.

    Raises:
        LogfsError, OSError: See ``read_ledger``.
    """
    with PUBLISHING:
        if read_ledger(store.disk, query).intent is None:
            with contextlib.suppress(FileNotFoundError):
                store.disk.remove(ledger_name(query))


def concerned(
    store: Catalog[PartitionLog], query: str, staged: Sequence[StagedFile]
) -> set[TopicPartition]:
    """Return the partitions that ``publish`` would append to, whether they exist or not.

    Raises:
        LogfsError, OSError: See ``read_ledger``.
    """
    intent = read_ledger(store.disk, query).intent
    found = {file.topic_partition for file in staged}
    return found if intent is None else found | {share.topic_partition for share in intent.shares}


def _intend(
    store: Catalog[PartitionLog], query: str, batch: int, staged: Sequence[StagedFile]
) -> Intent:
    """Find out where the files of a batch are to go.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: Not there.
        PolicyViolationError: They are more records than sequence numbers.
        DataLossError: One has gone.
    """
    shares = []
    for (topic, partition), group in groupby(sorted(staged), key=lambda file: file.topic_partition):
        files, log = tuple(group), store.partition(topic, partition)
        records = sum(file.records for file in files)
        if records > MAX_SEQUENCE:
            raise PolicyViolationError(
                f"{topic}/{partition}: {records} records in one batch, at most {MAX_SEQUENCE} can "
                "be published at once"
            )
        for file in files:
            check_staged(store.disk, file)  # once they are intended it is too late to find out
        log.flush()  # a recovery must not cut before where the intent says
        sequence = log.next_sequence(_producer_id(query))
        end_offset = log.log_end_offset
        shares.append(Share(topic, partition, end_offset, sequence, files, log.topic_id))
    return Intent(batch, tuple(shares))


def carry_out(store: Catalog[PartitionLog], ledger: Ledger, intent: Intent, now_ms: int) -> Ledger:
    """Append what is missing of an intent; returns the ledger that says so.

    The caller holds ``PUBLISHING``.
    """
    for share in intent.shares:
        log = _partition_of(store, share)
        if log is None:
            logger.warning(
                "%s is gone, and with it what batch %d of %s was to bring",
                share.topic_partition, intent.batch, ledger.query,
            )  # fmt: skip
            continue
        _append_share(log, share, _producer_id(ledger.query), now_ms)
    done = ledger._replace(done=intent.batch, intent=None)
    write_ledger(store.disk, done)
    _clear(store, done, {share.topic_partition for share in intent.shares})
    return done


def _partition_of(store: Catalog[PartitionLog], share: Share) -> PartitionLog | None:
    """Return the partition that a share is for; None if its topic was deleted, or made again."""
    try:
        log = store.partition(share.topic, share.partition)
    except (NoSuchTopicError, NoSuchPartitionError):
        return None
    # A partition that could not be loaded has no id: it refuses the share, and the batch waits.
    is_another = None not in (share.topic_id, log.topic_id) and share.topic_id != log.topic_id
    return None if is_another else log


def _clear(
    store: Catalog[PartitionLog], ledger: Ledger, topic_partitions: Iterable[TopicPartition]
) -> None:
    """Remove what was staged for batches that are over, by whatever attempt."""
    for topic_partition in sorted(topic_partitions):
        with contextlib.suppress(FileNotFoundError):  # the topic was deleted
            remove_staged_of(store.disk, topic_partition.directory, ledger.query, ledger.done)


def _append_share(log: PartitionLog, share: Share, producer_id: int, now_ms: int) -> None:
    """Append the records of a share that are not in the log, and flush it."""
    there = _records_there(log, share, producer_id)
    seen = 0
    for file in share.files:
        if seen + file.records <= there:
            seen += file.records
            continue
        for data, count in staged_batches(log.disk, file):
            skipped = min(max(there - seen, 0), count)
            sequence = add_to_sequence(share.base_sequence, seen + skipped)
            producer = ProducerBatch(producer_id, _EPOCH, sequence)
            if skipped < count:
                _append_batch(log, data, skipped, producer, now_ms)
            seen += count
    log.flush()


def _append_batch(
    log: PartitionLog, data: memoryview, skipped: int, producer: ProducerBatch, now_ms: int
) -> None:
    """Append a batch, or what is missing of one that had to be recreated."""
    if not skipped:
        try:
            log.append_encoded(data, now_ms, producer)
        except RecordTooLargeError:
            pass  # max.message.bytes was made smaller meanwhile
        else:
            return
    _append_records(log, decode_batches(data)[skipped:], producer, now_ms)


def _append_records(
    log: PartitionLog, records: Sequence[Record], producer: ProducerBatch, now_ms: int
) -> None:
    """Append records in as many batches as it takes."""
    try:
        log.append_records(records, now_ms, producer)
    except RecordTooLargeError:
        half = len(records) // 2
        if not half:
            raise
        _append_records(log, records[:half], producer, now_ms)
        sequence = add_to_sequence(producer.base_sequence, half)
        _append_records(log, records[half:], producer._replace(base_sequence=sequence), now_ms)


def _records_there(log: PartitionLog, share: Share, producer_id: int) -> int:
    """Count the records of a share that were appended, by the headers of the log's last batches.

    What is known of the producer is not enough: it may have expired, if its records are old. But
    of records that retention has removed meanwhile nothing else is left.
    """
    snapshot, there = log.snapshot, 0
    written = log.last_records_of_producers().get(producer_id)
    end = None if written is None else written.last_data_offset
    if end is not None and end >= share.log_end_offset:
        there = add_to_sequence(log.next_sequence(producer_id), -share.base_sequence)
    first = max(snapshot.index_of_offset(share.log_end_offset), 0)
    for number in range(first, len(snapshot.segments)):
        segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
        position = offset_hint(segment, share.log_end_offset, file_end) if number == first else 0
        for batch in batches_from(segment, position, file_end):
            header = batch.header
            if header.producer_id == producer_id and header.base_offset >= share.log_end_offset:
                last = add_to_sequence(header.base_sequence, header.last_offset_delta)
                there = max(there, add_to_sequence(last, -share.base_sequence) + 1)
    return there


def _producer_id(query: str) -> int:
    return _OURS | int.from_bytes(query_key(query)[:8], "big") >> 2
