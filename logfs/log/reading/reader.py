"""A cursor over one rendering of a partition: position in, bytes out.

The reader finds its place through the segment table and a text index, reads windows of whole
batches, and renders them natively. It stops at holes, so that what it returns in one call is at
consecutive positions; which bytes a program sees around a hole is decided in ``files``. Under
read_committed aborted records are holes like those that compaction leaves.

A corrupt batch ends a read before it. Positions after it are found from the text index entry
that follows it, counting back, so every address after a corrupt batch can still be read.

A record that a reader has begun is read to its end even if it is removed meanwhile: its batch is in
the window. A reader that frees its window inside a record keeps the segment's file open.
"""

from collections.abc import Callable

from logfs.disk.vfs import File
from logfs.disk.waiting import WouldWaitError
from logfs.errors import CorruptRecordError
from logfs.log.indexes import textindex
from logfs.log.indexes.index import Entries
from logfs.log.indexes.textindex import ZERO, Gap, TextEntry
from logfs.log.indexes.txnindex import AbortedTransaction
from logfs.log.reading.aborted import aborted_runs, known_runs
from logfs.log.reading.after_damage import (
    agrees_with_log,
    explain,
    offset_before,
    place_after,
    placed,
)
from logfs.log.reading.marked import MarkedBatch, MarkedBatches
from logfs.log.reading.places import LARGEST_PLAIN_BYTES, PlainPlace, RecordPlace
from logfs.log.segments.batches import LOOKUP_BYTES, SEQUENTIAL_BYTES, Window
from logfs.log.segments.segment import Segment
from logfs.log.segments.snapshot import Snapshot
from logfs.records._reading import first_offset
from logfs.records._rendering import Renderer
from logfs.records.compression import decompress
from logfs.types import IsolationLevel, Positions, View

_NO_STOP = 2**63 - 1
_HOP_BYTES = 128 * 1024
"""A hole of aborted records up to this length is walked through: a look-up would take longer."""


