"""Limits for users of a mount; root and the daemon's user have none.

    user_max_partitions=N       partitions of a topic, and of all topics of one owner together
    user_max_message_bytes=N    the value of max.message.bytes
    user_max_open_files=N       files and directories of the mount that a user has open
    user_max_bytes=N            bytes of all topics of one owner together on this disk, unfinished
                                lines included; a sealed segment takes 16 KiB and more
    user_max_byte_rate=N        bytes a second that a user writes to files of the mount

A record is in memory as a whole when it is appended and when it is read. A partition is a directory
with a dozen files. An open file takes a few KiB of the daemon; one below ``.segments`` or with an
unfinished line also takes a descriptor. ``logfs topic create`` and ``alter`` have no limits.
"""

import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from logfs.config import TOPIC_KEYS
from logfs.errors import QuotaExceededError
from logfs.fs.kernel.errnos import RefusedError, TooManyOpenFilesError
from logfs.fs.kernel.permissions import MountOwnership
from logfs.fs.options import MountOptions
from logfs.log.quotas import TopicUsage
from logfs.records.layout import HEADER_BYTES
from logfs.services.following.store import AnyStore

_MESSAGE_BYTES = "max.message.bytes"
_QUOTA_KEYS = "logfs.quota."
_LINE_BYTES = HEADER_BYTES + 32
"""A line takes at most so many bytes more in the log: the headers of a batch and of a record."""


class UserUsage(NamedTuple):
    """What a user with limits has used of them.

    Attributes:
        open_files: Files and directories that the user has open.
        stored_bytes: Bytes of the logs of the topics that the user owns; None without a limit.
        refused: Requests that were refused because of a limit.
        throttled: Writes that had to wait for the rate.
        throttled_s: Seconds that they had to wait, together.
    """

    user: int
    open_files: int
    stored_bytes: int | None
    refused: int
    throttled: int
    throttled_s: float


class WriterLimits:
    """The limits of an open file that appends, for its user. Any thread.

    The rate is that of ``logfs.quota.producer.byte.rate``, for the bytes that are written.

    Args:
        owner: The owner of the topic.
        stored: The bytes that the topics of the owner have together.
        max_bytes: How much that may be; None: there is no limit.
        written: The bytes that the user writes.
        rate: How many bytes a second; None: there is no limit.
        clock_s: Seconds that only go forward.
    """

    def __init__(
        self,
        owner: int,
        stored: TopicUsage,
        max_bytes: int | None,
        written: TopicUsage,
        rate: int | None,
        clock_s: Callable[[], float],
    ) -> None:
        self._owner = owner
        self._stored = stored
        self._max_bytes = max_bytes
        self._written = written
        self._rate = rate
        self._clock_s = clock_s

    def admit(self, data: bytes) -> None:
        """Let a write append lines; raise QuotaExceededError if it may not."""
        if self._max_bytes is not None:
            lines = data.count(b"\n") + 1
            self._stored.admit(
                f"the topics of user {self._owner}",
                len(data),
                self._max_bytes,
                "the mount option user_max_bytes",
                most_bytes=len(data) + lines * _LINE_BYTES,
            )

    def spend(self, size_bytes: int) -> None:
        """Note bytes that were written."""
        if self._rate is not None:
            self._written.spend(size_bytes, self._rate, self._clock_s())

    @property
    def throttle_mark(self) -> int:
        """The mark of a write that was applied just now, for ``throttle_s``."""
        return self._written.spent_bytes

    def throttle_s(self, mark: int) -> float:
        """Return how many seconds the writer still has to wait."""
        if self._rate is None:
            return 0.0
        return self._written.wait_s(mark, self._rate, self._clock_s())

    def note_throttled(self, seconds: float) -> None:
        """Count a write whose writer had to wait."""
        self._written.note_wait(seconds)


