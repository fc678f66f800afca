"""The input of the encoder beside the lines, and its output."""

from dataclasses import dataclass
from typing import NamedTuple

from logfs.errors import LogfsError
from logfs.records.compression import Compression
from logfs.records.record import Header


class ProducerBatch(NamedTuple):
    """The producer of a batch; see ``logfs.log.producers.state`` for the rules.

    Attributes:
        producer_id: The id of the producer, >= 0.
        epoch: The epoch of this instance of it, 0 to 2**15 - 1; a newer one fences older ones off.
        base_sequence: Number of the first record among those of the producer in the partition, 0 to
            2**31 - 1; then it starts again at 0.
        is_transactional: Whether the records wait for the end of a transaction.
        keeps_order: Whether the batch may begin a segment only once the producer's earlier records
            are durable; see ``EarlierRecordsError``.
    """

    producer_id: int
    epoch: int
    base_sequence: int
    is_transactional: bool = False
    keeps_order: bool = False


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """How lines and records become batches.

    Attributes:
        max_batch_bytes: Kafka's ``max.message.bytes``: largest batch, its 61-byte header included.
        leader_epoch: Goes into the batch header, where the CRC does not cover it.
        compression: Codec of the batches.
        compression_level: Level in the codec's own scale; None is Kafka's default of the codec.
        log_append_time: The topic has ``message.timestamp.type=LogAppendTime``.
        require_key: Refuse records without a key (``cleanup.policy=compact``).
        timestamp_before_max_ms: How far a record's timestamp may lie before ``now_ms``.
        timestamp_after_max_ms: How far it may lie after ``now_ms``.
        producer: The producer; sequence numbers continue from batch to batch. None: a plain writer.
        headers: The headers of the record of a line after its own headers; only for lines.
        key_delimiter: Lines of text are a key, this, and a value; empty: they are values.
    """

    max_batch_bytes: int
    leader_epoch: int = 0
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    log_append_time: bool = False
    require_key: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    producer: ProducerBatch | None = None
    headers: tuple[Header, ...] = ()
    key_delimiter: bytes = b""


class EncodedBatch(NamedTuple):
    """A whole batch, ready to be written, and what the indexes need to know of it.

    Attributes:
        last_offset: Offset of its last record, inclusive.
        max_timestamp: Largest timestamp, ``now_ms`` under LogAppendTime; -1 if no record has one.
    """

    data: bytes
    base_offset: int
    last_offset: int
    max_timestamp: int
    text_bytes: int
    tsv_bytes: int
    jsonl_bytes: int


class Encoded(NamedTuple):
    """The batches of one call, and where and why it stopped early, if it did.

    Attributes:
        batches: In order, offsets without gaps.
        ends: For each batch, where the input it holds ends: an index into ``body`` just after the
            last line for lines, the number of records up to there for records.
        refusal: The error of the line or record at which encoding stopped; None if all went in.
    """

    batches: list[EncodedBatch]
    ends: list[int]
    refusal: LogfsError | None
