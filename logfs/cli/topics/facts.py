"""What can be known about topics, and done with them, whoever does it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from logfs.log.administration import TopicFacts


class Topics(Protocol):
    """The topics of a data directory. Errors are those of ``LogStore``, whoever carries it out."""

    def sizes(self) -> dict[str, int]:
        """Return the number of partitions of every topic, hidden ones included; sorted."""
        ...

    def describe(self, topic: str) -> "TopicFacts":
        """Return the facts about a topic.

        Raises:
            NoSuchTopicError: There is none.
        """
        ...

    def create(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> list[str]:
        """Make a topic and return warnings about its configuration.

        Args:
            topic: Its name.
            partitions: How many; None for the default, ``num.partitions`` of the daemon or 1.
            config: What is set.

        Raises:
            TopicExistsError, IllegalTopicNameError, InvalidConfigError, ReadOnlyError.
        """
        ...

    def alter(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """Change a topic and return warnings about its configuration.

        Args:
            topic: Its name.
            changes: Settings and their values; None takes one back.
            partitions: How many it should have; None for as many as now.

        Raises:
            NoSuchTopicError: There is none.
            InvalidConfigError: A setting is unknown, a value not valid, there is nothing to take
                back, or the topic would get smaller.
        """
        ...

    def delete(self, topic: str) -> None:
        """Delete a topic.

        Raises:
            NoSuchTopicError: There is none.
        """
        ...

    def undelete(self, topic: str) -> None:
        """Restore a topic that was deleted and whose files are not removed yet.

        Raises:
            TopicExistsError: There is a topic of that name.
            NoSuchTopicError: No deleted topic of that name is left.
        """
        ...
