import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._rendering import Renderer
from logfs.records.batch import BatchFields, decode_records, encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from logfs.types import View
from tests.records import oracle
from tests.records.oracle import Batch
from tests.records.strategies import (
    NOW_MS,
    PIECES,
    joined,
    logs,
    record_lists,
    sealed,
    values,
    views,
    visible,
)


def loaded(view: int, data: bytes) -> Renderer:
    renderer = Renderer(view, decompress)
    renderer.load(data, 0, len(data))
    return renderer


def render(renderer: Renderer, limit: int) -> bytes:
    out = bytearray(limit + 8)
    count = renderer.render(out, 3, limit)
    assert not any(out[:3])
    assert not any(out[3 + limit :])  # what lies between may be used while writing
    return bytes(out[3 : 3 + count])


def whole(view: int, data: bytes) -> bytes:
    return render(loaded(view, data), 1 << 20)


RECORD = Record(7, NOW_MS, None, b"v", ((b"h", b"x"),))


@pytest.mark.parametrize(
    ("view", "record", "line"),
    [
        (View.TEXT, RECORD, b"v\n"),
        (View.TEXT, Record(0), b"\n"),
        (View.TEXT, Record(0, value=b"a\r\nb\xff"), b"a\r\nb\xff\n"),
        (View.TSV, RECORD, b"\\N\tv\n"),
        (View.TSV, Record(0, key=b""), b"\t\\N\n"),
        (View.TSV, Record(0, key=b"a\\\t", value=b"\r\n\x00"), b"a\\\\\\t\t\\r\\n\x00\n"),
        (
            View.JSONL,
            RECORD,
            b'{"offset":7,"timestamp":1700000000000,"key":null,"value":"v","headers":[["h","x"]]}\n',
        ),
        (
            View.JSONL,
            Record(0, -1, b"\xff\xfe", b"", ((b"", None), (b"\xff", b"\xff\xff\xff"))),
            b'{"offset":0,"timestamp":-1,"key":{"base64":"//4="},"value":"",'
            b'"headers":[["",null],[{"base64":"/w=="},{"base64":"////"}]]}\n',
        ),
        (
            View.JSONL,
            Record(10**18, 0, "🎉\u2028".encode(), b'"\\\b\f\n\r\t\x01\x1f\x7f'),
            '{"offset":1000000000000000000,"timestamp":0,"key":"🎉\u2028",'
            '"value":"\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f","headers":[]}\n'.encode(),
        ),
    ],
)
def test_renders_one_record(view: View, record: Record, line: bytes) -> None:
    assert oracle.rendering(view, record) == line
    assert whole(view, encode_batch([record])) == line


@given(view=views, records=record_lists())
def test_agrees_with_the_oracle(view: View, records: list[Record]) -> None:
    data = encode_batch(records, BatchFields(base_offset=0, last_offset=10**6))
    assert whole(view, data) == oracle.renderings(view, records)


@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("piece", [piece for piece in PIECES if piece])
def test_every_piece_at_every_place_of_a_vector(view: View, piece: bytes) -> None:
    records = [
        Record(before, value=b"a" * before + piece + b"b" * after)
        for before in range(34)
        for after in (0, 1, 15, 16, 17, 33)
    ]
    assert whole(view, encode_batch(records)) == oracle.renderings(view, records)


@pytest.mark.parametrize("view", View)
def test_long_runs(view: View) -> None:
    runs = [b'"' * 5000, b"\x01" * 5000, b"\xff" * 5000, b"a\n" * 40000, "ß".encode() * 3000]
    records = [Record(i, value=run[i:], key=run) for i, run in enumerate(runs)]
    assert whole(view, encode_batch(records)) == oracle.renderings(view, records)


