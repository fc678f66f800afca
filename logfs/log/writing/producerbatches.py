"""Batches of idempotent and transactional producers, and the markers that end transactions.

A marker is a control batch with one record, which no reader of records sees:

    key     int16 version 0, int16 type: 0 abort, 1 commit
    value   int16 version 0, int32 coordinator epoch

Pure. Source: Kafka MemoryRecords.writeEndTransactionalMarker, EndTransactionMarker.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from logfs.errors import RecordTooLargeError
from logfs.records._encoding import encode_records, rebase_batches
from logfs.records.batch import (
    BatchFields,
    decode_header,
    decode_records,
    encode_batch,
)
from logfs.records.compression import Buffer, decompress
from logfs.records.encoded import EncodedBatch, EncodeOptions, ProducerBatch
from logfs.records.produced import ABORT, COMMIT, MAX_SEQUENCE, ProducedBatch
from logfs.records.record import Record

MAX_PRODUCER_ID = 2**63 - 1
MAX_EPOCH = 2**15 - 1
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MARKER_VERSION = 0


class Appended(NamedTuple):
    """The offsets of records; a duplicate was in the log before."""

    base_offset: int
    last_offset: int
    is_duplicate: bool = False


def encode_produced(
    records: Sequence[Record],
    base_offset: int,
    now_ms: int,
    options: EncodeOptions,
    producer: ProducerBatch,
) -> tuple[EncodedBatch, ProducedBatch]:
    """Make one batch of a producer's records, and say what the rules need to know of it.

    Raises:
        ValueError: There are no records, or the producer's numbers are out of range.
        RecordTooLargeError, UnparsableLineError: They do not fit one batch, or one is refused.
    """
    _check_numbers(producer)
    encoded = encode_records(records, base_offset, now_ms, replace(options, producer=producer))
    if encoded.refusal is not None:
        raise encoded.refusal
    if not encoded.batches:
        raise ValueError("there are no records to append")
    if len(encoded.batches) > 1:
        size = sum(len(batch.data) for batch in encoded.batches)
        raise RecordTooLargeError(
            f"{len(records)} records of a producer make about {size} bytes; one batch holds them, "
            f"and max.message.bytes is {options.max_batch_bytes}: append fewer at once",
            size,
            options.max_batch_bytes,
        )
    (batch,) = encoded.batches
    return batch, _produced(batch, producer)


def rebase_encoded(
    payload: Buffer,
    base_offset: int,
    now_ms: int,
    options: EncodeOptions,
    producer: ProducerBatch | None,
) -> tuple[list[EncodedBatch], ProducedBatch | None]:
    """Take batches that a client has encoded; encode them again where they cannot be taken.

    Returns:
        The batches, and of a producer's what the rules need to know of the only one.

    Raises:
        ValueError: There are no records, or the producer's numbers are out of range.
        CorruptRecordError: The payload does not decode.
        RecordTooLargeError, UnparsableLineError: A record, or the batch of a producer, is refused.
    """
    if producer is not None:
        _check_numbers(producer)
    chosen = replace(options, producer=producer)
    batches = rebase_batches(payload, base_offset, now_ms, chosen, decompress)
    if batches is None or (producer is not None and len(batches) > 1):
        records = decode_batches(payload)
        if producer is not None:
            batch, produced = encode_produced(records, base_offset, now_ms, options, producer)
            return [batch], produced
        encoded = encode_records(records, base_offset, now_ms, options)
        if encoded.refusal is not None:
            raise encoded.refusal
        batches = encoded.batches
    if not batches:
        raise ValueError("there are no records to append")
    return batches, None if producer is None else _produced(batches[0], producer)


def decode_batches(payload: Buffer) -> list[Record]:
    """Return the records of all batches in a payload; raise CorruptRecordError."""
    records: list[Record] = []
    position, size = 0, memoryview(payload).nbytes
    while position < size:
        records += decode_records(payload, position)
        position += decode_header(payload, position).size_bytes
    return records


def _produced(batch: EncodedBatch, producer: ProducerBatch) -> ProducedBatch:
    return ProducedBatch(
        0,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp,
        producer.producer_id,
        producer.epoch,
        producer.base_sequence,
        producer.is_transactional,
    )


def encode_marker(
    offset: int,
    now_ms: int,
    options: EncodeOptions,
    producer: ProducerBatch,
    commit: bool,
    coordinator_epoch: int,
) -> tuple[EncodedBatch, ProducedBatch]:
    """Make the batch that ends a transaction; the sequence of ``producer`` means nothing."""
    _check_numbers(producer)
    if not 0 <= coordinator_epoch <= MAX_SEQUENCE:
        raise ValueError(f"coordinator epoch {coordinator_epoch} is outside [0, {MAX_SEQUENCE}]")
    control = COMMIT if commit else ABORT
    key = _MARKER_KEY.pack(_MARKER_VERSION, control)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch)
    fields = BatchFields(
        leader_epoch=options.leader_epoch,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        is_transactional=True,
        is_control=True,
        is_log_append_time=options.log_append_time,
    )
    data = encode_batch([Record(offset, now_ms, key, value, ())], fields)
    return EncodedBatch(data, offset, offset, now_ms, 0, 0, 0), ProducedBatch(
        0,
        offset,
        offset,
        now_ms,
        producer.producer_id,
        producer.epoch,
        -1,
        True,
        control,
        coordinator_epoch,
    )


def _check_numbers(producer: ProducerBatch) -> None:
    if not 0 <= producer.producer_id <= MAX_PRODUCER_ID or not 0 <= producer.epoch <= MAX_EPOCH:
        raise ValueError(
            f"producer id {producer.producer_id}, epoch {producer.epoch}: expected an id from 0 to "
            f"{MAX_PRODUCER_ID} and an epoch from 0 to {MAX_EPOCH}"
        )
    if not 0 <= producer.base_sequence <= MAX_SEQUENCE:
        raise ValueError(f"base sequence {producer.base_sequence} is outside [0, {MAX_SEQUENCE}]")
