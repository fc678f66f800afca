"""Which topics and partitions of data directories are read. Pure."""

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from logfs.errors import NoSuchPartitionError, NoSuchTopicError
from logfs.types import TopicPartition

_INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics to read; all but internal ones if nothing is set. A pattern is searched."""

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


def _suggestion(name: str, present: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(present), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
