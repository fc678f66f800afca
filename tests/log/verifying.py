"""Checking directories in tests, and the damages that a check has to find, each with its place."""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.segments.table import ENTRY_BYTES
from logfs.records.encoded import ProducerBatch
from logfs.records.record import Record
from logfs.services.verifying.findings import Finding
from logfs.services.verifying.segments import SegmentReport, SegmentTask, verify_segment
from logfs.services.verifying.verify import Verified, verify
from tests.fakes import START_MS
from tests.log.compaction import CompactedLog
from tests.log.support import DIRECTORY, Bench, batches_in

SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "100"}


def check(
    disk: Disk, *, wait: Callable[[int], object] = lambda _: None, boot_id: str = ""
) -> Verified:
    def run(tasks: Sequence[SegmentTask]) -> list[SegmentReport]:
        return [verify_segment(disk, task) for task in tasks]

    return verify(disk, TopicConfig.from_properties({}), None, run, wait, boot_id)


def places(findings: Sequence[Finding]) -> list[tuple[str, int | None]]:
    """Return file and position, or line, of findings."""
    return [
        (f.file.removeprefix(f"{DIRECTORY}/"), f.line if f.position is None else f.position)
        for f in findings
    ]


def plain() -> Bench:
    """A log of several segments with a batch a line, transactions in it, stopped cleanly."""
    bench = Bench(SMALL)
    bench.write(*(b"line %02d" % n + b"." * (n % 7) for n in range(30)))
    _abort(bench, 7, 4)
    bench.write(*(b"more %02d" % n for n in range(12)))
    bench.restart()
    bench.store.close(bench.now_ms)
    return bench


def _abort(bench: Bench, producer_id: int, records: int) -> None:
    log, base = bench.log, bench.log.log_end_offset
    batch = [Record(base + n, START_MS, None, b"aborted %d" % n) for n in range(records)]
    log.append_records(batch, START_MS, ProducerBatch(producer_id, 0, 0, is_transactional=True))
    log.appender.end_transaction(producer_id, 0, commit=False, coordinator_epoch=1, now_ms=START_MS)


def killed() -> Bench:
    """The same, but the store was killed."""
    bench = plain()
    bench.store = bench.open()
    bench.write(b"one", b"two", b"three")
    bench.disk.kill()
    return bench


def compacted() -> Bench:
    """A log of keys that was compacted, stopped cleanly."""
    log = CompactedLog(SMALL)
    for first in range(0, 90, 3):
        keys = [b"own %d" % first, *(b"k%d" % (n % 11) for n in (first + 1, first + 2))]
        log.append([Record(0, START_MS + first, key, b"value of " + key) for key in keys])
    log.roll()
    log.clean()
    log.bench.restart()
    log.bench.store.close(log.bench.now_ms)
    return log.bench


def logs(bench: Bench) -> list[str]:
    return bench.names(".log")


def flip(bench: Bench, name: str, at: int, mask: int = 4) -> None:
    data = bytearray(bench.file(name))
    data[at] ^= mask
    bench.put(name, bytes(data))


def flip_root(bench: Bench, name: str, old: bytes, new: bytes) -> None:
    data = bench.disk.read(name)
    assert old in data
    bench.disk.replace(name, data.replace(old, new))


def batch(bench: Bench, name: str, number: int) -> int:
    """Return where a batch of a log begins."""
    return batches_in(bench.file(name))[number][0]


def index(bench: Bench, kind: str) -> str:
    """Return the name of an index of the second segment."""
    return f"{logs(bench)[1][:20]}.{kind}"


Place = tuple[str, int | None]


class Case(NamedTuple):
    """A damage: of which log, how it is done, where it has to be found."""

    make: Callable[[], Bench]
    damage: Callable[[Bench], Place]


def _in_batch(number: int, byte: int) -> Callable[[Bench], Place]:
    """Flip a bit of a batch of the second segment."""

    def damage(bench: Bench) -> Place:
        name = logs(bench)[1]
        at = batch(bench, name, number)
        flip(bench, name, at + byte)
        return name, at

    return damage