@pytest.mark.parametrize("limit", [1, 7, 100, 8200, 1 << 20])
def test_lengths_and_deltas_at_the_borders_of_varints(limit: int) -> None:
    """Text has a quick way for the plainest records; these are plain and just not plain enough."""
    sizes = [0, 1, 15, 16, 17, 59, 60, 62, 63, 64, 65, 8180, 8190, 8191, 8192]
    deltas = [0, 1, 63, 64, 65, 8191, 8192, 2**20 - 1, 2**20, 2**27, -1, -64, -65, -8193, -(2**21)]
    records = []
    offset = 0
    for i, (size, delta) in enumerate(zip(sizes * 3, deltas * 3, strict=True)):
        records.append(Record(offset, NOW_MS + delta, None, bytes([65 + i]) * size))
        offset += 1 + abs(deltas[i * 7 % len(deltas)]) % 2**20
    records[20] = records[20]._replace(key=b"k")
    records[25] = records[25]._replace(headers=((b"h", b"v"),))
    records[30] = records[30]._replace(value=None)
    renderer = loaded(View.TEXT, encode_batch(records))
    found = b""
    while piece := render(renderer, limit):
        found += piece
    assert found == oracle.renderings(View.TEXT, records)
    assert renderer.next_offset == records[-1].offset + 1


def test_control_and_empty_batches_render_to_nothing() -> None:
    marker = encode_batch([Record(3, key=bytes(4), value=bytes(6))], BatchFields(is_control=True))
    empty = encode_batch([], BatchFields(base_offset=4, last_offset=9))
    last = encode_batch([Record(10, value=b"v")])
    renderer = loaded(View.TEXT, marker + empty + last)
    assert renderer.next_offset == 3
    assert render(renderer, 100) == b"v\n"
    assert renderer.exhausted
    assert renderer.next_offset == 11


@given(
    view=views,
    log=logs,
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 60)), min_size=1, max_size=20),
)
def test_any_pieces_make_the_whole(
    view: View, log: list[Batch], steps: list[tuple[bool, int]]
) -> None:
    expected = oracle.renderings(view, visible(log))
    renderer = loaded(view, joined(log))
    position = 0
    for is_skip, size in [*steps, (False, len(expected) + 1), (False, 1)]:
        if is_skip:
            count = renderer.skip(size)
        else:
            piece = render(renderer, size)
            count = len(piece)
            assert piece == expected[position : position + size]
        assert count == min(size, len(expected) - position)
        position += count
    assert position == len(expected)
    assert renderer.exhausted
    assert renderer.next_offset == (log[-1].last_offset + 1 if log else 0)
    assert renderer.batch_position == len(joined(log))


@given(view=views, log=logs, data=st.data())
def test_stops_before_an_offset_and_continues(
    view: View, log: list[Batch], data: st.DataObject
) -> None:
    end = log[-1].last_offset + 2 if log else 2
    stops = sorted(data.draw(st.lists(st.integers(0, end), max_size=4)))
    size = data.draw(st.integers(1, 50))
    renderer = loaded(view, joined(log))
    found = b""
    for stop in stops:
        renderer.stop_offset = stop
        while piece := render(renderer, size):
            found += piece
        before = [record for record in visible(log) if record.offset < stop]
        assert found == oracle.renderings(view, before)
        assert renderer.at_stop or renderer.exhausted
        if len(before) < len(visible(log)):
            assert renderer.at_stop
            assert not renderer.exhausted
            assert stop <= renderer.next_offset <= visible(log)[len(before)].offset


@given(view=views, log=logs, data=st.data())
def test_skips_to_an_offset(view: View, log: list[Batch], data: st.DataObject) -> None:
    renderer = loaded(view, joined(log))
    expected = oracle.renderings(view, visible(log))
    position = renderer.skip(data.draw(st.integers(0, len(expected))))
    offset = data.draw(st.integers(0, log[-1].last_offset + 2 if log else 2))
    before = oracle.renderings(view, [r for r in visible(log) if r.offset < offset])
    skipped = renderer.skip_to_offset(offset)
    assert position + skipped == max(position, len(before))
    assert render(renderer, len(expected) + 1) == expected[position + skipped :]


