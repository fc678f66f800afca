"""Publishing: append the staged records of a batch exactly once.

The docstring of the package describes the protocol. The store must hold the lock of the data
directory: a daemon's store, or one that was opened for this.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from logfs.errors import (
    DataLossError,
    EarlierRecordsError,
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
    PartitionShare,
    ledger_name,
    read_ledger,
    write_ledger,
)
from logfs.log.publishing.staging import (
    PublishOptions,
    StagedFile,
    check_staged,
    query_key,
    remove_staged_of,
    staged_batches,
)
from logfs.log.reading.lookup import batches_in, offset_hint
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
_OF_STREAM = PublishOptions()
PUBLISHING = threading.Lock()
"""Held while a batch is published: two threads would append the same batch twice."""


def publish(
    store: Catalog[PartitionLog],
    query: str,
    batch: int,
    staged: Sequence[StagedFile],
    now_ms: int,
    options: PublishOptions = _OF_STREAM,
) -> bool:
    """Append the staged records of a batch; return False if that was done before.

    On return all records are durable and visible, and the staged files are removed.

    Args:
        batch: The number of the batch; the numbers of a query only grow.

    Raises:
        DataLossError: Staged records are missing, or would be left out; nothing was appended.
        CorruptRecordError: Staged records are damaged.
        ReadOnlyError: The store is read-only.
        LogfsError, OSError: See ``Appender.append_encoded``, ``read_ledger``. The call may be
            repeated after any error.
    """
    if store.read_only:
        raise ReadOnlyError("the data directory is open read-only")
    with PUBLISHING:
        ledger, was_begun = read_ledger(store.disk, query), False
        if ledger.intent is not None:
            ledger = carry_out(store, ledger, ledger.intent, now_ms)
            was_begun = ledger.done == batch
        is_new = ledger.done < batch
        if not is_new:
            _check_repeated(ledger, batch, staged, fails_on_loss=options.fails_on_loss)
        if is_new:
            intent = _intend(store, query, batch, staged)
            ledger = ledger._replace(intent=intent, is_single=options.is_single)
            write_ledger(store.disk, ledger)
            ledger = carry_out(store, ledger, intent, now_ms)
        _clear(store, ledger, {file.topic_partition for file in staged})
        return is_new or was_begun


def _check_repeated(
    ledger: Ledger, batch: int, staged: Sequence[StagedFile], *, fails_on_loss: bool
) -> None:
    """Raise DataLossError if a published batch comes again with more records.

    A checkpoint that has lost its last batches plans them again, and with them the records that
    have come since.
    """
    before, now = ledger.batch_records.get(batch), sum(file.records for file in staged)
    if before is None or now <= before:
        return
    text = (
        f"batch {batch} of query {ledger.query} comes again with {now} records, but was published "
        f"with {before}"
    )
    if not fails_on_loss:
        logger.warning("%s: %d records are left out", text, now - before)
        return
    raise DataLossError(
        f"{text}, and {now - before} records would be left out: the checkpoint has lost its last "
        f"batches (published up to batch {ledger.done}), or the query was changed. Restore the "
        "checkpoint, or start with a new one after what was published, or set "
        "failOnDataLoss=false to leave them out"
    )


def forget(store: Catalog[PartitionLog], query: str) -> None:
    """Remove the ledger of a query that has ended, unless it has an unfinished batch.

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
    """Return the intent for the files of a batch.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: A partition does not exist.
        PolicyViolationError: There are more records than sequence numbers.
        DataLossError: A file is missing.
        MirrorError: A partition is a mirror.
    """
    shares = []
    for (topic, partition), group in groupby(sorted(staged), key=lambda file: file.topic_partition):
        files, log = tuple(group), store.partition(topic, partition)
        log.check_appendable()
        records = sum(file.records for file in files)
        if records > MAX_SEQUENCE:
            raise PolicyViolationError(
                f"{topic}/{partition}: {records} records in one batch, at most {MAX_SEQUENCE} can "
                "be published at once"
            )
        for file in files:
            check_staged(store.disk, file)  # an intent must not name missing files
        if log.config.has_quota:
            log.state.admit(sum(file.size_bytes for file in files))
        log.flush()  # a recovery must not truncate below the end in the intent
        sequence = log.appender.next_sequence(producer_id_of(query))
        end_offset = log.log_end_offset
        shares.append(PartitionShare(topic, partition, end_offset, sequence, files, log.topic_id))
    return Intent(batch, tuple(shares))