def _in_index(
    kind: str, entry_bytes: int, header: int, number: int, byte: int
) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        name, at = index(bench, kind), header + number * entry_bytes
        flip(bench, name, at + byte)
        return name, at

    return damage


def _put(name: str, data: bytes, line: int | None) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        bench.put(name, data)
        return name, line

    return damage


def _remove(suffix: str, number: int = 1) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        name = suffix if not suffix.startswith(".") else f"{logs(bench)[number][:20]}{suffix}"
        bench.disk.remove(f"{DIRECTORY}/{name}")
        return name, None

    return damage


def _cut_log(number: int, size: int) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        name = logs(bench)[number]
        data = bench.file(name)
        last = batches_in(data)[-1][0]
        bench.put(name, data[:-size])
        return name, last

    return damage


def _cut_at_batch(bench: Bench) -> Place:
    name = logs(bench)[1]
    data = bench.file(name)
    last = batches_in(data)[-1][0]
    bench.put(name, data[:last])
    return name, last


def _append(number: int, more: bytes) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        name = logs(bench)[number]
        data = bench.file(name)
        bench.put(name, data + more)
        return name, len(data)

    return damage


def _cut_index(kind: str, size: int, entry_bytes: int, header: int = 0) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        name = index(bench, kind)
        data = bench.file(name)[:-size]
        bench.put(name, data)
        return name, len(data) - (len(data) - header) % entry_bytes

    return damage


def _zeros_behind_index(bench: Bench) -> Place:
    name = index(bench, "index")
    data = bench.file(name)
    bench.put(name, data + bytes(80))
    return name, len(data)


def _txn_index(bench: Bench) -> str:
    return bench.names(".txnindex")[0]


def _empty_txn_index(bench: Bench) -> Place:
    name = _txn_index(bench)
    bench.put(name, b"")
    return name, 0


def _flip_txn(byte: int) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        flip(bench, _txn_index(bench), byte)
        return _txn_index(bench), 0

    return damage


def _flip_snapshot(bench: Bench) -> Place:
    name = bench.names(".snapshot")[-1]
    flip(bench, name, len(bench.file(name)) - 3)
    return name, 0


def _flip_table(entry: int, byte: int) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        at = 32 + entry * ENTRY_BYTES
        flip(bench, "logfs.segments", at + byte)
        return "logfs.segments", at

    return damage


def _rewrite_table(field: int, by: int) -> Callable[[Bench], Place]:
    """Change a field of the second segment's entry, the checksum with it."""

    def damage(bench: Bench) -> Place:
        from logfs.records.checksum import crc32c

        data = bytearray(bench.file("logfs.segments"))
        base = int(logs(bench)[1][:20])
        starts = range(32, len(data), ENTRY_BYTES)
        at = max(n for n in starts if int.from_bytes(data[n : n + 8], "big") == base)
        (value,) = struct.unpack_from(">q", data, at + field)
        struct.pack_into(">q", data, at + field, value + by)
        struct.pack_into(">I", data, at + 132, crc32c(bytes(data[at : at + 132])))
        bench.put("logfs.segments", bytes(data))
        return "logfs.segments", at

    return damage


def _cut_table(bench: Bench) -> Place:
    data = bench.file("logfs.segments")
    bench.put("logfs.segments", data + b"torn")
    return "logfs.segments", len(data)


def _checkpoint(name: str, offset: int) -> Callable[[Bench], Place]:
    def damage(bench: Bench) -> Place:
        bench.disk.replace(name, b"0\n1\nt 0 %d\n" % offset)
        return name, 3

    return damage


def _bad_checkpoint(bench: Bench) -> Place:
    bench.disk.replace("recovery-point-offset-checkpoint", b"0\n1\nt 0")
    return "recovery-point-offset-checkpoint", 3