@given(log=logs, size=st.integers(1, 200))
def test_where_the_next_byte_belongs(log: list[Batch], size: int) -> None:
    renderer = loaded(View.TEXT, joined(log))
    starts: list[tuple[int, int, int]] = []  # byte, batch position, offset
    at = position = 0
    for batch in log:
        for record in batch.visible:
            starts.append((at, position, record.offset))
            at += len(oracle.rendering(View.TEXT, record))
        position += len(batch.data)
    done = 0
    while render(renderer, size):
        done = min(done + size, at)
        later = [start for start in starts if start[0] >= done]
        inside = [start for start in starts if start[0] <= done][-1:]
        if later and later[0][0] == done:
            assert renderer.next_offset <= later[0][2]
            assert renderer.batch_position <= later[0][1]
        elif done < at:
            assert [renderer.next_offset] == [start[2] for start in inside]
            assert [renderer.batch_position] == [start[1] for start in inside]


def test_a_cut_batch_ends_the_window() -> None:
    first, second = encode_batch([Record(0, value=b"a")]), encode_batch([Record(1, value=b"b")])
    for cut in range(len(second)):
        renderer = loaded(View.TEXT, first + second[:cut])
        assert render(renderer, 100) == b"a\n"
        assert renderer.exhausted
        assert renderer.batch_position == len(first)
        assert renderer.next_offset == 1


@pytest.mark.parametrize("position", [16, 20, 30, 62])
def test_damage_is_told_after_what_is_before_it(position: int) -> None:
    first = encode_batch([Record(0, value=b"a"), Record(1, value=b"b")])
    damaged = bytearray(encode_batch([Record(2, value=b"c")]))
    damaged[position] ^= 1
    renderer = loaded(View.TEXT, first + damaged)
    assert render(renderer, 100) == b"a\nb\n"
    for _ in range(2):
        assert not renderer.exhausted
        with pytest.raises(CorruptRecordError) as caught:
            render(renderer, 100)
        assert caught.value.position == len(first)
    with pytest.raises(CorruptRecordError):
        renderer.skip(1)
    with pytest.raises(CorruptRecordError):
        renderer.skip_to_offset(5)


def test_a_bad_record_after_a_good_checksum() -> None:
    good = encode_batch([Record(0, value=b"a"), Record(1, value=b"b")])
    payload = good[61:-1]  # the last record lacks a byte, so its length does not fit
    data = sealed(good[:61] + payload)
    for bad in (data, sealed(good + b"\0")):
        for room in (1, 2, 3, 100):
            renderer = loaded(View.TEXT, bad)
            for _ in range(2):
                with pytest.raises(CorruptRecordError, match="does not decode"):
                    render(renderer, room)
            renderer = loaded(View.TEXT, good + bad)
            assert renderer.skip(1) == 1
            found = b""
            while len(found) < 3:
                found += render(renderer, min(room, 3 - len(found)))
            assert found == b"\nb\n"
            with pytest.raises(CorruptRecordError):
                render(renderer, room)
            assert renderer.batch_position == len(good)


def test_where_a_bad_record_is() -> None:
    records = [Record(i * 3000, value=b"v" * 40) for i in range(20)]
    bad = bytearray(encode_batch(records))
    bad[-42] += 2  # the length of the last value
    renderer = loaded(View.TEXT, sealed(bytes(bad)))
    with pytest.raises(CorruptRecordError):
        render(renderer, 10_000)
    assert renderer.next_offset == 0
    assert renderer.batch_position == 0
    assert not renderer.exhausted


def test_a_payload_that_does_not_decompress() -> None:
    data = bytearray(encode_batch([Record(0, value=b"a")]))
    data[22] = 4
    renderer = loaded(View.TEXT, sealed(bytes(data)))
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="zstd") as caught:
            renderer.render(bytearray(10), 0, 10)
        assert caught.value.position == 0


@given(view=views, data=st.binary(max_size=200), value=values)
@example(View.TEXT, bytes(200), b"")
def test_garbage_gives_bytes_or_an_error(view: View, data: bytes, value: bytes) -> None:
    first = encode_batch([Record(0, value=value)])
    renderer = loaded(view, first + data)
    try:
        found = renderer.render(bytearray(100_000), 0, 100_000)
        assert found >= len(oracle.rendering(view, Record(0, value=value)))
        while not renderer.exhausted:
            renderer.skip(1000)
    except CorruptRecordError as error:
        assert error.position == len(first)  # noqa: PT017