class TextReader:
    """A cursor over one view. One user at a time.

    Args:
        snapshot: Gives the present state of the partition; a fixed name gives the same one always.
        level: The isolation level; aborted records are holes under read_committed.
        may_block: False: only what is in the page cache is read; ``would_block`` says that a read
            stopped for that reason; the next one, made with True, continues. Under read_committed
            a call may raise ``WouldWaitError`` for it.

    Attributes:
        position: Position of the next byte.
        ended_by: The OSError that ended the last read after its first bytes; None: none did.
    """

    def __init__(
        self,
        view: View,
        snapshot: Callable[[], Snapshot],
        level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        *,
        may_block: bool = True,
    ) -> None:
        self._view = view
        self._snapshot = snapshot
        self._level = level
        self._hides_aborted = level is IsolationLevel.READ_COMMITTED
        self._aborted: tuple[AbortedTransaction, ...] = ()
        self._renderer = Renderer(view, decompress)
        self._window = Window()
        self._segment: Segment | None = None
        self._log: File | None = None
        self._place: RecordPlace | None = None
        self._marked = MarkedBatches(view)
        self._run_end = _NO_STOP
        self.may_block = may_block
        self.would_block = self._waits_for_disk = False
        self.ended_by: OSError | None = None
        self._wanted = self._truncations = self.position = 0

    def seek(self, position: int) -> int:
        """Go to the first kept byte at or after a position, or to the end of what is seen.

        Returns:
            That position, also in ``self.position``.

        Raises:
            WouldWaitError: See ``may_block``.
        """
        kept = self.next_kept(position)
        if not self._hop(kept):
            self._leave_segment()
            self.position = kept
        return kept

    @property
    def is_inside_record(self) -> bool:
        """Whether a record has been read in part; the rest of it follows, removed or not."""
        return self._place is not None or (
            self._segment is not None and self._renderer.undelivered > 0
        )

    def next_kept(self, position: int) -> int:
        """Return the first kept position at or after one; the end of what is seen if none is.

        A position beyond the end is returned as it is: it is the place of a record to come.

        Raises:
            WouldWaitError: See ``may_block``.
        """
        snapshot, view = self._snapshot(), self._view
        end = snapshot.end_position(self._level, view)
        position = max(position, snapshot.start.positions[view])
        if position >= end:
            return position
        index, last = snapshot.index_of_position(view, position), len(snapshot.segments) - 1
        while True:
            # The next one may be empty; in a followed directory it may be gone already.
            while index < last and (
                position >= snapshot.end_of(index)[0][view] or snapshot.segments[index].is_gone
            ):
                index += 1
                position = max(position, snapshot.segments[index].bases[view])
            if position >= end:
                return position
            base = snapshot.segments[index].bases[view]
            gap = self._next_gap(snapshot, index, position - base)
            if gap is None or gap.end_of_run > position - base:
                return position
            position = base + gap.next_start

    def begin_near(self, position: int) -> int:
        """Return a position at or before one, inside the log, that is found at least cost.

        There a batch begins, as far as the index knows: elsewhere it is checked and passed through
        up to the position.
        """
        snapshot, view = self._snapshot(), self._view
        segment = snapshot.segments[snapshot.index_of_position(view, position)]
        length = position - segment.bases[view]
        entry = textindex.lookup_position(segment.files().text_entries(), view, length)
        return segment.bases[view] + max(0, min(entry.lengths[view], length))

    def read_into(self, out: memoryview, stop: int) -> int:
        """Read consecutive bytes from ``self.position`` on.

        Args:
            out: Filled from its beginning.
            stop: Position at which to end.

        Returns:
            The number of bytes; 0 at a hole, at ``stop``, at the end, or if it would block.

        Raises:
            CorruptRecordError: The record at the position cannot be decoded.
            OSError: It cannot be read. What is before it is returned first.
            WouldWaitError: Nothing was read; see ``may_block``.
        """
        self.would_block, self.ended_by = False, None
        if self._place is not None and not self._return_to(self._place):
            return 0
        if self._segment is not None and (
            self._hides_aborted or self._snapshot().truncations != self._truncations
        ):
            self._follow(self._snapshot())
        done, room = 0, min(len(out), stop - self.position)
        self._wanted = room
        while done < room:
            try:
                got = self._read_some(out, done, room)
            except CorruptRecordError as error:
                if done or not self._explain(error):
                    break
                raise
            except WouldWaitError:
                self.would_block = True  # what was read before it stays read
                break
            except OSError as error:
                if not done:
                    raise
                self.ended_by = error
                break
            if got < 0:
                break
            done += got
        return done

    def enter(self) -> bool:
        """Find the position in its segment now; False if nothing is there, or it would block."""
        try:
            return self._locate()
        except (CorruptRecordError, WouldWaitError):
            return False

    @property
    def buffer_bytes(self) -> int:
        """How much memory is kept between two reads."""
        window, renderer = self._window, self._renderer
        return len(window.buffer) + renderer.buffer_bytes + self._marked.memory_bytes

    def rest(self) -> None:
        """Free buffers that are larger than a look-up needs; the position stays."""
        if self.buffer_bytes > LOOKUP_BYTES:
            self.drop_buffers()
        elif not self.is_inside_record:
            self._log = None  # a reader that waits at the end keeps no deleted segment open

    def drop_buffers(self) -> None:
        """Free the buffers; the position stays, and the rest of a begun record stays readable."""
        renderer, window = self._renderer, self._window
        if self._place is None and self._log is not None and self.is_inside_record:
            self._place = RecordPlace(
                self._log,
                window.file_place(renderer.batch_position),
                window.file_end,
                renderer.next_offset,
                renderer.delivered,
            )
        if self._place is None:
            self._leave_segment()
        self._window = Window()
        self._renderer = Renderer(self._view, decompress)
        self._marked.clear()

    def plain_place(self, position: int) -> PlainPlace | None:
        """Return the place of a position if it is where this reader is, or the end of the log.

        None if what follows there needs more than reading one batch after the other.
        """
        snapshot, view = self._snapshot(), self._view
        is_inside, last = self.is_inside_record, len(snapshot.segments) - 1
        if self._place is not None or self._hides_aborted:
            return None
        if position == snapshot.end.positions[view] and not is_inside:
            active, file_end = snapshot.segments[last], snapshot.end.file_size
            numbers = file_end, file_end, 0, 0
            return PlainPlace(active, active.files().log, numbers, file_end, view, is_active=True)
        segment, window, renderer = self._segment, self._window, self._renderer
        if segment is None or self._log is None or position != self.position or segment.has_gaps:
            return None
        index = snapshot.index_of_segment(segment)
        begin = window.file_place(renderer.batch_position)
        # It would come back from there, and the record be rendered again from its start.
        is_large = max(window.file_end - begin, renderer.buffer_bytes) > LARGEST_PLAIN_BYTES
        if (
            index < 0
            or (snapshot.truncations != self._truncations or self._run_end != _NO_STOP)
            or (is_large and renderer.is_in_batch)
        ):
            return None
        numbers = (begin, window.file_end, self._batch_delivered, int(is_inside))
        if not (renderer.is_in_batch or window.is_cut):
            numbers = (begin, begin, 0, 0)
        file_end = snapshot.end_of(index)[2]
        is_next_judged = renderer.is_in_batch or begin < window.file_end
        if (begin >= file_end and index < last) or not is_next_judged:
            return None
        return PlainPlace(segment, self._log, numbers, file_end, view, is_active=index == last)

    def leave_place(self, place: PlainPlace, position: int) -> None:
        """Leave the reading from a ``plain_place`` on to another reader, until ``go_on``."""
        self._segment, self._log, self.position = place.segment, place.log, position
        self._truncations, self._run_end = self._snapshot().truncations, _NO_STOP
        self._window = Window()
        self._renderer = Renderer(self._view, decompress)

    def go_on(self, size: int, numbers: tuple[int, int, int, int]) -> None:
        """Continue where another reader has come to, ``size`` bytes after ``plain_place``."""
        begin, end, delivered, is_inside = numbers
        self.position += size
        if is_inside and self._log is not None:
            self._place = RecordPlace(self._log, begin, end, 0, delivered)
        else:
            self._leave_segment()

    def close(self) -> None:
        """Let go of files and buffers."""
        self._leave_segment()
        self.drop_buffers()

    def _leave_segment(self) -> None:
        self._segment = self._log = self._place = None

    def _read_some(self, out: memoryview, start: int, stop: int) -> int:
        """Fill a part of ``out`` from one window; -1 if nothing more comes without a seek."""
        if self._segment is None and not self._locate():
            return -1
        if self.position == self._run_end:
            return -1
        if self._renderer.exhausted:
            return 0 if self._advance() else -1
        limit = min(stop - start, self._run_end - self.position)
        if limit <= 0:  # less: what is hidden by now may begin before the position
            return -1
        try:
            got = self._renderer.render(out, start, limit)
        except CorruptRecordError as error:
            raise placed(error, self._segment, self._window) from None
        self.position += got
        return got

    def _return_to(self, place: RecordPlace) -> bool:
        """Go back into a record whose batch is no longer in memory; False if it would block."""
        try:
            if not self._load(place.log, place.file_position, place.file_end, LOOKUP_BYTES):
                return False
            self._renderer.skip_to_offset(place.offset)
            self._renderer.skip(place.delivered)
        except CorruptRecordError:
            self._leave_segment()  # the file was cut: the next read looks its position up
            raise
        self._place = None
        return True

    def _next_gap(self, snapshot: Snapshot, index: int, length: int) -> Gap | None:
        """Find what is not shown of a segment around a length or next after it."""
        segment, view = snapshot.segments[index], self._view
        gap = segment.next_gap(view, length) if segment.has_gaps else None
        if not self._hides_aborted or not snapshot.aborted:
            return gap
        runs = known_runs(snapshot, index)
        if runs is None:
            if not self.may_block:
                raise WouldWaitError(segment.name)
            runs = aborted_runs(snapshot, index)
        run = runs.next_run(view, length)
        return gap if run is None or (gap is not None and gap < run) else run

    def _hop(self, position: int) -> bool:
        """Continue to a place a little further in the window; False if a look-up is needed."""
        segment, snapshot = self._segment, self._snapshot()
        rest = position - self.position
        if segment is None or segment.has_gaps or not 0 < rest <= _HOP_BYTES:
            return False
        index = snapshot.index_of_position(self._view, position)
        if snapshot.truncations != self._truncations or snapshot.segments[index] is not segment:
            return False
        try:
            if self._renderer.skip(rest) < rest:
                return False
        except CorruptRecordError:
            return False  # what is after it is found from the index
        self.position = position
        self._find_run_end(snapshot, index)
        return True

    def _find_run_end(self, snapshot: Snapshot, index: int) -> None:
        """Note where in the segment that was entered the run of shown bytes ends."""
        base = snapshot.segments[index].bases[self._view]
        gap = self._next_gap(snapshot, index, self.position - base)
        self._run_end = _NO_STOP if gap is None else base + gap.end_of_run
        self._aborted = snapshot.aborted  # after what may have to be done again

    def _follow(self, snapshot: Snapshot) -> None:
        """See to it that what was found out about the segment still holds."""
        if self._segment is None:
            return
        if snapshot.truncations != self._truncations:
            self._leave_after_record()
        elif self._hides_aborted and snapshot.aborted is not self._aborted:
            index = snapshot.index_of_segment(self._segment)
            if index < 0:
                self._leave_after_record()  # deleted, or compacted
            else:
                self._find_run_end(snapshot, index)

    def _leave_after_record(self) -> None:
        """Leave a segment that is not in the log any more, at the end of the current record."""
        rest = self._renderer.undelivered
        if rest:
            self._run_end = self.position + rest
        else:
            self._leave_segment()

    def _locate(self) -> bool:
        """Go to the position; False at a hole, at the end, or if it would block."""
        snapshot, view = self._snapshot(), self._view
        self._truncations = snapshot.truncations
        position = self.position
        if not snapshot.start.positions[view] <= position < snapshot.end.positions[view]:
            return False
        index = snapshot.index_of_position(view, position)
        ends, _, file_end = snapshot.end_of(index)
        if position >= ends[view]:
            return False
        segment = snapshot.segments[index]
        try:
            self._find_run_end(snapshot, index)
            if self._run_end <= position:
                return False
            return self._enter(segment, position - segment.bases[view], ends, file_end)
        except FileNotFoundError:
            if self._snapshot() is not snapshot:
                return self._locate()  # it has just been compacted or deleted
            if segment.is_deleted:
                return False
            raise

    def _enter(self, segment: Segment, length: int, ends: Positions, file_end: int) -> bool:
        """Go to a place in a segment, given as the length of what is before it."""
        if segment.has_gaps:
            return self._enter_by_index(segment, length, ends, file_end)
        batch = self._marked.find(segment, self._truncations, length)
        if batch is not None:
            if self._enter_part(segment, batch, length):
                return True
            if self.would_block:
                return False
        if not self._enter_by_index(segment, length, ends, file_end):
            return False
        renderer = self._renderer
        start = length - (renderer.batch_delivered if renderer.is_in_batch else 0)
        self._marked.note(start, self._window, renderer.batch_position)
        return True

    def _enter_by_index(
        self, segment: Segment, length: int, ends: Positions, file_end: int
    ) -> bool:
        view = self._view
        entries = segment.files().text_entries()
        number = textindex.count_text_positions_up_to(entries, view, length)
        is_last = number * textindex.TEXT_INDEX.entry_bytes >= len(entries)
        end = TextEntry(0, file_end, *(ends.minus(segment.bases) if is_last else (0, 0, 0)))
        while number and not segment.has_gaps:
            if self._fits(segment, entries, number - 1, length, end):
                break
            if self.would_block:
                return False
            number -= 1
        is_loaded = number > 0 and not segment.has_gaps
        entry = textindex.decode_text_entry(entries, number - 1) if number else ZERO
        is_checked = not entry.relative_offset
        after = 0 if entry.file_position else segment.base_offset
        while True:
            try:
                log, position = segment.files().log, entry.file_position
                if not is_loaded and not self._load(log, position, file_end, LOOKUP_BYTES, after):
                    return False
                if segment.has_gaps and not is_checked:
                    segment.check_holds(entry, self._window.buffer)
                    is_checked = True
                if not self._go(segment, entry, length, file_end):
                    return False
                break
            except CorruptRecordError as error:
                place = place_after(segment, error.position or 0, ends, file_end)
                if place is None or place.lengths[view] > length:
                    raise
                entry, is_loaded = place, False
                after = offset_before(segment, place.file_position)
        self._segment = segment
        return True

    def _enter_part(self, segment: Segment, batch: MarkedBatch, length: int) -> bool:
        """Go to a place in a batch that has marks; False if it would block, or has changed."""
        marks, log = batch.marks, segment.files().log
        if marks is None:
            return False
        part = (marks, *marks.around(length - batch.start, self._wanted))
        try:
            if not self._window.load_part(log, batch.file_position, part, self.may_block):
                self.would_block = self._waits_for_disk = True
                return False
        except CorruptRecordError:
            self._marked.clear()
            return False
        self._loaded(log)
        self._renderer.skip(length - batch.start - self._window.passed)
        self._segment = segment
        return True

    def _fits(
        self, segment: Segment, entries: Entries, number: int, length: int, end: TextEntry
    ) -> bool:
        """Tell whether an index entry leads to a length; loads the window.

        It does if it is in order, the batch that it names begins where it points, and the records
        up to the next entry (or the end of the segment) are as long as the two say.
        """
        pair = textindex.entry_and_next(entries, number, end)
        if pair is None:
            return False
        (entry, follower), file_end = pair, end.file_position
        if not 0 < entry.file_position < file_end or entry[2 + self._view] > length:
            return False
        try:
            if not self._load(segment.files().log, entry.file_position, file_end, LOOKUP_BYTES):
                return False
            base_offset = first_offset(self._window.buffer, 0, self._window.stop)
        except CorruptRecordError:
            return False
        if base_offset != segment.base_offset + entry.relative_offset:
            return False
        return agrees_with_log(entry, follower, self._window.buffer, self._window.stop)

    def _go(self, segment: Segment, place: TextEntry, length: int, file_end: int) -> bool:
        """Go to a length by scanning from a place that was loaded; False if it would block."""
        window = self._window
        rest = length - place.lengths[self._view]
        begin = segment.base_offset + place.relative_offset if place.relative_offset else 0
        while True:
            try:
                self._renderer.skip_to_offset(begin)
                rest -= self._renderer.skip(rest)
            except CorruptRecordError as error:
                raise placed(error, segment, self._window) from None
            if rest == 0 and not self._renderer.exhausted:
                return True
            if not self._renderer.exhausted:
                continue
            if window.file_end >= file_end:
                break
            if not self._load(segment.files().log, window.file_end, file_end, LOOKUP_BYTES):
                return False
        raise CorruptRecordError(
            f"{segment.name}: its records end {rest} bytes before the place looked for",
            file_end,
            segment.name,
        )

    def _load(self, log: File, position: int, file_end: int, chunk: int, after: int = 0) -> bool:
        window = self._window
        if self.may_block and self._waits_for_disk:
            chunk = SEQUENTIAL_BYTES  # it continues where it was: this is no look-up
        if not window.load(log, position, file_end, chunk, self.may_block, after):
            self.would_block = self._waits_for_disk = True
            return False
        self._loaded(log)
        return True

    def _load_rest(self, log: File, file_end: int) -> bool:
        """Load the batch of which a part was read, and continue in it; False if it would block."""
        delivered = self._batch_delivered
        if not self._load(log, self._window.file_position, file_end, SEQUENTIAL_BYTES):
            return False
        try:
            self._renderer.skip(delivered)
        except CorruptRecordError:
            self._leave_segment()
            raise
        return True

    def _loaded(self, log: File) -> None:
        self._waits_for_disk, self._log = False, log
        self._renderer.load(self._window.buffer, 0, self._window.stop)

    def _advance(self) -> bool:
        """Continue after a window or a segment; False at a hole, the end, or if it would block."""
        segment, snapshot = self._segment, self._snapshot()
        index = -1 if segment is None else snapshot.index_of_segment(segment)
        if segment is None or index < 0 or snapshot.truncations != self._truncations:
            self._leave_segment()
            return self._locate()
        ends, _, file_end = snapshot.end_of(index)
        window = self._window
        if window.is_cut or window.file_end < file_end:
            try:
                log = self._log or segment.files().log
                if window.is_cut:
                    return self._load_rest(log, file_end)
                return self._load(log, window.file_end, file_end, SEQUENTIAL_BYTES)
            except FileNotFoundError:
                self._leave_segment()
                return self._locate()  # it has just been compacted or deleted
        self._leave_segment()
        if self.position != ends[self._view]:
            raise CorruptRecordError(
                f"{segment.name}: its records end at position {self.position}, "
                f"expected {ends[self._view]}: run logfs verify",
                window.file_end,
                segment.name,
            )
        return self._locate()

    @property
    def _batch_delivered(self) -> int:
        """Length of what is before the next byte in the batch that was entered."""
        return self._window.passed + self._renderer.batch_delivered

    def _explain(self, error: CorruptRecordError) -> bool:
        """Add the file, and the offset at which reading continues, to what ends a read.

        Returns:
            False if it would block: a read that may wait comes here again.
        """
        snapshot = self._snapshot()
        index = snapshot.index_of_position(self._view, self.position)
        if index >= 0 and error.position is not None:
            try:
                explain(error, snapshot.segments[index], *snapshot.end_of(index))
            except WouldWaitError:
                self.would_block = True
        return not self.would_block
