"""``logfs compact --spark``: a log whose keys do not fit into one machine's memory, in one round.

Spark finds the last record of every key (``keys``), which may need more memory than one machine
has. Executors read the segments, shuffle hashes and offsets in blobs, and return a bit for each
offset. The driver, which has the lock, then rewrites the log segment by segment with
the code of every compaction: filter, text index, transactions that continue from one segment to the
next, the swap that a crash at any step survives. So only one process ever writes to the
directory, and what is left is byte for byte what compaction on one machine leaves.

Until the first segment is swapped nothing has changed; from then on a job that is killed has
compacted some, and another one all of it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import arrow_udf, explode

from logfs.disk.posix import PosixDisk
from logfs.log.segments.snapshot import Snapshot
from logfs.records._compaction import OffsetMap
from logfs.services.compaction.dirtyrange import DirtyRange
from logfs.services.compaction.offsetmap import Keys, find_keys
from logfs.services.compaction.tools import CleanerStats, CleaningTools
from logfs.spark.jobs.keys import (
    KeyScan,
    SegmentKeys,
    count_buckets,
    mark,
    reduce,
    scan,
    segments_of,
    unpack,
)
from logfs.spark.jobs.running import Progress, SparkJob, pack, set_imports_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BLOBS = "array<struct<number:int,blob:binary>>"
_BLOBS_IN_ARROW = pa.list_(pa.struct([("number", pa.int32()), ("blob", pa.binary())]))
_SMALLEST_MAP = 24 * 2


class SparkKeys:
    """Finds the last offset of every key of a log; tells bytes read, and bytes in all."""

    def __init__(self, spark: "SparkSession", root: str, progress: Progress) -> None:
        self._job = SparkJob(spark, f"logfs compact {root}", progress)
        self._root = root

    def find(
        self, snapshot: Snapshot, dirty: DirtyRange, tools: CleaningTools, stats: CleanerStats
    ) -> Keys:
        """Find them: a ``logfs.services.compaction.offsetmap.FindKeys``; raise SparkJobError."""
        segments = segments_of(snapshot, dirty)
        if dirty.first_dirty >= dirty.first_uncleanable:
            return find_keys(snapshot, dirty, tools, stats)  # nothing new: there is nothing to read
        job = KeyScan(tools.new_id(), count_buckets(segments, self._job.cores))
        marked = self._run(segments, job)
        spans = {s.base_offset: s.next_base - s.base_offset for s in segments}
        known = OffsetMap(_SMALLEST_MAP, 1, job.hash_key)
        known.pass_to(dirty.first_uncleanable - 1)
        stats.map_bytes_read += sum(segment.size_bytes for segment in segments)
        return Keys(known, lambda base, _: unpack(marked.get(base), spans[base]))

    def _run(self, segments: Sequence[SegmentKeys], job: KeyScan) -> dict[int, bytes]:
        """Return the bits of each segment, by base offset."""
        sizes = [segment.size_bytes for segment in segments]
        groups = [[segments[n] for n in group] for group in pack(sizes, self._job.cores)]
        bases = [segment.base_offset for segment in segments]
        spans = [segment.next_base - segment.base_offset for segment in segments]
        root = self._root

        def read(numbers: Iterator[pa.Array]) -> Iterator[pa.Array]:
            set_imports_aside()
            disk = PosixDisk(root)
            for some in numbers:
                rows = [
                    [row for segment in groups[i] for row in scan(disk, segment, job)]
                    for i in some.to_pylist()
                ]
                yield pa.array(rows, _BLOBS_IN_ARROW)

        def merge(blobs: pa.Array) -> Any:  # noqa: ANN401 - what a row of _BLOBS is
            found = reduce([blob.as_buffer() for blob in blobs], bases)
            return [{"number": number, "blob": blob} for number, blob in found]

        def bits(numbers: pa.Array, blobs: pa.Array) -> bytes:
            return mark([blob.as_buffer() for blob in blobs], spans[numbers[0].as_py()])

        def pairs(table: "DataFrame") -> "DataFrame":
            return table.select(explode("rows").alias("row")).select("row.number", "row.blob")

        numbers = self._job.numbers(len(groups))
        by_bucket = pairs(numbers.select(arrow_udf(read, _BLOBS)("id").alias("rows")))
        reduced = by_bucket.groupBy("number").agg(arrow_udf(merge, _BLOBS)("blob").alias("rows"))
        by_segment = pairs(reduced)
        marked = by_segment.groupBy("number").agg(arrow_udf(bits, "binary")("number", "blob"))
        table = self._job.collect(marked, sum(sizes))
        found = zip(*(table.column(n).to_pylist() for n in range(2)), strict=True)
        return {bases[number]: packed for number, packed in found}
