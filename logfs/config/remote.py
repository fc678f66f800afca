"""The settings of a data directory's object store, as in the file ``logfs.remote``.

There are no secrets among them: credentials come from the environment, or from the platform.
Kafka's names where it has one. Source: Kafka RemoteLogManagerConfig (4.1.1).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Self

from logfs.config.kinds import MAX_LONG, Choice, int_kind, long_kind
from logfs.config.settings import Settings, setting
from logfs.errors import InvalidConfigError

_LEAST_FRESHNESS_MS = 100


class FencedAction(StrEnum):
    """What a daemon does with appends once another data directory owns the store."""

    KEEP = "keep"
    READONLY = "readonly"


@dataclass(frozen=True, slots=True)
class _Text:
    """Text that fits a pattern."""

    pattern: str
    expected: str
    type_name: str = "string"

    def parse(self, text: str) -> str:
        """Return the text; raise ValueError if it does not fit."""
        if re.fullmatch(self.pattern, text) is None:
            raise ValueError(text)
        return text

    def format(self, value: object) -> str:
        """Return the text."""
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig(Settings):
    """The settings of the object store of a data directory, a field for each key.

    Attributes:
        explicit: The keys that were given.
        is_foreign: Another user may have written them, so they choose no store for the credentials
            of this process.
    """

    noun: ClassVar[str] = "remote"

    url: str = setting(
        _Text(r"(s3|gs|az)://\S+|file:///\S+", "an address such as s3://BUCKET/PREFIX"),
        "",
        "the store, and the prefix of its objects",
    )
    directory_id: str = setting(
        _Text(r"([0-9a-f]{32})?", "32 hexadecimal digits"),
        "",
        "which data directory this is, as the first daemon has noted it: another one may not write "
        "the same partitions",
    )
    endpoint: str | None = setting(
        _Text(r"https?://[^\s/]+(/\S*)?", "an address such as https://HOST:PORT"),
        None,
        "the server; unset: the cloud's own, or that of the environment",
    )
    region: str | None = setting(
        _Text(r"[a-zA-Z0-9-]+", "the name of a region"),
        None,
        "the region of the bucket; unset: that of the environment",
    )
    freshness_ms: int = setting(
        long_kind(0),
        0,
        "the loss of the machine loses the records of at most so long: every so often one object "
        "with all that is not sealed is stored; 0: sealed segments are all that is stored",
    )
    fenced_action: FencedAction = setting(  # noqa: RUF009 - it makes a field
        Choice(FencedAction),
        FencedAction.KEEP,
        "what happens once another data directory owns the store: keep takes appends, which are on "
        "this machine alone; readonly refuses them",
    )
    cache_bytes: int = setting(
        long_kind(0), 10 << 30, "room for parts of objects in the cache directory"
    )
    memory_bytes: int = setting(
        long_kind(1 << 20), 256 << 20, "memory for parts of objects that are read"
    )
    read_timeout_ms: int = setting(
        long_kind(1), 60_000, "how long a request that fails is tried again"
    )
    remote_log_manager_task_interval_ms: int = setting(
        long_kind(1), 30_000, "time from one look for segments to copy or delete to the next"
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        int_kind(1), 2, "partitions that are copied at the same time"
    )
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        long_kind(1), MAX_LONG, "the most that is copied to the store"
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        long_kind(1), MAX_LONG, "the most that is read from the store"
    )

    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    is_foreign: bool = field(default=False, compare=False)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, is_foreign: bool = False) -> Self:
        """Make the settings from text.

        Args:
            is_foreign: See the attribute.

        Raises:
            InvalidConfigError: A key is unknown or missing, or a value is not valid.
        """
        return cls(**cls._parse(properties), explicit=frozenset(properties), is_foreign=is_foreign)

    def _check_together(self) -> None:
        if not self.url:
            raise InvalidConfigError(
                "url is missing; expected an address such as s3://BUCKET/PREFIX"
            )
        if 0 < self.freshness_ms < _LEAST_FRESHNESS_MS:
            raise InvalidConfigError(
                f"freshness.ms={self.freshness_ms}: expected 0, or {_LEAST_FRESHNESS_MS} or more"
            )
