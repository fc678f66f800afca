import pytest

from logfs.errors import UnparsableLineError
from logfs.records.jsonl import Line, parse_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"{}", Line(None, None, None, ())),
        (b' {"offset" : "any", "key":"k"} \r', Line(None, b"k", None, ())),
        (b'{"timestamp":-1,"value":""}', Line(-1, None, b"", ())),
        (
            '{"key":{"base64":"/w=="},"value":"🎉\\u00e4\\ud83c\\udf89"}'.encode(),
            Line(None, b"\xff", "🎉ä🎉".encode(), ()),
        ),
        (
            b'{"headers":[["h","x"],["h",null],[{"base64":"/w=="},{"base64":""}]]}',
            Line(None, None, None, ((b"h", b"x"), (b"h", None), (b"\xff", b""))),
        ),
    ],
)
def test_parses(line: bytes, expected: Line) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "not JSON in UTF-8"),
        (b"nonsense", "not JSON in UTF-8"),
        (b'{"value":"\xff"}', "not JSON in UTF-8"),
        (b"{}{}", "not JSON in UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON in UTF-8"),
        ("{}".encode("utf-16"), "not JSON in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"timestamp":' + b"1" * 5000 + b"}", "not JSON in UTF-8"),
        (b"[]", "expected a JSON object, found an array"),
        (b"null", "expected a JSON object, found null"),
        (b"1", "expected a JSON object, found a number"),
        (b'"a"', "expected a JSON object, found a string"),
        (b'{"keys":null,"b":1}', "unknown field 'b'"),
        (b'{"timestamp":null}', "timestamp must be an integer, found null"),
        (b'{"timestamp":1.0}', "timestamp must be an integer, found a number"),
        (b'{"timestamp":true}', "timestamp must be an integer, found a boolean"),
        (b'{"timestamp":"1"}', "timestamp must be an integer, found a string"),
        (b'{"timestamp":9223372036854775808}', "timestamp does not fit 64 bits"),
        (b'{"value":1}', "value must be a string"),
        (b'{"value":NaN}', "value must be a string"),
        (b'{"value":{"base64":1}}', "value must be a string"),
        (b'{"value":{"base64":"","x":1}}', "value must be a string"),
        (b'{"value":{"base64":"a"}}', "value: "),
        (b'{"value":{"base64":"YW\\nJj"}}', "value: "),
        (b'{"value":{"base64":"\xc3\xa4"}}', "value: "),
        (b'{"key":"\\ud800"}', "key: "),
        (b'{"headers":null}', "headers must be an array, found null"),
        (b'{"headers":{}}', "headers must be an array, found an object"),
        (b'{"headers":["h"]}', "a header must be an array of key and value"),
        (b'{"headers":[["h"]]}', "a header must be an array of key and value"),
        (b'{"headers":[[null,"x"]]}', "a header key must not be null"),
        (b'{"headers":[["h",1]]}', "header value must be a string"),
    ],
    ids=str,
)
def test_refuses(line: bytes, reason: str) -> None:
    with pytest.raises(UnparsableLineError) as caught:
        parse_line(line)
    assert str(caught.value).startswith(reason) or reason in str(caught.value)
