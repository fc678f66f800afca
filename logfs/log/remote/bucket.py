"""The logs of an object store as a read-only data directory: a ``FileTree`` made of its heads.

Topics and partitions are the "directories" of the keys. The head of a partition is read when the
partition is first asked for, with the tables that it names; no data is read. After that a thread
asks at an interval whether a head is another one by now, so that no caller waits for it. While the
store does not answer, what was known last is shown.

A topic that was deleted and made again may be there twice for a while. The one that was written
later is shown. If two data directories have written topics of one name, the others are shown as
TOPIC-ID, where ID is the id of the topic.
"""

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import RemotePart
from logfs.disk.remote.treedisk import Directory, FoundFile, MadeFile
from logfs.disk.vfs import LARGER_FILE_BYTES
from logfs.errors import LogfsError, text_of
from logfs.log import names
from logfs.log.checkpoints import format_clean_shutdown, format_offsets
from logfs.log.names import DirectoryState, parse_partition_directory
from logfs.log.remote.brokerfiles import BrokerFiles, LocalTieredPlace, list_broker_files
from logfs.log.remote.entries import TieredEntry
from logfs.log.remote.head import MOST_HEAD_BYTES, SpilledTable, decode_head, decode_table
from logfs.log.remote.headfiles import HeadFiles, inode_of
from logfs.log.remote.keys import (
    STORE,
    PartitionPlace,
    parse_partition,
    parse_topic_directory,
)
from logfs.log.remote.parallel import for_each, in_background
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

INTERVAL_S = 30.0
"""Kafka's default of ``remote.log.manager.task.interval.ms``."""
_LISTED_AT_ONCE = 100
"""Topics whose partitions are listed again in one round, in turn: a list costs what 12 reads do."""


class Version(NamedTuple):
    """A head that was read.

    Attributes:
        etag: The ETag of the head; "" if it could not be read.
        files: The files that the head names.
    """

    etag: str
    files: "HeadFiles | BrokerFiles | UnreadableFiles"


class UnreadableFiles:
    """A directory whose head is damaged, or could not be read: every name in it raises."""

    def __init__(self, place: PartitionPlace, error: LogfsError | OSError, mtime_ms: int) -> None:
        self.place = place
        self.error = error
        self.mtime_ms = mtime_ms
        self.inode = inode_of(place.prefix.encode())

    def find(self, name: str) -> FoundFile | None:
        """Raise the error."""
        raise self.error

    def names(self) -> Iterable[str]:
        """Raise the error."""
        raise self.error


