"""Which topics a mirror has, under which names and with which settings. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from logfs.config.topic import TOPIC_KEYS
from logfs.errors import InvalidConfigError

_INTERNAL = "__"
_OURS = ("segment.", "flush.", "file.", "index.", "local.", "remote.", "preallocate", "internal.")
"""Settings of how a log is stored, which each side has its own of."""
_WHICH_ARE_KEPT = ("retention.ms", "retention.bytes", "cleanup.policy")
FOREVER = "-1"


class OnRecreate(StrEnum):
    """The reaction to a topic that was deleted at the source and made again."""

    STOP = "stop"
    REPLACE = "replace"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Names and ``/regular expressions/`` of topics, and the prefix of their local names.

    An expression has to match a whole name; topics that begin with ``__`` only if it does, too.
    """

    names: Sequence[str]
    prefix: str = ""

    def __post_init__(self) -> None:
        """Check the expressions; raise InvalidConfigError."""
        for name in self.names:
            self._expression(name)

    @property
    def exact(self) -> list[str]:
        """The names that are no expressions."""
        return [name for name in self.names if self._expression(name) is None]

    @property
    def has_expressions(self) -> bool:
        """Whether the cluster has to be asked for all topics."""
        return len(self.exact) < len(self.names)

    def chosen(self, present: Iterable[str]) -> list[str]:
        """Return the names that are wanted, of those that are there; sorted."""
        return sorted({n for n in present if any(self._is(n, wanted) for wanted in self.names)})

    def local(self, name: str) -> str:
        """Return the local name of a topic."""
        return self.prefix + name

    def _is(self, name: str, wanted: str) -> bool:
        pattern = self._expression(wanted)
        if pattern is None:
            return wanted == name
        if name.startswith(_INTERNAL) and not wanted.startswith(f"/{_INTERNAL}"):
            return False
        return pattern.fullmatch(name) is not None

    @staticmethod
    def _expression(text: str) -> re.Pattern[str] | None:
        if not text.startswith("/"):
            return None
        if len(text) < 3 or not text.endswith("/"):
            raise InvalidConfigError(f"{text!r}: expected a topic, or an expression as /web-.*/")
        try:
            return re.compile(text[1:-1])
        except re.error as error:
            raise InvalidConfigError(f"{text!r}: no regular expression: {error}") from None


def local_config(source: Mapping[str, str], keep_ms: str | None) -> dict[str, str]:
    """Return the settings of a mirror.

    Args:
        source: Those of the topic at the source that differ from defaults, and what it keeps.
        keep_ms: ``retention.ms`` of a mirror that keeps records for its own time; None: as the
            source. A mirror that keeps more than its source does not compact either.
    """
    known = {key: value for key, value in source.items() if key in TOPIC_KEYS}
    config = {key: value for key, value in known.items() if not key.startswith(_OURS)}
    if keep_ms is not None:
        for key in _WHICH_ARE_KEPT:
            config.pop(key, None)
        config |= {"retention.ms": keep_ms, "retention.bytes": "-1", "cleanup.policy": "delete"}
    return config
