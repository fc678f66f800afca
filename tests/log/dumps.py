"""Files to print: everything that a log, an index or a snapshot may hold, made by hand.

What kafka-dump-log 4.1.1 prints of ``hand_made_log`` is in ``golden_dumps``.
"""

import itertools
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from logfs.records.batch import BatchFields, encode_batch
from logfs.records.checksum import crc32c
from logfs.records.compression import Compression
from logfs.records.record import Header, Record
from tests.records.messages import KAFKA_SETS, message, wrapper

GOLDEN = Path(__file__).parent / "golden_dumps"
NOW_MS = 1_700_000_000_000
HORIZON_MS = NOW_MS + 86_400_000

COMMIT_KEY = struct.pack(">hh", 0, 1)
ABORT_KEY = struct.pack(">hh", 0, 0)
LEADER_CHANGE_KEY = struct.pack(">hh", 0, 2)
UNKNOWN_CONTROL_KEY = struct.pack(">hh", 0, 9)


def record(
    offset: int,
    value: bytes | None,
    key: bytes | None = None,
    timestamp: int = NOW_MS,
    headers: Sequence[Header] = (),
) -> Record:
    """A record, its rarer fields last."""
    return Record(offset, timestamp, key, value, tuple(headers))


def hand_made_log() -> bytes:
    """Batches of every kind, none compressed: offsets 0 to 40 with gaps."""
    marker = struct.pack(">hi", 0, 9)
    transactional = BatchFields(
        is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0
    )
    ending = BatchFields(is_transactional=True, is_control=True, producer_id=5, producer_epoch=1)
    leader_change = bytes.fromhex("000000000001 0200000001 00 0200000001 00 00")
    return b"".join(
        [
            encode_batch(
                [
                    record(0, b"v1", b"k1"),
                    record(1, None, b"k2", NOW_MS + 5, [(b"h", b"x"), (b"n", None)]),
                ],
                BatchFields(leader_epoch=3),
            ),
            encode_batch(
                [
                    record(2, b"", None, -1),
                    record(3, "héllo\nwörld 🎉".encode(), b"", 5, [(b"\xff\xfe", b"q")]),
                    record(4, b"\xed\xa0\x80\xf0\x90\x80A\xe2\x82", b"\xc0\xaf"),
                ],
                BatchFields(producer_id=77, producer_epoch=3, base_sequence=2**31 - 2),
            ),
            encode_batch([record(5, b"a"), record(6, b"b", None, 1)], transactional),
            encode_batch([record(7, b"log append time")], BatchFields(is_log_append_time=True)),
            encode_batch([record(8, marker, COMMIT_KEY)], ending),
            encode_batch(
                [record(9, struct.pack(">hi", 7, 12), ABORT_KEY)],
                BatchFields(is_transactional=True, is_control=True, delete_horizon_ms=HORIZON_MS),
            ),
            encode_batch(
                [record(10, leader_change, LEADER_CHANGE_KEY)], BatchFields(is_control=True)
            ),
            encode_batch([record(11, b"", UNKNOWN_CONTROL_KEY)], BatchFields(is_control=True)),
            encode_batch(
                [],
                BatchFields(
                    base_offset=12,
                    last_offset=20,
                    producer_id=1000,
                    producer_epoch=2,
                    base_sequence=17,
                    is_transactional=True,
                    max_timestamp=NOW_MS + 5,
                ),
            ),
            encode_batch(
                [record(22, None, b"tombstone", 1), record(25, b"kept", b"k", 2)],
                BatchFields(delete_horizon_ms=HORIZON_MS, base_offset=21, last_offset=40),
            ),
        ]
    )


def compressed_log() -> bytes:
    """A batch in each codec."""
    return b"".join(
        encode_batch(
            [record(3 * n + i, b"value %d " % i * 20, b"k%d" % i, NOW_MS + i) for i in range(3)],
            BatchFields(compression=codec, is_log_append_time=n % 2 == 1),
        )
        for n, codec in enumerate(Compression)
    )


def wild_log(seed: int) -> bytes:
    """Keys, values and names of headers that are hardly ever UTF-8."""
    random = Random(seed)
    bytes_of = b"A\x80\x90\xa0\xbf\xc0\xc2\xe0\xe2\xed\xef\xf0\xf4\xf5\xff"
    texts = [bytes(random.choices(bytes_of, k=random.randrange(1, 12))) for _ in range(2000)] + [
        bytes(text[:length])
        for text in itertools.product(
            b"\xc1\xe0\xed\xf0\xf1\xf4\xf8", b"A\x80\x90\xa0", b"A\x80\xbf", b"A\x80"
        )
        for length in range(1, 5)
    ]
    return encode_batch(
        [record(i, text, texts[-i], NOW_MS, [(text[::-1], b"")]) for i, text in enumerate(texts)]
    )


def legacy_log() -> bytes:
    """Messages of both old formats, alone and in compressed ones; Kafka's own among them."""
    broken = bytearray(message(1, record(3, b"the checksum differs")))
    broken[-1] ^= 1
    inside = [record(8, b"c", b"k", NOW_MS + 2), record(9, b"d")]
    return b"".join(
        [
            message(0, record(0, b"v", b"k")),
            message(0, record(1, None)),
            message(1, record(2, b"\xff", b"k", NOW_MS + 1)),
            bytes(broken),
            message(1, record(4, b"", b""), 8),
            *map(bytes.fromhex, KAFKA_SETS.values()),
            wrapper(1, Compression.SNAPPY, inside),
            encode_batch([record(10, b"of today")]),
        ]
    )


def snapshot(entries: Iterable[tuple[int, ...]], version: int = 1) -> bytes:
    """A producer snapshot; the fields in the order of the file."""
    body = b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    body = struct.pack(">i", len(body) // 46) + body
    return struct.pack(">hI", version, crc32c(body)) + body


PRODUCERS = [
    (1000, 2, 21, 14, 4, NOW_MS, 9, -1),
    (1001, 0, -1, -1, 0, NOW_MS + 1, -1, 15),
    (1002, 5, 1, 99, 3, -1, -1, -1),
]
"""With a batch known, with a transaction open, with sequences that began again."""

ABORTED = [(0, 5, 3, 9, 3), (0, 2**40, 4, 20, 21)]


def offset_index(entries: Iterable[tuple[int, int]], zeros: int = 0) -> bytes:
    """Entries (relative offset, position), and unused ones after them."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(8 * zeros)


def time_index(entries: Iterable[tuple[int, int]], zeros: int = 0) -> bytes:
    """Entries (timestamp, relative offset), and unused ones after them."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(12 * zeros)


def positions(log: bytes) -> list[int]:
    """Where the batches of a log begin."""
    found, position = [], 0
    while position < len(log):
        found.append(position)
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")
    return found


def write_segment(directory: Path, log: bytes, base_offset: int = 0, **others: bytes) -> Path:
    """Write a segment's files, ``index=`` and the like; return the ``.log``."""
    directory.mkdir(parents=True, exist_ok=True)
    name = directory / f"{base_offset:020}.log"
    name.write_bytes(log)
    for suffix, data in others.items():
        name.with_suffix(f".{suffix}").write_bytes(data)
    return name
