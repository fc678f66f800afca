"""Which records a query wants: what native code leaves out, and what is decided after it."""

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from logfs.records import matching
from logfs.records._reading import RecordSearch, decode_batches, matched_lines
from logfs.records.batch import encode_batch
from logfs.records.compression import decompress
from logfs.records.matching import FieldValue, search_for
from logfs.records.record import Record
from logfs.services.views.rendering import rendered
from logfs.types import View

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


def wanted_of(log: bytes, search: RecordSearch) -> list[Record]:
    return decode_batches(log, 0, len(log), 0, 1 << 40, decompress, b"", search)[0]


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
    search = search_for(
        patterns,
        keys=keys,
        headers=headers,
        fields=[FieldValue((name,), text) for name, text in fields],
    )
    log = b"".join(encode_batch(records[n : n + 3]) for n in range(0, len(records), 3))
    taken, position, offset = decode_batches(
        log, 0, len(log), 0, len(records), decompress, b"", search
    )
    assert (position, offset) == (len(log), len(records))
    assert taken == [
        record for record in records if is_wanted(record, patterns, keys, headers, fields)
    ]
    for view in View:
        lines = b"".join(rendered(taken, view)) if taken else b""
        found = matched_lines(log, 0, len(log), 0, len(records), decompress, b"", search, view)
        assert found == (lines, len(log), len(records))


@given(
    values=st.lists(st.text("a.*\\(A|", max_size=12).map(str.encode), min_size=1, max_size=10),
    texts=st.lists(st.text("a.*\\(A|", max_size=4).map(str.encode), min_size=1, max_size=3),
    ignores_case=st.booleans(),
)
def test_no_character_of_a_text_is_special(
    values: list[bytes], texts: list[bytes], *, ignores_case: bool
) -> None:
    log = encode_batch([Record(n, 5, None, value) for n, value in enumerate(values)])
    found = wanted_of(log, search_for(texts=texts, ignores_case=ignores_case))

    def folded(text: bytes) -> bytes:
        return text.lower() if ignores_case else text

    expected = [v for v in values if any(folded(text) in folded(v) for text in texts)]
    assert [record.value for record in found] == expected


@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 31, 40])
def test_a_needle_is_found_wherever_it_is(size: int) -> None:
    for length in (1, 2, 3, 20):
        needle = bytes(range(65, 65 + length))
        for before in range(20):
            value = b"." * before + needle + b"A" * size
            found = search_for([re.escape(needle)])
            log = encode_batch([Record(0, 5, None, value)])
            taken = decode_batches(log, 0, len(log), 0, 1, decompress, b"", found)[0]
            assert [record.value for record in taken] == [value]
            log = encode_batch([Record(0, 5, None, value.replace(needle, needle[:-1] + b"~"))])
            assert decode_batches(log, 0, len(log), 0, 1, decompress, b"", found)[0] == []


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
    assert wanted_of(log, search_for(fields=[FieldValue(path, text)])) == [record] * is_found


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
    taken = wanted_of(log, search_for(patterns, fields=fields))
    assert [record.value for record in taken] == values[1:]


SPACE = st.text(" \t\n\r", max_size=1)
NAMES = st.sampled_from(["a", "b", "0", "1", "007", "\u0663", "gr\u00f6\u00dfe", ""])
NUMBERS = "1 1.0 -1 0 -0 01 1e5 1E+5 1. .5 - -- +1 1e 1.e5 123456789012345678901234567890"
WORDS = "true false null nul true1 NaN Infinity -Infinity -Inf {} [] [,] {,}"
STRINGS = [
    *('"a"', '"1"', '""', '"größe"', '"€"', '"a b"', '"\x7f"', f'"{"long and " * 9}"'),
    *(r'"\u0061"', r'"\n"', r'"\x"', r'"\u00g0"', r'"\ud800"', r'"\u00"', '"\x00"', '"\n"'),
    *('"a', "'a'", '"a"b', '"\\', ""),
]
TOKENS = st.sampled_from([*NUMBERS.split(), *WORDS.split(), *STRINGS])


