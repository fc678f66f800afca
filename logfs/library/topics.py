"""The topics of a data directory: one interface, three ways to them.

``Daemon`` of ``logfs.client`` asks the daemon through its control socket. ``MountedTopics`` works
through the mount, if the socket refuses the user: mkdir makes a topic, touch of a number grows
it, rmdir deletes it, and extended attributes ``user.logfs.KEY`` are its settings. ``StoredTopics``
works on the directory itself if no daemon serves it.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from logfs import config as configuration
from logfs.config import TOPIC_KEYS, TopicConfig
from logfs.errors import (
    InvalidConfigError,
    NoSuchTopicError,
    ReadOnlyError,
    TopicExistsError,
    TopicNotEmptyError,
    UnknownNameError,
)
from logfs.library.directory import open_for_reading, partitions_of
from logfs.library.owner import daemon_of
from logfs.library.places import Place, served_at
from logfs.log.names import parse_partition_directory
from logfs.log.reading.address import SEGMENTS_NAME, parse_topic_name
from logfs.machine.disks import disk_of
from logfs.machine.host import system_clock
from logfs.records.jsontext import decode_object
from logfs.services import administration
from logfs.services.administration import TopicFacts, check_changes, check_growth
from logfs.types import TopicPartition

if TYPE_CHECKING:
    from logfs.log.store import LogStore

T = TypeVar("T")

_PREFIX = "user.logfs."
_TOPIC_ID = "topic_id"


class Topics(Protocol):
    """The topics of a data directory. Every way to them raises the errors of ``LogStore``."""

    def topic_sizes(self) -> dict[str, int]:
        """Return the number of partitions of every topic, hidden topics included; sorted."""
        ...

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None if there is no such topic."""
        ...

    def describe_topic(self, topic: str) -> TopicFacts:
        """Return the facts about a topic; raise NoSuchTopicError if there is no such topic."""
        ...

    def create_topic(
        self, topic: str, partitions: int | None, config: Mapping[str, str]
    ) -> list[str]:
        """Create a topic and return warnings about its settings.

        Args:
            partitions: How many; None: ``num.partitions`` of the daemon, or 1.

        Raises:
            TopicExistsError, IllegalTopicNameError, InvalidConfigError, ReadOnlyError.
        """
        ...

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """Change a topic and return warnings about its settings.

        Args:
            changes: The new values of settings; None removes a setting.
            partitions: The new number of partitions; None: no change.

        Raises:
            NoSuchTopicError: There is no such topic.
            InvalidConfigError: A setting is unknown or its value invalid, a removed setting was not
                set, or the topic would shrink.
        """
        ...

    def delete_topic(self, topic: str, *, at_once: bool = False) -> None:
        """Delete a topic; raise NoSuchTopicError if there is no such topic.

        ``at_once``: its files are removed now, not after ``file.delete.delay.ms``.
        """
        ...

    def undelete_topic(self, topic: str) -> None:
        """Restore a deleted topic whose files are not removed yet.

        Raises:
            TopicExistsError: There is a topic of that name.
            NoSuchTopicError: No deleted topic of that name is left.
        """
        ...


