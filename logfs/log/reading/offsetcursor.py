"""The place of a reader that goes by offset: the common part of readers of records."""

from logfs.log.reading.lookup import place_of_offset
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot


class OffsetCursor:
    """A place in a log. One user at a time.

    A reader that comes to a segment meets all of it, so that a batch that is refused is an error.
    One that begins at an offset, or continues there after an error, begins with the batch that
    holds it.

    Attributes:
        offset: The offset to read from; one that is not kept any more means the next that is.
    """

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self._segment: Segment | None = None
        self._position = self._after = 0
        self._goes_on = False
        self._failed_at = -1

    def _begin(self, snapshot: Snapshot) -> None:
        """Begin with the start of the log, unless the offset is after it."""
        start = snapshot.start.offset
        if self.offset <= start:
            self.offset, self._goes_on = start, start != self._failed_at

    def _enter(self, snapshot: Snapshot) -> int | None:
        """Go to the segment of the offset; returns its number, None after its end."""
        here = -1 if self._segment is None else snapshot.index_of_segment(self._segment)
        if here >= 0 and self.offset == snapshot.end_of(here)[1]:
            if self._position < snapshot.end_of(here)[2]:
                return here  # what is left of it cannot be used
            self._goes_on = True
        number = max(snapshot.index_of_offset(self.offset), 0)
        segment, (_, next_offset, file_end) = snapshot.segments[number], snapshot.end_of(number)
        if self.offset >= next_offset:
            self.offset, self._goes_on = snapshot.segments[number + 1].base_offset, True
            return None
        if segment is not self._segment:  # one that was cut or compacted is another one
            self._segment = None
            self._position, self._after = place_of_offset(
                segment, self.offset, file_end, goes_on=self._goes_on
            )
            self._segment = segment
        return number

    def _fail(self) -> None:
        """Note that what is at the offset cannot be read."""
        self._segment, self._goes_on, self._failed_at = None, False, self.offset
