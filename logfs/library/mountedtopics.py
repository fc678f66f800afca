"""The topics of a data directory through the mount, for whom the daemon's socket is not.

The socket is the owner's; the mount may be everybody's, and then the modes of its files decide.

mkdir makes a topic, touch of a number grows it, rmdir deletes it; its configuration is in extended
attributes ``user.logfs.KEY``. Only errnos come back, so arguments are checked here beforehand, by
the same code that the daemon has.
"""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from logfs.log.administration import TopicFacts, check_changes, check_growth
from logfs.log.names import parse_partition_directory
from logfs.log.reading.address import SEGMENTS_NAME, parse_topic_name

_PREFIX = "user.logfs."
_TOPIC_ID = "topic_id"


class MountedTopics:
    """See ``Topics``.

    Args:
        mount_point: Where the data directory is mounted.
    """

    def __init__(self, mount_point: str) -> None:
        self._root = Path(mount_point)

    def sizes(self) -> dict[str, int]:
        """See ``Topics``."""
        # Unlike the root, .segments lists the topics that begin with "__" too.
        found: dict[str, int] = {}
        for entry in (self._root / SEGMENTS_NAME).iterdir():
            parsed = parse_partition_directory(entry.name)
            if parsed is not None:
                found[parsed.topic] = found.get(parsed.topic, 0) + 1
        return dict(sorted(found.items()))

    def count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None if there is no such topic."""
        with _errors(topic):
            path = self._path(topic)
            return len(self._numbers(topic)) if path.is_dir() else None

    def effective(self, topic: str) -> TopicConfig:
        """Return the configuration in effect of a topic."""
        with _errors(topic):
            return TopicConfig.from_properties(self._effective(topic))

    def describe(self, topic: str) -> TopicFacts:
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

    def create(self, topic: str, partitions: int | None, config: Mapping[str, str]) -> list[str]:
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
            return list(self.describe(topic).warnings)

    def alter(
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
            return list(self.describe(topic).warnings)

    def delete(self, topic: str) -> None:
        """See ``Topics``."""
        with _errors(topic):
            self._path(topic).rmdir()

    def undelete(self, topic: str) -> None:
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
        """Give a topic that mkdir has just made as many partitions as were asked for."""
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


@contextmanager
def _errors(topic: str) -> Iterator[None]:
    """Give errnos their meaning back."""
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

    What is valid as a whole may not be on the way: a minimum is raised above the old maximum.
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
    facts: dict[str, Any] = json.loads((topic / f"{number}.meta").read_bytes())
    return facts
