"""What is sent of stored batches: every committed record, as it is, in numbered batches."""

import random

import pytest

from logfs.kafka.shipping import Shaping, partition_for, parts_of, shipments_of
from logfs.log.reading.records import RecordReader
from logfs.records.batch import decode_header, decode_records
from logfs.records.record import Record
from logfs.services.clusters.batches import StoredBatches
from logfs.types import IsolationLevel
from tests.log.mirroring import some_source
from tests.log.support import Bench


def seen(bench: Bench, first: int = 0) -> list[Record]:
    """What a consumer sees under read_committed."""
    log = bench.log
    reader = RecordReader(lambda: log.snapshot, first, IsolationLevel.READ_COMMITTED)
    found: list[Record] = []
    while records := reader.read():
        found += records
    return found


def sent(bench: Bench, first: int, shaping: Shaping) -> list[Record]:
    """What is sent, with numbers for offsets; checks that the batches are numbered on."""
    log = bench.log
    reader, ordinal, found = StoredBatches(lambda: log.snapshot, first), 0, []
    while (piece := reader.read()) is not None:
        for part in parts_of(piece, shaping):
            for shipment in shipments_of(part, ordinal, shaping):
                header = decode_header(shipment.data)
                assert len(shipment.data) == header.size_bytes <= shaping.most_bytes
                assert (header.producer_id, header.producer_epoch) == (77, 3)
                assert header.base_sequence == ordinal
                assert header.base_offset == 0
                assert not header.is_control
                assert not header.attributes & 0x10
                records = decode_records(shipment.data, 0)
                assert len(records) == shipment.records
                found += records
                ordinal += shipment.records
    return found


def bare(records: list[Record]) -> list[Record]:
    return [record._replace(offset=0) for record in records]


@pytest.mark.parametrize("most_bytes", [400, 2000, 1 << 20])
@pytest.mark.parametrize("segment_bytes", ["500", "20000"])
def test_every_committed_record_is_sent_once(most_bytes: int, segment_bytes: str) -> None:
    bench = Bench({"internal.segment.bytes": segment_bytes})
    some_source(bench, 9)
    for first in (0, 1, 7, 30, bench.log.log_end_offset):
        shaping = Shaping(77, 3, most_bytes)
        assert bare(sent(bench, first, shaping)) == bare(seen(bench, first))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_large_batches_stay_compressed(codec: str) -> None:
    bench = Bench({"compression.type": codec})
    chance = random.Random(codec)
    rows = [Record(0, n, b"k%d" % n, chance.randbytes(2000), ((b"h", None),)) for n in range(60)]
    for at in range(0, 60, 20):
        bench.append(rows[at : at + 20])
    shaping = Shaping(77, 3, 1 << 20)
    reader = StoredBatches(lambda: bench.log.snapshot, 0)
    data = []
    while (piece := reader.read()) is not None:
        for part in parts_of(piece, shaping):
            data += [s.data for s in shipments_of(part, 0, shaping)]
    assert len(data) == 3
    assert all(decode_header(batch).attributes & 7 for batch in data)
    assert [r._replace(offset=0) for batch in data for r in decode_records(batch, 0)] == rows


def test_from_the_middle_of_a_batch_the_rest_is_sent() -> None:
    bench = Bench()
    bench.append([Record(0, n, b"%d" % (n % 3), b"v", ()) for n in range(30)])
    for start in range(31):
        shaping = Shaping(77, 3, 1 << 20)
        assert bare(sent(bench, start, shaping)) == bare(seen(bench, start))


def test_partitions_are_those_of_kafkas_producers() -> None:
    # Kafka UtilsTest.testMurmur2
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    for key, hashed in known.items():
        expected = (hashed & 0x7FFFFFFF) % 10
        assert partition_for(Record(5, 0, key, None, ()), 10) == expected
    assert partition_for(Record(5, 0, None, None, ()), 3) == 2
