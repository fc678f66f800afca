"""The small files of a data directory and of its partitions, and files that should not be there."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.vfs import LARGER_FILE_BYTES, TEMPORARY_SUFFIX, Disk
from logfs.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    InvalidConfigError,
    UnsupportedFormatError,
)
from logfs.log import names
from logfs.log.checkpoints import (
    EpochEntry,
    parse_entries,
    parse_offsets,
    read_clean_shutdown,
    read_leader_epochs,
    read_partition_metadata,
)
from logfs.log.losses import Loss
from logfs.log.names import DirectoryState, FileKind, FileSuffix
from logfs.log.producers.snapshots import ENTRY, HEADER, decode_snapshot, snapshot_name
from logfs.log.store import was_clean
from logfs.log.topics import effective_config, read_properties
from logfs.records.jsontext import decode_object
from logfs.services.verifying.findings import Finding, Level, note, refused
from logfs.types import TopicPartition

_KNOWN = {
    names.LEADER_EPOCH_CHECKPOINT,
    names.PARTITION_METADATA,
    names.SEGMENT_TABLE,
    names.TOPIC_CONFIG,
    names.LOSSES,
    names.MIRROR,
    names.TIERED,
    names.OWNED,
}
_OF_OURS: tuple[tuple[Callable[[str], object], str, str], ...] = (
    (names.parse_unfinished_file, "a line without an end", "the next start makes a record of it"),
    (
        names.parse_cut_file,
        "a tail that recovery truncated",
        "look at it (logfs.losses says why), then remove it",
    ),
    (
        names.parse_staged_file,
        "records that a job has staged",
        "the job publishes it; a start removes it after a week without the job",
    ),
)
_ONLY_READ = {
    names.ATTRIBUTES,
    names.CLOSED,
    names.META_PROPERTIES,
    names.MIRROR,
    names.OWNED,
    names.REMOTE,
    names.REMOTE_HOME,
}
_PIECE_BYTES = 1 << 20
_REMOVES = "the next start removes it"
_CANNOT_LOAD = "the partition cannot be loaded: restore the file, or"


class SmallFiles:
    """The small files of a partition, with findings from reading them.

    Attributes:
        config: Configuration of the topic; the defaults if it does not parse.
        has_config: Whether the topic has its own configuration.
        epochs: The leader epochs; none if they do not parse.
    """

    def __init__(self, disk: Disk, directory: str, defaults: TopicConfig) -> None:
        self._disk = disk
        self._directory = directory
        self.findings: list[Finding] = []
        self.config, self.has_config = defaults, False
        self.epochs: tuple[EpochEntry, ...] = ()
        self._read_config(defaults)
        try:
            self.epochs = tuple(read_leader_epochs(disk, directory))
        except CorruptCheckpointError as error:
            self.findings.append(
                _unparsed(error, f"{_CANNOT_LOAD} remove it: the next start makes it again")
            )

    def check(self, end_offset: int, listed: Collection[str], *, is_own: bool) -> None:
        """Check all of them but the configuration; ``is_own``: logfs wrote to the partition."""
        for number, entry in enumerate(self.epochs):
            if entry.start_offset > end_offset:
                file = f"{self._directory}/{names.LEADER_EPOCH_CHECKPOINT}"
                problem = f"epoch {entry.epoch} starts at offset {entry.start_offset}"
                right, remedy = f"{end_offset} at most", "the next start drops it"
                self.findings.append(Finding(file, None, problem, right, remedy, line=number + 3))
        if names.LEADER_EPOCH_CHECKPOINT not in listed and is_own:
            self._missing(names.LEADER_EPOCH_CHECKPOINT, "the next start makes it again")
        if names.PARTITION_METADATA not in listed and is_own:
            remedy = "copy it from another partition of the topic: without it a broker makes a new "
            self._missing(names.PARTITION_METADATA, f"{remedy}topic of it")
        try:
            read_partition_metadata(self._disk, self._directory)
        except CorruptCheckpointError as error:
            remedy = f"{_CANNOT_LOAD} copy it from another partition of the topic"
            self.findings.append(_unparsed(error, remedy))
        if names.LOSSES in listed:
            self.findings += self.losses()[1]
        for name in listed:
            parsed = names.parse_segment_file(name)
            if parsed is not None and parsed[1:] == (FileKind.SNAPSHOT, FileSuffix.NONE):
                self._check_snapshot(parsed.base_offset, end_offset)

    def _read_config(self, defaults: TopicConfig) -> None:
        try:
            properties = read_properties(self._disk, self._directory)
            self.config = effective_config(defaults, properties)
            self.has_config = properties is not None
        except (InvalidConfigError, UnsupportedFormatError) as error:
            file = f"{self._directory}/{names.TOPIC_CONFIG}"
            remedy = f"{_CANNOT_LOAD} copy it from another partition of the topic"
            problem = " ".join(str(error).removeprefix(f"{file}: ").split())
            self.findings.append(Finding(file, None, problem, "", remedy))

    def losses(self) -> tuple[list[Loss], list[Finding]]:
        """Return the losses that ``logfs.losses`` lists, and the findings in that file."""
        file = f"{self._directory}/{names.LOSSES}"
        losses, findings = list[Loss](), list[Finding]()
        try:
            lines = self._disk.read(file).splitlines()
        except FileNotFoundError:
            return losses, findings
        for number, line in enumerate(lines, 1):
            try:
                row = decode_object(line)
                is_right = row.keys() == ({"version"} if number == 1 else set(Loss._fields))
            except ValueError:
                row, is_right = {}, False
            if not is_right:
                right = '{"version": 1}' if number == 1 else "a loss, as a JSON object"
                problem, remedy = f"{bytes(line[:40])!r}", "it is ignored"
                findings.append(Finding(file, None, problem, right, remedy, line=number))
            elif number > 1:
                losses.append(Loss(**row))
        if losses:
            what = f"{len(losses)} losses are recorded" if len(losses) > 1 else "a loss is recorded"
            findings.append(note(file, what, "the file says what, when and where it is now"))
        return losses, findings

    def _check_snapshot(self, offset: int, end_offset: int) -> None:
        file = snapshot_name(self._directory, offset)
        remedy = "the next start uses the one before it; remove it"
        try:
            entries = decode_snapshot(self._disk.read(file, LARGER_FILE_BYTES), file)
        except FileNotFoundError:
            return
        except CorruptIndexError as error:
            problem = str(error).removeprefix(f"{file}: ")
            self.findings.append(Finding(file, 0, problem, "", remedy))
            return
        if offset > end_offset:
            what = "it lies after the end of the log"
            self.findings.append(Finding(file, None, what, f"{end_offset} at most", remedy))
        for number, entry in enumerate(entries):
            last = entry.batches[-1].last_offset if entry.batches else -1
            if max(last, entry.transaction_offset or 0) >= offset > 0:
                at = HEADER.size + number * ENTRY.size
                problem = f"entry {number}: offset {last}"
                self.findings.append(Finding(file, at, problem, f"less than {offset}", remedy))

    def _missing(self, name: str, remedy: str) -> None:
        self.findings.append(Finding(f"{self._directory}/{name}", None, "missing", "", remedy))


def _unparsed(error: CorruptCheckpointError, remedy: str) -> Finding:
    """Return the finding for a checkpoint file that does not parse."""
    problem = str(error).removeprefix(error.name).removeprefix(f", line {error.line}")
    return Finding(error.name, None, problem.removeprefix(": "), "", remedy, line=error.line)


def find_irregular(disk: Disk, directory: str) -> list[Finding]:
    """Return a finding for each name that is neither a regular file nor a directory.

    logfs reads none of these.

    Args:
        disk: The data directory.
        directory: Relative to it. "" is the data directory itself; its control socket and its
            partitions are left out.
    """
    remedy = "move it away, or put a regular file or a bind mount in its place"
    return [
        Finding(f"{directory}/{name}" if directory else name, None, kind, "", remedy)
        for name, kind in disk.contents(directory).irregular
        if directory
        or not (name == names.CONTROL_SOCKET or names.parse_partition_directory(name) is not None)
    ]


def find_unreadable(disk: Disk, directory: str, listed: Collection[str]) -> list[Finding]:
    """Return findings for those small files whose content is not checked, only that it is read."""
    found = []
    for name in sorted(listed):
        is_small = name in _ONLY_READ or names.is_forward_file(name)
        if not (is_small or any(parse(name) is not None for parse, *_ in _OF_OURS)):
            continue
        file = f"{directory}/{name}" if directory else name
        try:
            opened = disk.open(file)
            try:
                for at in range(0, opened.size(), _PIECE_BYTES):
                    opened.pread(_PIECE_BYTES, at)
            finally:
                opened.close()
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(refused(file, error, "move it away"))
    return found


def find_leftovers(
    directory: str, listed: Collection[str], bases: Collection[int]
) -> list[Finding]:
    """Return findings for the other files of a partition that no process is writing to."""
    found = [_judge(f"{directory}/{name}", name, bases) for name in sorted(listed)]
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in found:
        if finding is not None and finding.level is Level.NOTE:
            alike.setdefault((finding.problem, finding.remedy), []).append(finding)
    notes = [
        notes[0] if len(notes) == 1 else note(directory, f"{len(notes)} files: {what}", remedy)
        for (what, remedy), notes in alike.items()
    ]
    return [f for f in found if f is not None and f.level is Level.DAMAGE] + notes


def _judge(file: str, name: str, bases: Collection[int]) -> Finding | None:
    parsed = names.parse_segment_file(name)
    if name in _KNOWN or names.is_forward_file(name):
        return None
    if parsed is not None and parsed.suffix is FileSuffix.NONE:
        if parsed.base_offset in bases or parsed.kind is FileKind.SNAPSHOT:
            return None
        return Finding(file, None, "there is no .log next to it", "one", _REMOVES)
    if names.stops_kafka(name):
        problem = "named like a file of a segment, but does not start with an offset of 20 digits"
        return Finding(file, None, problem, "", "no broker starts with it: move it away")
    return note(file, *_purpose_of(name))


def _purpose_of(name: str) -> tuple[str, str]:
    """Return what an unneeded file is, and what happens to it."""
    parsed = names.parse_segment_file(name)
    suffix = None if parsed is None else parsed.suffix
    if suffix is FileSuffix.SWAP:
        return "a compaction was interrupted", "the next start completes it"
    if suffix is FileSuffix.CLEANED or names.is_leftover(name):
        is_new = suffix is FileSuffix.CLEANED
        what = "a compaction was interrupted" if is_new else "of a segment that was deleted"
        return what, _REMOVES
    for parse, what, remedy in _OF_OURS:
        if parse(name) is not None:
            return what, remedy
    if name.endswith(TEMPORARY_SUFFIX):
        return "the writing of a file was interrupted", "remove it"
    return "not a file of logfs or Kafka", "both ignore it"


Offsets = dict[TopicPartition, int]

_REMEDIES = {
    names.RECOVERY_POINT_CHECKPOINT: "records that were durable are gone: restore the log",
    names.LOG_START_OFFSET_CHECKPOINT: "the next start removes all segments and starts there",
    names.REPLICATION_OFFSET_CHECKPOINT: "the next start takes the end of the log instead",
    names.CLEANER_OFFSET_CHECKPOINT: "the next compaction starts at the start of the log",
}
_KNOWN_IN_ROOT = {
    *_REMEDIES,
    names.LOCK_FILE,
    names.CLEAN_SHUTDOWN,
    names.META_PROPERTIES,
    names.ATTRIBUTES,
    names.DAEMON,
    names.CONTROL_SOCKET,
    names.BACKUP,
    names.CLOSED,
    names.REMOTE,
    names.REMOTE_HOME,
    names.BOOTSTRAP_CHECKPOINT,
}
_ZERO = "the next start takes 0 for every partition; restore it or remove it"
_DIRECTORIES = {names.REMOTE_INDEX_DIRECTORY, "lost+found"}


@dataclass(slots=True)
class RootState:
    """The files in the root of a data directory.

    Attributes:
        is_live: A process owns the directory and may be writing.
        is_clean: Its last owner stopped cleanly.
        offsets: The rows of each offset checkpoint.
        lines: The line number of each of these rows.
    """

    defaults: TopicConfig
    is_live: bool = False
    is_clean: bool = False
    offsets: dict[str, Offsets] = field(default_factory=dict)
    lines: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def recovery_points(self) -> Offsets:
        """The first offset of each partition that may not be durable."""
        return self.offsets.get(names.RECOVERY_POINT_CHECKPOINT, {})

    @property
    def start_offsets(self) -> Offsets:
        """The log start offsets that are above the first segment's base offset."""
        return self.offsets.get(names.LOG_START_OFFSET_CHECKPOINT, {})

    @property
    def cleaner_offsets(self) -> Offsets:
        """Where the last compaction of each partition ended."""
        return self.offsets.get(names.CLEANER_OFFSET_CHECKPOINT, {})

    def outside(self, topic_partition: TopicPartition, end_offset: int) -> list[Finding]:
        """Return findings for checkpoints of a partition that are beyond the end of its log."""
        findings = []
        for file, offsets in self.offsets.items():
            offset = offsets.get(topic_partition, 0)
            if offset > end_offset:
                problem = f"{topic_partition.topic} {topic_partition.partition} {offset}"
                right, line = f"{end_offset} at most", self.lines[file].get(topic_partition)
                remedy = _REMEDIES[file]
                findings.append(Finding(file, None, problem, right, remedy, line=line))
        return findings


