import struct
from pathlib import Path

import pytest

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import Compression
from tests.cli.conftest import Call
from tests.log import dumps
from tests.log.dumps import NOW_MS, offset_index, positions, record, time_index, write_segment

NAME = f"{0:020}.log"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, which is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("golden", "options"),
    [
        ("batches", []),
        ("records", ["--deep-iteration"]),
        ("payloads", ["--print-data-log"]),
        ("payloads-only", ["--print-data-log", "--skip-record-metadata"]),
    ],
)
def test_a_log_is_printed_as_kafka_dump_log_prints_it(
    here: Path, logfs: Call, golden: str, options: list[str]
) -> None:
    write_segment(here, dumps.hand_made_log())
    outcome = logfs("dump", *options, NAME)
    assert outcome.out.decode() == (dumps.GOLDEN / f"{golden}.txt").read_text()
    gaps = ["  22 is followed by 25", "  11 is followed by 22"]
    expected = [f"Non-consecutive offsets in {here}/{NAME}", *gaps] if options else []
    assert (outcome.status, outcome.errors) == (0, expected)


def test_files_are_named_one_by_one_with_commas_or_by_their_directory(
    here: Path, logfs: Call
) -> None:
    for base_offset in (0, 7):
        write_segment(here / "t-0", encode_batch([record(base_offset, b"v")]), base_offset)
    (here / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 7\n")
    (here / "t-0" / "partition.metadata").write_text("not printed\n")
    names = [f"t-0/{NAME}", f"t-0/{7:020}.log"]
    by_name = logfs("dump", *names)
    assert logfs("dump", "--files", ",".join(names)) == by_name
    epochs = (
        b"Dumping t-0/leader-epoch-checkpoint\nepoch: 0 startOffset: 0\nepoch: 3 startOffset: 7\n"
    )
    assert logfs("dump", "t-0//") == by_name._replace(out=by_name.out + epochs)


def test_a_bad_checksum_and_a_torn_tail_set_the_exit_status(here: Path, logfs: Call) -> None:
    log = bytearray(dumps.hand_made_log())
    log[80] ^= 1
    write_segment(here, bytes(log))
    flipped = logfs("dump", NAME)
    assert flipped.status == 1
    assert flipped.out.count(b"isvalid: false") == 1
    write_segment(here, dumps.hand_made_log() + bytes(5))
    torn = logfs("dump", NAME)
    assert torn.status == 1
    assert torn.out.splitlines()[-1] == f"Found 5 invalid bytes at the end of {NAME}".encode()
    assert logfs("dump", "--max-bytes", "100", NAME).status == 0


def test_after_unreadable_data_dump_continues_with_the_next_file(here: Path, logfs: Call) -> None:
    log = dumps.hand_made_log()
    write_segment(here, log + bytes(100))
    write_segment(here, log, 7)
    outcome = logfs("dump", NAME, f"{7:020}.log", f"{9:020}.log")
    assert outcome.status == 1
    lines = outcome.out.splitlines()
    assert lines.count(b"Log starting offset: 0") == lines.count(b"Log starting offset: 7") == 1
    assert sum(b"isvalid: true" in line for line in lines) == 20
    assert "  Position: 0, base offset 0 is below 7" in outcome.errors
    assert [line for line in outcome.errors if line.startswith("logfs: ")] == [
        f"logfs: {NAME}: batch at position {len(log)}: found length 0, expected at least 14; zeros "
        "are what preallocation leaves",
        f"logfs: {here}/{9:020}.log: No such file or directory",
    ]


@pytest.mark.parametrize("codec", Compression)
def test_records_before_one_that_does_not_decode_are_printed(
    here: Path, logfs: Call, codec: Compression
) -> None:
    batch = bytearray(encode_batch([record(0, b"a"), record(1, b"b")], BatchFields()))
    batch[-8:-7] = b"\x7f"  # the length of the last record
    if codec:
        batch = bytearray(
            encode_batch([record(0, b"a"), record(1, b"b")], BatchFields(compression=codec))
        )
        batch[57:61] = struct.pack(">i", 3)  # a record more than there are
    write_segment(here, bytes(batch))
    outcome = logfs("dump", "--print-data-log", NAME)
    # Kafka's tool decodes a compressed batch as a whole.
    assert outcome.out.count(b"| offset: ") == (0 if codec else 1)
    assert outcome.status == 1
    assert "does not decode" in outcome.errors[0]
    assert logfs("dump", NAME).out.count(b"isvalid: false") == 1


def test_batches_larger_than_a_window_and_files_of_many_windows(here: Path, logfs: Call) -> None:
    large = encode_batch([record(0, b"x" * 3_000_000)])
    many = [encode_batch([record(i, b"y" * 1000)]) for i in range(1, 3000)]
    write_segment(here, b"".join([large, *many]))
    lines = logfs("dump", "--print-data-log", NAME).out.splitlines()
    assert len(lines) == 2 + 2 * 3000
    assert lines[3].endswith(b" payload: " + b"x" * 3_000_000)
    assert lines[-1].startswith(b"| offset: 2999 ")


def test_keys_and_values_of_other_types(here: Path, logfs: Call) -> None:
    write_segment(here, encode_batch([record(0, struct.pack(">q", -5), struct.pack(">i", 7))]))
    outcome = logfs(
        "dump",
        "--key-decoder-class=org.apache.kafka.tools.api.IntegerDecoder",
        "--value-decoder-class=org.apache.kafka.common.serialization.LongDeserializer",
        NAME,
    )
    assert outcome.out.endswith(b" headerKeys: [] key: 7 payload: -5\n")
    assert "known are String, Integer" in logfs("dump", "--key-decoder-class=My", NAME).errors[0]


def test_an_index_is_printed_and_checked(here: Path, logfs: Call) -> None:
    log = dumps.hand_made_log()
    _, second, third, *_ = positions(log)
    good = [(4, second), (6, third)]
    write_segment(here, log, index=offset_index(good, zeros=3))
    name = f"{0:020}.index"
    listed = f"Dumping {name}\noffset: 4 position: {second}\noffset: 6 position: {third}\n"
    assert logfs("dump", name) == (0, listed.encode(), [])
    assert logfs("dump", "--verify-index-only", name) == (0, f"Dumping {name}\n".encode(), [])
    write_segment(here, log, index=offset_index([(3, second), (5, third)]))
    wrong = logfs("dump", "--verify-index-only", name)
    assert wrong == (
        1,
        f"Dumping {name}\n".encode(),
        [
            f"Mismatches in :{here}/{name}",
            "  Index offset: 5, log offset: 6",
            "  Index offset: 3, log offset: 4",
        ],
    )
    write_segment(here, log, index=offset_index([(4, len(log) - 10)]))
    beyond = logfs("dump", name)
    assert beyond.status == 1
    assert "expected a whole batch at position" in beyond.errors[0]


def test_indexes_without_an_entry_yet_are_no_damage(here: Path, logfs: Call) -> None:
    index, times = offset_index([], zeros=9), time_index([], zeros=9)
    write_segment(here, b"", index=index, timeindex=times)
    batch = encode_batch([record(7, b"a"), record(8, b"b")])
    write_segment(here, batch, 7, index=index, timeindex=times)
    batch = encode_batch([record(9, b"a")])
    write_segment(here, batch, 9, index=index, timeindex=times)
    for base_offset, count in ((0, 1), (7, 2), (9, 0)):
        names = [f"{base_offset:020}.index", f"{base_offset:020}.timeindex"]
        outcome = logfs("dump", *names)
        assert outcome.status == 0
        assert sum("ndex" in line and "offset: " in line for line in outcome.errors) == count


def test_a_sanity_check_reads_only_the_entries(here: Path, logfs: Call) -> None:
    log = dumps.hand_made_log()
    files = [f"{0:020}.index", f"{0:020}.timeindex"]
    write_segment(here, log, index=offset_index([(9, 9)]), timeindex=time_index([(1, 1), (2, 2)]))
    passed = "".join(f"Dumping {name}\n{name} passed sanity check.\n" for name in files)
    assert logfs("dump", "--index-sanity-check", *files) == (0, passed.encode(), [])
    write_segment(
        here, log, index=offset_index([(9, 9)]) + b"\0", timeindex=time_index([(2, 1), (1, 2)])
    )
    failed = logfs("dump", "--index-sanity-check", *files)
    assert failed.status == 1
    assert "9 bytes, expected a multiple of 8" in failed.errors[0]
    assert "timestamp 1 is less than the first one's, 2" in failed.errors[1]
    write_segment(here, log, index=b"")
    empty = f"Dumping {files[0]}\n{files[0]} is empty.\n"
    assert logfs("dump", files[0]) == (0, empty.encode(), [])


def test_a_time_index_is_checked_against_the_records(here: Path, logfs: Call) -> None:
    log = dumps.hand_made_log()
    name = f"{0:020}.timeindex"
    entries = [(NOW_MS + 5, 1), (NOW_MS, 4), (NOW_MS + 1, 5), (NOW_MS + 9, 20)]
    write_segment(
        here,
        log,
        index=offset_index([(4, positions(log)[1])]),
        timeindex=time_index(entries, zeros=2),
    )
    listed = "".join(f"timestamp: {time} offset: {offset}\n" for time, offset in entries)
    outcome = logfs("dump", name)
    assert outcome.out.decode() == f"Dumping {name}\n{listed}"
    assert outcome.errors == [
        f"Found timestamp mismatch in :{here}/{name}",
        f"  Index timestamp: {NOW_MS + 9}, log timestamp: -1",
        f"Found out of order timestamp in :{here}/{name}",
        f"  Index timestamp: {NOW_MS}, Previously indexed timestamp: {NOW_MS + 5}",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 5, found log offset: 6",
    ]
    assert outcome.status == 1


def test_the_time_of_a_batch_that_compaction_emptied_is_no_damage(here: Path, logfs: Call) -> None:
    write_segment(here, dumps.hand_made_log(), index=b"", timeindex=time_index([(NOW_MS + 5, 20)]))
    outcome = logfs("dump", f"{0:020}.timeindex")
    assert outcome.status == 0
    assert len(outcome.errors) == 2


def test_producers_transactions_and_checkpoints(here: Path, logfs: Call) -> None:
    snapshot, index = Path(f"{15:020}.snapshot"), Path(f"{0:020}.txnindex")
    snapshot.write_bytes(dumps.snapshot(dumps.PRODUCERS))
    index.write_bytes(b"".join(struct.pack(">hqqqq", *e) for e in dumps.ABORTED) + bytes(33))
    Path("recovery-point-offset-checkpoint").write_text("0\n1\norders 0 42\n")
    outcome = logfs("dump", snapshot, index, "recovery-point-offset-checkpoint", "x.deleted")
    assert outcome.out.decode() == (
        f"Dumping {snapshot}\n"
        "producerId: 1000 producerEpoch: 2 coordinatorEpoch: 9 currentTxnFirstOffset: "
        "OptionalLong.empty lastTimestamp: 1700000000000 firstSequence: 17 lastSequence: 21 "
        "lastOffset: 14 offsetDelta: 4 timestamp: 1700000000000\n"
        "producerId: 1001 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: "
        "OptionalLong[15] lastTimestamp: 1700000000001 \n"
        "producerId: 1002 producerEpoch: 5 coordinatorEpoch: -1 currentTxnFirstOffset: "
        "OptionalLong.empty lastTimestamp: -1 firstSequence: 2147483646 lastSequence: 1 "
        "lastOffset: 99 offsetDelta: 3 timestamp: -1\n"
        f"Dumping {index}\n"
        "version: 0 producerId: 5 firstOffset: 3 lastOffset: 9 lastStableOffset: 3\n"
        f"version: 0 producerId: {2**40} firstOffset: 4 lastOffset: 20 lastStableOffset: 21\n"
        "Dumping recovery-point-offset-checkpoint\ntopic: orders partition: 0 offset: 42\n"
        "Dumping x.deleted\n"
    )
    assert (outcome.status, outcome.errors) == (0, ["Ignoring unknown file x.deleted"])


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\0", "Snapshot failed schema validation: null"),
        (
            dumps.snapshot(dumps.PRODUCERS, version=7),
            "Snapshot failed schema validation: Snapshot contained an unknown file version 7",
        ),
        (
            dumps.snapshot(dumps.PRODUCERS) + b"\0",
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: ",
        ),
    ],
)
def test_a_snapshot_that_is_not_sound_is_not_printed(
    here: Path, logfs: Call, data: bytes, problem: str
) -> None:
    Path(f"{15:020}.snapshot").write_bytes(data)
    outcome = logfs("dump", f"{15:020}.snapshot")
    assert outcome.status == 1
    assert len(outcome.errors) == len(outcome.out.splitlines()) == 1
    assert outcome.errors[0].startswith(problem)


def test_dump_refuses_an_empty_command_line(logfs: Call) -> None:
    assert logfs("dump").status == 2
    assert logfs("dump", "--remote-log-metadata-decoder", "x.log").status == 2
