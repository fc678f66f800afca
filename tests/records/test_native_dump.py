from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptRecordError
from logfs.records._dumping import Dumper, java_text, largest_timestamp
from logfs.records.batch import BatchFields, encode_batch
from logfs.records.compression import decompress
from logfs.records.record import Record
from tests.log.dumps import compressed_log, hand_made_log
from tests.records.strategies import codecs, record_lists


def dumper(
    parse: Callable[[int, bytes | None, bytes | None], tuple[bytes | None, bytes | None]]
    | None = None,
) -> Dumper:
    return Dumper(
        records=True,
        metadata=True,
        payloads=True,
        decompress=decompress,
        control=lambda _key, _value: b" control",
        parse=parse,
    )


def printed(dumper: Dumper) -> bytes:
    out = bytearray()
    dumper.drain(out.extend)
    return bytes(out)


def java(text: bytes) -> str:
    """The same as Java does, but for surrogates, which it replaces as one."""
    return text.decode(errors="replace")


def expected_line(record: Record) -> str:
    line = (
        f"| offset: {record.offset} CreateTime: {record.timestamp} "
        f"keySize: {-1 if record.key is None else len(record.key)} "
        f"valueSize: {-1 if record.value is None else len(record.value)} sequence: -1 "
        f"headerKeys: [{','.join(java(key) for key, _ in record.headers)}]"
    )
    if record.key is not None:
        line += f" key: {java(record.key)}"
    if record.value is not None:
        line += f" payload: {java(record.value)}"
    return line


def has_surrogates(records: list[Record]) -> bool:
    texts = [part for r in records for part in (r.key, r.value, *(key for key, _ in r.headers))]
    return any(text is not None and b"\xed" in text for text in texts)


@given(record_lists(min_size=1), codecs)
def test_records_are_printed_as_their_fields_say(records: list[Record], codec: int) -> None:
    if has_surrogates(records):
        return
    batch = encode_batch(records, BatchFields(compression=codec))  # type: ignore[arg-type]
    native = dumper()
    assert native.feed(batch, 0, len(batch)) == len(batch)
    first, _, rest = printed(native).partition(b"\n")
    assert first.startswith(
        b"baseOffset: %d lastOffset: %d count: %d "
        % (
            records[0].offset,
            records[-1].offset,
            len(records),
        )
    )
    assert rest.decode() == "".join(expected_line(record) + "\n" for record in records)
    offsets = [record.offset for record in records]
    gaps = [(a, b) for a, b in pairwise(offsets) if b != a + 1]
    assert native.gaps == gaps
    parsed = dumper(lambda _offset, key, value: (java_text(key), java_text(value)))
    parsed.feed(batch, 0, len(batch))
    assert printed(parsed) == first + b"\n" + rest


@given(st.sampled_from([hand_made_log(), compressed_log()]), st.data())
def test_any_bytes_are_printed_or_refused(log: bytes, data: st.DataObject) -> None:
    damaged = bytearray(log)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(log) - 1))
        damaged[at : at + 1] = data.draw(st.binary(max_size=3))
    native, position = dumper(), 0
    try:
        while (found := native.feed(damaged, position, len(damaged))) > position:
            position = found
            largest_timestamp(damaged, 0, position, decompress)
    except CorruptRecordError:
        pass
    assert native.position >= position
    printed(native)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (b"\xed\xa0\x80", 1),  # a surrogate
        (b"\xed\xa0", 1),
        (b"\xed\xa0A", 1),
        (b"\xe0\x80\x80", 3),
        (b"\xc0\xaf", 2),
        (b"\xf0\x80\x80\x80", 4),
        (b"\xf0\x90\x80", 1),
        (b"\xf4\x90\x80\x80", 4),
        (b"\xf5\x80", 2),
        (b"\xe2\x82", 1),
        (b"\xff", 1),
    ],
)
def test_bytes_that_are_not_utf8_become_as_many_marks_as_in_java(
    text: bytes, replaced: int
) -> None:
    """Seen with kafka-dump-log on Java 17."""
    tail = b"" if text.endswith(b"A") else b"A"
    assert java_text(text + tail) == b"\xef\xbf\xbd" * replaced + b"A"


def test_much_output_is_handed_over_in_parts() -> None:
    batch = encode_batch([Record(0, 0, None, b"x" * 300_000)])
    native, position, parts = dumper(), 0, []
    log = batch * 9
    while position < len(log):
        position = native.feed(log, position, len(log))
        parts.append(len(printed(native)))
    assert len(parts) == 3
    assert sum(parts) > 9 * 300_000


@pytest.mark.parametrize("size", [0, 16, 17, 61, 70])
@pytest.mark.parametrize("magic", [0, 1])
def test_the_largest_timestamp_of_what_is_no_batch_of_format_v2(size: int, magic: int) -> None:
    data = bytearray(encode_batch([Record(0, 5, None, b"v" * 30)]))[:size]
    if size > 16:
        data[16] = magic
    with pytest.raises(CorruptRecordError, match="no batch of format v2"):
        largest_timestamp(data, 0, len(data), decompress)
