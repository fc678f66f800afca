"""Promise 5 of SEMANTICS.md, the offsets of moments; the docstring is the sentence that is run."""

import json
from pathlib import Path

import pytest

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.record import Record
from tests.log.transactions import ABORT, append_batch, marker
from tests.mounting import Mount, logfs, now_ms, opened_store
from tests.records import oracle

pytestmark = pytest.mark.fuse

LATE_MS = 2_000_000_000_000


def asked(path: Path, time: int, *flags: str) -> int | None:
    [answer] = json.loads(logfs("offsets", path, "--json", "--time", str(time), *flags))
    assert answer["offset"] is None or answer["timestamp"] >= time
    offset: int | None = answer["offset"]
    return offset


def test_the_offset_of_a_moment(tmp_path: Path) -> None:
    """`logfs offsets` prints the offset of a time: that of the first readable record at or after
    it. With `--as-kafka` it prints what a broker answers, which may be a transaction's marker, or
    nothing though there are such records."""
    data = tmp_path / "data"
    data.mkdir()
    with opened_store(data) as store:
        store.create_topic("orders", 1, {"retention.ms": "-1"}, now_ms())
        log = store.partition("orders", 0)
        transactional = BatchFields(
            producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        plain = BatchFields(producer_id=2, producer_epoch=0, base_sequence=0)
        for fields, offset in ((transactional, 0), (plain, 1)):
            records = [Record(offset, 1000 + offset, None, b"value")]
            append_batch(log, encode_batch(records, fields), oracle.lengths(records), now_ms())
        append_batch(log, marker(1, 2, ABORT, LATE_MS), (0, 0, 0), now_ms())
        records = [Record(3, LATE_MS + 5, None, b"value")]
        fields = BatchFields(producer_id=2, producer_epoch=0, base_sequence=1)
        append_batch(log, encode_batch(records, fields), oracle.lengths(records), now_ms())
        # What compaction leaves of a producer's last batch: nothing but its largest timestamp.
        log.roll(now_ms())
        emptied = BatchFields(
            producer_id=3, producer_epoch=0, base_sequence=0,
            base_offset=4, last_offset=4, max_timestamp=LATE_MS + 20,
        )  # fmt: skip
        append_batch(log, encode_batch([], emptied), (0, 0, 0), now_ms())
        log.roll(now_ms())
        records = [Record(5, LATE_MS + 10, None, b"value")]
        fields = BatchFields(producer_id=2, producer_epoch=0, base_sequence=2)
        append_batch(log, encode_batch(records, fields), oracle.lengths(records), now_ms())
    with Mount(data, tmp_path / "mnt") as mount:
        for path in (mount.point / "orders" / "0", data / "orders" / "0"):
            committed = "--isolation-level", "read_committed"
            assert asked(path, 1000) == asked(path, 1000, "--as-kafka") == 0
            assert asked(path, 1000, *committed) == 1
            assert asked(path, 1000, *committed, "--as-kafka") == 0
            assert asked(path, LATE_MS) == 3
            assert asked(path, LATE_MS, "--as-kafka") == 2
            assert asked(path, LATE_MS + 10) == 5
            assert asked(path, LATE_MS + 10, "--as-kafka") is None
            assert asked(path, LATE_MS + 11) is None
