"""Appending through a mount, for users without access to the control socket.

The modes of the mount allow to append lines and records, and to make them durable. Producers and
transactions need the control socket.

The socket is in the data directory, which other users cannot enter if it is set up as the guide
for operators says. The mount is wherever a program sees it, in its own network namespace too. The
kernel checks the path to it, modes, groups and capabilities; a socket shows only a part of these.
"""

import errno
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from logfs.disk.appended import AppendedFile, sync_file
from logfs.errors import LogfsError
from logfs.library.cursor import Cursor
from logfs.library.followed_directory import SETTLING_S, FollowedDirectory
from logfs.library.mounted_disk import MountedDisk
from logfs.library.topics import MountedTopics
from logfs.log.lines.form import AppendedLines, LineForm, Lines, LineTarget
from logfs.log.topics import encode_options
from logfs.log.writing.producerbatches import Appended
from logfs.machine.host import system_clock
from logfs.records._encoding import encode_lines, partition_lines
from logfs.records.compression import Buffer, Compression
from logfs.records.encoded import Encoded, EncodeOptions, ProducerBatch
from logfs.records.record import Record
from logfs.services.views.rendering import rendered, rendered_batch
from logfs.types import IsolationLevel, TopicPartition, View

SUFFIXES = {View.TEXT: "", View.TSV: ".tsv", View.JSONL: ".jsonl"}
_LOG_END = "user.logfs.log_end_offset"
_LOOKS = 20
_REQUEST_BYTES = (1 << 20) - 4096
"""The most bytes that arrive as one request, at any alignment of the buffer."""


