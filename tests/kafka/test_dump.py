"""``logfs dump`` beside kafka-dump-log, line for line."""

import struct
from pathlib import Path

import pytest

from logfs.records.batch import encode_batch
from tests.kafka import jars
from tests.kafka.dumping import compare
from tests.log import dumps
from tests.log.dumps import NOW_MS, offset_index, positions, record, time_index, write_segment

pytestmark = [pytest.mark.kafka, jars.usual]


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ([], [1, 2, 3, 4, 5, 6]),
        (["--deep-iteration"], [1, 2, 3, 4, 5, 6]),
        (["--print-data-log"], [1, 2, 3, 4, 5, 6]),
        (["--print-data-log", "--skip-record-metadata"], [1, 2, 3, 4, 5, 6]),
        # The first batches of the third and the fourth file are larger than what is read.
        (["--deep-iteration", "--max-bytes", "700"], [1, 4, 5, 6]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_logs_of_every_kind(tmp_path: Path, options: list[str], refused: list[int]) -> None:
    """All offsets are below 100: readers refuse them in each file but the first."""
    flipped = bytearray(dumps.hand_made_log())
    flipped[66] ^= 1
    logs = [
        dumps.hand_made_log(),
        dumps.compressed_log(),
        dumps.wild_log(1),
        dumps.wild_log(2),
        dumps.legacy_log(),
        bytes(flipped),
        dumps.hand_made_log() + b"torn off here, rather long ago",
        b"",
    ]
    files = [write_segment(tmp_path, log, 100 * n) for n, log in enumerate(logs)]
    compare(files, *options, refused=[files[n] for n in refused])


def test_zeros_and_records_that_do_not_decode_end_both(tmp_path: Path) -> None:
    zeros = write_segment(tmp_path, dumps.hand_made_log() + bytes(100))
    compare([zeros], is_read=False)
    batch = bytearray(encode_batch([record(0, b"a"), record(1, b"b")]))
    batch[-8] = 0x7F
    bad = write_segment(tmp_path, bytes(batch), 7)
    compare([bad])
    compare([bad], "--print-data-log", is_read=False)


def test_typed_keys_and_values(tmp_path: Path) -> None:
    file = write_segment(
        tmp_path, encode_batch([record(0, struct.pack(">q", -5), struct.pack(">i", 7))])
    )
    api = "org.apache.kafka.tools.api"
    classes = [
        f"--key-decoder-class={api}.IntegerDecoder",
        f"--value-decoder-class={api}.LongDecoder",
    ]
    compare([file], *classes)


def test_indexes(tmp_path: Path) -> None:
    log = dumps.hand_made_log()
    at = positions(log)
    write_segment(
        tmp_path,
        log,
        index=offset_index([(4, at[1]), (5, at[2]), (8, at[4]), (19, at[8])], zeros=5),
        timeindex=time_index(
            [(NOW_MS + 5, 1), (NOW_MS, 4), (NOW_MS + 1, 5), (NOW_MS + 9, 20), (NOW_MS + 10, 60)],
            zeros=1000,
        ),
    )
    index, times = tmp_path / f"{0:020}.index", tmp_path / f"{0:020}.timeindex"
    for options in ([], ["--verify-index-only"]):
        assert len(compare([index], *options).errors) == 3
        assert len(compare([times], *options).errors) == 7
    compare([index], "--index-sanity-check")
    compare([times], "--index-sanity-check", is_read=False)  # zeros are less than the first time
    compare([index], "--max-message-size", "50", is_read=False)
    index.write_bytes(b"")
    compare([index, times])


def test_the_other_files(tmp_path: Path) -> None:
    files = {
        f"{15:020}.snapshot": dumps.snapshot(dumps.PRODUCERS),
        f"{16:020}.snapshot": dumps.snapshot([]),
        f"{17:020}.snapshot": dumps.snapshot(dumps.PRODUCERS) + b"\0",
        f"{18:020}.snapshot": dumps.snapshot(dumps.PRODUCERS, version=7),
        f"{19:020}.snapshot": dumps.snapshot(dumps.PRODUCERS)[:60],
        f"{20:020}.snapshot": b"",
        f"{0:020}.txnindex": b"".join(struct.pack(">hqqqq", *e) for e in dumps.ABORTED) + bytes(33),
        f"{7:020}.txnindex": b"",
        f"{7:020}-{3:010}.checkpoint": dumps.hand_made_log(),
        "bootstrap.checkpoint": dumps.hand_made_log(),
        f"{9:020}.log.deleted": b"",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    compare([tmp_path / name for name in files])
