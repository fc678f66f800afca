"""Answers that are none are errors like a lost connection, which is retried."""

import errno

import pytest

from logfs.kafka.answers import only, undecodable


def test_an_answer_about_one_thing_has_one_row() -> None:
    assert only(["row"], "FetchResponse") == "row"
    for rows in ([], ["row", "another"]):
        with pytest.raises(OSError, match="FetchResponse does not decode") as caught:
            only(rows, "FetchResponse")
        assert caught.value.errno == errno.EPROTO


def test_the_error_says_what_is_wrong() -> None:
    assert str(undecodable("FetchResponse", "no end")).endswith(
        "FetchResponse does not decode: no end"
    )
