"""Regular expressions for native code: found where ``re`` finds them; needles are in each match."""

import ctypes
import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from logfs.errors import ExpressionError
from logfs.records._reading import RecordSearch, decode_batches, matched_lines
from logfs.records.batch import encode_batch
from logfs.records.compression import decompress
from logfs.records.expressions import needles_of, pcre_of
from logfs.records.matching import search_for
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
        (b"refused|reset", [b"fused", b"set"]),
        (rb"GET /orders/[0-9]+ 40\d", [b"GET /orders/"]),
        (rb"^10\.0\.", [b"10.0."]),
        (b"colou?r", [b"colo"]),
        (b"(a|b)", []),
        (b"(error|warn): [0-9]+", [b"error", b"warn"]),
        (b"(?:refused)+ by", [b"refused"]),
        (b"(?i)refused 17", [b" 17"]),
        (b"(?i:refused) by", [b" by"]),
        (b"[0-9]+", []),
        (b"", []),
    ],
)
def test_needles_are_the_longest_bytes_that_a_match_needs(
    pattern: bytes, needles: list[bytes]
) -> None:
    assert needles_of(pattern) == needles


ATOMS = st.one_of(
    st.sampled_from([*r"abAB01_ ", r"\n", r"\.", r"\x00", r"\xff", r"\xe4", "\xe4", r"\t"]),
    st.sampled_from([".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"]),
    st.sampled_from(
        ["[ab]", "[^a]", "[a-c]", r"[^\n]", r"[\w.]", r"[^\W_]", "[A-z]", "[^A]", "[0-9a-]"]
    ),
    st.sampled_from(["^", "$", r"\A", r"\Z", r"\b", r"\B"]),
)
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?", "{2,}", "{,3}", "*+", "++"]


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return patterns that are made of others, some of which native code cannot search for."""
    groups = [
        "(%s)",
        "(?:%s)",
        "(?i:%s)",
        "(?s:%s)",
        "(?m:%s)",
        "(?=%s)",
        "(?!%s)",
        "(?<=%s)",
        "(?>%s)",
    ]
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: "(?:" + "|".join(parts) + ")"),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda both: f"(?:{both[0]}){both[1]}"),
        st.tuples(ATOMS, st.sampled_from(REPEATS)).map("".join),
        st.tuples(st.sampled_from(groups), inner).map(lambda both: both[0] % both[1]),
        inner.map(lambda one: f"({one})\\1"),
    )


EXPRESSIONS = st.recursive(ATOMS, larger, max_leaves=12)
TEXTS = st.lists(
    st.sampled_from(
        [b"a", b"b", b"A", b"B", b"0", b"1", b"_", b" ", b"\n", b".", b"\0", b"\xff", b"\xe4", b"c"]
    ),
    max_size=12,
).map(b"".join)
FLAGS = st.sampled_from([0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.IGNORECASE | re.MULTILINE])


def is_found(expression: bytes, value: bytes) -> bool:
    """Search by native code alone."""
    log = encode_batch([Record(0, 5, None, value)])
    search = RecordSearch(confirm=lambda _: pytest.fail("Python was asked"), expression=expression)
    assert search.is_native
    return bool(decode_batches(log, 0, len(log), 0, 1, decompress, b"", search)[0])


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    try:
        ctypes.CDLL("libpcre2-8.so.0")
    except OSError:
        pytest.skip("PCRE2 is not installed")


@settings(max_examples=1500)
@given(
    st.lists(EXPRESSIONS, min_size=1, max_size=2), st.lists(TEXTS, min_size=1, max_size=5), FLAGS
)
@example(["^"], [b"a\n", b"\n", b""], re.MULTILINE)
@example(["a$"], [b"a\n", b"a", b"a\n\n", b"a\nb"], 0)
@example(["a$"], [b"a\n", b"a", b"a\n\n", b"a\nb"], re.MULTILINE)
@example(["^b"], [b"a\nb", b"b", b"a\n"], 0)
@example(["^b"], [b"a\nb", b"b", b"a\n"], re.MULTILINE)
@example([r"a\Z"], [b"a\n", b"a"], re.MULTILINE)
@example([r"\b"], [b"", b" ", b"a"], 0)
def test_native_code_finds_an_expression_where_python_does(
    patterns: list[str], values: list[bytes], flags: int
) -> None:
    encoded = [pattern.encode("latin-1") for pattern in patterns]
    try:
        compiled = [re.compile(pattern, flags) for pattern in encoded]
    except re.error:
        assume(False)
    expression = pcre_of(encoded, flags)
    for value in values:
        try:
            wanted = [pattern.search(value) for pattern in compiled]
        except SystemError:  # a defect of Python's re
            continue
        if expression is not None:
            assert is_found(expression, value) == any(wanted), (expression, value)
        for pattern, match in zip(encoded, wanted, strict=True):
            needles = needles_of(pattern, flags)
            if match and needles:
                assert any(needle in match[0] for needle in needles), (needles, match)


@pytest.mark.parametrize(
    "pattern",
    [
        rb"^[0-9]+ (GET|POST) .* 5\d\d$",
        b"(?i)refused|reset",
        rb"\buser=[^ ]+\b",
        b"x{2,5}?y+?",
        b"(?s)a.b",
        rb"\xff[\x80-\xff]",
    ],
)
def test_usual_expressions_need_no_python(pattern: bytes) -> None:
    assert pcre_of([pattern]) is not None
    assert search_for([pattern]).is_native


@pytest.mark.parametrize(
    "pattern",
    [
        *(rb"(a)\1", b"(?<=a)b", b"a(?=b)", b"(?!a)b", b"(?>a*)b", b"a*+b", rb"\Ba", b"(?L)a"),
        *(b"(a)?(?(1)b|c)", b"(?:a?)*b", b"(?:a|)+b", b"a{2000}"),
    ],
)
def test_python_searches_for_what_both_may_read_differently(pattern: bytes) -> None:
    assert pcre_of([b"a", pattern]) is None
    search = search_for([pattern])
    assert not search.is_native
    values = [b"aa", b"ab", b"b", b"a" * 2000, b" a", b"", b"ac"]
    log = encode_batch([Record(n, 5, None, value) for n, value in enumerate(values)])
    taken, _, _ = decode_batches(log, 0, len(log), 0, len(values), decompress, b"", search)
    assert [record.value for record in taken] == [v for v in values if re.search(pattern, v)]


def test_an_expression_that_takes_too_many_steps_is_an_error_after_the_records_before() -> None:
    search = search_for([b"(?:x+x+)+[yz]"])
    values = [b"xxy", b"x" * 200]
    log = b"".join(encode_batch([Record(n, 5, None, v)]) for n, v in enumerate(values))
    records, at, _ = decode_batches(log, 0, len(log), 0, 2, decompress, b"", search)
    assert [record.value for record in records] == [b"xxy"]
    lines, same, _ = matched_lines(log, 0, len(log), 0, 2, decompress, b"", search, 0)
    assert (bytes(lines), same) == (b"xxy\n", at)
    with pytest.raises(ExpressionError, match="too many steps on a value of 200 bytes"):
        decode_batches(log, at, len(log), 1, 2, decompress, b"", search)
    with pytest.raises(ExpressionError, match="too many steps on a value of 200 bytes"):
        matched_lines(log, at, len(log), 1, 2, decompress, b"", search, 0)


def test_an_expression_on_which_re_itself_fails_is_an_error() -> None:
    pattern = rb"(?:(?:(a)\1|(?:a)*))*+"
    search = search_for([pattern])
    log = encode_batch([Record(0, 5, None, b"aa")])
    try:
        is_found = bool(re.search(pattern, b"aa"))
    except SystemError:
        with pytest.raises(ExpressionError, match="Write it in another way"):
            decode_batches(log, 0, len(log), 0, 1, decompress, b"", search)
    else:  # this Python does not have the defect
        assert bool(decode_batches(log, 0, len(log), 0, 1, decompress, b"", search)[0]) == is_found


def test_python_decides_where_an_expression_takes_too_much_memory() -> None:
    pattern = b"(?:a|ab)+c"
    value = b"ab" * 100_000 + b"c"
    asked: list[bytes] = []
    expression = pcre_of([pattern])
    search = RecordSearch(confirm=lambda value: asked.append(value), expression=expression)
    log = encode_batch([Record(0, 5, None, value), Record(1, 5, None, b"abc"), Record(2, 5)])
    taken, _, _ = decode_batches(log, 0, len(log), 0, 3, decompress, b"", search)
    assert [record.offset for record in taken] == [1]
    assert asked == [value]


def test_python_decides_where_native_code_cannot_read_an_expression() -> None:
    search = RecordSearch(confirm=lambda value: value == b"a", expression=b"(")
    assert not search.is_native
    log = encode_batch([Record(0, 5, None, b"a"), Record(1, 5, None, b"b")])
    assert len(decode_batches(log, 0, len(log), 0, 2, decompress, b"", search)[0]) == 1
