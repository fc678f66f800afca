"""The sizes of batches, segments and index entries for given records.

The rules are those of ``records._indexing.IndexBuilder`` and ``log.writing.active``.
"""

import math
from dataclasses import dataclass

from logfs.config import TopicConfig
from logfs.log.indexes.index import OFFSET_INDEX, TIME_INDEX
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.layout import HEADER_BYTES
from logfs.records.record import Record
from logfs.types import Positions

_LEAST_RECORD_BYTES = 7
_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Workload:
    """The records that are written to a topic.

    Attributes:
        value_bytes: Average length of a value.
        key_bytes: Average length of a key; None: records have no key.
        batch_records: Records in one batch: the lines of one write(2).
        partitions: Number of partitions; each gets the same share.
        compression_ratio: Compressed by uncompressed size of a batch's records; 1: uncompressed.
        packed_ratio: Size of a packed segment by its size before, if the topic is packed.
    """

    records_per_s: float
    value_bytes: int
    key_bytes: int | None = None
    batch_records: int = 1
    compression_ratio: float = 1.0
    partitions: int = 1
    keys: int | None = None
    packed_ratio: float = 1.0

    @property
    def partition_records_per_s(self) -> float:
        """Records per second in one partition."""
        return self.records_per_s / self.partitions


@dataclass(frozen=True, slots=True)
class BatchShape:
    """A batch on the disk, in which ``max.message.bytes`` may limit the records."""

    records: int
    size_bytes: int
    lengths: Positions
    data: bytes


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """A full segment, and the setting by which it is rolled."""

    batches: int
    size_bytes: int
    seconds: float
    offset_index_bytes: int
    time_index_bytes: int
    text_index_bytes: int
    rolled_by: str

    @property
    def index_bytes(self) -> int:
        """Size of its indexes together."""
        return self.offset_index_bytes + self.time_index_bytes + self.text_index_bytes


def batch_shape(workload: Workload, config: TopicConfig) -> BatchShape:
    """Encode a batch of such records; RecordTooLargeError if not even one record fits."""
    key = None if workload.key_bytes is None else b"k" * workload.key_bytes
    record = Record(0, 0, key, b"v" * workload.value_bytes)
    size = workload.value_bytes + (workload.key_bytes or 0) + _LEAST_RECORD_BYTES
    count = min(workload.batch_records, config.max_message_bytes // size + 1)
    options = EncodeOptions(max_batch_bytes=config.max_message_bytes)
    encoded = encode_records([record] * max(count, 1), 0, 0, options)
    if encoded.refusal is not None:
        raise encoded.refusal
    batch = encoded.batches[0]
    payload = math.ceil((len(batch.data) - HEADER_BYTES) * workload.compression_ratio)
    return BatchShape(
        batch.last_offset - batch.base_offset + 1,
        HEADER_BYTES + payload,
        Positions(batch.text_bytes, batch.tsv_bytes, batch.jsonl_bytes),
        bytes(batch.data),
    )


def segment_shape(batch: BatchShape, batches_per_s: float, config: TopicConfig) -> SegmentShape:
    """Return the shape of a full segment."""
    stride = batches_per_entry(batch.size_bytes, config.index_interval_bytes)
    slots = config.segment_index_bytes // TIME_INDEX.entry_bytes - 1  # one is left for the roll
    limits = {
        "segment.bytes": config.effective_segment_bytes // batch.size_bytes,
        "segment.ms": int(config.max_segment_ms / _MS_PER_S * batches_per_s) + 1,
        "segment.index.bytes": slots * stride + 1,
    }
    rolled_by = min(limits, key=limits.__getitem__)
    batches = max(limits[rolled_by], 1)
    return filled_segment(batch, batches, batches_per_s, config, rolled_by)


def filled_segment(
    batch: BatchShape,
    batches: int,
    batches_per_s: float,
    config: TopicConfig,
    rolled_by: str = "",
) -> SegmentShape:
    """Return the shape of a sealed segment with a number of batches."""
    stride = batches_per_entry(batch.size_bytes, config.index_interval_bytes)
    entries = max(batches - 1, 0) // stride
    seconds = max(batches - 1, 0) / batches_per_s
    times = min(entries, int(seconds * _MS_PER_S))  # only a larger timestamp has an entry
    if (batches and (batches - 1) % stride) or not times:
        times += 1  # that of the roll
    return SegmentShape(
        batches,
        batches * batch.size_bytes,
        seconds,
        entries * OFFSET_INDEX.entry_bytes,
        times * TIME_INDEX.entry_bytes,
        TEXT_INDEX.header_bytes + entries * TEXT_INDEX.entry_bytes,
        rolled_by,
    )


def batches_per_entry(batch_bytes: int, interval_bytes: int) -> int:
    """Return the number of batches between two index entries."""
    return interval_bytes // batch_bytes + 1
