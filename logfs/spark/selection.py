"""Which topics and partitions are read. Pure.

    subscribe         orders,clicks              these topics
    subscribePattern  or.*                       topics in whose name the pattern is found
    assign            {"orders": [0, 1]}         these partitions
    (none of them)                               all topics but those that begin with __

Source: Spark ConsumerStrategy; in its pattern, too, topics that begin with ``__`` are left out.
"""

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from logfs.errors import InvalidConfigError, NoSuchPartitionError, NoSuchTopicError
from logfs.types import TopicPartition

SUBSCRIBE = "subscribe"
PATTERN = "subscribePattern"
ASSIGN = "assign"

_INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class Selection:
    """What is read; all topics but internal ones if nothing is set. A pattern is searched."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    def choose(self, present: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions to read, in order; raise NoSuchTopicError, NoSuchPartitionError."""
        if self.partitions:
            missing = self.partitions - set(present)
            if missing:
                raise NoSuchPartitionError(f"there is no partition {_listed(map(str, missing))}")
            return sorted(self.partitions)
        if self.topics:
            missing_topics = self.topics - {topic for topic, _ in present}
            if missing_topics:
                raise NoSuchTopicError(
                    f"there is no topic {_listed(missing_topics)}"
                    + _suggestion(min(missing_topics), {topic for topic, _ in present})
                )
        return self.choose_present(present)

    def choose_present(self, present: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that are read, of those that are there, in order."""
        if self.partitions:
            return sorted(self.partitions & set(present))
        return sorted(one for one in present if self._includes(one.topic))

    def _includes(self, topic: str) -> bool:
        if self.topics:
            return topic in self.topics
        if topic.startswith(_INTERNAL):
            return False
        return self.pattern is None or re.search(self.pattern, topic) is not None


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
        re.compile(text)
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
        found = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(found, dict) or not found:
        raise wrong
    partitions = set[TopicPartition]()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise wrong
        partitions |= {TopicPartition(topic, number) for number in numbers}
    if not partitions:
        raise wrong
    return frozenset(partitions)


def _suggestion(name: str, present: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(present), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
