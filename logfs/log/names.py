"""Names of files and directories: all are formatted and parsed here, strictly.

Kafka's names in a partition directory are 20 digits of base offset, the kind, and while a file is
created or removed a suffix: ``00000000000000000042.log.deleted``. Kafka's loader ignores the names
of logfs's own plain files. It uses names that end in ``.log .index .timeindex .txnindex .snapshot
.deleted .cleaned .swap``. Files that must never be removed with a segment begin with ``logfs.``:
when the loader completes a compaction, it deletes every file whose leading number is in the
replaced range.

Pure: no disk. Sources: Kafka LogFileUtils, LocalLog.parseTopicPartitionName, LogLoader, Uuid.
"""

import base64
import binascii
import re
from collections.abc import Callable, Container, Iterable, Mapping
from enum import StrEnum
from itertools import count
from typing import NamedTuple
from uuid import UUID

from logfs.errors import InvalidConfigError
from logfs.types import MAX_OFFSET, TopicPartition

MAX_PARTITION = 2**31 - 1
MAX_NAME_BYTES = 255
_MAX_GROUP_BYTES = 2**15 - 1

# In a partition directory, Kafka's.
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# In a partition directory, ours.
SEGMENT_TABLE = "logfs.segments"
TOPIC_CONFIG = "logfs.config"
LOSSES = "logfs.losses"
MIRROR = "logfs.mirror"
DELETED = "logfs.deleted"
TIERED = "logfs.tiered"
OWNED = "logfs.owned"
REMOTE_HEAD = "logfs.head"
# In the root, Kafka's.
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLUSTER_METADATA_DIRECTORY = "__cluster_metadata-0"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
REMOTE_INDEX_DIRECTORY = "remote-log-index-cache"
# In the root, ours.
ATTRIBUTES = "logfs.attributes"
DAEMON = "logfs.daemon"
CONTROL_SOCKET = "logfs.socket"
BACKUP = "logfs.backup"
CLOSED = "logfs.closed"
REMOTE = "logfs.remote"
REMOTE_HOME = "logfs.remote.home"

_OWN_PREFIX = "logfs."
_UNFINISHED = ".unfinished"
_CUT = ".cut"
_STAGED = ".staged"
_LEDGER = ".ledger"
_DELETED_CHECKPOINT = ".checkpoint.deleted"
"""Suffix of a snapshot of ``__cluster_metadata``, which Kafka removes itself."""