@given(
    view=views,
    records=record_lists(min_size=1, max_size=3),
    flips=st.lists(st.tuples(st.integers(57, 10_000), st.integers(1, 255)), max_size=3),
    size=st.integers(1, 300),
)
def test_damage_after_a_good_checksum_gives_bytes_or_an_error(
    view: View, records: list[Record], flips: list[tuple[int, int]], size: int
) -> None:
    data = bytearray(encode_batch(records))
    for position, mask in flips:
        data[57 + position % (len(data) - 57)] ^= mask
    batch = sealed(bytes(data))
    renderer = loaded(view, batch)
    found = b""
    try:
        while piece := render(renderer, size):
            found += piece
        assert renderer.exhausted
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            decode_records(batch)
    else:
        assert found == oracle.renderings(view, decode_records(batch))


def test_refuses_what_lies_outside_the_buffers() -> None:
    renderer = Renderer(View.TEXT, decompress)
    with pytest.raises(ValueError, match="not inside"):
        renderer.load(b"abc", 1, 4)
    with pytest.raises(ValueError, match="not inside"):
        renderer.load(b"abc", 2, 1)
    with pytest.raises(ValueError, match="not inside"):
        renderer.render(bytearray(4), 2, 3)
    with pytest.raises(ValueError, match="no view 3"):
        Renderer(3, decompress)
    with pytest.raises(ValueError, match="cannot skip -1 bytes"):
        renderer.skip(-1)
    assert renderer.render(bytearray(4), 0, 4) == 0
    assert renderer.exhausted


@pytest.mark.parametrize("back", [1, 40_000, 2**62])
def test_never_goes_back(back: int) -> None:
    """A negative number of bytes would lead to memory before the buffer of the rendering."""
    data = encode_batch([Record(0, value=b"abc" * 100)])
    renderer = Renderer(View.TEXT, decompress)
    renderer.load(data, 0, len(data))
    assert render(renderer, 10) == b"abcabcabca"
    with pytest.raises(ValueError, match="cannot skip"):
        renderer.skip(-back)
    assert render(renderer, 5) == b"bcabc"


def test_lets_go_of_its_window() -> None:
    data = bytearray(encode_batch([Record(0, value=b"abc")]))
    renderer = Renderer(View.TEXT, decompress)
    renderer.load(data, 0, len(data))
    assert render(renderer, 2) == b"ab"
    with pytest.raises(BufferError):
        data.clear()
    renderer.release()
    data.clear()
    assert renderer.exhausted
    assert render(renderer, 10) == b""


LONG = 1_100_000
PLAIN, ESCAPED = b"x" * LONG, b'"\\\n\t\x01z' * (LONG // 6)
UTF8, BINARY = "é✓".encode() * (LONG // 5), bytes(range(256)) * (LONG // 256) + b"\xff"
LONG_RECORDS = [
    Record(5, 7, None, PLAIN, ()),
    Record(6, 7, b"key", ESCAPED, ((b"h", None), (b"", b"v"))),
    Record(7, 7, BINARY, None, ()),
    Record(8, 7, UTF8, BINARY, ((b"long", ESCAPED), (b"\xff", PLAIN), (b"last", b""))),
    Record(9, 7, b"", b"", ((b"h", UTF8[1:]),)),
]


@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("record", LONG_RECORDS, ids=["plain", "escaped", "null", "all", "empty"])
def test_a_long_rendering_is_delivered_in_pieces_without_memory_for_all_of_it(
    record: Record, view: View
) -> None:
    expected = oracle.rendering(view, record)
    data = encode_batch([record], BatchFields(base_offset=record.offset))
    for sizes in ([100_000], [1, 70_001, 400_000], [max(1, len(expected) - 1), 1]):
        renderer, got, turn = loaded(view, data), b"", 0
        while piece := render(renderer, sizes[turn % len(sizes)]):
            got, turn = got + piece, turn + 1
            assert renderer.buffer_bytes < 512 * 1024
        assert got == expected
    for skipped in (1, 50_000, len(expected) - 5):
        if 0 < skipped < len(expected):
            renderer = loaded(view, data)
            assert renderer.skip(skipped) == skipped
            assert render(renderer, 1000) == expected[skipped : skipped + 1000]
