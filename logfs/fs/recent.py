"""The latest answers to names with a selector, given again while a new look-up would be the same.

The answer to a name follows from the state of the log, and for some names from the clock. An answer
is given again as long as nothing has changed in the log; names that count from the time of the
look-up are resolved each time. Equal answers of different look-ups are one inode in any case: see
``inodes``.
"""

from typing import NamedTuple

from logfs.fs.nodes import FileNode
from logfs.log.segments.snapshot import Snapshot

_MAX_ANSWERS = 256


class Answer(NamedTuple):
    """What a name was resolved to.

    Attributes:
        snapshot: The state of the log that it follows from.
        now_ms: The clock at the look-up.
        node: The answer.
    """

    snapshot: Snapshot
    now_ms: int
    node: FileNode


class LookupCache:
    """Answers by partition and name. ``put`` may come from any thread."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], Answer] = {}

    def get(self, identity: str, name: str, snapshot: Snapshot, now_ms: int) -> FileNode | None:
        """Return the answer to a name, if a new look-up would give the same.

        Args:
            identity: Of the partition.
            name: Below the topic.
            snapshot: The present state of the log.
            now_ms: The clock. Before the time of the look-up TO may lie ahead again.
        """
        answer = self._answers.get((identity, name))
        if answer is None or answer.snapshot is not snapshot or now_ms < answer.now_ms:
            return None
        return answer.node

    def put(self, identity: str, name: str, answer: Answer) -> None:
        """Keep an answer."""
        if len(self._answers) >= _MAX_ANSWERS:
            self._answers = {}
        self._answers[identity, name] = answer

    def drop(self, node: FileNode) -> None:
        """Forget an answer that turned out to be stale, whichever node it was given as."""
        self._answers = {key: a for key, a in self._answers.items() if a.node.key != node.key}
