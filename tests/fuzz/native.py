"""All functions of native code in logfs.records, and of what decompresses for it.

A case is a piece of a log. What else the functions are given follows from it, so that a case says
everything. Each answers with a result or one of the errors it documents.
"""

from array import array
from collections.abc import Callable
from contextlib import suppress
from random import Random

from logfs.errors import LogfsError
from logfs.records._columnar import ColumnBuilder
from logfs.records._compaction import BatchFilter, KeptRecords, OffsetMap
from logfs.records._dumping import Dumper, java_text, largest_timestamp
from logfs.records._encoding import (
    RowEncoder,
    encode_lines,
    encode_payload,
    encode_records,
    murmur2,
    partition_lines,
    rebase_batches,
    spread_rows,
    unfinished_fits,
)
from logfs.records._indexing import IndexBuilder, find_produced, first_out_of_order
from logfs.records._reading import (
    aborted_ranges,
    decode_batches,
    decode_messages,
    decode_payload,
    find_offset,
    find_timestamp,
    first_offset,
    has_right_checksum,
    header_last_offset,
    header_ok,
    last_offset,
    measure,
    next_batch,
    whole_batches,
)
from logfs.records._rendering import Renderer
from logfs.records.columns import Columns
from logfs.records.compression import Compression, decompress, limit_decompressed
from logfs.records.encoded import EncodeOptions, ProducerBatch
from logfs.records.record import Record
from tests.fuzz.mutation import batch, change_batch, change_bytes, signed

