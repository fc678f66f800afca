"""Calls of the encoder, and what holds for all its results."""

from collections.abc import Sequence
from itertools import pairwise

from logfs.records._encoding import encode_lines
from logfs.records.batch import decode_header, decode_records, encode_batch
from logfs.records.encoded import Encoded, EncodedBatch, EncodeOptions
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.strategies import NOW_MS

OPTIONS = EncodeOptions(max_batch_bytes=1 << 20)
ANY_TIME = EncodeOptions(
    max_batch_bytes=1 << 20, timestamp_before_max_ms=2**64, timestamp_after_max_ms=2**64
)


def encode(
    view: View, body: bytes, options: EncodeOptions = OPTIONS, *, head: bytes = b""
) -> Encoded:
    """Encode all of a body that is inside a larger buffer."""
    encoded = encode_lines(view, head, b"##" + body + b"#\n", 2, 2 + len(body), 5, NOW_MS, options)
    return encoded._replace(ends=[end - 2 for end in encoded.ends])


def decoded(batches: Sequence[EncodedBatch]) -> list[Record]:
    return [record for batch in batches for record in decode_records(batch.data)]


def check(encoded: Encoded, options: EncodeOptions, base_offset: int = 5) -> None:
    """Check what holds for every batch of any input."""
    offset = base_offset
    for batch in encoded.batches:
        header = decode_header(batch.data)
        records = decode_records(batch.data)
        assert len(batch.data) <= options.max_batch_bytes
        assert batch.base_offset == header.base_offset == offset
        assert [r.offset for r in records] == list(range(offset, batch.last_offset + 1))
        assert batch.last_offset == header.last_offset
        assert batch.max_timestamp == header.max_timestamp
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert header.partition_leader_epoch == options.leader_epoch
        assert header.is_log_append_time == options.log_append_time
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        assert (batch.text_bytes, batch.tsv_bytes, batch.jsonl_bytes) == oracle.lengths(records)
        offset = batch.last_offset + 1
    if not options.log_append_time:
        for batch, following in pairwise(encoded.batches):
            one_more = decode_records(batch.data) + decode_records(following.data)[:1]
            assert len(encode_batch(one_more)) > options.max_batch_bytes
