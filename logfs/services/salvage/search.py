"""Where batches are among bytes that are no batch: every position is looked at."""

import re
from collections.abc import Iterator

from logfs.disk.vfs import File
from logfs.log.segments.batches import is_refused
from logfs.records._indexing import IndexBuilder
from logfs.records.layout import LENGTH_AT, MAGIC_AT, UP_TO_MAGIC_BYTES, base_offset_of

_CHUNK_BYTES = 1 << 20
_HIGH_BYTES = 4
_HIGH_BITS = 32


class BatchSearch:
    """The positions after that of a scan at which a batch with the right checksum begins.

    Its first 17 bytes have to be a possible base offset, a length that is not 0, and the number of
    a known format. Each iteration begins after the position at which the scan is then.

    Args:
        log: The file of the segment.
        builder: The scan.
        limit: No batch has this base offset or a larger one; None: not known.
    """

    def __init__(self, log: File, builder: IndexBuilder, limit: int | None) -> None:
        self._log = log
        self._builder = builder
        self._limit = limit

    def __iter__(self) -> Iterator[int]:
        """Yield the positions, in order."""
        least, size = int(self._builder.next_offset), self._log.size()
        limit = self._limit
        if limit is None:
            limit = ((least >> _HIGH_BITS) + 2) << _HIGH_BITS
        pattern = _begin_of_batch(least, limit)
        at = int(self._builder.file_position) + 1
        while at < size:
            # The first bytes of a base offset are zeros, which a hole of the file may hold.
            at = max(at, self._log.next_data(at) - MAGIC_AT)
            data = self._log.pread(_CHUNK_BYTES + UP_TO_MAGIC_BYTES - 1, at)
            for match in pattern.finditer(data):
                is_possible = least <= base_offset_of(data, match.start()) < limit
                if is_possible and is_refused(self._log, at + match.start()):
                    yield at + match.start()
            at += _CHUNK_BYTES


def _begin_of_batch(least: int, limit: int) -> re.Pattern[bytes]:
    """Return an expression for the first bytes of a batch with a base offset in a range.

    A match takes no bytes, so that matches may overlap.
    """
    highs = {least >> _HIGH_BITS, max(limit - 1, least) >> _HIGH_BITS}
    if max(highs) - min(highs) > 1:
        high = b"[\0-\x7f].{3}"
    else:
        high = b"|".join(re.escape(high.to_bytes(_HIGH_BYTES, "big")) for high in sorted(highs))
    low_and_length = b".{%d}(?!\0{4})" % (LENGTH_AT - _HIGH_BYTES)
    up_to_magic = b".{%d}[\0-\x02]" % (MAGIC_AT - LENGTH_AT)
    return re.compile(b"(?=(?:%s)%s%s)" % (high, low_and_length, up_to_magic), re.DOTALL)
