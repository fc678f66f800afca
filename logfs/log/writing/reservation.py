"""Reserved positions: a durable bound that no size ever shown exceeds.

A machine that stops without warning may lose bytes that readers have seen. Their positions must not
be given to other records, so the log continues after the reserved ones then. The bound is the
``ends`` of the open segment's entry in the segment table; it is far ahead, because moving it costs
an fsync.
"""

from logfs.log.segments.segment import Segment
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.types import Positions

RESERVED_BYTES = 256 * 1024 * 1024
NO_BOOT = bytes(8)
"""In place of a boot id: bytes that were shown may be lost, even if the machine continued."""
FAILED = bytes(7) + b"\1"
"""The same, and the page cache may have what the disk has not: a write or an fsync has failed."""
ALL_SHOWN = b"\xff" * 8
"""In place of a boot id: nothing is lost, but a size up to the bound may have been shown."""


class PositionReservation:
    """No position beyond ``bound`` may be shown. ``note`` under the lock, ``sync`` anywhere.

    Attributes:
        bound: See above.
        low: From positions beyond these on, it is time to move the bound on.
    """

    def __init__(self, table: SegmentTable, boot: bytes, bound: Positions) -> None:
        self._table = table
        self._boot = boot
        self._noted = bound
        self._set_bound(bound)

    def covers(self, ends: Positions | tuple[int, int, int]) -> bool:
        """Whether positions up to ``ends`` may be shown."""
        bound = self.bound
        return ends[0] <= bound[0] and ends[1] <= bound[1] and ends[2] <= bound[2]

    def is_low(self, ends: Positions) -> bool:
        """Whether it is time to move the reservation, before an append has to wait for that."""
        low = self.low
        return ends[0] > low[0] or ends[1] > low[1] or ends[2] > low[2]

    def open_entry(self, segment: Segment) -> TableEntry:
        """Return the table entry of the segment that is appended to."""
        return TableEntry(
            segment.base_offset,
            SegmentState.OPEN,
            segment.bases,
            self._noted,
            first_timestamp=segment.first_timestamp,
            boot=self._boot,
            is_after_gap=segment.is_after_gap,
        )

    def note(self, segment: Segment, ends: Positions) -> Positions:
        """Write a bound well beyond ``ends`` to the table; it takes effect with ``sync``."""
        self._noted = _moved(ends, RESERVED_BYTES).at_least(self._noted)
        self._table.put(self.open_entry(segment))
        return self._noted

    def invalidate(self, segment: Segment, why: bytes = NO_BOOT) -> None:
        """Note that the log may lose what was shown without the machine stopping.

        While the log is being cut, or because it has ``FAILED``. The next owner of the partition
        continues after the bound, as after a power cut. Needs no ``sync``: a power cut says the
        same.
        """
        self._table.put(self.open_entry(segment)._replace(boot=why))

    def sync(self, noted: Positions) -> None:
        """Make a noted bound durable; it takes effect with that."""
        self._table.sync()
        self._set_bound(noted)

    def _set_bound(self, bound: Positions) -> None:
        self.bound = bound
        self.low = _moved(bound, -RESERVED_BYTES // 2)  # every append asks whether it is there


def _moved(ends: Positions, length: int) -> Positions:
    return Positions(ends[0] + length, ends[1] + length, ends[2] + length)
