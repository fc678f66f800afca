"""The daemon that owns a data directory, as a program sees it: a socket to ask it through.

    with Daemon.connect("/var/lib/logfs") as daemon:
        daemon.ask("trim", {"names": ["orders", "0@-7d"], "at_once": False})

Blocking. Errors are those that the same call on the directory itself would raise. What can be asked
for stands in ``logfs.fs.commands``.
"""

import contextlib
import errno
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from logfs import control
from logfs.config import TopicConfig
from logfs.disk.sockets import short_path
from logfs.errors import ControlError, RecordTooLargeError
from logfs.log import names
from logfs.log.publishing.staging import StagedFile, encode_staged
from logfs.log.writing.lineform import AppendedLines, LineForm, Lines
from logfs.log.writing.produced import Appended
from logfs.records._native import encode_records
from logfs.records.compression import Buffer
from logfs.records.encoded import EncodeOptions, ProducerBatch
from logfs.records.record import Record
from logfs.types import TopicPartition

_CONNECT_TIMEOUT_S = 10.0
_CONNECT_AGAIN_S = 0.02
_CONNECT_TRIES = 500
_AS_THEY_ARE = EncodeOptions(control.MAX_PAYLOAD_BYTES, timestamp_after_max_ms=2**63 - 1)
"""What of records is refused and how they are stored is for the daemon to say."""
_USUAL = replace(_AS_THEY_ARE, max_batch_bytes=TopicConfig().max_message_bytes)
"""Batches that a topic takes as they are, unless it was told otherwise."""
_NO_ARGUMENTS: Mapping[str, object] = {}
_NOBODY = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR})