def read_root(disk: Disk, defaults: TopicConfig, boot_id: str) -> RootState:
    """Read the files in the root of a data directory, on a machine with this boot id."""
    state = RootState(defaults, is_live=disk.is_locked(names.LOCK_FILE))
    state.is_clean = was_clean(disk, boot_id)
    for file in _REMEDIES:
        _read(disk, state, file)
    try:
        read_clean_shutdown(disk)
    except CorruptCheckpointError as error:
        _add(state, error, "only its existence matters; the next start removes it")
    except OSError as error:
        state.findings.append(refused(names.CLEAN_SHUTDOWN, error, "the next start removes it"))
    listed = [name for name, is_directory in disk.list("") if not is_directory]
    state.findings += find_unreadable(disk, "", listed)
    if not state.is_live:
        _look_for_leftovers(disk, state)
    return state


def _read(disk: Disk, state: RootState, file: str) -> None:
    try:
        data = disk.read(file)
        offsets = state.offsets[file] = parse_offsets(data, file)
    except FileNotFoundError:
        return
    except CorruptCheckpointError as error:
        _add(state, error, _ZERO)
        return
    except OSError as error:
        state.findings.append(refused(file, error, _ZERO))
        return
    rows = {(f[0], int(f[1])): number for number, f in parse_entries(data, file, field_count=3)}
    state.lines[file] = {tp: rows[tp] for tp in offsets}


def _add(state: RootState, error: CorruptCheckpointError, remedy: str) -> None:
    state.findings.append(_unparsed(error, remedy))


def _look_for_leftovers(disk: Disk, state: RootState) -> None:
    state.findings += find_irregular(disk, "")
    for name, is_directory in disk.list(""):
        found = _judge_directory(name) if is_directory else _judge_file(name)
        if found is not None:
            state.findings.append(note(name, *found))


def _judge_file(name: str) -> tuple[str, str] | None:
    if name.endswith(TEMPORARY_SUFFIX):
        return "the writing of a file was interrupted", "remove it"
    if name in _KNOWN_IN_ROOT or names.is_ledger_file(name):
        return None
    return "not a file of logfs or Kafka", "both ignore it"


def _judge_directory(name: str) -> tuple[str, str] | None:
    parsed = names.parse_partition_directory(name)
    if parsed is None:
        if name in _DIRECTORIES:
            return None
        return "not the directory of a partition", "no broker starts with it: move it away"
    if parsed.state is DirectoryState.DELETE:
        return "of a topic that was deleted", "the next start removes it"
    return None if parsed.state is DirectoryState.NONE else ("left by a broker", "logfs ignores it")
