"""The files in the root of a data directory: checkpoints, the marker of a clean stop, the rest."""

from dataclasses import dataclass, field

from logfs.config import TopicConfig
from logfs.disk.vfs import REFUSED, TEMPORARY_SUFFIX, Disk
from logfs.errors import CorruptCheckpointError
from logfs.log import names
from logfs.log.checkpoints import parse_offsets, read_clean_shutdown
from logfs.log.closing import last_stop
from logfs.log.loading.loader import list_partitions
from logfs.log.names import DirectoryState
from logfs.log.verifying.files import find_irregular
from logfs.log.verifying.findings import Finding, note
from logfs.types import TopicPartition

Offsets = dict[TopicPartition, int]

_REMEDIES = {
    names.RECOVERY_POINT_CHECKPOINT: "records that were durable are gone: restore the log",
    names.LOG_START_OFFSET_CHECKPOINT: "the next start removes all segments and begins there",
    names.REPLICATION_OFFSET_CHECKPOINT: "the next start takes the end of the log instead",
    names.CLEANER_OFFSET_CHECKPOINT: "the next compaction begins at the start of the log",
}
_KNOWN = {
    *_REMEDIES,
    names.LOCK_FILE,
    names.CLEAN_SHUTDOWN,
    names.META_PROPERTIES,
    names.ATTRIBUTES,
    names.DAEMON,
    names.CONTROL_SOCKET,
    names.BACKUP,
    names.CLOSED,
    names.BOOTSTRAP_CHECKPOINT,
}
_ZERO = "the next start takes 0 for every partition; restore it or remove it"
_DIRECTORIES = {names.REMOTE_INDEX_DIRECTORY, "lost+found"}


@dataclass(slots=True)
class RootLook:
    """What the root of a data directory says.

    Attributes:
        defaults: Configuration of topics.
        is_live: Somebody owns the directory and may be writing.
        is_clean: Its last owner stopped cleanly.
        findings: What is wrong.
    """

    defaults: TopicConfig
    is_live: bool = False
    is_clean: bool = False
    offsets: dict[str, Offsets] = field(default_factory=dict)
    lines: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def recovery_points(self) -> Offsets:
        """First offset of each partition that may not be durable."""
        return self.offsets.get(names.RECOVERY_POINT_CHECKPOINT, {})

    @property
    def start_offsets(self) -> Offsets:
        """Log start offsets that lie above the first segment's base."""
        return self.offsets.get(names.LOG_START_OFFSET_CHECKPOINT, {})

    @property
    def cleaner_offsets(self) -> Offsets:
        """Where the last compaction of each partition ended."""
        return self.offsets.get(names.CLEANER_OFFSET_CHECKPOINT, {})

    def outside(self, topic_partition: TopicPartition, end_offset: int) -> list[Finding]:
        """Return the checkpoints of a partition that lie after the end of its log."""
        findings = []
        for file, offsets in self.offsets.items():
            offset = offsets.get(topic_partition, 0)
            if offset > end_offset:
                problem = f"{topic_partition.topic} {topic_partition.partition} {offset}"
                right, line = f"{end_offset} at most", self.lines[file].get(topic_partition)
                remedy = _REMEDIES[file]
                findings.append(Finding(file, None, problem, right, remedy, line=line))
        return findings


def look_at_root(disk: Disk, defaults: TopicConfig, boot_id: str) -> RootLook:
    """Read the files in the root of a data directory, on a machine with this boot id."""
    look = RootLook(defaults, is_live=disk.is_locked(names.LOCK_FILE))
    look.is_clean = last_stop(disk, boot_id, list_partitions(disk)).is_clean
    for file in _REMEDIES:
        _read(disk, look, file)
    try:
        read_clean_shutdown(disk)
    except CorruptCheckpointError as error:
        _add(look, error, "that it is there counts; it goes with the next start")
    except OSError as error:
        _add_refused(look, names.CLEAN_SHUTDOWN, error, "the next start removes it")
    if not look.is_live:
        _look_for_leftovers(disk, look)
    return look


def _read(disk: Disk, look: RootLook, file: str) -> None:
    try:
        data = disk.read(file)
        offsets = look.offsets[file] = parse_offsets(data, file)
    except FileNotFoundError:
        return
    except CorruptCheckpointError as error:
        _add(look, error, _ZERO)
        return
    except OSError as error:
        _add_refused(look, file, error, _ZERO)
        return
    text = data.decode().splitlines()[2:]
    rows = {tuple(line.split()[:2]): number for number, line in enumerate(text, 3)}
    look.lines[file] = {tp: rows[tp.topic, str(tp.partition)] for tp in offsets}


def _add_refused(look: RootLook, file: str, error: OSError, remedy: str) -> None:
    """Report a file that is not regular, or too large.

    Raises:
        OSError: It is an error of the disk.
    """
    if error.errno not in REFUSED:
        raise error
    look.findings.append(Finding(file, None, str(error.strerror), "", remedy))


def _add(look: RootLook, error: CorruptCheckpointError, remedy: str) -> None:
    problem = str(error).removeprefix(error.name).removeprefix(f", line {error.line}")
    finding = Finding(error.name, None, problem.removeprefix(": "), "", remedy, line=error.line)
    look.findings.append(finding)


def _look_for_leftovers(disk: Disk, look: RootLook) -> None:
    look.findings += find_irregular(disk, "")
    for name, is_directory in disk.list(""):
        found = _judge_directory(name) if is_directory else _judge_file(name)
        if found is not None:
            look.findings.append(note(name, *found))


def _judge_file(name: str) -> tuple[str, str] | None:
    if name.endswith(TEMPORARY_SUFFIX):
        return "the writing of a file was interrupted", "remove it"
    if name in _KNOWN or names.is_ledger_file(name):
        return None
    return "not a file of logfs or Kafka", "neither minds it"


def _judge_directory(name: str) -> tuple[str, str] | None:
    parsed = names.parse_partition_directory(name)
    if parsed is None:
        if name in _DIRECTORIES:
            return None
        return "not the directory of a partition", "no broker starts beside it: move it away"
    if parsed.state is DirectoryState.DELETE:
        return "of a topic that was deleted", "the next start removes it"
    return None if parsed.state is DirectoryState.NONE else ("left by a broker", "logfs passes it")
