"""A connection from a program to the daemon that owns a data directory.

    with Daemon.connect("/var/lib/logfs") as daemon:
        daemon.trim(["orders", "0@-7d"], at_once=False)

Calls block. Each method sends one request of ``logfs.control.requests`` and raises the errors that
the same call on the directory itself would raise.
"""

import contextlib
import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from logfs.config import TopicConfig
from logfs.control import frames, requests
from logfs.disk.sockets import short_path
from logfs.errors import ControlError, RecordTooLargeError
from logfs.log import names
from logfs.log.lines.form import Lines, LineTarget
from logfs.log.publishing.staging import PublishOptions, StagedFile, encode_staged
from logfs.log.writing.producerbatches import Appended
from logfs.records._encoding import encode_records
from logfs.records.compression import Buffer
from logfs.records.encoded import EncodeOptions, ProducerBatch
from logfs.records.record import Record
from logfs.types import Closeable, TopicPartition

if TYPE_CHECKING:
    from logfs.services.administration import TopicFacts
    from logfs.services.backup.point import Point
    from logfs.services.compaction.manual import Compacted
    from logfs.services.overview import TopicOverview
    from logfs.services.packing.packer import Packed
    from logfs.services.retention.trimming import Trimmed

MAX_PAYLOAD_BYTES = frames.MAX_PAYLOAD_BYTES
"""How many bytes one request may bring."""
_CONNECT_TIMEOUT_S = 10.0
_CONNECT_AGAIN_S = 0.02
_CONNECT_TRIES = 500
_NEXT_DAEMON_TRIES = 3000
"""How often the next daemon is looked for after the end of one, for about a minute."""
_UNSURE_TRIES = 500
"""The same where it is not known whether another daemon follows."""
_UNLIMITED = EncodeOptions(frames.MAX_PAYLOAD_BYTES, timestamp_after_max_ms=2**63 - 1)
"""The daemon refuses records by the limits of the topic, and chooses their compression."""
_DEFAULT_SIZE = replace(_UNLIMITED, max_batch_bytes=TopicConfig().max_message_bytes)
"""Batches that a topic with the default ``max.message.bytes`` appends without encoding again."""
_NO_FIELDS: Mapping[str, object] = {}
_NO_DAEMON = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR})


class _Attached(NamedTuple):
    """What a request has besides its fields; see ``Daemon.ask``."""

    payload: Buffer = b""
    descriptor: int | None = None
    progress: Callable[[str], None] | None = None


_NOTHING = _Attached()
_OF_STREAM = PublishOptions()