def carry_out(store: Catalog[PartitionLog], ledger: Ledger, intent: Intent, now_ms: int) -> Ledger:
    """Append the missing records of an intent; returns the new ledger.

    The caller holds ``PUBLISHING``.
    """
    for share in intent.shares:
        log = _partition_of(store, share)
        if log is None:
            logger.warning(
                "%s was deleted, so its records of batch %d of %s are dropped",
                share.topic_partition, intent.batch, ledger.query,
            )  # fmt: skip
            continue
        _append_share(log, share, producer_id_of(ledger.query), now_ms)
    done = ledger._replace(intent=intent).completed()
    write_ledger(store.disk, done)
    _clear(store, done, {share.topic_partition for share in intent.shares})
    return done


def _partition_of(store: Catalog[PartitionLog], share: PartitionShare) -> PartitionLog | None:
    """Return the partition of a share; None if its topic was deleted or recreated."""
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
    """Remove the staged files of published batches, of all attempts."""
    for topic_partition in sorted(topic_partitions):
        with contextlib.suppress(FileNotFoundError):  # the topic was deleted
            remove_staged_of(store.disk, topic_partition.directory, ledger.query, ledger.done)


def _append_share(log: PartitionLog, share: PartitionShare, producer_id: int, now_ms: int) -> None:
    """Append the records of a share that are not in the log yet, and flush it."""
    there = _records_there(log, share, producer_id)
    seen = 0
    for file in share.files:
        if seen + file.records <= there:
            seen += file.records
            continue
        for data, count in staged_batches(log.disk, file):
            skipped = min(max(there - seen, 0), count)
            sequence = add_to_sequence(share.base_sequence, seen + skipped)
            # The last record that a power cut keeps says how many of them are in the log.
            producer = ProducerBatch(producer_id, _EPOCH, sequence, keeps_order=True)
            if skipped < count:
                _append_batch(log, data, skipped, producer, now_ms)
            seen += count
    log.flush()


def _append_batch(
    log: PartitionLog, data: memoryview, skipped: int, producer: ProducerBatch, now_ms: int
) -> None:
    """Append a batch; without its first records if an earlier attempt has appended them."""
    if not skipped:
        try:
            _in_order(log, lambda: log.appender.append_encoded(data, now_ms, producer))
        except RecordTooLargeError:
            pass  # max.message.bytes was made smaller meanwhile
        else:
            return
    _append_records(log, decode_batches(data)[skipped:], producer, now_ms)


def _append_records(
    log: PartitionLog, records: Sequence[Record], producer: ProducerBatch, now_ms: int
) -> None:
    """Append records in as many batches as ``max.message.bytes`` requires."""
    try:
        _in_order(log, lambda: log.append_records(records, now_ms, producer))
    except RecordTooLargeError:
        half = len(records) // 2
        if not half:
            raise
        _append_records(log, records[:half], producer, now_ms)
        sequence = add_to_sequence(producer.base_sequence, half)
        _append_records(log, records[half:], producer._replace(base_sequence=sequence), now_ms)


def _in_order(log: PartitionLog, append: Callable[[], object]) -> None:
    """Append a batch, after a flush if it begins a segment and earlier records are not durable."""
    try:
        append()
    except EarlierRecordsError:
        log.flush()  # outside of the lock, so that other writers do not wait for it
        append()


def _records_there(log: PartitionLog, share: PartitionShare, producer_id: int) -> int:
    """Count the records of a share in the log, from the headers of its last batches.

    The producer state alone is not enough, because it may have expired. But it still includes
    records that retention has deleted meanwhile.
    """
    snapshot, there = log.snapshot, 0
    written = log.appender.last_records_of_producers().get(producer_id)
    end = None if written is None else written.last_data_offset
    if end is not None and end >= share.log_end_offset:
        there = add_to_sequence(log.appender.next_sequence(producer_id), -share.base_sequence)
    first = max(snapshot.index_of_offset(share.log_end_offset), 0)
    for number in range(first, len(snapshot.segments)):
        segment, file_end = snapshot.segments[number], snapshot.end_of(number)[2]
        position = offset_hint(segment, share.log_end_offset, file_end) if number == first else 0
        for batch in batches_in(segment, position, file_end):
            header = batch.header
            if header.producer_id == producer_id and header.base_offset >= share.log_end_offset:
                last = add_to_sequence(header.base_sequence, header.last_offset_delta)
                there = max(there, add_to_sequence(last, -share.base_sequence) + 1)
    return there


def producer_id_of(query: str) -> int:
    """Return the id of the producer that publishes the batches of a query."""
    return _OURS | int.from_bytes(query_key(query)[:8], "big") >> 2