def _lose_text_entries(bench: Bench) -> Place:
    """Take the last pair of entries from a compacted segment's text index."""
    for log in logs(bench):
        name = f"{log[:20]}.textindex"
        data = bench.file(name)
        if len(data) > 16 + 4 * 32 and data[-64:-56] == data[-32:-24]:
            bench.put(name, data[:-64])
            return name, len(data) - 64
    raise AssertionError("no segment ends with a gap")


def _flip_gap(bench: Bench) -> Place:
    """Make a gap longer: that shows at the next entry, and either of the two may be wrong."""
    name = index(bench, "textindex")
    flip(bench, name, 16 + 32 + 15)
    return name, 16 + 2 * 32


def _reservation(bench: Bench) -> Place:
    """Make the reservation of the open segment smaller than what was shown."""
    from logfs.records.checksum import crc32c

    data = bytearray(bench.file("logfs.segments"))
    at = len(data) - ENTRY_BYTES
    bases = data[at + 48 : at + 72]
    data[at + 72 : at + 96] = bases
    struct.pack_into(">I", data, at + 132, crc32c(bytes(data[at : at + 132])))
    bench.put("logfs.segments", bytes(data))
    return "logfs.segments", at


def _merge_names(bench: Bench) -> Place:
    """Have a segment say that it begins in the middle of the one before it."""
    name = logs(bench)[2]
    for kind in ("log", "index", "timeindex", "textindex"):
        old = f"{DIRECTORY}/{name[:20]}.{kind}"
        bench.disk.rename(old, f"{DIRECTORY}/{int(name[:20]) - 2:020}.{kind}")
    return f"{int(name[:20]) - 2:020}.log", 0