class Daemon(Closeable):
    """A connection to the daemon of a data directory. One thread at a time.

    Attributes:
        data: The data directory.
    """

    def __init__(self, data: str, connection: socket.socket) -> None:
        self.data = data
        self._connection = connection
        self._client = int.from_bytes(os.urandom(8), "big")
        self._number = 0
        self._resumes: bool | None = None

    @classmethod
    def connect(cls, data: str) -> "Daemon | None":
        """Connect to the daemon of a data directory; None if no daemon serves it.

        Raises:
            PermissionError: The socket belongs to another user.
            OSError: The socket cannot be reached.
        """
        connection = _connected(data)
        return None if connection is None else cls(data, connection)

    def ask(
        self,
        request: str,
        fields: Mapping[str, object] = _NO_FIELDS,
        *,
        payload: Buffer = b"",
        descriptor: int | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Any:  # noqa: ANN401 - any JSON value
        """Send a request and wait for the answer.

        Args:
            request: Its name in ``logfs.control.requests.REQUESTS``.
            fields: Its fields, as JSON values.
            payload: Its payload.
            descriptor: A file that the daemon may read; None: no file.
            progress: Called with each line of progress.

        Returns:
            The answer, as a JSON value.

        Raises:
            LogfsError, OSError: The error that the daemon met.
            ControlError: The daemon ended and no other one has followed it, or it speaks another
                version.
        """
        return self._exchange(request, fields, _Attached(payload, descriptor, progress))[0]

    def _exchange(
        self,
        request: str,
        fields: Mapping[str, object] = _NO_FIELDS,
        attached: _Attached = _NOTHING,
    ) -> tuple[Any, bytes]:
        """Send a request; return the answer and its payload.

        If the daemon ends, the request is repeated to the daemon that follows. One that changes
        something has a number, by which that daemon does it once.
        """
        header, data = {**fields, "request": request}, b""
        if request in requests.REPEATED and self._does_resume():
            self._number += 1
            header |= {"client": self._client, "number": self._number}
        answer = None
        while answer is None:
            try:
                answer, data = self._send(header, attached)
            except ConnectionError as error:
                if not self._reconnect_to_repeat():
                    raise ControlError(
                        f"{self.data}: the daemon ended before it answered: the request may be "
                        f"done or not ({error})"
                    ) from error
        if "error" in answer:
            raise frames.decode_error(answer["error"])
        return answer.get("result"), data

    def _send(
        self, header: Mapping[str, object], attached: _Attached = _NOTHING
    ) -> tuple[dict[str, Any], bytes]:
        payload, descriptor, progress = attached
        size = memoryview(payload).nbytes
        head = frames.encode_header(header, size)
        if descriptor is not None:
            head = head[socket.send_fds(self._connection, [head], [descriptor]) :]
        self._connection.sendall(head)
        if size:
            self._connection.sendall(payload)
        answer, data = self._receive()
        while "progress" in answer:
            if progress is not None:
                progress(str(answer["progress"]))
            answer, data = self._receive()
        return answer, data

    def _does_resume(self) -> bool:
        """Whether another daemon follows this one and continues with its requests."""
        while self._resumes is None:
            try:
                answer, _ = self._send({"request": "resumes"})
            except ConnectionError:
                # It has ended before it said so. One that nothing follows is not waited for long.
                if self._reconnect(_UNSURE_TRIES):
                    continue
                answer = {}
            self._resumes = bool(answer.get("result"))  # an older daemon answers with an error
        return self._resumes

    def _reconnect_to_repeat(self) -> bool:
        """Connect to the daemon that follows one that has ended; return whether there is one."""
        if self._resumes is None:  # only questions were asked so far
            return self._reconnect(_UNSURE_TRIES)
        return self._resumes and self._reconnect()

    def _reconnect(self, tries: int = _NEXT_DAEMON_TRIES) -> bool:
        """Connect to the next daemon when it is there; return whether it came in time."""
        self._connection.close()
        for _ in range(tries):
            connection = _connected(self.data)
            if connection is not None:
                self._connection = connection
                return True
            threading.Event().wait(_CONNECT_AGAIN_S)
        return False

    def status(self) -> dict[str, Any]:
        """Return facts about the daemon: pid, mountpoint, options and others."""
        return dict(self.ask("status"))

    def reload(self) -> int:
        """Have the daemon replaced by a successor with new code; returns the successor's pid.

        Raises:
            LogfsError, OSError: It was not replaced.
            ControlError: No successor answers.
        """
        before = self.status()["pid"]
        with contextlib.suppress(ConnectionError):
            answer, _ = self._send({"request": "reload"})
            if "error" in answer:
                raise frames.decode_error(answer["error"])
        for _ in range(_NEXT_DAEMON_TRIES):
            if not self._reconnect():
                break
            # The old daemon may still have taken this connection.
            with contextlib.suppress(ControlError):
                pid = int(self.status()["pid"])
                if pid != before:
                    return pid
            threading.Event().wait(_CONNECT_AGAIN_S)
        raise ControlError(f"{self.data}: no daemon has followed process {before}; see its log")

    def utc_offset_s(self, local: str) -> int:
        """Return the offset of the daemon's time zone from UTC at a local date and time.

        Raises:
            ControlError: It does not parse.
        """
        return int(self.ask("utc_offset", {"local": local}))

    def metrics(self) -> dict[str, Any]:
        """Return the metrics that do not belong to single topics, by name."""
        return dict(self.ask("metrics"))

    def activity(self, milliseconds: int) -> dict[str, Any]:
        """Return what programs do with partitions within a time, after that time."""
        return dict(self.ask("activity", {"milliseconds": milliseconds}))

    def prometheus(self) -> bytes:
        """Return all metrics as Prometheus text."""
        return self._exchange("prometheus")[1]

    def topic_sizes(self) -> dict[str, int]:
        """Return the number of partitions of every topic, hidden topics included; sorted."""
        return dict(self.ask("topics"))

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic; None if there is no such topic."""
        return self.topic_sizes().get(topic)

    def describe_topic(self, topic: str) -> "TopicFacts":
        """Return the facts about a topic."""
        from logfs.services.administration import TopicFacts

        return TopicFacts(**self.ask("describe", {"topic": topic}))

    def create_topic(
        self, topic: str, partitions: int | None, config: Mapping[str, str]
    ) -> list[str]:
        """Create a topic and return warnings; see ``logfs.services.administration``."""
        fields = {"topic": topic, "partitions": partitions, "config": dict(config)}
        return list(self.ask("create", fields))

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], partitions: int | None
    ) -> list[str]:
        """Change a topic and return warnings; see ``logfs.services.administration``."""
        fields = {"topic": topic, "partitions": partitions, "changes": dict(changes)}
        return list(self.ask("alter", fields))

    def delete_topic(self, topic: str, *, at_once: bool = False) -> None:
        """Delete a topic; see ``LogStore.delete_topic``."""
        self.ask("delete", {"topic": topic, **({"at_once": True} if at_once else {})})

    def undelete_topic(self, topic: str) -> None:
        """Restore a deleted topic; see ``LogStore.undelete_topic``."""
        self.ask("undelete", {"topic": topic})

    def trim(
        self,
        names: Sequence[str],
        *,
        at_once: bool,
        even_if_held: bool = False,
        is_preview: bool = False,
    ) -> "list[Trimmed]":
        """Delete the records before an address; see ``logfs.services.retention.trimming``.

        Args:
            names: The components of the address, such as "orders" and "0@-7d".
            at_once: Remove the files before this returns, and drop what the kernel has cached.
            even_if_held: Also what waits to be forwarded to a cluster.
            is_preview: Return what would be done, and change nothing.
        """
        from logfs.services.retention.trimming import Trimmed

        fields = {"names": [*names], "at_once": at_once, "even_if_held": even_if_held}
        request = "preview_trim" if is_preview else "trim"
        return [Trimmed(**row) for row in self.ask(request, fields)]

    def compact(
        self, topic: str, partition: int | None, *, roll: bool, progress: Callable[[str], None]
    ) -> "list[Compacted]":
        """Compact a partition, or all of a topic; see ``logfs.services.compaction.manual``."""
        from logfs.services.compaction.manual import Compacted

        fields = {"topic": topic, "partition": partition, "roll": roll}
        return [Compacted(**row) for row in self.ask("compact", fields, progress=progress)]

    def preview_compact(
        self, topic: str, partition: int | None, *, progress: Callable[[str], None]
    ) -> "list[Compacted]":
        """Return what ``compact`` would do, and change nothing."""
        from logfs.services.compaction.manual import Compacted

        fields = {"topic": topic, "partition": partition}
        return [Compacted(**row) for row in self.ask("preview_compact", fields, progress=progress)]

    def pack(
        self, topic: str, partition: int | None, *, roll: bool, progress: Callable[[str], None]
    ) -> "list[Packed]":
        """Pack a partition, or all of a topic; see ``logfs.services.packing``."""
        from logfs.services.packing.packer import Packed

        fields = {"topic": topic, "partition": partition, "roll": roll}
        return [Packed(**row) for row in self.ask("pack", fields, progress=progress)]

    def overview(self, topic: str, first: int, since_ms: int) -> "TopicOverview":
        """Return the overview of a topic and of some of its partitions, starting with ``first``.

        Args:
            topic: The topic.
            first: The number of the first partition.
            since_ms: Leave out losses before this time.
        """
        from logfs.services.overview import PartitionOverview, TopicOverview

        found = self.ask("overview", {"topic": topic, "first": first, "since_ms": since_ms})
        found["partitions"] = [PartitionOverview(**row) for row in found["partitions"]]
        return TopicOverview(**found)

    def expired(self, topic: str, first: int, now_ms: int) -> Sequence[str]:
        """Return warnings about records that retention is about to delete; see ``overview``."""
        return self.overview(topic, first, now_ms).expired

    def point(self, topic_partition: TopicPartition) -> "Point":
        """Make a partition durable and return the point up to which it is."""
        from logfs.services.backup.point import Point

        found = self.ask("point", _partition(topic_partition))
        found["unfinished"] = {k: (size, crc) for k, (size, crc) in found["unfinished"].items()}
        return Point(**found)

    def append(
        self,
        topic_partition: TopicPartition,
        records: Sequence[Record],
        producer: ProducerBatch | None = None,
        *,
        is_durable: bool = False,
    ) -> Appended:
        """Append records to a partition. With a producer, repeated calls append them once.

        Args:
            topic_partition: The partition.
            records: At least one; offsets are ignored. Those of a producer make one batch.
            producer: The identity of the batch; None: no protection against repetition.
            is_durable: Return when the records are durable.

        Raises:
            RecordTooLargeError, UnparsableLineError: A record is refused; nothing was appended.
            LogfsError, OSError: See ``PartitionLog.append_records``, and ``ask``.
        """
        # The daemon need not encode a batch again that is within the topic's limit.
        encoded = encode_records(records, 0, 0, _DEFAULT_SIZE if producer is None else _UNLIMITED)
        if isinstance(encoded.refusal, RecordTooLargeError):
            encoded = encode_records(records, 0, 0, _UNLIMITED)
        if encoded.refusal is not None:
            raise encoded.refusal
        fields = {
            **_partition(topic_partition),
            "producer": None if producer is None else list(producer),
            "is_durable": is_durable,
        }
        payload = b"".join(batch.data for batch in encoded.batches)
        return Appended(**self.ask("append", fields, payload=payload))

    def append_lines(self, target: LineTarget, lines: Buffer, *, is_durable: bool = False) -> Lines:
        """Append whole lines.

        Args:
            target: The partition for the records.
            lines: At most ``frames.MAX_PAYLOAD_BYTES``, possibly none; the last byte is a LF. Other
                writers wait meanwhile, so a few megabytes at a time are best.
            is_durable: Return when the lines are durable.

        Raises:
            LogfsError, OSError: Nothing was appended.
        """
        fields = {**requests.line_fields(target), "is_durable": is_durable}
        return requests.decode_lines(self.ask("lines", fields, payload=lines))

    def append_file(self, target: LineTarget, file: tuple[int, int]) -> Lines:
        """Let the daemon read some lines of a regular file and append them.

        Args:
            target: The partition for the lines.
            file: Its descriptor, and the position of the first line.

        Returns:
            See ``logfs.log.lines.pipelined.append_file``.

        Raises:
            LogfsError, OSError: Nothing was appended.
        """
        descriptor, position = file
        fields = {**requests.line_fields(target), "position": position}
        return requests.decode_lines(self.ask("file", fields, descriptor=descriptor))

    def publish(
        self,
        query: str,
        batch: int,
        staged: Sequence[StagedFile],
        options: PublishOptions = _OF_STREAM,
    ) -> bool:
        """Append the staged files of a batch; see ``publish`` in ``logfs.log.publishing.publish``.

        Raises:
            LogfsError, OSError: See there, and ``ask``.
        """
        fields = {
            "query": query,
            "batch": batch,
            "is_single": options.is_single,
            "leaves_out": not options.fails_on_loss,
        }
        return bool(self.ask("publish", fields, payload=encode_staged(staged)))

    def forget(self, query: str) -> None:
        """Remove the ledger of a query; see ``forget`` in ``logfs.log.publishing.publish``.

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
            LogfsError, OSError: See ``Appender.end_transaction``, and ``ask``.
        """
        fields = {
            **_partition(topic_partition),
            "producer_id": producer_id,
            "epoch": epoch,
            "commit": commit,
            "is_durable": is_durable,
        }
        return int(self.ask("end", fields))

    def flush(self, topic_partition: TopicPartition) -> None:
        """Make all earlier appends to a partition durable.

        Raises:
            LogfsError, OSError: See ``PartitionLog.flush``, and ``ask``.
        """
        self.ask("flush", _partition(topic_partition))

    @property
    def has_gone(self) -> bool:
        """Whether the daemon has closed the connection, and no other one will follow it."""
        if self._resumes:
            return False
        ready, _, _ = select.select([self._connection], [], [], 0)
        return bool(ready)  # between requests a daemon sends nothing

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _receive(self) -> tuple[dict[str, Any], bytes]:
        head = frames.decode_head(self._exactly(frames.HEAD_BYTES))
        header = frames.decode_header(self._exactly(head.header_bytes))
        return header, self._exactly(head.payload_bytes)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the connection was closed")
            data += part
        return bytes(data)


def _connected(data: str) -> socket.socket | None:
    """Return a connection to the daemon of a data directory; None if no daemon serves it."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(data, names.CONTROL_SOCKET) as path:
            connection.settimeout(_CONNECT_TIMEOUT_S)
            _connect(connection, path)
    except OSError as error:
        connection.close()
        if error.errno in _NO_DAEMON:
            return None
        raise OSError(error.errno, error.strerror, f"{data}/{names.CONTROL_SOCKET}") from None
    connection.settimeout(None)  # a request may take any time
    return connection


def _connect(connection: socket.socket, path: str) -> None:
    """Connect; retry while the daemon's queue of connections is full."""
    for _ in range(_CONNECT_TRIES):
        # Linux does not wait for a place in the queue, with any timeout.
        with contextlib.suppress(BlockingIOError):
            return connection.connect(path)
        threading.Event().wait(_CONNECT_AGAIN_S)
    return connection.connect(path)


def _partition(topic_partition: TopicPartition) -> dict[str, object]:
    return {"topic": topic_partition.topic, "partition": topic_partition.partition}
