"""The topics of a data directory, by the daemon that owns it, through its control socket."""

from collections.abc import Mapping

from logfs.client import Daemon
from logfs.log.administration import TopicFacts


class RemoteTopics:
    """See ``Topics``."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def sizes(self) -> dict[str, int]:
        """See ``Topics``."""
        return dict(self._daemon.ask("topics"))

    def describe(self, topic: str) -> TopicFacts:
        """See ``Topics``."""
        return TopicFacts(**self._daemon.ask("describe", {"topic": topic}))

    def create(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> list[str]:
        """See ``Topics``."""
        return list(
            self._daemon.ask(
                "create", {"topic": topic, "partitions": partitions, "config": dict(config)}
            )
        )

    def alter(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """See ``Topics``."""
        return list(
            self._daemon.ask(
                "alter", {"topic": topic, "changes": dict(changes), "partitions": partitions}
            )
        )

    def delete(self, topic: str) -> None:
        """See ``Topics``."""
        self._daemon.ask("delete", {"topic": topic})

    def undelete(self, topic: str) -> None:
        """See ``Topics``."""
        self._daemon.ask("undelete", {"topic": topic})
