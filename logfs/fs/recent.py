"""The latest answers to relative selectors, so that each is resolved at most once a second."""

from collections.abc import Callable

from logfs.fs.nodes import FileNode

RECENT_S = 1.0
_MAX_ANSWERS = 256


class RecentAnswers:
    """Nodes by what was asked for. ``put`` may come from any thread.

    Args:
        monotonic_s: Seconds that only go forward.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._answers: dict[tuple[str, str], tuple[float, FileNode]] = {}

    def get(self, identity: str, name: str) -> FileNode | None:
        """Return the answer if it is not older than a second."""
        answer = self._answers.get((identity, name))
        if answer is None or self._monotonic_s() >= answer[0]:
            return None
        return answer[1]

    def put(self, identity: str, name: str, node: FileNode) -> None:
        """Keep an answer."""
        now_s = self._monotonic_s()
        if len(self._answers) >= _MAX_ANSWERS:
            live = {key: answer for key, answer in self._answers.items() if answer[0] > now_s}
            self._answers = live if len(live) < _MAX_ANSWERS else {}
        self._answers[identity, name] = (now_s + RECENT_S, node)

    def drop(self, node: FileNode) -> None:
        """Forget an answer that turned out to be stale, whichever node it was given as."""
        self._answers = {key: a for key, a in self._answers.items() if a[1].key != node.key}
