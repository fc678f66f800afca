"""Which records a query wants: what native code leaves out, and what is decided after it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.records._native import decode_batches
from logfs.records.batch import encode_batch
from logfs.records.compression import decompress
from logfs.records.matching import FieldValue, RecordMatcher, needles_of
from logfs.records.record import Record

LITERALS = st.text("ab.", max_size=3).map(lambda text: re.escape(text))
PIECES = r"""
a* b+ ab? [ab] [^a] a{2} b{0,1} a{,2} . ^ $ \d \.
(a|b) (?:ab)? a|b a*? b++ {a []a] [\]a] \x61 ab{1}c |
"""
PARTS = st.one_of(
    LITERALS,
    st.sampled_from(PIECES.split()),
)
PATTERNS = st.lists(PARTS, max_size=4).map("".join)


@given(PATTERNS, st.text("ab.1{", max_size=8))
def test_each_match_of_a_pattern_contains_one_of_its_needles(pattern: str, text: str) -> None:
    try:
        found = re.search(pattern.encode(), text.encode())
    except re.error:
        return
    needles = needles_of(pattern.encode())
    if found and needles:
        assert any(needle in found[0] for needle in needles)


@pytest.mark.parametrize(
    ("pattern", "needles"),
    [
        (b"refused", [b"refused"]),
        (b"error|warn", [b"error", b"warn"]),
        (rb"GET /orders/[0-9]+ 40\d", [b"GET /orders/"]),
        (rb"^10\.0\.", [b"10.0."]),
        (b"colou?r", [b"colo"]),
        (b"(a|b)", []),
        (b"[0-9]+", []),
        (b"", []),
    ],
)
def test_needles_are_the_longest_bytes_that_a_match_needs(
    pattern: bytes, needles: list[bytes]
) -> None:
    assert needles_of(pattern) == needles


VALUES = st.one_of(
    st.none(),
    st.text("ab1\n", max_size=40).map(str.encode),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from(["a", 1, None, True, 1.5])).map(
        lambda found: json.dumps(found).encode()
    ),
)
HEADERS = st.lists(
    st.tuples(st.sampled_from([b"h", b"g"]), st.sampled_from([b"a", b"", None])), max_size=2
).map(tuple)
RECORDS = st.lists(
    st.builds(
        lambda key, value, headers: (key, value, headers),
        st.sampled_from([None, b"", b"a", b"ab"]),
        VALUES,
        HEADERS,
    ),
    min_size=1,
    max_size=20,
).map(lambda rows: [Record(n, 5, *row) for n, row in enumerate(rows)])
FIELDS = st.sampled_from([("a", "a"), ("a", "1"), ("b", "null"), ("a", "true"), ("b", "1.5")])


def fields_of(record: Record) -> dict[str, object]:
    try:
        found = json.loads(record.value or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_wanted(
    record: Record,
    patterns: list[bytes],
    keys: list[bytes],
    headers: list[tuple[bytes, bytes]],
    fields: list[tuple[str, str]],
) -> bool:
    if patterns and not any(re.search(one, record.value or b"\0") for one in patterns):
        return False
    if patterns and record.value is None:
        return False
    if keys and record.key not in keys:
        return False
    if not all(header in record.headers for header in headers):
        return False
    found = fields_of(record)
    texts = {name: v if isinstance(v, str) else json.dumps(v) for name, v in found.items()}
    return all(texts.get(name) == text for name, text in fields)


@given(
    RECORDS,
    st.lists(st.sampled_from([b"a", b"ab1", b"a|b1", b"^a", b"1$", b"b+"]), max_size=2),
    st.lists(st.sampled_from([b"a", b"ab", b"zz"]), max_size=2),
    st.lists(st.sampled_from([(b"h", b"a"), (b"g", b"")]), max_size=2),
    st.lists(FIELDS, max_size=2),
)
def test_exactly_the_wanted_records_of_a_log_are_chosen(
    records: list[Record],
    patterns: list[bytes],
    keys: list[bytes],
    headers: list[tuple[bytes, bytes]],
    fields: list[tuple[str, str]],
) -> None:
    matcher = RecordMatcher(
        patterns,
        keys=keys,
        headers=headers,
        fields=[FieldValue((name,), text) for name, text in fields],
    )
    log = b"".join(encode_batch(records[n : n + 3]) for n in range(0, len(records), 3))
    taken, position, offset = decode_batches(
        log, 0, len(log), 0, len(records), decompress, b"", matcher.search
    )
    assert (position, offset) == (len(log), len(records))
    assert matcher.chosen(taken) == [
        record for record in records if is_wanted(record, patterns, keys, headers, fields)
    ]


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 31, 40])
def test_a_needle_is_found_wherever_it_is(size: int) -> None:
    for length in (1, 2, 3, 20):
        needle = bytes(range(65, 65 + length))
        for before in range(20):
            value = b"." * before + needle + b"A" * size
            found = RecordMatcher([re.escape(needle)])
            log = encode_batch([Record(0, 5, None, value)])
            taken = decode_batches(log, 0, len(log), 0, 1, decompress, b"", found.search)[0]
            assert [record.value for record in taken] == [value]
            log = encode_batch([Record(0, 5, None, value.replace(needle, needle[:-1] + b"~"))])
            assert decode_batches(log, 0, len(log), 0, 1, decompress, b"", found.search)[0] == []


@pytest.mark.parametrize(
    ("path", "text", "is_found"),
    [
        (("level",), "größe", True),
        (("user", "id"), "4711", True),
        (("user", "id"), "4711.0", False),
        (("tags", "1"), "b", True),
        (("tags", "2"), "b", False),
        (("ok",), "true", True),
        (("none",), "null", True),
        (("missing",), "null", False),
        (("user",), "{}", False),
        (("empty",), "", True),
    ],
)
def test_a_field_is_a_member_of_a_json_value(
    path: tuple[str, ...], text: str, is_found: bool
) -> None:
    value = (
        rb'{"level":"gr\u00f6\u00dfe","user":{"id":4711},"tags":["a","b"],"ok":true,"none":null,'
        rb'"empty":""}'
    )
    record = Record(0, 5, None, value)
    log = encode_batch([record, Record(1, 5, None, b"no JSON " + text.encode()), Record(2, 5)])
    matcher = RecordMatcher(fields=[FieldValue(path, text)])
    taken = decode_batches(log, 0, len(log), 0, 3, decompress, b"", matcher.search)[0]
    assert matcher.chosen(taken) == [record] * is_found


WORKER = FieldValue(("worker",), "3")
LEVEL = FieldValue(("level",), "error")


@pytest.mark.parametrize(
    ("patterns", "fields"),
    [([], [WORKER, LEVEL]), ([], [LEVEL, WORKER]), ([b"3"], [LEVEL]), ([b"error"], [WORKER])],
)
def test_the_longest_text_of_all_conditions_leaves_records_out(
    patterns: list[bytes], fields: list[FieldValue]
) -> None:
    values = [b'{"worker":3,"level":"info"}', b'{"worker":3,"level":"error"}']
    log = encode_batch([Record(n, 5, None, value) for n, value in enumerate(values)])
    matcher = RecordMatcher(patterns, fields=fields)
    taken = decode_batches(log, 0, len(log), 0, 2, decompress, b"", matcher.search)[0]
    assert [record.value for record in taken] == values[1:]
