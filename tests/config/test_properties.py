import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.config import format_properties, parse_properties
from logfs.errors import InvalidConfigError


def test_parse() -> None:
    text = (
        "# a comment\n\n  retention.ms = 5 \r\n\t#another\n"
        "cleanup.policy=compact,delete\na=\nb=x=y z"
    )
    assert parse_properties(text) == {
        "retention.ms": "5",
        "cleanup.policy": "compact,delete",
        "a": "",
        "b": "x=y z",
    }
    assert list(parse_properties("b=1\na=2\n")) == ["b", "a"]
    assert parse_properties("") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a=1\nb", "line 2: expected key=value: 'b'"),
        ("a: 1", "line 1: expected key=value"),
        ("! comment", "line 1: expected key=value"),
        ("=1", "line 1: a key is letters"),
        ("a:b=1", "line 1: a key is letters"),
        ("a b=1", "line 1: a key is letters"),
        ("\u00e9=1", "line 1: a key is letters"),
        ("\n\na=1\na=2", "line 4: a is given twice"),
        ("a=1\na=1", "line 2: a is given twice"),
        ("a=1\\\nb=2", "line 1: a value is printable ASCII"),
        ("a=C:\\temp", "line 1: a value is printable ASCII"),
        ("a=\u00e9", "line 1: a value is printable ASCII"),
        ("a=1\rb=2", "line 1: a value is printable ASCII"),
        ("a=1\x0cb", "line 1: a value is printable ASCII"),
        ("a=x\ty", "line 1: a value is printable ASCII"),
        ("a=x\0", "line 1: a value is printable ASCII"),
        ("a=x\u2028b=2", "line 1: a value is printable ASCII"),
    ],
)
def test_errors_name_the_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_properties(text, source="orders-0/x")
    assert str(caught.value).startswith("orders-0/x, " + reason)


def test_format() -> None:
    assert format_properties({"b": "1", "a": "x y"}) == "b=1\na=x y\n"
    assert format_properties({}) == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("", "1"), ("a b", "1"), ("#a", "1"), ("a=b", "1"), ("a\n", "1"), ("a", " 1")),
        *(("a", "1 "), ("a", "1\n2"), ("a", "\\"), ("a", "\u00e9"), ("a", "\t")),
    ],
)
def test_what_cannot_be_written(key: str, value: str) -> None:
    with pytest.raises(InvalidConfigError):
        format_properties({key: value})


@given(st.dictionaries(st.text(), st.text()))
def test_round_trip(properties: dict[str, str]) -> None:
    try:
        text = format_properties(properties)
    except InvalidConfigError:
        return
    assert parse_properties(text) == properties


@given(
    st.dictionaries(
        st.text(string.ascii_letters + string.digits + "._-", min_size=1),
        st.text([chr(c) for c in range(32, 127) if chr(c) != "\\"]).map(str.strip),
    )
)
def test_what_is_legal_round_trips(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except InvalidConfigError:
        return
    assert parse_properties(format_properties(properties)) == properties
