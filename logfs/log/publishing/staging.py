"""The staged records of a task: a plain file in the directory of their partition.

    bytes  field
    0-7    magic     "LFSTAGED"
    8-11   version   uint32   1
    12-15  nothing   uint32   0
    then   record batches of format v2, one after the other, offsets from 0

Its name starts with ``logfs.`` and ends with ``.staged``; Kafka's loader ignores such names. The
name also contains the query and the batch. The file is written once, by one task, and never
changed. Writing it does not need the lock of the data directory.
"""

import contextlib
import json
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from logfs.disk.vfs import Disk, File
from logfs.errors import ControlError, CorruptRecordError, DataLossError, UnsupportedFormatError
from logfs.log import names
from logfs.records.batch import decode_header
from logfs.records.compression import Buffer
from logfs.records.encoded import EncodedBatch
from logfs.records.jsontext import decode_json
from logfs.records.layout import HEADER_BYTES
from logfs.types import TopicPartition

VERSION = 1
_HEAD = struct.Struct(">8sII")
_MAGIC = b"LFSTAGED"


class PublishOptions(NamedTuple):
    """How a batch is published.

    Attributes:
        is_single: The query has no other batch; the caller calls ``forget`` afterwards.
        fails_on_loss: Refuse a batch that was published before with fewer records; else log that
            the others are left out.
    """

    is_single: bool = False
    fails_on_loss: bool = True


class StagedFile(NamedTuple):
    """A file that a task has staged for a partition, in whose directory it is."""

    topic: str
    partition: int
    name: str
    records: int
    size_bytes: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition to append its records to."""
        return TopicPartition(self.topic, self.partition)

    @property
    def path(self) -> str:
        """The path of the file below the data directory."""
        return f"{self.topic_partition.directory}/{self.name}"


def query_key(query: str) -> bytes:
    """Return the 16 bytes that identify a query in file names."""
    import hashlib  # not loaded unless a job publishes

    return hashlib.md5(query.encode(), usedforsecurity=False).digest()


def encode_staged(staged: Sequence[StagedFile]) -> bytes:
    """Return staged files as JSON, one row each."""
    return json.dumps(staged).encode()


def decode_staged(data: Buffer) -> list[StagedFile]:
    """Decode the JSON of ``encode_staged``; raise ControlError if it is anything else."""
    try:
        found = decode_json(bytes(data), lambda rows: [StagedFile(*row) for row in rows])
    except ValueError as error:
        raise ControlError(f"staged files that do not parse: {error}") from None
    for file in found:
        kinds = [type(value) for value in file]
        if kinds != [str, int, str, int, int] or names.parse_staged_file(file.name) is None:
            raise ControlError(f"{file!r}: expected a staged file")
    return found


class StagingWriter:
    """Writes one staged file of a batch of a query.

    Raises:
        OSError: The file cannot be made; FileNotFoundError if the partition does not exist.
    """

    def __init__(
        self, disk: Disk, topic_partition: TopicPartition, query: str, batch: int, unique_id: bytes
    ) -> None:
        self._disk = disk
        self._topic_partition = topic_partition
        self._file_name = names.format_staged_file(query_key(query), batch, unique_id)
        self._path = f"{topic_partition.directory}/{self._file_name}"
        self._file = disk.open(self._path, write=True, create=True)
        self._size = 0
        self._records = 0
        self._put(_HEAD.pack(_MAGIC, VERSION, 0))

    def write(self, batches: Sequence[EncodedBatch]) -> None:
        """Append batches to the file; call ``discard`` after an OSError."""
        for batch in batches:
            self._put(batch.data)
            self._records += batch.last_offset - batch.base_offset + 1

    def finish(self) -> StagedFile:
        """Make the file and its name durable, as the last call; ``discard`` after an OSError."""
        self._file.sync()
        self._file.close()
        self._disk.sync_directory(self._topic_partition.directory)
        return StagedFile(*self._topic_partition, self._file_name, self._records, self._size)

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        remove_staged(self._disk, self._path)

    def _put(self, data: bytes) -> None:
        self._file.pwrite(data, self._size)
        self._size += len(data)


def staged_batches(disk: Disk, staged: StagedFile) -> Iterator[tuple[memoryview, int]]:
    """Yield the batches of a staged file, each with its number of records.

    Raises:
        DataLossError: It is missing, or has another size.
        UnsupportedFormatError: A newer logfs wrote it.
        CorruptRecordError: It does not decode.
    """
    with contextlib.closing(_open(disk, staged)) as file:
        position = _HEAD.size
        while position < staged.size_bytes:
            header = decode_header(file.pread(HEADER_BYTES, position))
            if position + header.size_bytes > staged.size_bytes:
                raise CorruptRecordError(f"{staged.path}: the batch at {position} is cut", position)
            data = file.pread(header.size_bytes, position)
            if len(data) < header.size_bytes:
                raise _too_short(staged, position + len(data))
            yield memoryview(data), header.last_offset_delta + 1
            position += header.size_bytes


def check_staged(disk: Disk, staged: StagedFile) -> None:
    """Check that a staged file exists; raise what ``staged_batches`` raises."""
    _open(disk, staged).close()


def _open(disk: Disk, staged: StagedFile) -> File:
    try:
        file = disk.open(staged.path)
    except FileNotFoundError:
        raise DataLossError(
            f"{staged.path}: staged records are gone before they were published"
        ) from None
    if file.size() != staged.size_bytes:
        raise _too_short(staged, file.size())
    head = file.pread(_HEAD.size, 0)
    if len(head) < _HEAD.size:
        raise _too_short(staged, len(head))
    magic, version, _ = _HEAD.unpack(head)
    if magic != _MAGIC or version != VERSION:
        raise UnsupportedFormatError(
            f"{staged.path}: {magic!r}, version {version}: this logfs reads staged files of "
            f"version {VERSION}: publish with the logfs that wrote it"
        )
    return file


def _too_short(staged: StagedFile, size: int) -> DataLossError:
    return DataLossError(f"{staged.path}: {size} bytes, {staged.size_bytes} expected")


def remove_staged(disk: Disk, path: str) -> None:
    """Remove a staged file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(path)


def remove_staged_of(disk: Disk, directory: str, query: str, last_batch: int) -> None:
    """Remove the files that a query staged in a partition for batches up to a published one.

    They are of failed attempts, or of attempts that another one has overtaken.
    """
    for name, _ in disk.list(directory):
        parsed = names.parse_staged_file(name)
        if parsed and parsed.query_key == query_key(query) and parsed.batch <= last_batch:
            remove_staged(disk, f"{directory}/{name}")
