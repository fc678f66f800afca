"""What compaction leaves of a batch, written as plainly as possible.

Source: Kafka Cleaner.shouldRetainRecord, MemoryRecords.filterTo.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

from logfs.records._compaction import OffsetMap
from logfs.records.batch import BatchFields, decode_header, decode_records, encode_batch
from logfs.records.compression import Compression
from logfs.records.record import Record

NOW_MS = 1_700_000_000_000
KEY = bytes(range(16))
ROOMY = 1 << 20

keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"a longer key, of more than 8 bytes"])
values = st.sampled_from([None, b"", b"v", b"two\nlines\t\\", b"x" * 50])


def offset_map(memory_bytes: int = ROOMY, load_factor: float = 0.9) -> OffsetMap:
    return OffsetMap(memory_bytes, load_factor, KEY)


def batch_of(*records: Record, fields: BatchFields | None = None) -> bytes:
    return encode_batch(records, fields or BatchFields())


def record(offset: int, key: bytes | None, value: bytes | None = b"v") -> Record:
    return Record(offset, NOW_MS + offset, key, value, ())


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """A log of plain batches, some as an earlier compaction leaves them."""
    made, offset = [], 0
    for _ in range(draw(st.integers(1, 5))):
        records = []
        base_offset = offset + draw(st.integers(0, 2))
        offset = base_offset
        for _ in range(draw(st.integers(0, 40))):
            offset += draw(st.sampled_from([0, 0, 0, 1]))
            timestamp = NOW_MS + draw(st.integers(-5, 5))
            headers = draw(st.sampled_from([(), ((b"h", None),)]))
            records.append(Record(offset, timestamp, draw(keys), draw(values), headers))
            offset += 1
        last_offset = max(offset - 1 + draw(st.integers(0, 1)), base_offset)
        offset = last_offset + 1
        is_log_append_time = draw(st.booleans())
        fields = BatchFields(
            compression=draw(st.sampled_from([Compression.NONE, *Compression])),
            producer_id=draw(st.sampled_from([-1, 7])),
            is_log_append_time=is_log_append_time,
            delete_horizon_ms=draw(st.sampled_from([None, NOW_MS - 1, NOW_MS + 1])),
            base_offset=base_offset,
            last_offset=last_offset,
            max_timestamp=NOW_MS + 9 if is_log_append_time else None,
        )
        made.append(encode_batch(records, fields))
    return made


@dataclass
class Keys:
    """The last offset of each key, of records up to ``latest_offset``."""

    limit: int = 1 << 60
    offsets: dict[bytes, int] = field(default_factory=dict)
    latest_offset: int = -1
    is_full: bool = False

    def put_batch(self, batch: bytes, start_offset: int = 0, *, aborted: bool = False) -> None:
        header = decode_header(batch)
        for record in [] if aborted or header.is_control else decode_records(batch):
            if record.key is None or record.offset < start_offset:
                continue
            if len(self.offsets) >= self.limit:
                self.is_full = True
                return
            self.offsets[record.key] = record.offset
            self.latest_offset = record.offset
        if header.last_offset >= start_offset:
            self.latest_offset = header.last_offset


def survives(
    record: Record, keys: Keys, *, drop_tombstones: bool, is_control: bool, discard: bool
) -> bool:
    if discard or is_control:
        return not discard
    if record.offset > keys.latest_offset:
        return True
    if record.key is None or record.offset < keys.offsets.get(record.key, -1):
        return False
    return record.value is not None or not drop_tombstones


@dataclass
class Round:
    """One round of cleaning."""

    keys: Keys
    now_ms: int
    delete_retention_ms: int = 1000
    upper_bound: int = 1 << 60
    retained: Mapping[int, int] = field(default_factory=dict)

    def filtered(
        self, batch: bytes, *, discard: bool = False, is_empty: bool = False, retain: bool = False
    ) -> tuple[bytes | None, list[Record], list[Record]]:
        """What is left of a batch: its bytes, None if it goes; its records before and after."""
        header = decode_header(batch)
        horizon = header.delete_horizon_ms
        records = decode_records(batch)
        drop = horizon is not None and horizon <= self.now_ms
        kept = [
            record
            for record in records
            if survives(
                record,
                self.keys,
                drop_tombstones=drop,
                is_control=header.is_control,
                discard=discard,
            )
        ]
        retain = retain or header.last_offset + 1 == self.upper_bound
        if header.producer_id >= 0:
            retain = retain or self.retained.get(header.last_offset) == header.producer_id
        seen = [] if header.is_control else records
        if not kept and not retain:
            return None, seen, []
        is_new = horizon is None and (is_empty or any(r.value is None for r in kept)) and bool(kept)
        if len(kept) == len(records) and kept and not is_new:
            return batch, seen, seen
        if is_new:
            horizon = self.now_ms + self.delete_retention_ms
        keeps_timestamp = header.is_log_append_time or not kept
        fields = BatchFields(
            compression=header.compression if kept else Compression.NONE,
            leader_epoch=header.partition_leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            is_log_append_time=header.is_log_append_time,
            delete_horizon_ms=horizon if kept else None,
            base_offset=header.base_offset,
            last_offset=header.last_offset,
            max_timestamp=header.max_timestamp if keeps_timestamp else None,
        )
        return encode_batch(kept, fields), seen, [] if header.is_control else kept

    def survivors(self, batches: Iterable[bytes]) -> list[Record]:
        return [record for batch in batches for record in self.filtered(batch)[2]]
