"""Whether a backup can be read: every batch of it, at the place that the segment table says."""

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log.host import Host
from logfs.log.loading.given import Loading
from logfs.log.loading.loader import load_partition
from logfs.log.loading.scan import scan_segment
from logfs.log.partition import PartitionLog
from logfs.log.segments.segment import OpenSegments
from logfs.types import Positions, TopicPartition


def load_copy(
    disk: Disk,
    host: Host,
    topic_partition: TopicPartition,
    start_offset: int,
    now_ms: int,
    *,
    is_clean: bool,
) -> PartitionLog:
    """Load a partition of a backup to look at it; nothing is changed.

    Raises:
        LogfsError, OSError: See ``load_partition``.
    """
    loading = Loading(
        disk,
        host,
        OpenSegments(disk),
        TopicConfig(),
        is_clean,
        {},
        {topic_partition: start_offset},
        now_ms,
        read_only=True,
    )
    return load_partition(loading, topic_partition)


def problems_of(log: PartitionLog) -> list[str]:
    """Read every batch of a partition; returns what is wrong, a line for each segment."""
    snapshot, problems = log.snapshot, []
    for number, segment in enumerate(snapshot.segments):
        ends, next_offset, size = snapshot.end_of(number)
        file = log.disk.open(segment.name)
        scan = scan_segment(file, segment, log.config, pass_over_corrupt=True)
        file.close()
        builder = scan.builder
        lengths = Positions(builder.text, builder.tsv, builder.jsonl)
        if scan.corrupt:
            position, _, why = scan.corrupt[0]
            problems.append(f"{segment.name}: the batch at byte {position} cannot be read: {why}")
        elif scan.valid_bytes != size:
            problems.append(f"{segment.name}: {scan.valid_bytes} bytes of batches, expected {size}")
        elif size and builder.next_offset != next_offset:
            problems.append(f"{segment.name}: ends at {builder.next_offset}, not {next_offset}")
        elif not segment.has_gaps and segment.bases.plus(lengths) != ends:
            problems.append(f"{segment.name}: its records take other positions than the table says")
    return problems