class Daemon:
    """A connection to the daemon of a data directory. One thread at a time.

    Attributes:
        data: The data directory.
    """

    def __init__(self, data: str, connection: socket.socket) -> None:
        self.data = data
        self._connection = connection

    @classmethod
    def connect(cls, data: str) -> "Daemon | None":
        """Connect to the daemon of a data directory; None if there is none.

        Raises:
            PermissionError: There may be one, but it is another user's.
            OSError: The socket cannot be reached.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(data, names.CONTROL_SOCKET) as path:
                connection.settimeout(_CONNECT_TIMEOUT_S)
                _connect(connection, path)
        except OSError as error:
            connection.close()
            if error.errno in _NOBODY:
                return None
            raise OSError(error.errno, error.strerror, f"{data}/{names.CONTROL_SOCKET}") from None
        connection.settimeout(None)  # what is asked for may take its time
        return cls(data, connection)

    def ask(
        self,
        request: str,
        arguments: Mapping[str, object] = _NO_ARGUMENTS,
        *,
        payload: bytes = b"",
        progress: Callable[[str], None] | None = None,
    ) -> Any:  # noqa: ANN401 - what JSON says
        """Ask for something and wait for the answer.

        Args:
            request: Its name.
            arguments: What it takes; fit for JSON.
            payload: Bytes that go with it.
            progress: Called with lines of text while it goes on.

        Returns:
            What the daemon answers, as JSON knows it.

        Raises:
            LogfsError, OSError: What the daemon met.
            ControlError: It has gone, or speaks another version.
        """
        self._begin(request, arguments, payload)
        return self._finish(progress)[0]

    def fetch(self, request: str, arguments: Mapping[str, object] = _NO_ARGUMENTS) -> bytes:
        """Ask for something that is answered with bytes; see ``ask``."""
        self._begin(request, arguments, b"")
        return self._finish()[1]

    def _begin(
        self,
        request: str,
        arguments: Mapping[str, object],
        payload: Buffer,
        descriptor: int | None = None,
    ) -> None:
        size = memoryview(payload).nbytes
        head = control.encode_header({**arguments, "request": request}, size)
        with self._explained():
            if descriptor is not None:
                head = head[socket.send_fds(self._connection, [head], [descriptor]) :]
            self._connection.sendall(head)
            if size:
                self._connection.sendall(payload)

    def _finish(self, progress: Callable[[str], None] | None = None) -> tuple[Any, bytes]:
        with self._explained():
            while True:
                answer, data = self._receive()
                if "progress" not in answer:
                    break
                if progress is not None:
                    progress(str(answer["progress"]))
        if "error" in answer:
            raise control.decode_error(answer["error"])
        return answer.get("result"), data

    def append(
        self,
        topic_partition: TopicPartition,
        records: Sequence[Record],
        producer: ProducerBatch | None = None,
        *,
        is_durable: bool = False,
    ) -> Appended:
        """Append records to a partition; with a producer exactly once, however often it is asked.

        Args:
            topic_partition: Where.
            records: At least one; offsets are ignored. Those of a producer make one batch.
            producer: Who writes; None: without protection against repetition.
            is_durable: They are on the disk when this returns.

        Raises:
            RecordTooLargeError, UnparsableLineError: A record is refused; nothing was appended.
            LogfsError, OSError: See ``PartitionLog.append_records``, and ``ask``.
        """
        # A batch that the topic takes as it is costs the daemon next to nothing.
        encoded = encode_records(records, 0, 0, _USUAL if producer is None else _AS_THEY_ARE)
        if isinstance(encoded.refusal, RecordTooLargeError):
            encoded = encode_records(records, 0, 0, _AS_THEY_ARE)
        if encoded.refusal is not None:
            raise encoded.refusal
        arguments = {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "producer": None if producer is None else list(producer),
            "is_durable": is_durable,
        }
        payload = b"".join(batch.data for batch in encoded.batches)
        return Appended(**self.ask("append", arguments, payload=payload))

    def append_lines(
        self,
        place: tuple[str, int | None],
        lines: Buffer,
        form: LineForm,
        *,
        unkeyed: int = 0,
        is_durable: bool = False,
    ) -> Lines:
        """Append whole lines.

        Args:
            place: The topic, and the partition; None: to those to which the keys belong.
            lines: At most ``control.MAX_PAYLOAD_BYTES``, possibly none; the last byte is a LF. With
                a few megabytes at a time nobody else waits for long.
            form: What they are.
            unkeyed: See ``logfs.log.writing.bulk``.
            is_durable: What stands in the log is on the disk before it answers.

        Raises:
            LogfsError, OSError: Nothing was appended.
        """
        arguments = {**_of_lines(place, form, unkeyed), "is_durable": is_durable}
        self._begin("lines", arguments, lines)
        return _lines(self._finish()[0])

    def append_file(
        self,
        place: tuple[str, int | None],
        file: tuple[int, int],
        form: LineForm,
        *,
        unkeyed: int = 0,
    ) -> Lines:
        """Let the daemon read some lines of a regular file, and append them.

        Args:
            place: The topic, and the partition; None: to those to which the keys belong.
            file: Its descriptor, and the position where the lines begin.
            form: What they are.
            unkeyed: See ``logfs.log.writing.bulk``.

        Returns:
            See ``logfs.log.writing.feeding.append_file``.

        Raises:
            LogfsError, OSError: Nothing was appended.
        """
        descriptor, position = file
        arguments = {**_of_lines(place, form, unkeyed), "position": position}
        self._begin("file", arguments, b"", descriptor)
        return _lines(self._finish()[0])

    def publish(
        self, query: str, batch: int, staged: Sequence[StagedFile], *, is_single: bool = False
    ) -> bool:
        """Append what was staged for a batch of a query; see ``logfs.log.publishing.publish``.

        Raises:
            LogfsError, OSError: See there, and ``ask``.
        """
        arguments = {"query": query, "batch": batch, "is_single": is_single}
        return bool(self.ask("publish", arguments, payload=encode_staged(staged)))

    def forget(self, query: str) -> None:
        """Remove what is known of a query; see ``logfs.log.publishing.publish``.

        Raises:
            LogfsError, OSError: See there, and ``ask``.
        """
        self.ask("forget", {"query": query})

    def end_transaction(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        is_durable: bool = False,
    ) -> int:
        """Write the marker that ends a producer's transaction; returns its offset.

        Raises:
            LogfsError, OSError: See ``PartitionLog.end_transaction``, and ``ask``.
        """
        arguments = {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "producer_id": producer_id,
            "epoch": epoch,
            "commit": commit,
            "is_durable": is_durable,
        }
        return int(self.ask("end", arguments))

    def flush(self, topic_partition: TopicPartition) -> None:
        """Return once everything that was appended to a partition is durable.

        Raises:
            LogfsError, OSError: See ``PartitionLog.flush``, and ``ask``.
        """
        self.ask("flush", {"topic": topic_partition.topic, "partition": topic_partition.partition})

    @property
    def has_gone(self) -> bool:
        """Whether the daemon has closed the connection, which it does when it ends."""
        ready, _, _ = select.select([self._connection], [], [], 0)
        return bool(ready)  # it says nothing that it was not asked for

    def close(self) -> None:
        """Let go of the daemon."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of a broken connection what it means."""
        try:
            yield
        except ConnectionError as error:
            raise ControlError(
                f"the daemon of {self.data} has gone before it answered: what was asked for may be "
                f"done or not ({error})"
            ) from error

    def _receive(self) -> tuple[dict[str, Any], bytes]:
        head = control.decode_head(self._exactly(control.HEAD_BYTES))
        header = control.decode_header(self._exactly(head.header_bytes))
        return header, self._exactly(head.payload_bytes)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the connection was closed")
            data += part
        return bytes(data)


def _connect(connection: socket.socket, path: str) -> None:
    """Connect; wait while more programs connect than the daemon takes at once."""
    for _ in range(_CONNECT_TRIES):
        # Linux does not wait for a place itself, whatever the timeout.
        with contextlib.suppress(BlockingIOError):
            return connection.connect(path)
        threading.Event().wait(_CONNECT_AGAIN_S)
    return connection.connect(path)


def _of_lines(place: tuple[str, int | None], form: LineForm, unkeyed: int) -> dict[str, object]:
    """Return the arguments that say where lines go and what they are."""
    topic, partition = place
    headers = [[name.hex(), None if value is None else value.hex()] for name, value in form.headers]
    return {
        "topic": topic,
        "partition": partition,
        "view": int(form.view),
        "key_delimiter": form.key_delimiter.hex(),
        "headers": headers,
        "unkeyed": unkeyed,
    }


def _lines(answer: Mapping[str, Any]) -> Lines:
    refusal = answer["refusal"]
    return Lines(
        [AppendedLines(*row) for row in answer["appended"]],
        answer["accepted"],
        None if refusal is None else control.decode_error(refusal),
    )