class Quotas:
    """Checks requests of users against the limits of a mount.

    Any thread; the methods for open files, event loop only.

    Args:
        store: The store.
        ownership: The owners of topics.
        options: The limits.
    """

    def __init__(self, store: AnyStore, ownership: MountOwnership, options: MountOptions) -> None:
        self._store = store
        self._ownership = ownership
        self._options = options
        self._unlimited = {0, os.getuid()}
        self._open: Counter[int] = Counter()  # by user
        self._users: dict[tuple[str, int], int] = {}  # by kind and number of the handle
        self._stored: dict[int, TopicUsage] = {}  # by owner
        self._written: defaultdict[int, TopicUsage] = defaultdict(TopicUsage)  # by user
        self._lock = threading.Lock()
        self._refused: Counter[int] = Counter()  # by user, except writes
        self._counting = threading.Lock()
        self._to_come: dict[str, tuple[int, int]] = {}  # by topic: its owner, and its partitions

    def usages(self) -> list[UserUsage]:
        """Return the usage of each user with limits that this mount has seen."""
        sizes = self._sizes() if self._options.user_max_bytes is not None else None
        opened, refused = self._open.copy(), self._refused.copy()
        stored, written = self._stored.copy(), self._written.copy()
        users = {*opened, *refused, *stored, *written, *(sizes or ())} - self._unlimited
        nothing = TopicUsage()
        return [
            UserUsage(
                user,
                opened[user],
                None if sizes is None else sizes[user],
                refused[user] + stored.get(user, nothing).refused,
                written.get(user, nothing).throttled,
                written.get(user, nothing).throttled_s,
            )
            for user in sorted(users)
        ]

    def _has_no_limits(self, owner: int) -> bool:
        """Whether users may add to the topics of an owner without limits.

        With the mount option ``uid`` all topics have one owner. Then the limits of a user are those
        of all topics together, also if that owner has none.
        """
        return owner in self._unlimited and self._options.uid is None

    def _sizes(self) -> Counter[int]:
        """Return the bytes of the logs of all topics, by owner."""
        sizes: Counter[int] = Counter()
        owners: dict[str, int] = {}
        for log in self._store.all_partitions():
            topic = log.topic_partition.topic
            if topic not in owners:
                owners[topic] = self._ownership.of_directory(topic)[1]
            sizes[owners[topic]] += log.quota_bytes
        return sizes

    @property
    def unlimited_users(self) -> list[int]:
        """The users that have no limits."""
        return sorted(self._unlimited)

    def limits_of(
        self, caller: int, topic: str, clock_s: Callable[[], float]
    ) -> WriterLimits | None:
        """Return the limits of a user that opens a file of a topic to append; None: it has none."""
        options = self._options
        max_bytes, rate = options.user_max_bytes, options.user_max_byte_rate
        if caller in self._unlimited or (max_bytes is None and rate is None):
            return None
        owner = self._ownership.of_directory(topic)[1]
        stored = self._stored.get(owner)
        if stored is None:
            stored = self._stored[owner] = TopicUsage(lambda: self._sizes()[owner])
        if self._has_no_limits(owner):
            max_bytes = None
        return WriterLimits(owner, stored, max_bytes, self._written[caller], rate, clock_s)

    @contextmanager
    def partitions_to_come(
        self, caller: int, topic: str, partitions: int, owner: int
    ) -> Iterator[None]:
        """Count partitions that are made inside the ``with`` block; any thread.

        Raises:
            QuotaExceededError: See ``check_partitions``.
        """
        with self._counting:
            self.check_partitions(caller, topic, partitions, owner)
            self._to_come[topic] = owner, partitions
        try:
            yield
        finally:
            with self._counting:
                del self._to_come[topic]

    def check_partitions(self, caller: int, topic: str, partitions: int, owner: int) -> None:
        """Refuse a number of partitions for a topic that exists or is to be created.

        Args:
            caller: The user that asks for it.
            topic: Its name.
            partitions: How many it shall have.
            owner: The owner of the topic.

        Raises:
            QuotaExceededError: The caller may not create so many.
        """
        if caller in self._unlimited:
            return
        limit, total = self._options.user_max_partitions, partitions
        if not self._has_no_limits(owner) and partitions <= limit:
            counts = {
                other: len(self._store.partitions(other))
                for other in self._store.topics()
                if self._ownership.of_directory(other)[1] == owner
            }
            to_come = list(self._to_come.items())
            counts.update((other, count) for other, (whose, count) in to_come if whose == owner)
            counts.pop(topic, None)
            total += sum(counts.values())
        if total > limit:
            self._count_refused(caller)
            raise QuotaExceededError(
                f"topic {topic}: user {owner} would have {total} partitions; the mount option "
                f"user_max_partitions allows {limit}, 'logfs topic create' and 'alter' more"
            )

    def check_setting(self, caller: int, topic: str, key: str, text: str | None) -> None:
        """Refuse a setting of a topic; None resets it.

        Raises:
            QuotaExceededError: It is larger than the caller may set.
            RefusedError: It is a quota, which only users without limits may set.
            InvalidConfigError: The value is not valid.
        """
        if caller in self._unlimited:
            return
        if key.startswith(_QUOTA_KEYS):
            raise RefusedError(f"topic {topic}: only root and the user of the daemon set {key}")
        if key != _MESSAGE_BYTES or text is None:
            return
        limit, value = self._options.user_max_message_bytes, TOPIC_KEYS[key].parse(text)
        if isinstance(value, int) and value > limit:
            self._count_refused(caller)
            raise QuotaExceededError(
                f"topic {topic}: {key}={value}; the mount option user_max_message_bytes allows "
                f"{limit}, 'logfs topic alter' more"
            )

    def check_open(self, caller: int) -> None:
        """Refuse to open one more file or directory.

        Raises:
            TooManyOpenFilesError: The caller has reached the limit.
        """
        limit = self._options.user_max_open_files
        if self._open[caller] >= limit and caller not in self._unlimited:
            self._count_refused(caller)
            raise TooManyOpenFilesError(
                f"user {caller} has {limit} files open; the mount option user_max_open_files "
                "allows no more"
            )

    def _count_refused(self, caller: int) -> None:
        with self._lock:
            self._refused[caller] += 1

    def note_opened(self, caller: int, kind: str, number: int) -> None:
        """Note the user that has opened a handle of a kind and number."""
        self._users[kind, number] = caller
        self._open[caller] += 1

    def note_released(self, kind: str, number: int) -> None:
        """Note that a handle was closed."""
        caller = self._users.pop((kind, number), None)
        if caller is None:
            return  # opened in an earlier daemon, and closed there
        self._open[caller] -= 1
        if not self._open[caller]:
            del self._open[caller]
