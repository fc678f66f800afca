"""The small files of a partition directory, and those that should not be there."""

import json
from collections.abc import Callable, Collection

from logfs.config import TopicConfig
from logfs.disk.vfs import LARGER_FILE_BYTES, TEMPORARY_SUFFIX, Disk
from logfs.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    InvalidConfigError,
    UnsupportedFormatError,
)
from logfs.log import names
from logfs.log.checkpoints import EpochEntry, read_leader_epochs, read_partition_metadata
from logfs.log.losses import Loss
from logfs.log.names import FileKind, FileSuffix
from logfs.log.producers.snapshots import ENTRY, HEADER, decode_snapshot, snapshot_name
from logfs.log.topics import effective_config, read_properties
from logfs.log.verifying.findings import Finding, Level, note

_KNOWN = {
    names.LEADER_EPOCH_CHECKPOINT,
    names.PARTITION_METADATA,
    names.SEGMENT_TABLE,
    names.TOPIC_CONFIG,
    names.LOSSES,
}
_OF_OURS: tuple[tuple[Callable[[str], object], str, str], ...] = (
    (names.parse_unfinished_file, "a line without an end", "the next start makes a record of it"),
    (
        names.parse_cut_file,
        "what recovery has cut off",
        "look at it (logfs.losses says why), then remove it",
    ),
    (
        names.parse_staged_file,
        "what a job has staged",
        "its job publishes it; a week after the job has gone the next start removes it",
    ),
)
_REMOVES = "the next start removes it"
_CANNOT_LOAD = "the partition cannot be loaded: restore the file, or"


class SmallFiles:
    """What the small files of a partition say; reading them finds what is wrong with them.

    Attributes:
        findings: What is wrong.
        config: Of the topic; the defaults where it does not parse.
        has_config: Whether the topic has a configuration of its own.
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
            self._add_checkpoint(error, f"{_CANNOT_LOAD} remove it: the next start makes it again")

    def check(self, end_offset: int, listed: Collection[str], *, is_own: bool) -> None:
        """Check all but the configuration.

        Args:
            end_offset: Of the log.
            listed: The names of all files.
            is_own: logfs has written to the partition.
        """
        for number, entry in enumerate(self.epochs):
            if entry.start_offset > end_offset:
                file = f"{self._directory}/{names.LEADER_EPOCH_CHECKPOINT}"
                problem = f"epoch {entry.epoch} begins at offset {entry.start_offset}"
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
            self._add_checkpoint(error, remedy)
        if names.LOSSES in listed:
            self._check_losses()
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

    def _check_losses(self) -> None:
        file = f"{self._directory}/{names.LOSSES}"
        try:
            lines = self._disk.read(file).splitlines()
        except FileNotFoundError:
            return
        losses = 0
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                is_right = row.keys() == ({"version"} if number == 1 else set(Loss._fields))
            except (ValueError, RecursionError, AttributeError):
                is_right = False
            losses += number > 1 and is_right
            if not is_right:
                right = '{"version": 1}' if number == 1 else "a loss, as a JSON object"
                problem, remedy = f"{bytes(line[:40])!r}", "it is passed over"
                self.findings.append(Finding(file, None, problem, right, remedy, line=number))
        if losses:
            what = f"{losses} losses are noted" if losses > 1 else "a loss is noted"
            self.findings.append(note(file, what, "the file says what, when and where it is now"))

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

    def _add_checkpoint(self, error: CorruptCheckpointError, remedy: str) -> None:
        problem = str(error).removeprefix(error.name).removeprefix(f", line {error.line}")
        problem = problem.removeprefix(": ")
        self.findings.append(Finding(error.name, None, problem, "", remedy, line=error.line))

    def _missing(self, name: str, remedy: str) -> None:
        self.findings.append(Finding(f"{self._directory}/{name}", None, "missing", "", remedy))


def find_irregular(disk: Disk, directory: str) -> list[Finding]:
    """Report what is neither a regular file nor a directory: logfs reads none of it.

    Args:
        disk: The data directory.
        directory: Relative to it; "" is the data directory itself, with its control socket.
            Partitions in it are reported by themselves.
    """
    remedy = "move it away, or put a regular file or a bind mount in its place"
    return [
        Finding(f"{directory}/{name}" if directory else name, None, kind, "", remedy)
        for name, kind in disk.irregular(directory)
        if directory
        or not (name == names.CONTROL_SOCKET or names.parse_partition_directory(name) is not None)
    ]


def find_leftovers(
    directory: str, listed: Collection[str], bases: Collection[int]
) -> list[Finding]:
    """Say what else lies in a partition directory that nobody is writing to.

    Args:
        directory: Of the partition.
        listed: The names of its files.
        bases: Base offsets of its segments.
    """
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
    if name in _KNOWN:
        return None
    if parsed is not None and parsed.suffix is FileSuffix.NONE:
        if parsed.base_offset in bases or parsed.kind is FileKind.SNAPSHOT:
            return None
        return Finding(file, None, "there is no .log beside it", "one", _REMOVES)
    if names.stops_kafka(name):
        problem = "named like a file of a segment, without 20 digits of an offset in front"
        return Finding(file, None, problem, "", "no broker starts with it: move it away")
    return note(file, *_purpose_of(name))


def _purpose_of(name: str) -> tuple[str, str]:
    """Return what a file is that could as well be gone, and what becomes of it."""
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
    return "not a file of logfs or Kafka", "neither minds it"