class StoredTopics:
    """See ``Topics``. A data directory that no daemon serves.

    Reading takes no lock and writes nothing.

    Args:
        data: The data directory.
        store: The open store; None: nothing can be changed.
    """

    def __init__(self, data: str, store: "LogStore | None" = None) -> None:
        self._data = data
        self._store = store
        self._now_ms = system_clock().now_ms

    def topic_sizes(self) -> dict[str, int]:
        """See ``Topics``."""
        return {topic: len(numbers) for topic, numbers in self._partitions().items()}

    def partition_count(self, topic: str) -> int | None:
        """See ``Topics``."""
        return self.topic_sizes().get(topic)

    def describe_topic(self, topic: str) -> TopicFacts:
        """See ``Topics``."""
        numbers = self._partitions().get(topic)
        if numbers is None:
            raise NoSuchTopicError(f"no topic {topic}")
        store = open_for_reading(disk_of(self._data), [TopicPartition(topic, n) for n in numbers])
        return administration.describe_topic(store, topic)

    def create_topic(
        self, topic: str, partitions: int | None, config: Mapping[str, str]
    ) -> list[str]:
        """See ``Topics``."""
        return administration.create_topic(self._owned(), topic, partitions, config, self._now_ms())

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """See ``Topics``."""
        return administration.alter_topic(self._owned(), topic, changes, partitions, self._now_ms())

    def delete_topic(self, topic: str, *, at_once: bool = False) -> None:
        """See ``Topics``."""
        self._owned().delete_topic(topic, self._now_ms(), at_once=at_once)

    def undelete_topic(self, topic: str) -> None:
        """See ``Topics``."""
        self._owned().undelete_topic(topic, self._now_ms())

    def _partitions(self) -> dict[str, list[int]]:
        return partitions_of(disk_of(self._data))

    def _owned(self) -> "LogStore":
        assert self._store is not None
        return self._store


class MountedTopics:
    """See ``Topics``. A data directory below a mount point, as the modes of its files allow.

    The mount answers with an errno alone, so this class checks arguments by the daemon's rules.
    """

    def __init__(self, mount_point: str) -> None:
        self._root = Path(mount_point)

    def topic_sizes(self) -> dict[str, int]:
        """See ``Topics``."""
        # Unlike the root, .segments lists the topics that begin with "__" too.
        found: dict[str, int] = {}
        for entry in (self._root / SEGMENTS_NAME).iterdir():
            parsed = parse_partition_directory(entry.name)
            if parsed is not None:
                found[parsed.topic] = found.get(parsed.topic, 0) + 1
        return dict(sorted(found.items()))

    def partition_count(self, topic: str) -> int | None:
        """See ``Topics``."""
        with _errors(topic):
            path = self._path(topic)
            return len(self._numbers(topic)) if path.is_dir() else None

    def effective(self, topic: str) -> TopicConfig:
        """Return the configuration in effect of a topic."""
        with _errors(topic):
            return TopicConfig.from_properties(self._effective(topic))

    def describe_topic(self, topic: str) -> TopicFacts:
        """See ``Topics``."""
        path = self._path(topic)
        with _errors(topic):
            effective = self._effective(topic)
            names = [name.removeprefix(_PREFIX) for name in os.listxattr(path)]
            return TopicFacts(
                topic,
                _get(path, _TOPIC_ID) if _TOPIC_ID in names else None,
                self._config(topic),
                effective,
                [_meta(path, number) for number in self._numbers(topic)],
                configuration.warnings(TopicConfig.from_properties(effective)),
            )

    def create_topic(
        self, topic: str, partitions: int | None, config: Mapping[str, str]
    ) -> list[str]:
        """See ``Topics``."""
        TopicConfig.from_properties(config)
        path = self._path(topic)
        with _errors(topic):
            path.mkdir()
            try:
                self._fit(topic, partitions)
                _set_all(path, config)
            except BaseException:
                path.rmdir()
                raise
            return list(self.describe_topic(topic).warnings)

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """See ``Topics``."""
        path = self._path(topic)
        with _errors(topic):
            config = self._config(topic)
            check_changes(topic, config, changes)
            TopicConfig.from_properties(config).with_changes(changes)
            check_growth(topic, len(self._numbers(topic)), partitions)
            _set_all(path, changes)
            if partitions is not None:
                self._grow(topic, partitions)
            return list(self.describe_topic(topic).warnings)

    def delete_topic(self, topic: str, *, at_once: bool = False) -> None:
        """See ``Topics``; PermissionError with ``at_once``, which the mount has no call for."""
        if at_once:
            raise PermissionError(
                errno.EPERM, "only the daemon's user and root can remove files at once", str(topic)
            )
        with _errors(topic):
            self._path(topic).rmdir()

    def undelete_topic(self, topic: str) -> None:
        """See ``Topics``. A mount has no file operation for it.

        Raises:
            PermissionError: Always.
        """
        raise PermissionError(
            errno.EPERM, "only the daemon's user and root can restore a topic", str(topic)
        )

    def _path(self, topic: str) -> Path:
        return self._root / parse_topic_name(topic)

    def _numbers(self, topic: str) -> list[int]:
        return sorted(int(entry.name) for entry in self._path(topic).iterdir())

    def _config(self, topic: str) -> dict[str, str]:
        path = self._path(topic)
        keys = [name.removeprefix(_PREFIX) for name in os.listxattr(path)]
        return {key: _get(path, key) for key in keys if key in TOPIC_KEYS}

    def _effective(self, topic: str) -> dict[str, str]:
        texts = {key: _get(self._path(topic), key) for key in TOPIC_KEYS}
        # An empty text is an empty list, or that there is no value.
        return {
            key: text for key, text in texts.items() if text or TOPIC_KEYS[key].default is not None
        }

    def _fit(self, topic: str, partitions: int | None) -> None:
        """Add partitions to a topic that mkdir has just made, up to the requested number."""
        made = len(self._numbers(topic))
        if partitions is None or partitions == made:
            return
        if partitions < made:
            raise InvalidConfigError(
                f"the daemon at {self._root} makes topics of at least {made} partitions "
                f"(its num.partitions): ask for {made}, or mount it with --config num.partitions=1"
            )
        self._grow(topic, partitions)

    def _grow(self, topic: str, partitions: int) -> None:
        (self._path(topic) / str(partitions - 1)).touch()


