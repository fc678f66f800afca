"""The growth of a directory: rates and sizes of its partitions, from headers and indexes.

Only the first batch is read and the headers after the last entry of an index. No lock is taken, and
the owner process of the directory may be writing.
"""

from dataclasses import dataclass

from logfs.config import StoreConfig, TopicConfig
from logfs.disk.vfs import Disk, File
from logfs.errors import InvalidConfigError, LogfsError
from logfs.log.indexes.index import OFFSET_INDEX, decode_offset_entry, without_zero_tail
from logfs.log.listing import list_partitions
from logfs.log.names import FileKind, FileSuffix, format_segment_file, parse_segment_file
from logfs.log.topics import effective_config, read_properties
from logfs.records._reading import header_ok
from logfs.records.batch import decode_header
from logfs.records.layout import HEADER_BYTES, is_message
from logfs.types import TopicPartition

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """The size and rate of a partition.

    Attributes:
        has_config: Whether the topic has one; without one logfs deletes nothing.
        records: Number of offsets from its first batch to its last.
        first_ms, last_ms: Timestamps of its first and last batch; None: it is empty.
    """

    topic_partition: TopicPartition
    config: TopicConfig
    has_config: bool
    records: int
    log_bytes: int
    index_bytes: int
    segments: int
    first_ms: int | None
    last_ms: int | None

    def seconds(self, now_ms: int) -> float:
        """Return how long the retained records took to write; at least a second."""
        if self.first_ms is None:
            return 1.0
        return max((max(now_ms, self.last_ms or 0) - self.first_ms) / _MS_PER_S, 1.0)

    def bytes_per_s(self, now_ms: int) -> float:
        """Return the growth of log and indexes in bytes per second."""
        return (self.log_bytes + self.index_bytes) / self.seconds(now_ms)

    def most_bytes(self, now_ms: int, store: StoreConfig) -> float:
        """Return its largest size on the disk at that rate; infinite if nothing is ever deleted.

        The present size of a compacted topic is taken for its clean part. To a topic that is copied
        to an object store the local retention applies, as if every sealed segment was copied.
        """
        config, rate = self.config, self.bytes_per_s(now_ms)
        if config.is_compacted:
            ratio = min(config.min_cleanable_dirty_ratio, 0.99)
            grown = self.log_bytes / (1 - ratio)
            return max(grown, self.log_bytes) + 2 * config.effective_segment_bytes
        age_ms = config.retention_ms if config.is_expiring else -1
        size_bytes = config.retention_bytes
        if config.remote_storage_enable and not config.remote_log_copy_disable:
            age_ms = config.effective_local_retention_ms
            size_bytes = config.effective_local_retention_bytes
        limits = []
        if self.has_config and age_ms >= 0:
            limits.append(rate * age_ms / _MS_PER_S)
        if self.has_config and size_bytes >= 0:
            limits.append(float(size_bytes))
        if not limits:
            return float("inf")
        step = min(config.effective_segment_bytes, rate * config.max_segment_ms / _MS_PER_S)
        late_ms = store.log_retention_check_interval_ms + config.file_delete_delay_ms
        return min(limits) + step + rate * late_ms / _MS_PER_S


def measure(disk: Disk, store: StoreConfig) -> list[Measured]:
    """Measure the partitions of a data directory; one that cannot be read is left out."""
    defaults = TopicConfig.from_properties(store.topic_defaults())
    found = []
    for topic_partition in sorted(list_partitions(disk)):
        try:
            found.append(_measure(disk, defaults, topic_partition))
        except FileNotFoundError:
            continue  # deleted meanwhile
    return found


def seconds_until_full(
    partitions: list[Measured], free_bytes: int, now_ms: int, store: StoreConfig
) -> float | None:
    """Return the time until a disk is full; None if it never is."""
    growths = []
    for partition in partitions:
        rate, size = partition.bytes_per_s(now_ms), partition.log_bytes + partition.index_bytes
        room = max(partition.most_bytes(now_ms, store) - size, 0.0)
        if rate > 0 and room > 0:
            growths.append((room / rate, rate))
    elapsed, left, rate = 0.0, float(free_bytes), sum(rate for _, rate in growths)
    for until, of_one in sorted(growths):
        if rate <= 0:
            break
        if rate * (until - elapsed) >= left:
            return elapsed + left / rate
        left -= rate * (until - elapsed)
        elapsed, rate = until, rate - of_one
    return None


