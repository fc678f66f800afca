"""A cursor over one rendering of a partition: position in, bytes out.

The reader finds its place through the segment table and a text index, reads windows of whole
batches, and renders them natively. It stops at holes, so that what it returns in one call stands at
consecutive positions; which bytes a program sees around a hole is decided in ``files``.

A corrupt batch ends a read in front of it. Positions behind it are found from the text index entry
that follows it, counting back, so every address behind a corrupt batch can still be read.
"""

from collections.abc import Callable

from logfs.errors import CorruptRecordError
from logfs.log import textindex
from logfs.log.segment import Segment
from logfs.log.snapshot import Snapshot
from logfs.log.window import LOOKUP_BYTES, SEQUENTIAL_BYTES, Window
from logfs.records._native import Renderer, header_ok, measure
from logfs.records.compression import decompress
from logfs.types import View

_NO_STOP = 2**63 - 1


class TextReader:
    """A cursor over one view. One user at a time.

    Args:
        view: The rendering to read.
        snapshot: Gives the present state of the partition; a fixed name gives the same one always.
        may_block: False: only what is in the page cache is read; ``would_block`` says that a call
            stopped for that reason and goes on when it is made again with True.

    Attributes:
        position: Position of the next byte.
    """

    def __init__(
        self, view: View, snapshot: Callable[[], Snapshot], may_block: bool = True
    ) -> None:
        self._view = view
        self._snapshot = snapshot
        self._renderer = Renderer(view, decompress)
        self._window = Window()
        self._segment: Segment | None = None
        self._run_end = _NO_STOP
        self._cuts = 0
        self.may_block = may_block
        self.would_block = False
        self.position = 0

    def seek(self, position: int) -> int:
        """Go to the first kept byte at or after a position, or to the end of the log.

        Returns:
            That position, also in ``self.position``.
        """
        self._segment = None
        self.position = self.next_kept(position)
        return self.position

    def next_kept(self, position: int) -> int:
        """Return the first kept position at or after one; the end of the log if there is none.

        A position beyond the end is returned as it is: it is the place of a record to come.
        """
        snapshot, view = self._snapshot(), self._view
        position = max(position, snapshot.start.positions[view])
        if position >= snapshot.end.positions[view]:
            return position
        index = snapshot.index_of_position(view, position)
        if position >= snapshot.end_of(index)[0][view]:
            return snapshot.segments[index + 1].bases[view]
        segment = snapshot.segments[index]
        if segment.has_gaps:
            base = segment.bases[view]
            gap = segment.next_gap(view, position - base)
            if gap is not None and gap.end_of_run <= position - base:
                return base + gap.next_start
        return position

    def read_into(self, out: memoryview, stop: int) -> int:
        """Read consecutive bytes from ``self.position`` on.

        Args:
            out: Filled from its beginning.
            stop: Position at which to end.

        Returns:
            The number of bytes; 0 at a hole, at ``stop``, at the end, or if it would block.

        Raises:
            CorruptRecordError: The record at the position cannot be decoded.
        """
        self.would_block = False
        done, room = 0, min(len(out), stop - self.position)
        while done < room:
            if self._segment is None and not self._locate():
                break
            if self._renderer.exhausted:
                if not self._advance():
                    break
                continue
            limit = min(room - done, self._run_end - self.position)
            if limit == 0:
                break
            try:
                got = self._renderer.render(out, done, limit)
            except CorruptRecordError as error:
                if done:
                    break
                raise self._named(error) from None
            done += got
            self.position += got
        return done

    def close(self) -> None:
        """Let go of files and buffers."""
        self._segment = None
        self._window = Window()
        self._renderer = Renderer(self._view, decompress)

    def _locate(self) -> bool:
        snapshot, view = self._snapshot(), self._view
        self._cuts = snapshot.cuts
        position = self.position
        if not snapshot.start.positions[view] <= position < snapshot.end.positions[view]:
            return False
        index = snapshot.index_of_position(view, position)
        ends, _, file_end = snapshot.end_of(index)
        if position >= ends[view]:
            return False
        segment = snapshot.segments[index]
        length = position - segment.bases[view]
        entries = segment.files().text_entries()
        entry = textindex.lookup_position(entries, view, length)
        if entry.lengths[view] > length:
            return False
        if not self._enter(segment, entry, file_end):
            return False
        try:
            if not self._skip(segment, length - entry.lengths[view], file_end):
                return False
        except CorruptRecordError:
            if not self._enter_behind_corruption(segment, entries, length, ends, file_end):
                raise
        self._segment = segment
        gap = segment.next_gap(view, length) if segment.has_gaps else None
        self._run_end = _NO_STOP if gap is None else segment.bases[view] + gap.end_of_run
        return True

    def _enter(self, segment: Segment, entry: textindex.TextEntry, file_end: int) -> bool:
        """Load the window an entry points to; an entry that does not fit is passed over."""
        window = self._window
        if entry.file_position >= file_end:
            entry = textindex.ZERO
        if not window.load(
            segment.files().log, entry.file_position, file_end, LOOKUP_BYTES, self.may_block
        ):
            self.would_block = True
            return False
        self._renderer.load(window.buffer, 0, window.stop)
        if entry.relative_offset:
            self._renderer.skip_to_offset(segment.base_offset + entry.relative_offset)
        return True

    def _skip(self, segment: Segment, length: int, file_end: int) -> bool:
        while True:
            length -= self._renderer.skip(length)
            if length == 0 and not self._renderer.exhausted:
                return True
            if not self._renderer.exhausted:
                continue
            if self._window.file_end >= file_end:
                return length == 0
            if not self._load_next(segment, file_end, LOOKUP_BYTES):
                return False

    def _load_next(self, segment: Segment, file_end: int, chunk: int) -> bool:
        window = self._window
        if not window.load(segment.files().log, window.file_end, file_end, chunk, self.may_block):
            self.would_block = True
            return False
        self._renderer.load(window.buffer, 0, window.stop)
        return True

    def _advance(self) -> bool:
        """Go on behind a window or a segment; False at a hole, at the end, or if it would block."""
        segment, snapshot = self._segment, self._snapshot()
        if segment is None or snapshot.cuts != self._cuts or segment.is_deleted:
            self._segment = None
            return self._locate()
        index = snapshot.index_of_offset(segment.base_offset)
        ends, _, file_end = snapshot.end_of(index)
        if self._window.file_end < file_end:
            return self._load_next(segment, file_end, SEQUENTIAL_BYTES)
        self._segment = None
        if self.position != ends[self._view]:
            raise CorruptRecordError(
                f"{segment.name}: its records end at position {self.position}, "
                f"expected {ends[self._view]}: run logfs verify",
                self._window.file_end,
            )
        return self._locate()

    def _enter_behind_corruption(
        self,
        segment: Segment,
        entries: memoryview,
        length: int,
        ends: tuple[int, int, int],
        file_end: int,
    ) -> bool:
        """Find a position behind a corrupt batch from what follows it; False if it lies inside."""
        view = self._view
        corrupt = self._window.file_position + self._renderer.batch_position
        behind, stop = ends[view] - segment.bases[view], file_end
        follower = textindex.first_behind(entries, corrupt)
        if follower is not None:
            behind, stop = follower.lengths[view], follower.file_position
        log = segment.files().log
        self._window.load(log, corrupt, file_end, LOOKUP_BYTES, True)
        position = corrupt + int.from_bytes(self._window.buffer[8:12], "big") + 12
        if position >= stop:
            return False
        self._window.load(log, position, stop, stop - position, True)
        if not header_ok(self._window.buffer, 0, self._window.stop):
            return False
        rest = measure(self._window.buffer, 0, self._window.stop, _NO_STOP, decompress)
        behind -= rest[view]
        if length < behind:
            return False
        self._renderer.load(self._window.buffer, 0, self._window.stop)
        return self._skip(segment, length - behind, file_end)

    def _named(self, error: CorruptRecordError) -> CorruptRecordError:
        name = "?" if self._segment is None else self._segment.name
        position = self._window.file_position + (error.position or 0)
        return CorruptRecordError(f"{name} at byte {position}: {error}", position)