class MountedWriter:
    """See ``Writer``. Appends to partitions through a mount. One thread at a time.

    Lines are split and checked by the daemon's rules, and their offsets stay unknown.

    Args:
        refusal: The refusal of the control socket.
    """

    has_gone = True
    """The next write tries the control socket again."""

    def __init__(self, point: str, refusal: PermissionError | None) -> None:
        self.point = point
        self._refusal = refusal
        self._now_ms = system_clock().now_ms
        self._topics: dict[str, tuple[int, EncodeOptions]] = {}
        self._files: dict[tuple[TopicPartition, View], AppendedFile] = {}
        self._sources: dict[TopicPartition, FollowedDirectory] = {}

    def write(self, topic_partition: TopicPartition, view: View, lines: Buffer) -> int:
        """Append whole lines; return the appended bytes. An OSError names the partition."""
        file = self._open(topic_partition, view)
        data, done = memoryview(lines), 0
        while done < len(data):
            try:
                done += file.write(data[done : done + _whole(data[done:])])
            except OSError as error:
                if done:
                    return done
                self._forget(topic_partition)
                raise self._named(error, topic_partition) from None
        return done

    def append(
        self,
        topic_partition: TopicPartition,
        records: Sequence[Record],
        producer: ProducerBatch | None = None,
        *,
        is_durable: bool = False,
    ) -> Appended:
        """Append records. This needs read permission too, to look up their offsets.

        Raises:
            PermissionError: There is a producer.
            OSError: The mount refuses it; some records, but not all, may be appended.
            LogfsError: The records are in the log and cannot be read.
        """
        if producer is not None:
            raise self._needs_socket()
        numbered = [record._replace(offset=number) for number, record in enumerate(records)]
        path = self._path(topic_partition)
        before = int(os.getxattr(path, _LOG_END))
        source = self._source(topic_partition)
        text = b"".join(rendered(numbered, View.JSONL))
        done = self.write(topic_partition, View.JSONL, text)
        if done < len(text):
            self.write(topic_partition, View.JSONL, memoryview(text)[done:])  # raises the error
        if is_durable:
            self.flush(topic_partition)
        return _find(source, topic_partition, before, records)

    def append_lines(self, target: LineTarget, lines: Buffer, *, is_durable: bool = False) -> Lines:
        """See ``Writer``."""
        topic, partition, form, unkeyed = target
        count, _ = self._facts(topic)
        tried = self._encoded(topic, lines, form)
        stop = tried.ends[-1] if tried.ends else 0
        if partition is not None:
            parts = {partition: bytes(memoryview(lines)[:stop])}
        else:
            spread = partition_lines(
                form.view, form.key_delimiter, lines, 0, stop, count, unkeyed % count
            )
            parts = {n: bytes(part) for n, part in enumerate(spread)}
        rows: list[AppendedLines] = []
        for number, part in parts.items():
            if not part:
                continue
            records, error = self._write_lines(TopicPartition(topic, number), part, form)
            if records:
                rows.append(AppendedLines(number, records, None, None))
            if error is not None and not rows:
                raise error
            if error is not None:
                return Lines(rows, 0, error)
        if is_durable:
            for number in parts:
                self.flush(TopicPartition(topic, number))
        return Lines(rows, stop, tried.refusal)

    def append_file(self, target: LineTarget, file: tuple[int, int]) -> Lines:
        """See ``Writer``; never called, since this process reads the lines."""
        raise NotImplementedError

    def end_transaction(
        self, _topic_partition: TopicPartition, _producer_id: int, _epoch: int, *, commit: bool
    ) -> int:
        """See ``Writer``; a mount has no file operation for it."""
        raise self._needs_socket()

    def expired(self, _topic: str, _first: int, _now_ms: int) -> Sequence[str]:
        """See ``Writer``; not known."""
        return []

    def flush(self, topic_partition: TopicPartition) -> None:
        """Make all earlier appends to a partition durable.

        Raises:
            OSError: They may not be durable, or this user may neither read nor write the partition.
        """
        found = [file for (name, _), file in self._files.items() if name == topic_partition]
        try:
            if found:
                found[0].sync()
            else:
                sync_file(self._path(topic_partition))
        except OSError as error:
            self._forget(topic_partition)
            raise self._named(error, topic_partition) from None

    def close(self) -> None:
        """Close all files; raise OSError if the last lines could not be appended."""
        sources, self._sources = self._sources, {}
        for source in sources.values():
            source.close()
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _needs_socket(self) -> PermissionError:
        return self._refusal or PermissionError(errno.EACCES, self.point)

    def _facts(self, topic: str) -> tuple[int, EncodeOptions]:
        """Return the number of partitions of a topic, and how lines of it are checked."""
        found = self._topics.get(topic)
        if found is None:
            topics = MountedTopics(self.point)
            usual = encode_options(topics.effective(topic), 0)
            options = replace(usual, compression=Compression.NONE)
            found = self._topics[topic] = topics.partition_count(topic) or 1, options
        return found

    def _encoded(self, topic: str, lines: Buffer, form: LineForm) -> Encoded:
        options, size = form.options(self._facts(topic)[1]), memoryview(lines).nbytes
        return encode_lines(form.view, b"", lines, 0, size, 0, self._now_ms(), options)

    def _write_lines(
        self, topic_partition: TopicPartition, lines: bytes, form: LineForm
    ) -> tuple[int, Exception | None]:
        """Write lines to a partition; return their number, and the error of the next line."""
        view = form.view
        if form.key_delimiter or form.headers:
            encoded, view = self._encoded(topic_partition.topic, lines, form), View.JSONL
            lines = b"".join(b"".join(rendered_batch(x.data, view)) for x in encoded.batches)
        data, done = memoryview(lines), 0
        try:
            while done < len(data):
                done += self.write(topic_partition, view, data[done:])
        except (LogfsError, OSError) as error:
            return lines[:done].count(b"\n"), error
        return lines.count(b"\n"), None

    def _forget(self, topic_partition: TopicPartition) -> None:
        """Close the files of a partition after an error: the next mount may be another one."""
        self._topics.pop(topic_partition.topic, None)
        for key in [key for key in self._files if key[0] == topic_partition]:
            with suppress(OSError):
                self._files.pop(key).close()
        source = self._sources.pop(topic_partition, None)
        if source is not None:
            source.close()

    def _open(self, topic_partition: TopicPartition, view: View) -> AppendedFile:
        file = self._files.get((topic_partition, view))
        if file is None:
            path = self._path(topic_partition)
            try:
                file = AppendedFile(f"{path}{SUFFIXES[view]}")
            except OSError as error:
                raise self._named(error, topic_partition) from None
            self._files[topic_partition, view] = file
        return file

    def _source(self, topic_partition: TopicPartition) -> FollowedDirectory:
        source = self._sources.get(topic_partition)
        if source is None:
            disk = MountedDisk(self.point, {topic_partition.topic})
            source = FollowedDirectory(disk, lambda other: other == topic_partition)
            self._sources[topic_partition] = source
        return source

    def _path(self, topic_partition: TopicPartition) -> str:
        return f"{self.point}/{topic_partition.topic}/{topic_partition.partition}"

    def _named(self, error: OSError, topic_partition: TopicPartition) -> OSError:
        return OSError(error.errno, error.strerror, self._path(topic_partition))


def _whole(data: memoryview) -> int:
    """Return how many bytes to write at once: whole lines if the first one fits."""
    if len(data) <= _REQUEST_BYTES:
        return len(data)
    end = bytes(data[:_REQUEST_BYTES]).rfind(b"\n") + 1
    return end or len(data)


def _find(
    source: FollowedDirectory,
    topic_partition: TopicPartition,
    before: int,
    records: Sequence[Record],
) -> Appended:
    """Return the offsets of records that were just appended, in order, after an offset.

    An equal record of another writer may be mistaken for one of them.
    """
    log = source.log(topic_partition)
    cursor = Cursor(source, log, before, IsolationLevel.READ_UNCOMMITTED)
    wanted = iter(map(_content, records))
    first, last, expected = -1, -1, next(wanted)
    for _ in range(_LOOKS):
        while found := cursor.read():
            for record in found:
                if _content(record) != expected:
                    continue
                first, last = record.offset if first < 0 else first, record.offset
                following = next(wanted, None)
                if following is None:
                    return Appended(first, last)
                expected = following
        time.sleep(SETTLING_S)
        source.look_twice(log)
    raise LogfsError(
        f"{topic_partition}: the records are in the log, but their offsets were not found: "
        f"retention or compaction may have removed them; look after offset {before}"
    )


def _content(record: Record) -> tuple[object, ...]:
    return record.key, record.value, record.headers
