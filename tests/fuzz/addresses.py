"""The grammar of addresses: a name is refused, or printed so that it is read as the same again."""

from contextlib import suppress
from datetime import UTC
from random import Random

from logfs.errors import LogfsError
from logfs.log.reading.address import (
    format_address,
    parse_partition_name,
    parse_point,
    parse_topic_name,
    parse_topic_range,
)

_WORDS = (
    *("0", "1", "10", "00", "9999", "99999999999999999999", "@", "@", "..", ".", "-", "+", "="),
    *("now", "earliest", "latest", "offset=", "byte=", ".tsv", ".jsonl", ".follow", ".meta"),
    *("-15m", "-1h", "-7d", "-99999999999999999d", "2026-11-20", "T10:00", ":59.999", "Z"),
    *("20261120", "1763632800000", "0000-00-00", "9999-12-31", " ", "\n", "\0", "/", "\ud800"),
)


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return a name."""
    words = [chance.choice(_WORDS) for _ in range(chance.randrange(1, 9))]
    if corpus and chance.random() < 0.2:
        words.insert(0, chance.choice(corpus).decode(errors="surrogateescape"))
    return "".join(words).encode(errors="surrogatepass")


def check(case: bytes) -> None:
    """Read a name as that of a partition, of a topic, of its range and as a point."""
    name = case.decode(errors="surrogateescape")
    try:
        address = parse_partition_name(name, UTC)
    except LogfsError:
        pass
    else:
        text = format_address(address)
        again = parse_partition_name(text, UTC)
        assert again == address, f"{name!r} is {address}, printed as {text!r} that is {again}"
    with suppress(LogfsError):
        parse_point(name, UTC)
    with suppress(LogfsError):
        parse_topic_name(name)
    with suppress(LogfsError):
        found = parse_topic_range(f"orders{name}", UTC)
        text = format_address(found.in_partition(0))
        assert parse_topic_range(f"{found.topic}{text[1:]}", UTC) == found