def _measure(disk: Disk, defaults: TopicConfig, topic_partition: TopicPartition) -> Measured:
    directory = topic_partition.directory
    config, has_config = defaults, False
    try:
        properties = read_properties(disk, directory)
        config, has_config = effective_config(defaults, properties), properties is not None
    except (InvalidConfigError, LogfsError):
        pass  # the partition is offline, so nothing is deleted
    bases, log_bytes, index_bytes = [], 0, 0
    for name, is_directory in disk.list(directory):
        parsed = None if is_directory else parse_segment_file(name)
        if parsed is None or parsed.suffix is not FileSuffix.NONE:
            continue
        size = disk.stat(f"{directory}/{name}").size
        if parsed.kind is FileKind.LOG:
            bases.append(parsed.base_offset)
            log_bytes += size
        elif parsed.kind is not FileKind.SNAPSHOT:
            index_bytes += size
    records, first, last = _span(disk, directory, bases)
    if bases:
        index_bytes -= _unused(disk, directory, bases[-1])
    return Measured(
        topic_partition,
        config,
        has_config,
        records,
        log_bytes,
        index_bytes,
        len(bases),
        first,
        last,
    )


def _span(disk: Disk, directory: str, bases: list[int]) -> tuple[int, int | None, int | None]:
    """Return the number of offsets, and the timestamps of the first and the last batch."""
    first_offset, first_ms = 0, None
    for base in bases:
        log = disk.open(f"{directory}/{format_segment_file(base, FileKind.LOG)}")
        head = log.pread(HEADER_BYTES, 0)
        if header_ok(head, 0, log.size()) and not is_message(head):
            header = decode_header(head, 0)
            first_offset, first_ms = header.base_offset, header.max_timestamp
            break
    for base in reversed(bases):
        found = _last_of(disk, directory, base)
        if found is not None:
            return found[0] + 1 - first_offset, first_ms, found[1]
    return 0, first_ms, first_ms


def _last_of(disk: Disk, directory: str, base: int) -> tuple[int, int] | None:
    """Return the last offset of a segment and the timestamp of its last batch."""
    log = disk.open(f"{directory}/{format_segment_file(base, FileKind.LOG)}")
    position, size, found = _last_indexed(disk, directory, base, log), log.size(), None
    while position + HEADER_BYTES <= size:
        head = log.pread(HEADER_BYTES, position)
        if not header_ok(head, 0, size - position) or is_message(head):
            break
        header = decode_header(head, 0)
        found = header.last_offset, header.max_timestamp
        position += header.size_bytes
    return found


def _last_indexed(disk: Disk, directory: str, base: int, log: File) -> int:
    """Return the file position in the last entry of an offset index; 0 if there is none."""
    try:
        data = disk.read(f"{directory}/{format_segment_file(base, FileKind.OFFSET_INDEX)}", None)
    except FileNotFoundError:
        return 0
    used = without_zero_tail(memoryview(data), OFFSET_INDEX.entry_bytes)
    count = len(used) // OFFSET_INDEX.entry_bytes
    position = decode_offset_entry(used, count - 1, base).position if count else 0
    head = log.pread(HEADER_BYTES, position) if position > 0 else b""
    return position if header_ok(head, 0, log.size() - position) else 0


def _unused(disk: Disk, directory: str, base: int) -> int:
    """Return how many bytes of the last segment's indexes are preallocated and unused."""
    unused = 0
    for kind, entry_bytes in ((FileKind.OFFSET_INDEX, 8), (FileKind.TIME_INDEX, 12)):
        try:
            data = memoryview(disk.read(f"{directory}/{format_segment_file(base, kind)}", None))
        except FileNotFoundError:
            continue
        unused += len(data) - len(without_zero_tail(data, entry_bytes))
    return unused