def names_of(name: str) -> st.SearchStrategy[str]:
    """Return spellings of a name: plain, or with an escape."""
    return st.sampled_from(
        [json.dumps(name, ensure_ascii=False), json.dumps(name)]
        + ([f'"\\u{ord(name[0]):04x}{name[1:]}"'] if name else [])
    )


def objects_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(SPACE, NAMES.flatmap(names_of), SPACE, inner, SPACE).map(
        lambda m: f"{m[0]}{m[1]}{m[2]}:{m[3]}{m[4]}"
    )
    return st.lists(member, max_size=4).map(lambda members: "{" + ",".join(members) + "}")


def arrays_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=4).map(lambda rows: "[" + ",".join(rows) + "]")


JSON = st.recursive(TOKENS, lambda inner: objects_of(inner) | arrays_of(inner), max_leaves=8)
TEXTS = st.sampled_from(
    [
        *(
            "a",
            "1",
            "1.0",
            "true",
            "null",
            "NaN",
            "-Infinity",
            "",
            "größe",
            "\n",
            "-0",
            "1e5",
            "a b",
        ),
        *("€", "\udc80", "long and " * 9, "123456789012345678901234567890"),
    ]
)


def member_of(value: bytes, path: list[str]) -> str | None:
    """Return what a member is as json.loads reads it: the rule that native code has to keep."""
    try:
        parsed = json.loads(
            value.decode("utf-8-sig"), parse_int=str, parse_float=str, parse_constant=str
        )
        for name in path:
            parsed = parsed[int(name) if isinstance(parsed, list) else name]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    constants = {True: "true", False: "false", None: "null"}
    if parsed is None or isinstance(parsed, bool):
        return constants[parsed]
    return parsed if isinstance(parsed, str) else None


@settings(max_examples=2000)
@given(
    JSON,
    st.lists(NAMES, min_size=1, max_size=3),
    TEXTS,
    st.sampled_from([b"", b"\xff", b"\xef\xbb\xbf"]),
    st.sampled_from(["utf-8", "utf-16", "utf-32-be", "latin-1"]),
)
@example('{"a":1,"a":1,"a":"\\ud800"}', ["a"], "\ud800", b"", "utf-8")
@example('{"a":"\\udc80"}', ["a"], "\udc80", b"", "utf-8")
def test_a_field_is_what_json_loads_reads(
    text: str, path: list[str], wanted: str, before: bytes, encoding: str
) -> None:
    value = before + text.encode(encoding, "replace")
    log = encode_batch([Record(0, 5, None, value)])
    found = wanted_of(log, search_for(fields=[FieldValue(tuple(path), wanted)]))
    assert bool(found) == (member_of(value, path) == wanted)
    member = member_of(value, path)
    if member is not None:
        assert wanted_of(log, search_for(fields=[FieldValue(tuple(path), member)]))


@pytest.mark.parametrize("depth", [50, 99, 100, 101, 5000])
def test_a_field_is_found_below_many_others(depth: int) -> None:
    value = b'{"a":' * depth + b'"x"' + b"}" * depth
    log = encode_batch([Record(0, 5, None, value)])
    found = wanted_of(log, search_for(fields=[FieldValue(("a",) * depth, "x")]))
    assert bool(found) == (member_of(value, ["a"] * depth) == "x") == (depth < 900)


def test_python_reads_only_values_in_which_bytes_do_not_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [
        b'{"level":"error","text":"no \\"escape\\" matters here"}',
        b'{"level":"info","text":"error"}',
        b'{"level" : "error", "n": 1.50, "level": "info"}',
        b"level=error",
        b'{"level":"err\\u006fr"}',
    ]
    read: list[bytes] = []
    parse = matching._parsed

    def note(value: bytes) -> object:
        read.append(value)
        return parse(value)

    monkeypatch.setattr(matching, "_parsed", note)
    log = encode_batch([Record(n, 5, None, value) for n, value in enumerate(values)])
    found = wanted_of(log, search_for(fields=[FieldValue(("level",), "error")]))
    assert [record.offset for record in found] == [0, 4]
    assert read == values[4:]
