"""Appending through a mount, if the control socket of the daemon is another user's."""

from dataclasses import replace

from logfs.errors import LogfsError
from logfs.library.mounted_writer import MountedWriter
from logfs.library.topics import MountedTopics
from logfs.log.lines.form import AppendedLines, LineForm, Lines
from logfs.log.topics import encode_options
from logfs.machine.host import system_clock
from logfs.records._encoding import encode_lines, partition_lines
from logfs.records.compression import Buffer, Compression
from logfs.services.views.rendering import rendered_batch
from logfs.types import TopicPartition, View


class MountAppender:
    """See ``LineAppender``. Partitions below a mount point; offsets stay unknown.

    This class splits and checks the lines by the daemon's rules.

    Args:
        partition: Its number; None: the key of each line decides.
    """

    chunk_bytes = 4 << 20

    def __init__(self, point: str, topic: str, partition: int | None, form: LineForm) -> None:
        self._writer = MountedWriter(point)
        self._topic, self._partition, self._form = topic, partition, form
        topics = MountedTopics(point)
        self._count = topics.partition_count(topic) or 1
        usual = form.options(encode_options(topics.effective(topic), 0))
        self._options = replace(usual, compression=Compression.NONE)
        self._now_ms = system_clock().now_ms

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """See ``LineAppender``."""
        form, size = self._form, memoryview(lines).nbytes
        tried = encode_lines(form.view, b"", lines, 0, size, 0, self._now_ms(), self._options)
        stop = tried.ends[-1] if tried.ends else 0
        if self._partition is not None:
            parts = {self._partition: bytes(memoryview(lines)[:stop])}
        else:
            place = unkeyed % self._count
            spread = partition_lines(
                form.view, form.key_delimiter, lines, 0, stop, self._count, place
            )
            parts = {n: bytes(part) for n, part in enumerate(spread)}
        rows: list[AppendedLines] = []
        for number, part in parts.items():
            if not part:
                continue
            records, error = self._write(number, part)
            if records:
                rows.append(AppendedLines(number, records, None, None))
            if error is not None and not rows:
                raise error
            if error is not None:
                return Lines(rows, 0, error)
        return Lines(rows, stop, tried.refusal)

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """See ``LineAppender``; never called, since ``can_read`` returns False."""
        raise NotImplementedError

    def can_read(self, descriptor: int) -> bool:
        """See ``LineAppender``; the caller reads the lines."""
        return False

    def flush(self) -> None:
        """See ``LineAppender``."""
        numbers = range(self._count) if self._partition is None else [self._partition]
        for number in numbers:
            self._writer.flush(TopicPartition(self._topic, number))

    def close(self) -> None:
        """Close the files below the mount."""
        self._writer.close()

    def _write(self, number: int, lines: Buffer) -> tuple[int, Exception | None]:
        """Write lines to a partition; return their number, and the error of the next line."""
        form, name = self._form, TopicPartition(self._topic, number)
        view = form.view
        if form.key_delimiter or form.headers:
            lines, view = self._as_jsonl(lines), View.JSONL
        data, done = memoryview(lines), 0
        try:
            while done < len(data):
                done += self._writer.write(name, view, data[done:])
        except (LogfsError, OSError) as error:
            return bytes(data[:done]).count(b"\n"), error
        return bytes(data).count(b"\n"), None

    def _as_jsonl(self, lines: Buffer) -> bytes:
        """Return lines as .jsonl, with the keys and headers of the form."""
        size = memoryview(lines).nbytes
        encoded = encode_lines(
            self._form.view, b"", lines, 0, size, 0, self._now_ms(), self._options
        )
        return b"".join(b"".join(rendered_batch(x.data, View.JSONL)) for x in encoded.batches)