_NOW_MS = 1_700_000_000_000
_REFUSED = (LogfsError, ValueError, OverflowError, MemoryError)
_LIMIT_BYTES = 16 << 20


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return a piece of a log."""
    if corpus and chance.random() < 0.2:
        return change_bytes(chance, chance.choice(corpus))
    found = b"".join(batch(chance) for _ in range(chance.choice((1, 1, 2, 4))))
    return change_batch(chance, found) if chance.random() < 0.1 else found


def check(case: bytes) -> None:
    """Give a piece of a log to every function."""
    limit_decompressed(_LIMIT_BYTES)
    chance = Random(case)
    for use in _USES:
        # A separate bytearray: a sanitizer sees the first byte after it.
        with suppress(*_REFUSED):
            use(chance, bytearray(case))


def _range(chance: Random, data: bytearray) -> tuple[int, int]:
    size = len(data)
    if chance.random() < 0.8:
        return 0, size
    return chance.randrange(-2, size + 3), chance.randrange(-2, size + 3)


def _aborted(chance: Random) -> memoryview:
    rows = sorted((chance.choice((0, 5)), chance.randrange(9), chance.randrange(99)) for _ in "ab")
    return memoryview(array("q", [number for row in rows for number in row])).cast("B")


def _options(chance: Random) -> EncodeOptions:
    return EncodeOptions(
        chance.choice((0, 61, 62, 70, 100, 1000, 10**6, 2**31 - 1)),
        compression=chance.choice(list(Compression)),
        log_append_time=chance.random() < 0.2,
        require_key=chance.random() < 0.2,
        timestamp_before_max_ms=chance.choice((0, 1000, 2**63 - 1)),
        timestamp_after_max_ms=chance.choice((0, 2**63 - 1)),
        producer=chance.choice((None, ProducerBatch(5, 1, 2**31 - 2, True))),
        headers=chance.choice(((), ((b"h", b"v"),), ((b"x" * 200, None),))),
        key_delimiter=chance.choice((b"", b"", b"=", b"::")),
    )


def _search(chance: Random, data: bytearray) -> None:
    start, stop = _range(chance, data)
    calls: tuple[Callable[[], object], ...] = (
        lambda: header_ok(data, signed(chance), signed(chance)),
        lambda: header_last_offset(data, chance.choice((0, start, signed(chance)))),
        lambda: next_batch(data, start, stop),
        lambda: first_offset(data, start, stop),
        lambda: find_offset(data, start, stop, signed(chance)),
        lambda: last_offset(data, start, stop),
        lambda: measure(data, start, stop, signed(chance), decompress),
        lambda: find_timestamp(data, start, stop, signed(chance), decompress, _aborted(chance)),
        lambda: aborted_ranges(data, start, stop, _aborted(chance)),
        lambda: find_produced(data, start, stop, signed(chance)),
        lambda: whole_batches(data, start, stop, signed(chance), chance.random() < 0.5),
        lambda: has_right_checksum(data, start, stop),
        lambda: largest_timestamp(data, start, stop, decompress),
        lambda: first_out_of_order(data),
        lambda: java_text(data),
    )
    for call in calls:
        with suppress(*_REFUSED):
            call()


def _decode(chance: Random, data: bytearray) -> None:
    start, stop = _range(chance, data)
    calls: tuple[Callable[[], object], ...] = (
        lambda: decode_payload(
            data[61:], chance.choice((-1, 0, 1, 5, 2**31 - 1)), signed(chance), signed(chance), None
        ),
        lambda: decode_messages(data, decompress),
        lambda: decode_batches(
            data, start, stop, signed(chance), signed(chance), decompress, _aborted(chance)
        ),
        lambda: decompress(chance.randrange(5), data[61:]),
        lambda: rebase_batches(data, 5, _NOW_MS, _options(chance), decompress),
    )
    for call in calls:
        with suppress(*_REFUSED):
            call()


def _render(chance: Random, data: bytearray) -> None:
    renderer = Renderer(chance.randrange(3), decompress)
    renderer.load(data, *_range(chance, data))
    if chance.random() < 0.3:
        renderer.stop_offset = signed(chance)
    for _ in range(chance.randrange(1, 12)):
        size, before = chance.choice((0, 1, 7, 16, 17, 100, 1000, 70_000)), chance.choice((0, 3))
        with suppress(*_REFUSED):
            match chance.randrange(4):
                case 0:
                    renderer.skip(chance.choice((size, signed(chance))))
                case 1:
                    renderer.skip_to_offset(signed(chance))
                case _:
                    got = renderer.render(bytearray(before + size), before, size)
                    assert 0 <= got <= size, f"{got} of {size} bytes"
        assert renderer.buffer_bytes >= 0
        _ = renderer.exhausted, renderer.at_stop, renderer.batch_position, renderer.next_offset


def _index(chance: Random, data: bytearray) -> None:
    builder = IndexBuilder(chance.choice((0, 5, 2**40, 2**63 - 20)), 0, decompress)
    if chance.random() < 0.3:
        builder.restore(
            file_position=signed(chance),
            next_offset=signed(chance),
            max_timestamp=signed(chance),
            offset_of_max_timestamp=signed(chance),
            first_timestamp=signed(chance),
            last_time_entry=signed(chance),
            text=signed(chance),
            tsv=signed(chance),
            jsonl=signed(chance),
            bytes_since_entry=signed(chance),
        )
    builder.feed(data, *_range(chance, data), chance.random() < 0.8)
    builder.take()
    builder.final_time_entry()
    _ = builder.problem, builder.produced, builder.leader_epochs, builder.fed_epochs


def _dump(chance: Random, data: bytearray) -> None:
    flags = [chance.random() < 0.8 for _ in range(3)]
    dumper = Dumper(
        records=flags[0],
        metadata=flags[1],
        payloads=flags[2],
        decompress=decompress,
        control=lambda _key, _value: b" control",
        parse=None if chance.random() < 0.7 else lambda _offset, key, value: (key, value),
    )
    dumper.position, dumper.last_offset = signed(chance), signed(chance)
    try:
        dumper.feed(data, *_range(chance, data))
    finally:
        dumper.drain(len)


def _compact(chance: Random, data: bytearray) -> None:
    start, stop = _range(chance, data)
    latest = OffsetMap(chance.choice((1000, 10_000, 1 << 20)), 0.9, chance.randbytes(16))
    with suppress(*_REFUSED):
        latest.put_batches(data, start, stop, signed(chance), decompress)
    with suppress(*_REFUSED):
        latest.put_batch(data, start, stop, signed(chance), decompress, chance.random() < 0.5)
    latest.get(b"key")
    with suppress(*_REFUSED):
        latest.merge(chance.choice((latest.entries(), bytes(data[:48]), bytes(data))))
    kept = BatchFilter(
        latest,
        IndexBuilder(chance.choice((0, 5)), 4096, decompress),
        now_ms=_NOW_MS,
        delete_retention_ms=chance.choice((0, 1000)),
        upper_bound=signed(chance),
        retained={},
        decompress=decompress,
    )
    lasts = chance.choice((None, b"\xff\x01", latest.lasts(signed(chance), signed(chance))))
    entries = chance.choice((None, bytes(96), bytes(data)))
    base, text, tsv, jsonl = (signed(chance) for _ in range(4))
    kept.begin_segment(base, text, tsv, jsonl, entries, chance.random() < 0.5, lasts)
    with suppress(*_REFUSED):
        kept.filter_batches(data, start, stop)
    with suppress(*_REFUSED):
        kept.filter_batch(data, start, stop, discard=False, is_empty=True, retain=True)
    kept.take()
    _ = kept.ends, kept.kept_lengths


def _survive(chance: Random, data: bytearray) -> None:
    survivors = KeptRecords(chance.choice((0, 5)), chance.choice((0, 4096)), decompress)
    numbers = [signed(chance) for _ in range(4)]
    survivors.begin_old(chance.choice((b"", bytes(64), data)), *numbers)
    survivors.load_old(data, 0, len(data))
    survivors.load_new(bytearray(data), 0, len(data), signed(chance))
    survivors.run()
    survivors.take()


def _columns(chance: Random, data: bytearray) -> None:
    builder = ColumnBuilder(
        chance.randrange(2 * Columns.HEADERS),
        chance.choice((1, 2, 100, 1 << 20)),
        chance.choice((1, 100, 1 << 20)),
        decompress,
        _aborted(chance),
        contains=chance.choice((b"", b"a", b"\0\0")),
    )
    builder.load(data, *_range(chance, data))
    builder.start_offset = chance.choice((0, signed(chance)))
    for _ in range(6):
        try:
            if builder.fill():
                break
        finally:
            builder.take()


def _rows(chance: Random, data: bytearray) -> None:
    count = chance.choice((0, 1, 3, 10))

    def ends() -> bytes:
        numbers = sorted(chance.randrange(-1, 60) for _ in range(chance.choice((count + 1, count))))
        return bytes(array("i", numbers))

    def strings() -> tuple[bytes | None, bytes, bytes, int]:
        first = chance.choice((0, 0, 1, -1, 2**31, 2**62))
        return chance.choice((None, b"", bytes(data[:2]))), ends(), bytes(data[:50]), first

    times = (None, bytes(array("q", [signed(chance) for _ in range(count)])), 0)
    numbers = array("i", [chance.randrange(-1, count + 1) for _ in range(count)])
    rows = chance.choice((None, memoryview(numbers).cast("B")))
    headers = (None, ends(), strings(), strings(), chance.choice((0, 0, 1, -1)))
    encoder = RowEncoder(_NOW_MS, _options(chance))
    with suppress(*_REFUSED):
        encoder.put(strings(), strings(), times, chance.choice((None, headers)), rows, count)
    encoder.take(last=True)
    spread_rows(strings(), None, rows, count, chance.choice((1, 3)), 0)


def _lines(chance: Random, data: bytearray) -> None:
    lines = bytes(data).replace(b"\0", b"\n") + b"\n"
    head = chance.choice((b"", b"", b"abc", b"a\t"))
    for view in range(3):
        with suppress(*_REFUSED):
            options = _options(chance)
            encode_lines(view, head, lines, 0, len(lines), 5, _NOW_MS, options)
        with suppress(*_REFUSED):
            partition_lines(view, chance.choice((b"", b"=")), lines, 0, len(lines), 3, 0)
        unfinished_fits(view, chance.choice((0, 1, 2**31, 2**62)), _options(chance))
    murmur2(bytes(data[:40]))
    value = bytes(data)
    records = [Record(n, signed(chance), None, value, ((b"h", None),)) for n in range(3)]
    encode_payload(records, 0, 5)
    encode_records(records, 5, _NOW_MS, _options(chance))


_USES = (
    *(_search, _decode, _render, _render, _index, _dump, _compact, _survive, _columns, _rows),
    _lines,
)
