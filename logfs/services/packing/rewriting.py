"""One sealed segment becomes its packed files."""

from dataclasses import dataclass

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.errors import CorruptRecordError
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.segments.segment import Segment
from logfs.log.segments.table import SegmentState, TableEntry
from logfs.log.topics import sealed_codec
from logfs.records._indexing import IndexBuilder
from logfs.records._packing import BatchPacker
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES
from logfs.services.compaction.cleanedfiles import CleanedFiles
from logfs.services.compaction.tools import CleaningTools
from logfs.types import Positions

BATCH_BYTES = 64 * 1024
"""Records of a merged batch, uncompressed: enough for a good ratio, little enough that a look-up
decompresses it in a fraction of a millisecond."""


@dataclass(frozen=True, slots=True)
class PackingResult:
    """What packing makes of a segment.

    Attributes:
        entry: The table entry of the packed segment; None if it would not be smaller.
        read_bytes, written_bytes: Bytes of the ``.log``, before and after.
        read_batches: Batches before.
    """

    entry: TableEntry | None
    read_bytes: int
    written_bytes: int
    read_batches: int


class PackedSegment:
    """The packed files of a segment: ``write`` them, then replace the segment, or ``discard``.

    Args:
        aborted: The entries of its transaction index.
    """

    def __init__(
        self,
        disk: Disk,
        config: TopicConfig,
        segment: Segment,
        aborted: list[AbortedTransaction],
        tools: CleaningTools,
    ) -> None:
        self._segment = segment
        self._aborted = aborted
        self._builder = IndexBuilder(segment.base_offset, config.index_interval_bytes, decompress)
        codec, level = sealed_codec(config)
        most_bytes = min(BATCH_BYTES, config.max_message_bytes - HEADER_BYTES)
        self._packer = BatchPacker(self._builder, codec, level, most_bytes, decompress)
        self._files = CleanedFiles(disk, segment, tools)

    def write(self) -> PackingResult:
        """Write the files and make them durable, if they are smaller than those of the segment.

        Raises:
            CorruptRecordError: A batch is damaged, or the records do not end where the segment
                table says.
            CleaningAbortedError: See ``CleaningTools.spend``.
        """
        segment, files, packer = self._segment, self._files, self._packer
        files.read(segment, self._take)
        packer.finish()
        self._append()
        self._check_ends()
        is_smaller = packer.bytes_written < packer.bytes_read
        if is_smaller:
            files.finish(self._builder.final_time_entry(), self._aborted, segment)
        return PackingResult(
            self._entry() if is_smaller else None,
            packer.bytes_read,
            packer.bytes_written,
            packer.batches_read,
        )

    def discard(self) -> None:
        """Remove the files."""
        self._files.discard()

    def _take(self, buffer: bytearray, size: int) -> int:
        used = self._packer.feed(buffer, 0, size)
        self._append()
        return used

    def _append(self) -> None:
        data, *entries = self._packer.take()
        self._files.add_entries(entries)
        if data:
            self._files.append(data)

    def _check_ends(self) -> None:
        """Raise CorruptRecordError if a record or its position would get lost."""
        builder, segment = self._builder, self._segment
        found = Positions(builder.text, builder.tsv, builder.jsonl)
        expected = segment.ends.minus(segment.bases)
        if builder.next_offset != segment.next_offset or found != expected:
            raise CorruptRecordError(
                f"{segment.name}: its records end before offset {builder.next_offset}, after "
                f"{found.text} bytes of text (expected offset {segment.next_offset}, "
                f"{expected.text} bytes): it is not packed; run logfs verify",
                segment.size_bytes,
                segment.name,
            )

    def _entry(self) -> TableEntry:
        builder = self._builder
        return self._segment.entry(SegmentState.SEALED)._replace(
            size_bytes=self._files.size_bytes,
            max_timestamp=builder.max_timestamp,
            first_timestamp=builder.first_timestamp,
            boot=self._files.mark,
            is_packed=True,
        )