def read_topics(place: Place, act: Callable[[Topics], T]) -> T:
    """Read facts about topics from the daemon, from its mount, or from the files.

    ``Writer.change_topics`` changes topics.
    """
    try:
        daemon = daemon_of(place)
    except PermissionError:
        daemon = None
    if daemon is not None:
        with daemon:
            return act(daemon)
    point = place.root if place.is_mount else served_at(place.root)
    return act(StoredTopics(place.root) if point is None else MountedTopics(point))


@contextmanager
def _errors(topic: str) -> Iterator[None]:
    """Turn the errnos of the mount into the errors of ``LogStore``."""
    try:
        yield
    except FileNotFoundError:
        raise NoSuchTopicError(f"no topic {topic}") from None
    except NotADirectoryError:
        raise UnknownNameError(f"{topic} is no topic") from None
    except FileExistsError:
        raise TopicExistsError(f"topic {topic} exists already") from None
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise TopicNotEmptyError(
                f"topic {topic} holds records; the daemon's user and root can delete it with them"
            ) from None
        if error.errno == errno.EROFS:
            raise ReadOnlyError("the mount is read-only") from None
        raise


def _get(path: Path, key: str) -> str:
    return os.getxattr(path, _PREFIX + key).decode()


def _set_all(path: Path, changes: Mapping[str, str | None]) -> None:
    """Make changes one by one, in an order in which every step is valid.

    Changes that are valid together may be invalid one by one, such as a minimum above the old
    maximum.
    """
    left = dict(changes)
    while left:
        refused: dict[str, str | None] = {}
        problem: OSError | None = None
        for key, value in left.items():
            try:
                _set(path, key, value)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                refused[key], problem = value, error
        if problem is not None and len(refused) == len(left):
            raise InvalidConfigError(
                f"the daemon refuses {', '.join(refused)}: it may be of another version"
            ) from problem
        left = refused


def _set(path: Path, key: str, value: str | None) -> None:
    if value is None:
        os.removexattr(path, _PREFIX + key)
    else:
        os.setxattr(path, _PREFIX + key, value.encode())


def _meta(topic: Path, number: int) -> dict[str, Any]:
    return decode_object((topic / f"{number}.meta").read_bytes())
