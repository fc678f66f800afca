"""The batches of a segment one by one, for look-ups that are rare and need to see each of them."""

from collections.abc import Iterator
from typing import NamedTuple

from logfs.errors import CorruptRecordError
from logfs.log.reading.window import LOOKUP_BYTES, SEQUENTIAL_BYTES, Window
from logfs.log.segments.segment import Segment
from logfs.records._native import aborted_ranges
from logfs.records.batch import BatchHeader, decode_header, decode_records
from logfs.records.compression import Buffer
from logfs.records.record import Record


class FoundBatch(NamedTuple):
    """A batch in a buffer, which the next one overwrites."""

    header: BatchHeader
    buffer: Buffer
    start: int

    def records(self) -> list[Record]:
        """Decode its records, a control record included.

        Raises:
            CorruptRecordError: It does not decode.
        """
        return decode_records(self.buffer, self.start)

    def is_seen(self, aborted: bytes) -> bool:
        """Whether consumers see its records: no control batch, and none of an aborted transaction.

        Args:
            aborted: The aborted transactions, see ``transaction_table``; empty if all are seen.
        """
        header = self.header
        if header.is_control or not aborted:
            return not header.is_control
        return not aborted_ranges(self.buffer, self.start, self.start + header.size_bytes, aborted)


def batches_from(segment: Segment, position: int, file_end: int) -> Iterator[FoundBatch]:
    """Read the batches of a segment from a file position at which one begins.

    Raises:
        CorruptRecordError: No batch is where one has to.
    """
    window, chunk = Window(), LOOKUP_BYTES
    while position < file_end:
        try:
            window.load(segment.files().log, position, file_end, chunk, True)
        except CorruptRecordError as error:
            error.name_file(segment.name)
            raise
        at = 0
        while at < window.stop:
            header = decode_header(window.buffer, at)
            yield FoundBatch(header, window.buffer, at)
            at += header.size_bytes
        position, chunk = window.file_end, SEQUENTIAL_BYTES