DAMAGES: Mapping[str, Case] = {
    # A batch.
    "base offset, later": Case(plain, _in_batch(2, 7)),
    "base offset, far away": Case(plain, _in_batch(2, 1)),
    "base offset of the first batch": Case(plain, _in_batch(0, 7)),
    "base offset of the last batch": Case(plain, _in_batch(-1, 7)),
    "length": Case(plain, _in_batch(2, 11)),
    "length, by far": Case(plain, _in_batch(2, 8)),
    "leader epoch": Case(plain, _in_batch(2, 15)),
    "magic": Case(plain, _in_batch(2, 16)),
    "checksum": Case(plain, _in_batch(2, 18)),
    "attributes": Case(plain, _in_batch(2, 22)),
    "timestamp": Case(plain, _in_batch(2, 30)),
    "number of records": Case(plain, _in_batch(2, 60)),
    "a record": Case(plain, _in_batch(2, 66)),
    "a record of a killed store": Case(killed, _in_batch(1, 66)),
    "a record of a compacted log": Case(compacted, _in_batch(0, 66)),
    # A log.
    "sealed, cut in a batch": Case(plain, _cut_log(1, 9)),
    "last, cut in a batch": Case(killed, _cut_log(-1, 9)),
    "sealed, cut between batches": Case(plain, _cut_at_batch),
    "zeros after a sealed log": Case(plain, _append(1, bytes(500))),
    "zeros after the last log": Case(killed, _append(-1, bytes(500))),
    "garbage after a log": Case(plain, _append(1, bytes(range(1, 200)))),
    "log gone": Case(plain, _remove(".log")),
    "first log gone": Case(plain, _remove(".log", 0)),
    "begins inside another": Case(plain, _merge_names),
    # Indexes.
    "index gone": Case(plain, _remove(".index")),
    "time index gone": Case(plain, _remove(".timeindex")),
    "text index gone": Case(plain, _remove(".textindex")),
    "text index of a compacted log gone": Case(compacted, _remove(".textindex", 0)),
    "index, offset": Case(plain, _in_index("index", 8, 0, 1, 3)),
    "index, position": Case(plain, _in_index("index", 8, 0, 1, 7)),
    "index, sign": Case(plain, _in_index("index", 8, 0, 1, 4)),
    "index, odd length": Case(plain, _cut_index("index", 3, 8)),
    "index, zeros": Case(plain, _zeros_behind_index),
    "time index, timestamp": Case(plain, _in_index("timeindex", 12, 0, 0, 7)),
    "time index, offset": Case(plain, _in_index("timeindex", 12, 0, 0, 8)),
    "time index, last entry gone": Case(plain, _cut_index("timeindex", 12, 12)),
    "text index, magic": Case(plain, _in_index("textindex", 1, 0, 0, 0)),
    "text index, version": Case(plain, _in_index("textindex", 1, 4, 0, 3)),
    "text index, offset": Case(plain, _in_index("textindex", 32, 16, 1, 3)),
    "text index, position": Case(plain, _in_index("textindex", 32, 16, 1, 7)),
    "text index, length": Case(plain, _in_index("textindex", 32, 16, 1, 15)),
    "text index, length of a view": Case(plain, _in_index("textindex", 32, 16, 1, 30)),
    "text index, odd length": Case(plain, _cut_index("textindex", 5, 32, 16)),
    "first entry of a gap": Case(compacted, _in_index("textindex", 32, 16, 2, 15)),
    "last entry of a gap": Case(compacted, _flip_gap),
    "last gaps lost": Case(compacted, _lose_text_entries),
    # Transactions and producers.
    "aborted transactions forgotten": Case(plain, _empty_txn_index),
    "transaction index, version": Case(plain, _flip_txn(0)),
    "transaction index, producer": Case(plain, _flip_txn(9)),
    "transaction index, first offset": Case(plain, _flip_txn(17)),
    "transaction index, last offset": Case(plain, _flip_txn(25)),
    "snapshot": Case(plain, _flip_snapshot),
    # The segment table.
    "table, a byte": Case(plain, _flip_table(1, 60)),
    "table, half an entry": Case(plain, _cut_table),
    "table, magic": Case(plain, _put("logfs.segments", b"what is this?" * 9, 0)),
    "table gone": Case(plain, _remove("logfs.segments")),
    "table, next offset": Case(plain, _rewrite_table(16, 1)),
    "table, max timestamp": Case(plain, _rewrite_table(32, 1)),
    "table, first timestamp": Case(plain, _rewrite_table(40, 1)),
    "table, bases": Case(plain, _rewrite_table(48, -1)),
    "table, ends": Case(plain, _rewrite_table(72, 7)),
    "table, kept": Case(plain, _rewrite_table(96, 1)),
    "table, reservation": Case(killed, _reservation),
    # Small files.
    "leader epochs gone": Case(plain, _remove("leader-epoch-checkpoint")),
    "leader epochs": Case(plain, _put("leader-epoch-checkpoint", b"0\n1\n0 zero\n", 3)),
    "leader epoch ahead": Case(plain, _put("leader-epoch-checkpoint", b"0\n2\n0 0\n3 999\n", 4)),
    "metadata": Case(plain, _put("partition.metadata", b"version: 0\ntopic_id: ?", 2)),
    "metadata gone": Case(plain, _remove("partition.metadata")),
    "configuration": Case(plain, _put("logfs.config", b"retention.ms=soon\n", None)),
    "losses": Case(plain, _put("logfs.losses", b'{"version": 1}\nwhat?\n', 2)),
    "index of nothing": Case(plain, _put(f"{10**6:020}.index", bytes(8), None)),
    "name that stops a broker": Case(plain, _put("notes.log", b"", None)),
    # Checkpoints.
    "recovery point": Case(plain, _checkpoint("recovery-point-offset-checkpoint", 999)),
    "start offset": Case(plain, _checkpoint("log-start-offset-checkpoint", 999)),
    "high watermark": Case(plain, _checkpoint("replication-offset-checkpoint", 999)),
    "cleaner offset": Case(plain, _checkpoint("cleaner-offset-checkpoint", 999)),
    "checkpoint": Case(plain, _bad_checkpoint),
}  # fmt: skip
"""Name -> what is done to which log, and the place at which it has to be found."""
