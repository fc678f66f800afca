"""Reading a ``.log`` from its first byte to its last, skipping bytes that cannot be read.

The native scan of recovery does the work. Here it makes an index entry for every batch instead of
one every ``index.interval.bytes``, to compare with every possible entry of an index file.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from logfs.disk.vfs import File
from logfs.errors import CorruptRecordError
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.loading.offsetrepair import BatchHead, Run, proven_offset
from logfs.log.segments.batches import BatchFeed, batch_after, is_batch_at, is_refused
from logfs.log.segments.scan import SegmentScan, end_of_data, first_offset_at, must_stay, pass_over
from logfs.records._indexing import IndexBuilder
from logfs.records.compression import decompress
from logfs.records.layout import HEADER_BYTES, LOG_OVERHEAD_BYTES, base_offset_of, size_of

_EVERY_BATCH = -1
"""An index interval that gives every batch an entry."""
_TEXT_INTS = TEXT_INDEX.entry_bytes // 4


@dataclass(slots=True)
class IndexedBatches:
    """Consecutive whole batches, and an entry of each index for every one of them.

    Attributes:
        buffer: Contains the batches, from byte 0 on.
        start, stop: File positions of their start and end.
        offsets: Offset index entries: last offset and position of each batch.
        times: Time index entries: each larger maximum timestamp, and its batch.
        texts: Text index entries: base offset, position and lengths before each batch.
        is_after_damage: Bytes before the first batch could not be read.
        begins, ends: Relative base and last offset of each batch.
    """

    buffer: bytearray
    start: int
    stop: int
    offsets: bytes
    times: bytes
    texts: bytes
    is_after_damage: bool
    epochs: tuple[int, int]
    begins: "array[int]" = field(init=False)
    ends: "array[int]" = field(init=False)
    places: "array[int]" = field(init=False)

    def __post_init__(self) -> None:
        numbers = int32s(self.offsets)
        self.ends, self.places = numbers[::2], numbers[1::2]
        self.begins = int32s(self.texts)[::_TEXT_INTS]

    @property
    def has_all_offsets(self) -> bool:
        """Whether every batch starts with the offset after the previous batch."""
        # A batch never starts below that offset, so no gap can cancel another.
        held = sum(self.ends) + len(self.ends) - sum(self.begins)
        return held == self.ends[-1] + 1 - self.begins[0]

    def within(self, position: int) -> int:
        """Return the place of a file position in the buffer."""
        return position - self.start


def int32s(entries: bytes | memoryview) -> "array[int]":
    """Return the entries of an index as int32 numbers."""
    numbers = array("i", bytes(entries))
    numbers.byteswap()
    return numbers


def are_among(entries: bytes, known: bytes, stride: int) -> bool:
    """Tell whether sorted entries of an index are among sorted known ones; False: perhaps not."""
    if known.find(entries) % stride == 0:
        return True
    at = 0
    for start in range(0, len(entries), stride):
        entry = entries[start : start + stride]
        at = known.find(entry, at)
        while at > 0 and at % stride:
            at = known.find(entry, at + 1)
        if at < 0:
            return False
    return True


@dataclass(frozen=True, slots=True)
class BadBytes:
    """Bytes that are not a sound batch; without a size, a batch with too large an offset.

    Attributes:
        seen_from: Where the batch is that shows it.
        stays: A recovery does not cut the log there.
    """

    position: int
    size: int
    why: str
    next_offset: int | None = None
    seen_from: int = 0
    stays: bool = False


@dataclass(slots=True)
class SegmentWalk:
    """The walk through one ``.log``.

    Attributes:
        hints: File positions where batches may begin, in order; those of the offset index.
        is_last: No segment follows.
        proves_all: Look for every base offset that is proven wrong, after damage too. Otherwise for
            the first one alone, which a recovery finds.
        following: The base offset of the next segment, which may prove that of the last batch.
        bad: Bytes that were skipped.
        tail: Bytes at the end that are no whole batch; None if there are none.
        padding: Number of zeros at the end.
        far: Where batches begin that are too far from the base offset for an index: file position,
            next offset and largest timestamp there; None without. They are read, but not yielded.
        wrong: The right base offset of each batch whose own is proven wrong, by file position.
        builder: The native scan, and the index entries it makes.
    """

    log: File
    base_offset: int
    hints: Iterable[int]
    is_last: bool = True
    proves_all: bool = False
    following: Sequence[int] = ()
    size: int = 0
    bad: list[BadBytes] = field(default_factory=list)
    tail: BadBytes | None = None
    padding: int = 0
    far: tuple[int, int, int] | None = None
    wrong: dict[int, int] = field(default_factory=dict)
    builder: IndexBuilder = field(init=False)
    _is_after_damage: bool = False
    _has_refused: bool = False
    _run: Run = field(init=False)

    def __post_init__(self) -> None:
        self.builder = IndexBuilder(self.base_offset, _EVERY_BATCH, decompress)
        self.builder.stops_at_far = True
        self._run = Run(0, self.base_offset)
        self.size = self.log.size()

    def chunks(self) -> Iterator[IndexedBatches]:
        """Yield the batches chunk by chunk; each chunk is valid until the next one."""
        builder, feed = self.builder, BatchFeed(self.log, self.builder, self.size)
        while not feed.is_done:
            start = builder.file_position
            if feed.feed():
                entries = builder.take()
                if self.far is not None:
                    continue
                stop = builder.file_position
                is_after_damage, self._is_after_damage = self._is_after_damage, False
                yield IndexedBatches(
                    feed.chunks.data, start, stop, *entries, is_after_damage, builder.fed_epochs
                )
            if feed.chunks.is_cut and self.log.size() < self.size:  # the file was cut meanwhile
                break
            if feed.problem is not None and not self._pass_over(feed.problem):
                break
        if self.following and builder.file_position == self.size:
            self._proven()

    def _read(self, size: int, position: int) -> bytes:
        """Return bytes of the file; none if they cannot be read at all."""
        try:
            return self.log.pread(size, position)
        except CorruptRecordError:
            return b""

    def _pass_over(self, why: str) -> bool:
        """Continue after bytes that cannot be read; False if no batch follows."""
        position = self.builder.file_position
        if self.builder.far_position == position:
            builder, self.builder.stops_at_far = self.builder, False
            self.far = position, builder.next_offset, builder.max_timestamp
            return True
        if is_refused(self.log, position):
            self._pass_refused(position + size_of(self._read(LOG_OVERHEAD_BYTES, position)), why)
            return True
        after = batch_after(self.log, position, self.size)
        if after is None:
            hints = (hint for hint in self.hints if hint > position)
            after = next((at for at in hints if is_batch_at(self.log, at, self.size)), None)
        if after is not None:
            first = first_offset_at(self.log, after)
            self.bad.append(BadBytes(position, after - position, why, first))
            self._move(after, self.builder.next_offset)
            return True
        try:
            end = end_of_data(self.log, position, self.size)
        except CorruptRecordError:
            end = self.size
        self.padding = self.size - end
        if end > position:
            self.padding = 0
            self.tail = BadBytes(position, self.size - position, why)
        return False

    def _pass_refused(self, after: int, why: str) -> None:
        """Skip a batch with the right checksum, as a scan does."""
        builder, position = self.builder, self.builder.file_position
        wrong = self._proven() if self.proves_all or not self._has_refused else None
        self._has_refused = True
        if wrong is not None and wrong.position < position:
            # The batch before it has too large an offset. The following ones are right.
            begin = base_offset_of(self._read(HEADER_BYTES, position))
            self._move(position, begin)
            self._run = Run(position, begin)
            self.bad.append(BadBytes(wrong.position, 0, why, seen_from=position))
            if self.far is not None and self.far[0] == wrong.position:
                self.far, builder.stops_at_far = None, True
            return
        stays = must_stay(self.log, builder, is_last=self.is_last)
        self._is_after_damage = pass_over(SegmentScan(builder, self.size), self.log, ())
        self._run = Run(builder.file_position, builder.next_offset, is_after_damage=True)
        if wrong is not None:
            self._run = Run(after, self.wrong[position] + wrong.offsets)
        next_offset = first_offset_at(self.log, after)
        self.bad.append(BadBytes(position, after - position, why, next_offset, stays=stays))

    def _proven(self) -> BatchHead | None:
        """Note a base offset that is proven wrong here; return its batch, None without proof."""
        scan = SegmentScan(self.builder, self.size)
        run = self._run if self.proves_all else Run(0, self.base_offset)
        with suppress(CorruptRecordError):  # bytes that cannot be read prove nothing
            found = proven_offset(self.log, run, scan, self.following)
            if found is not None:
                self.wrong[found[0].position] = found[1]
                return found[0]
        return None

    def _move(self, position: int, next_offset: int) -> None:
        self._is_after_damage = True
        self._run = Run(position, next_offset, is_after_damage=True)
        self.builder.pass_over(position - self.builder.file_position, next_offset, 0, 0, 0)
