"""The options that choose topics and partitions. Pure.

    subscribe         orders,clicks              these topics
    subscribePattern  or.*                       topics in whose name the pattern is found
    assign            {"orders": [0, 1]}         these partitions
    (none of them)                               all topics but those that begin with __

Source: Spark ConsumerStrategy; in its pattern, too, topics that begin with ``__`` are left out.
"""

import re
import warnings
from collections.abc import Mapping

from logfs.errors import InvalidConfigError
from logfs.library.selection import Selection
from logfs.records.jsontext import decode_object
from logfs.types import TopicPartition

SUBSCRIBE = "subscribe"
PATTERN = "subscribePattern"
ASSIGN = "assign"


def parse_selection(options: Mapping[str, str]) -> Selection | None:
    """Return what the options say, None for nothing; raise InvalidConfigError."""
    given = [name for name in (SUBSCRIBE, PATTERN, ASSIGN) if name in options]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidConfigError(
            f"{' and '.join(given)} both say what to read: expected one of subscribe, "
            "subscribePattern and assign"
        )
    (name,) = given
    text = options[name].strip()
    if name == ASSIGN:
        return Selection(partitions=_parse_assign(text))
    if name == PATTERN:
        return Selection(pattern=_parse_pattern(text))
    topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise InvalidConfigError("subscribe names no topic: expected topics with commas in between")
    return Selection(topics=topics)


def _parse_pattern(text: str) -> str:
    if not text:
        raise InvalidConfigError("subscribePattern is empty: expected a regular expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except FutureWarning:
        raise InvalidConfigError(
            f"subscribePattern {text!r}: Java reads this class of characters otherwise (&&, --, "
            "||, ~~ or a [ in it): write it without, or with a backslash"
        ) from None
    except re.error as error:
        raise InvalidConfigError(
            f"subscribePattern {text!r} is no regular expression: {error}"
        ) from None
    return text


def _parse_assign(text: str) -> frozenset[TopicPartition]:
    wrong = InvalidConfigError(
        f'assign {text!r}: expected JSON such as {{"orders": [0, 1], "clicks": [2]}}'
    )
    try:
        found = decode_object(text)
    except ValueError:
        raise wrong from None
    if not found:
        raise wrong
    partitions = set[TopicPartition]()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
        partitions |= {TopicPartition(topic, number) for number in numbers}
    if not partitions:
        raise wrong
    return frozenset(partitions)
