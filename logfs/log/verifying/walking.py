"""Through a ``.log`` from its first byte to its last, over what cannot be read.

The native scan that recovery uses does the work: here with an entry for every batch instead of one
every ``index.interval.bytes``, so that whatever an index file says of a batch can be looked up.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from logfs.disk.vfs import File
from logfs.log.indexes.textindex import TEXT_INDEX
from logfs.log.segments.batches import BatchFeed
from logfs.log.segments.scan import end_of_data
from logfs.records._native import IndexBuilder, first_offset, header_ok
from logfs.records.checksum import crc32c
from logfs.records.compression import decompress
from logfs.records.layout import (
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    SHORTEST_BATCH_BYTES,
    base_offset_of,
    crc_of,
    is_message,
    last_offset_delta_of,
    size_of,
)

_EVERY_BATCH = -1
"""As an index interval."""
_TEXT_INTS = TEXT_INDEX.entry_bytes // 4


@dataclass(slots=True)
class Chunk:
    """Whole batches, one after the other, and an entry of each index for every one of them.

    Attributes:
        buffer: Their bytes begin at 0.
        start: Where they stand in the file.
        stop: Where they end in the file.
        offsets: Offset index entries: last offset and position of each batch.
        times: Time index entries: each larger maximum, and the batch that brought it.
        texts: Text index entries: base offset, position and lengths before each batch.
        is_behind_damage: Something that could not be read is before it.
        epochs: The smallest and the largest leader epoch of a batch.
        begins, ends: Relative base and last offset of each batch.
        places: Its file position.
    """

    buffer: bytearray
    start: int
    stop: int
    offsets: bytes
    times: bytes
    texts: bytes
    is_behind_damage: bool
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
        """Whether every batch begins with the offset after the one before it."""
        # A batch never begins before that offset, so no gap can make up for another.
        held = sum(self.ends) + len(self.ends) - sum(self.begins)
        return held == self.ends[-1] + 1 - self.begins[0]

    def within(self, position: int) -> int:
        """Return where in the buffer a file position is."""
        return position - self.start


def int32s(entries: bytes | memoryview) -> "array[int]":
    """Return the entries of an index as the int32 numbers they consist of."""
    numbers = array("i", bytes(entries))
    numbers.byteswap()
    return numbers


def are_among(entries: bytes, known: bytes, stride: int) -> bool:
    """Tell whether entries of an index are among known ones, both sorted; False: perhaps not."""
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
class Bad:
    """Bytes that are no sound batch: where, how many, why.

    Attributes:
        next_offset: At which reading goes on after them; None if that is not known.
    """

    position: int
    size: int
    why: str
    next_offset: int | None = None


@dataclass(slots=True)
class Walk:
    """The way through one ``.log``.

    Attributes:
        log: The file.
        base_offset: Of the segment.
        hints: File positions at which batches are said to begin, in order.
        bad: What was passed over.
        tail: Bytes at the end that are no whole batch; None if there are none.
        padding: Zeros at the end.
    """

    log: File
    base_offset: int
    hints: Sequence[int]
    size: int = 0
    bad: list[Bad] = field(default_factory=list)
    tail: Bad | None = None
    padding: int = 0
    builder: IndexBuilder = field(init=False)
    _is_behind_damage: bool = False

    def __post_init__(self) -> None:
        self.builder = IndexBuilder(self.base_offset, _EVERY_BATCH, decompress)
        self.size = self.log.size()

    def chunks(self) -> Iterator[Chunk]:
        """Walk; a chunk is good until the next one is asked for."""
        builder, feed = self.builder, BatchFeed(self.log, self.builder, self.size)
        while not feed.is_done:
            start = builder.file_position
            if feed.feed():
                entries = builder.take()
                stop = builder.file_position
                is_behind_damage, self._is_behind_damage = self._is_behind_damage, False
                yield Chunk(
                    feed.chunks.data, start, stop, *entries, is_behind_damage, builder.fed_epochs
                )
            if feed.chunks.is_cut:  # the file was cut meanwhile
                break
            if feed.problem is not None and not self._pass_over():
                break

    def _pass_over(self) -> bool:
        """Go on after what cannot be read; False if the rest of the file is of no use."""
        builder = self.builder
        position, why = builder.file_position, str(builder.problem)
        header = self.log.pread(HEADER_BYTES, position)
        if why.startswith("base offset") and self._is_sound(header, position):
            self._pass_step_back(header, position, why)
            return True
        size = self._nominal_size(header)
        behind = position + size
        if size and (behind == self.size or self._begins_at(behind)):
            self._go_on(position, behind, why)
            return True
        resumed = next((at for at in self.hints if at > position and self._begins_at(at)), None)
        if resumed is not None:
            self._go_on(position, resumed, why)
            return True
        end = end_of_data(self.log, position, self.size)
        self.padding = self.size - end
        if end > position:
            self.padding = 0
            self.tail = Bad(position, self.size - position, why)
        return False

    def _go_on(self, position: int, behind: int, why: str) -> None:
        self.bad.append(Bad(position, behind - position, why, self._base_offset_at(behind)))
        self._move(behind, self.builder.next_offset)

    def _base_offset_at(self, position: int) -> int | None:
        """Return the offset of the first record of a sound batch; None at the end of the file."""
        header = self.log.pread(HEADER_BYTES, position)
        if len(header) < SHORTEST_BATCH_BYTES:
            return None
        if not is_message(header):
            return base_offset_of(header)
        data = self.log.pread(self._nominal_size(header), position)
        return first_offset(data, 0, len(data))

    def _pass_step_back(self, header: bytes, position: int, why: str) -> None:
        """Pass over a whole batch with an offset that was there already."""
        base_offset = int.from_bytes(header[:8], "big", signed=True)
        behind = position + self._nominal_size(header)
        count = last_offset_delta_of(header) + 1
        follower = self.log.pread(8, behind)
        next_offset = self.builder.next_offset + count
        offset = int.from_bytes(follower, "big") if len(follower) == 8 else next_offset
        if base_offset + count <= offset < next_offset:
            # The one before it was too far ahead: from here on all is well.
            self._move(position, base_offset)
            self.bad.append(Bad(position, 0, why))
            return
        self.bad.append(Bad(position, behind - position, why))
        self._move(behind, next_offset)

    def _move(self, position: int, next_offset: int) -> None:
        builder, self._is_behind_damage = self.builder, True
        builder.restore(
            file_position=position,
            next_offset=next_offset,
            max_timestamp=builder.max_timestamp,
            offset_of_max_timestamp=builder.offset_of_max_timestamp,
            first_timestamp=builder.first_timestamp,
            last_time_entry=builder.last_time_entry,
            text=builder.text,
            tsv=builder.tsv,
            jsonl=builder.jsonl,
            max_leader_epoch=builder.max_leader_epoch,
        )

    def _nominal_size(self, header: bytes) -> int:
        """Return the size that a header gives; 0 if that cannot be."""
        if len(header) < SHORTEST_BATCH_BYTES:
            return 0
        size = size_of(header)
        return size if size >= SHORTEST_BATCH_BYTES else 0

    def _begins_at(self, position: int) -> bool:
        """Whether a sound batch that may follow is at a position."""
        header = self.log.pread(HEADER_BYTES, position)
        if not header_ok(header, 0, self.size - position):
            return False
        size = self._nominal_size(header)
        if not is_message(header):
            return base_offset_of(header) >= self.builder.next_offset and self._is_sound(
                header, position
            )
        data = self.log.pread(size, position)
        return first_offset(data, 0, len(data)) >= self.builder.next_offset

    def _is_sound(self, header: bytes, position: int) -> bool:
        """Whether the checksum of a batch fits."""
        size = self._nominal_size(header)
        if not size or header[MAGIC_AT] != MAGIC or position + size > self.size:
            return False
        body = self.log.pread(size - CRC_START, position + CRC_START)
        return len(body) == size - CRC_START and crc32c(body) == crc_of(header)