class FileKind(StrEnum):
    """The content of a file named after an offset; the value is its extension."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"
    TEXT_INDEX = ".textindex"


class FileSuffix(StrEnum):
    """The state of a file that is being added or removed. Source: Kafka LogFileUtils."""

    NONE = ""
    DELETED = ".deleted"
    """Renamed, to be removed after ``file.delete.delay.ms``."""
    CLEANED = ".cleaned"
    """Output of a compaction that is still being written."""
    SWAP = ".swap"
    """Output of a compaction that is whole; the old files are being replaced."""


class DirectoryState(StrEnum):
    """The state of a partition directory; the value is its suffix."""

    NONE = ""
    DELETE = "-delete"
    """The topic was deleted; removed after the delay."""
    STRAY = "-stray"
    """A broker found that it does not own the partition."""
    FUTURE = "-future"
    """Target of a move between directories of a broker."""


class SegmentFileName(NamedTuple):
    """The parsed name of a file of a segment."""

    base_offset: int
    kind: FileKind
    suffix: FileSuffix = FileSuffix.NONE


class PartitionDirectoryName(NamedTuple):
    """The parsed name of a partition directory."""

    topic: str
    """Cut short in the long names of DELETE and STRAY."""
    partition: int
    state: DirectoryState = DirectoryState.NONE


class CutFileName(NamedTuple):
    """The parsed name of a copy of a truncated tail of a ``.log``."""

    base_offset: int
    position: int
    """Byte position in the ``.log`` where the copy began."""
    copy: int
    """0 for the first cut at that position, then 1, 2."""


class StagedFileName(NamedTuple):
    """The parsed name of a file of records that wait to be published."""

    query_key: bytes
    """The key of the query that writes, see ``logfs.log.publishing.staging``."""
    batch: int
    unique_id: bytes


_OFFSET_DIGITS = 20
# Dictionaries, because ten thousand segments have fifty thousand names.
_KINDS = {kind.value: kind for kind in FileKind}
_SEGMENT_FILE_ENDS = {
    kind.value + suffix.value: (kind, suffix) for kind in FileKind for suffix in FileSuffix
}
_KAFKAS_OWN = r".*\.(?:log|index|timeindex|txnindex|snapshot|cleaned|swap)"
_DIRECTORY = re.compile(
    r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})(?:\.[0-9a-f]{32}(-delete|-stray|-future))?"
)
_CUT_FILE = r"logfs\.([0-9]{20})\.([0-9]+)(?:\.([1-9][0-9]*))?\.cut"
_UNFINISHED_FILE = r"logfs\.([a-zA-Z0-9-]+)\.unfinished"
_STAGED_FILE = r"logfs\.([0-9a-f]{32})\.(0|[1-9][0-9]{0,18})\.([0-9a-f]{32})\.staged"
_LEDGER_FILE = r"logfs\.([0-9a-f]{32})\.ledger"
_FORWARD_FILE = r"logfs\.forward-[0-9a-f]{8}"
_TOPIC_ID = r"[a-zA-Z0-9_-]{22}"


def format_segment_file(
    base_offset: int, kind: FileKind, suffix: FileSuffix = FileSuffix.NONE
) -> str:
    """Name a file of a segment; base offset in [0, 2**63 - 1]. Source: Kafka LogFileUtils."""
    if not 0 <= base_offset <= MAX_OFFSET:
        raise ValueError(f"base offset {base_offset} is outside [0, {MAX_OFFSET}]")
    return f"{base_offset:020d}{kind.value}{suffix.value}"


def format_deleted_file(base_offset: int, kind: FileKind, copy: int = 0) -> str:
    """Name a file of a deleted segment; ``copy`` > 0 tells equal base offsets apart."""
    if copy:
        return f"{format_segment_file(base_offset, kind)}.{copy}{FileSuffix.DELETED.value}"
    return format_segment_file(base_offset, kind, FileSuffix.DELETED)


def is_leftover(name: str) -> bool:
    """Tell whether loading removes a file: renamed for that, or a copy that was not finished.

    Source: Kafka LogLoader.removeTempFilesAndCollectSwapFiles.
    """
    copied = name.removesuffix(".tmp")
    if copied != name:
        return parse_unfinished_file(copied) is not None or parse_segment_file(copied) is not None
    return name.endswith(FileSuffix.DELETED) and not name.endswith(_DELETED_CHECKPOINT)


def is_on_its_way(name: str) -> bool:
    """Tell whether a file is about to be renamed or removed, so that no copy of it is useful."""
    suffixes = (FileSuffix.DELETED, FileSuffix.CLEANED, FileSuffix.SWAP, ".tmp")
    return name.endswith(suffixes)


def parse_segment_file(name: str) -> SegmentFileName | None:
    """Parse a name; None if it is not exactly what ``format_segment_file`` gives."""
    known = _SEGMENT_FILE_ENDS.get(name[_OFFSET_DIGITS:])
    base_offset = None if known is None else _parse_base_offset(name[:_OFFSET_DIGITS])
    if known is None or base_offset is None:
        return None
    return SegmentFileName(base_offset, *known)


def group_segment_files(listed: Iterable[str]) -> tuple[dict[int, set[FileKind]], list[str]]:
    """Parse the names of many files without a suffix.

    Returns:
        The kinds of files by base offset; and all other names.
    """
    found: dict[str, set[FileKind]] = {}
    others = []
    for name in listed:
        kind = _KINDS.get(name[_OFFSET_DIGITS:])
        if kind is None:
            others.append(name)
        elif (kinds := found.get(name[:_OFFSET_DIGITS])) is not None:
            kinds.add(kind)
        else:
            found[name[:_OFFSET_DIGITS]] = {kind}
    grouped = {}
    for digits, kinds in found.items():
        base_offset = _parse_base_offset(digits)
        if base_offset is None:
            others += [digits + kind for kind in kinds]
        else:
            grouped[base_offset] = kinds
    return grouped, others


def log_bases(kinds: Mapping[int, Container[FileKind]]) -> list[int]:
    """Return the base offsets that have a ``.log``, in no order."""
    return [base for base, found in kinds.items() if FileKind.LOG in found]


def _parse_base_offset(digits: str) -> int | None:
    if len(digits) != _OFFSET_DIGITS or not (digits.isdecimal() and digits.isascii()):
        return None
    base_offset = int(digits)
    return None if base_offset > MAX_OFFSET else base_offset


def stops_kafka(name: str) -> bool:
    """Tell whether Kafka's loader takes a name for a segment file's and cannot read its offset.

    Source: Kafka LogFileUtils.offsetFromFile, SnapshotFile.
    """
    return re.fullmatch(_KAFKAS_OWN, name) is not None and parse_segment_file(name) is None


def format_delete_directory(topic_partition: TopicPartition, unique_id: UUID) -> str:
    """Name a partition directory that waits for its removal, at most 255 characters.

    The topic is cut short where the name would be longer; ``unique_id`` (any random one) keeps such
    names apart.

    Source: Kafka LocalLog.logDeleteDirName.
    """
    topic, partition = topic_partition
    tail = f"-{partition}.{unique_id.hex}{DirectoryState.DELETE.value}"
    return topic[: MAX_NAME_BYTES - len(tail)] + tail


def parse_partition_directory(name: str) -> PartitionDirectoryName | None:
    """Parse the name of a directory; None if it is not a partition's.

    Stricter than Kafka, which takes ``orders-007`` and any word for the unique id: a broker does
    not write such names, and it stops at those that neither accepts.

    Source: Kafka LocalLog.parseTopicPartitionName.
    """
    match = _DIRECTORY.fullmatch(name)
    if match is None:
        return None
    topic, partition, state = match[1], int(match[2]), DirectoryState(match[3] or "")
    if partition > MAX_PARTITION or topic in {".", ".."}:
        return None
    return PartitionDirectoryName(topic, partition, state)


def format_unfinished_file(writer_id: str) -> str:
    """Name the file that keeps an unfinished line; ``writer_id`` is of ``[a-zA-Z0-9-]``."""
    name = f"{_OWN_PREFIX}{writer_id}{_UNFINISHED}"
    if re.fullmatch(_UNFINISHED_FILE, name) is None:
        raise ValueError(f"{writer_id!r} cannot be part of a file name")
    return name


def parse_unfinished_file(name: str) -> str | None:
    """Return the writer id in the name of a file of an unfinished line; None for other names."""
    match = re.fullmatch(_UNFINISHED_FILE, name)
    return match[1] if match else None


def format_cut_file(base_offset: int, position: int, copy: int = 0) -> str:
    """Name the copy of the tail that recovery truncates from the ``.log`` of a segment.

    Args:
        position: Byte position where the cut begins; 0 keeps the whole file.
        copy: Distinguishes cuts at the same position in later recoveries.
    """
    again = f".{copy}" if copy else ""
    return f"{_OWN_PREFIX}{base_offset:020d}.{position}{again}{_CUT}"


def unused_cut_file(
    exists: Callable[[str], bool], directory: str, base_offset: int, position: int
) -> str:
    """Return the first name of such a copy that no file in a partition directory has."""
    copies = (format_cut_file(base_offset, position, copy) for copy in count())
    return next(name for name in copies if not exists(f"{directory}/{name}"))


def parse_cut_file(name: str) -> CutFileName | None:
    """Parse the name of a copy of a truncated tail; None for other names."""
    match = re.fullmatch(_CUT_FILE, name)
    if match is None:
        return None
    return CutFileName(int(match[1]), int(match[2]), int(match[3] or 0))


def format_staged_file(query_key: bytes, batch: int, unique_id: bytes) -> str:
    """Name a file of staged records; ``query_key`` is 16 bytes that mean the query."""
    name = f"{_OWN_PREFIX}{query_key.hex()}.{batch}.{unique_id.hex()}{_STAGED}"
    if re.fullmatch(_STAGED_FILE, name) is None:
        raise ValueError(f"{name!r} cannot be the name of a staged file")
    return name


def parse_staged_file(name: str) -> StagedFileName | None:
    """Parse the name of a file of records that wait to be published; None for other names."""
    match = re.fullmatch(_STAGED_FILE, name)
    if match is None:
        return None
    return StagedFileName(bytes.fromhex(match[1]), int(match[2]), bytes.fromhex(match[3]))


def format_ledger_file(query_key: bytes) -> str:
    """Name the file in the root that says what of a query was published."""
    return f"{_OWN_PREFIX}{query_key.hex()}{_LEDGER}"


def is_ledger_file(name: str) -> bool:
    """Tell whether a file in the root says what of a query was published."""
    return re.fullmatch(_LEDGER_FILE, name) is not None


def format_forward_file(destination: int) -> str:
    """Name the file that says how far a partition was forwarded; a number of 32 bits."""
    return f"{_OWN_PREFIX}forward-{destination:08x}"


def is_forward_note(name: str) -> bool:
    """Tell whether a file says how far a partition was forwarded."""
    return re.fullmatch(_FORWARD_FILE, name) is not None


def is_forward_file(name: str) -> bool:
    """Tell whether a file is such a note, or the lock of the process that writes it."""
    return is_forward_note(name.removesuffix(LOCK_FILE))


def format_topic_id(topic_id: UUID) -> str:
    """Write a topic id as Kafka does: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> UUID:
    """Read a topic id of 22 characters; ValueError for anything else."""
    if re.fullmatch(_TOPIC_ID, text) is None:
        raise ValueError(f"{text!r} is not a topic id: 22 characters of base64 are expected")
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a topic id: {error}") from None


def is_usable_topic_id(topic_id: UUID) -> bool:
    """Tell whether a random id may be a topic's: not reserved (0, 1), text not beginning with "-".

    Source: Kafka Uuid.randomUuid.
    """
    return topic_id.int > 1 and not format_topic_id(topic_id).startswith("-")


def check_group(group: str) -> str:
    """Return the name of a consumer group; raise InvalidConfigError if it cannot be one."""
    if not group or len(group.encode("utf-8", "surrogatepass")) > _MAX_GROUP_BYTES:
        raise InvalidConfigError(
            f"group {group[:40]!r}: expected 1 to {_MAX_GROUP_BYTES} bytes of text"
        )
    try:
        group.encode()
    except UnicodeEncodeError:
        raise InvalidConfigError(f"group {group!r}: expected text, as UTF-8") from None
    return group