class Bucket:
    """All partitions of a store. See ``FileTree``.

    Args:
        store: The objects.
        clock_s: Seconds that only go forward.
        interval_s: How often heads are asked for again.
        background: Runs a function without waiting for it.

    Attributes:
        error: Why the store could not be asked the last time; None if it could.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock_s: Callable[[], float],
        interval_s: float = INTERVAL_S,
        background: Callable[[Callable[[], object]], object] = in_background,
    ) -> None:
        self.store = store
        self.error: str | None = None
        self._clock_s = clock_s
        self._interval_s = interval_s
        self._background = background
        self._lock = threading.Lock()
        self._twins: dict[str, list[str]] = {}
        self._topics: dict[str, list[UUID]] | None = None
        self._listed: dict[str, list[PartitionPlace]] | None = None
        self._of_topic: dict[tuple[str, UUID], list[PartitionPlace]] = {}
        self._turn = 0
        self._known: dict[str, Version] = {}
        self._tables: dict[str, tuple[TieredEntry, ...]] = {}
        self._root_mtime_ms = 0
        self._has_marker = False
        self._asked_s = clock_s()
        self._is_asking = False

    # FileTree

    def root(self) -> Directory:
        """See ``FileTree``: a marker of a clean stop, and the checkpoint of log start offsets."""
        self._ask_again_if_due()
        self._topic_ids()
        return _Root(self, self._root_mtime_ms)

    def directories(self) -> Sequence[tuple[str, int]]:
        """See ``FileTree``."""
        return [(name, inode_of(places[0].prefix.encode())) for name, places in self._all().items()]

    def directory(self, name: str) -> HeadFiles | BrokerFiles | UnreadableFiles | None:
        """See ``FileTree``; the head is read if that was not done yet."""
        self._ask_again_if_due()
        version = self._known.get(name)
        if version is None:
            version = self._read(name, None)
            if version is None:
                return None
            self._known[name] = version
        return version.files

    def is_removed(self, directory: str, name: str, part: RemotePart) -> bool:
        """See ``FileTree``: reads the head."""
        self._ask_for(directory)
        files = self.directory(directory)
        found = None if files is None else files.find(name)
        return found is None or found.inode != part.inode

    def is_store(self) -> bool:
        """Ask whether there are logs of logfs here, with one request the first time."""
        return bool(self._topic_ids()) or self._has_marker

    # What followers need

    def head_files(self, directory: str) -> HeadFiles | None:
        """Return what the head of a partition says; None if there is none.

        Raises:
            LogfsError, OSError: It is damaged, or it could not be read.
        """
        files = self.directory(directory)
        if isinstance(files, UnreadableFiles):
            raise files.error
        return files if isinstance(files, HeadFiles) else None

    def fetch(self, directories: Iterable[str]) -> None:
        """Read the heads of several partitions at the same time."""
        for_each(self.directory, [name for name in directories if name not in self._known])

    def facts(self, directory: str) -> dict[str, object]:
        """Return what is known of a partition, for ``.meta``; asks no store."""
        known = self._known.get(directory)
        files = None if known is None else known.files
        if not isinstance(files, HeadFiles):
            return {"url": self.store.url, "error": self.error}
        head = files.head
        return {
            "url": self.store.url,
            "epoch": head.epoch,
            "writer": head.writer.host,
            "segments": len(files.entries),
            "bytes": files.size_bytes(),
            "head_modified": files.mtime_ms,
            "twins": self._twins.get(directory, []),
            "error": self.error,
        }

    def start_offsets(self) -> Mapping[TopicPartition, int]:
        """Return the log start offsets; looking one up reads the head of the partition."""
        return _StartOffsets(self)

    def ask_again(self) -> None:
        """Ask whether topics, partitions and the heads that were read are others by now."""
        try:
            self._list_again()
            for_each(self._ask_for, list(self._known))
        except (LogfsError, OSError) as error:
            if self.error is None:
                logger.warning("%s: %s; what was known is shown", self.store.url, text_of(error))
            self.error = text_of(error)
        else:
            if self.error is not None:
                logger.info("%s: the store answers again", self.store.url)
            self.error = None

    def _ask_again_if_due(self) -> None:
        with self._lock:
            is_due = self._clock_s() - self._asked_s >= self._interval_s
            if not is_due or self._is_asking:
                return
            self._is_asking = True
        self._background(self._round)

    def _round(self) -> None:
        try:
            self.ask_again()
        finally:
            with self._lock:
                self._asked_s, self._is_asking = self._clock_s(), False

    # Topics and partitions

    def _topic_ids(self) -> dict[str, list[UUID]]:
        """Return the ids of each topic; one request if that is not known yet."""
        if self._topics is None:
            self._topics = self._list_topics()
        return self._topics

    def _list_topics(self) -> dict[str, list[UUID]]:
        listing = self.store.list_level("")
        found: dict[str, list[UUID]] = {}
        for name in listing.directories:
            parsed = parse_topic_directory(name)
            if parsed is not None:
                found.setdefault(parsed[0], []).append(parsed[1])
        made = [stat.modified_ms for stat in listing.objects if stat.key == STORE]
        self._has_marker = bool(made)
        if not self._root_mtime_ms:
            self._root_mtime_ms = max([1, *made])
        return found

    def _all(self) -> dict[str, list[PartitionPlace]]:
        """Return where each partition is; one more request for each topic the first time."""
        if self._listed is None:
            self._listed = self._list_partitions(self._topic_ids())
        return self._listed

    def _list_partitions(self, topics: Mapping[str, list[UUID]]) -> dict[str, list[PartitionPlace]]:
        """List the partitions of topics that are new, and of some others in their turn."""
        pairs = [(topic, topic_id) for topic in topics for topic_id in topics[topic]]
        known = [pair for pair in pairs if pair in self._of_topic]
        self._turn = self._turn if self._turn < len(known) else 0
        due = known[self._turn : self._turn + _LISTED_AT_ONCE]
        self._turn += len(due)
        listed = list_topics(
            self.store, [pair for pair in pairs if pair not in self._of_topic] + due
        )
        self._of_topic = {pair: listed.get(pair, self._of_topic.get(pair, [])) for pair in pairs}
        found: dict[str, list[PartitionPlace]] = {}
        for place in sorted(place for places in self._of_topic.values() for place in places):
            found.setdefault(place.topic_partition.directory, []).append(place)
        several = [name for name, places in found.items() if len(places) > 1]
        twins = {name: self._separate(name, found) for name in several}
        for name, others in twins.items():
            if others and others != self._twins.get(name):
                logger.warning(
                    "%s: several data directories have written a topic of this name; the others "
                    "are shown as %s", name, ", ".join(others),
                )  # fmt: skip
        self._twins = twins
        return dict(sorted(found.items()))

    def _separate(self, name: str, found: dict[str, list[PartitionPlace]]) -> list[str]:
        """Name partitions apart that several data directories write; returns the new names."""
        versions = [version for place in found[name] if (version := self._read_at(place, None))]
        newest = max(versions, key=_written_ms, default=None)
        shown = b"" if newest is None else _directory_id(newest)
        others = [v.files.place for v in versions if _directory_id(v) not in (shown, b"")]
        found[name] = [place for place in found[name] if place not in others]
        found.update((place.qualified.directory, [place]) for place in others)
        return [place.qualified.directory for place in others]

    def _list_again(self) -> None:
        topics = self._list_topics()
        listed = None if self._listed is None else self._list_partitions(topics)
        if (topics, listed) != (self._topics, self._listed):
            self._check_gone(topics, listed)
            self._topics, self._listed = topics, listed
            self._root_mtime_ms += 1

    def _check_gone(
        self,
        topics: Mapping[str, list[UUID]],
        listed: Mapping[str, list[PartitionPlace]] | None,
    ) -> None:
        """See that a list lacks only what is gone: S3 may answer 200 and then fail.

        Raises:
            OSError: A head is there whose partition is not in the list; or the store failed.
        """
        for version in list(self._known.values()):
            place = version.files.place
            topic, topic_id = place.topic_partition.topic, place.topic_id
            is_there = topic_id in topics.get(topic, ()) or isinstance(place, LocalTieredPlace)
            if is_there and listed is not None:
                names = (place.topic_partition.directory, place.qualified.directory)
                is_there = any(place in listed.get(name, ()) for name in names)
            if is_there or not isinstance(version.files, HeadFiles):
                continue
            with contextlib.suppress(FileNotFoundError):
                self.store.stat(place.head)
                text = "the list of the store lacks this object, which is there"
                raise OSError(errno.EIO, text, f"{self.store.url}/{place.head}")

    def _places(self, name: str) -> list[PartitionPlace]:
        """Return where a partition may be."""
        if self._listed is not None:
            return self._listed.get(name, [])
        parsed = parse_partition_directory(name)
        if parsed is None or parsed.state is not DirectoryState.NONE:
            return []
        topic_partition = TopicPartition(parsed.topic, parsed.partition)
        topics = self._topic_ids()
        qualified = parse_topic_directory(parsed.topic)
        if qualified is not None and qualified[1] in topics.get(qualified[0], ()):
            return [PartitionPlace(TopicPartition(qualified[0], parsed.partition), qualified[1])]
        places = [PartitionPlace(topic_partition, one) for one in topics.get(parsed.topic, [])]
        # A directory of LocalTieredStorage looks like one of a topic named TOPIC-PARTITION.
        return [*places, *(LocalTieredPlace(topic_partition, one) for one in topics.get(name, []))]

    # Heads

    def _read(self, name: str, known: Version | None) -> Version | None:
        """Read the head of a partition; None if there is none."""
        found = [
            version
            for place in self._places(name)
            if (version := self._read_at(place, known)) is not None
        ]
        return max(found, key=_written_ms, default=None)

    def _read_at(self, place: PartitionPlace, known: Version | None) -> Version | None:
        if known is not None and known.files.place != place:
            known = None
        before_ms = 0 if known is None else known.files.mtime_ms
        if isinstance(place, LocalTieredPlace):
            return self._read_broker(place, known)
        try:
            if known is not None and self.store.stat(place.head).etag == known.etag:
                return known
            data, stat = self.store.get(place.head, MOST_HEAD_BYTES)
        except FileNotFoundError:
            return self._read_broker(place, known)
        except OSError as error:
            if known is not None:
                raise
            return Version("", UnreadableFiles(place, error, 0))
        mtime_ms = max(stat.modified_ms, before_ms + 1)
        try:
            return Version(stat.etag, self._decode(place, data, mtime_ms))
        except (LogfsError, OSError) as error:
            if known is not None and isinstance(known.files, HeadFiles):
                raise  # what was known is shown
            return Version(stat.etag, UnreadableFiles(place, error, mtime_ms))

    def _read_broker(self, place: PartitionPlace, known: Version | None) -> Version | None:
        """List what a broker has tiered of a partition that has no head."""
        before = None if known is None else known.files
        before = before if isinstance(before, BrokerFiles) else None
        try:
            files = list_broker_files(self.store, place, before)
        except LogfsError as error:
            return Version("", UnreadableFiles(place, error, 0))
        if files is None or (files is before and known is not None):
            return None if files is None else known
        return Version(files.version, files)

    def _decode(self, place: PartitionPlace, data: bytes, mtime_ms: int) -> HeadFiles:
        url = f"{self.store.url}/{place.head}"
        head = decode_head(data, url)
        if head.topic_id != place.topic_id:
            text = f"it is of the topic with the id {head.topic_id}; its key names another one"
            raise OSError(errno.EIO, text, url)
        entries = [*self._spilled(head.tables), *head.entries]
        kept = [entry for entry in entries if entry.next_offset > head.start.offset]
        return HeadFiles(place, head, kept, mtime_ms)

    def _spilled(self, tables: Sequence[SpilledTable]) -> list[TieredEntry]:
        def read(table: SpilledTable) -> None:
            data, _ = self.store.get(table.key, LARGER_FILE_BYTES)
            self._tables[table.key] = decode_table(data, table, f"{self.store.url}/{table.key}")

        for_each(read, [table for table in tables if table.key not in self._tables])
        return [entry for table in tables for entry in self._tables[table.key]]

    def _ask_for(self, name: str) -> None:
        """Read the head of a partition again if it is another one by now."""
        known = self._known.get(name)
        version = self._read(name, known)
        if version is None:
            self._known.pop(name, None)
        elif version is not known:
            self._known[name] = version


TopicPlaces = dict[tuple[str, UUID], list[PartitionPlace]]
"""Name and id of a topic -> where its partitions are."""


def list_topics(store: ObjectStore, topics: Iterable[tuple[str, UUID]]) -> TopicPlaces:
    """Return where the partitions of some topics are, by one request for each."""
    found: TopicPlaces = {}

    def list_topic(row: tuple[str, UUID]) -> None:
        prefix = PartitionPlace(TopicPartition(row[0], 0), row[1]).prefix.removesuffix("0/")
        listing = store.list_level(prefix)
        numbers = [parse_partition(name) for name in listing.directories]
        places = [
            PartitionPlace(TopicPartition(row[0], n), row[1]) for n in numbers if n is not None
        ]
        local = parse_partition_directory(row[0])
        if local is not None and not listing.directories and listing.objects:
            places = [LocalTieredPlace(TopicPartition(local.topic, local.partition), row[1])]
        found[row] = places

    for_each(list_topic, topics)
    return found


def all_places(store: ObjectStore) -> list[PartitionPlace]:
    """Return where all partitions of a store are, those included that have no head."""
    topics = [parse_topic_directory(name) for name in store.list_level("").directories]
    listed = list_topics(store, [topic for topic in topics if topic is not None])
    return sorted(place for places in listed.values() for place in places)


def _written_ms(version: Version) -> int:
    """Return since when the writer of a head writes it; -1 if the head could not be read."""
    files = version.files
    return files.head.writer.since_ms if isinstance(files, HeadFiles) else -1


def _directory_id(version: Version) -> bytes:
    """Return which data directory writes a head; b"" if that is not known."""
    files = version.files
    return files.head.writer.directory_id if isinstance(files, HeadFiles) else b""


class _Root:
    """The files in the root."""

    def __init__(self, bucket: Bucket, mtime_ms: int) -> None:
        self._bucket = bucket
        self.mtime_ms = mtime_ms
        self.inode = inode_of(bucket.store.url.encode())

    def find(self, name: str) -> FoundFile | None:
        """See ``Directory``."""
        if name == names.CLEAN_SHUTDOWN:
            data = format_clean_shutdown()
        elif name == names.LOG_START_OFFSET_CHECKPOINT:
            data = format_offsets(self._bucket.start_offsets())
        else:
            return None
        return MadeFile(data, self.mtime_ms, inode_of(self.inode.to_bytes(8, "big") + data))

    def names(self) -> Iterable[str]:
        """See ``Directory``; the checkpoint answers only if it is named: it needs every head."""
        return (names.CLEAN_SHUTDOWN,)


class _StartOffsets(Mapping[TopicPartition, int]):
    """The starts of the logs, by their heads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def __getitem__(self, topic_partition: TopicPartition) -> int:
        files = self._bucket.directory(topic_partition.directory)
        if not isinstance(files, HeadFiles):
            raise KeyError(topic_partition)
        return files.head.start.offset

    def __iter__(self) -> Iterator[TopicPartition]:
        directories = [name for name, _ in self._bucket.directories()]
        self._bucket.fetch(directories)
        for name in directories:
            parsed = parse_partition_directory(name)
            if parsed is not None and isinstance(self._bucket.directory(name), HeadFiles):
                yield TopicPartition(parsed.topic, parsed.partition)

    def __len__(self) -> int:
        return len(list(iter(self)))
