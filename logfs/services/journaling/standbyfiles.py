"""The directory of one partition that follows a store: its files after each change of the journal.

It is followed by the mount like a directory that another process writes. So files grow, names
change by renames, and a segment is named by the store before its local file goes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from logfs.config import TopicConfig
from logfs.disk.vfs import Disk
from logfs.log import names
from logfs.log.names import FileKind, FileSuffix, format_segment_file
from logfs.log.remote.headfiles import HeadFiles
from logfs.log.remote.rows import TieredRows
from logfs.log.segments.table import encode_table
from logfs.services.journaling.assembly import (
    JournaledPartition,
    JournaledSegment,
    end_offset_of,
    latest_epochs,
)
from logfs.services.journaling.making import PartitionFiles, open_entries, table_of
from logfs.services.journaling.objects import PartitionId
from logfs.services.journaling.promotion import continued_epochs
from logfs.services.journaling.root import JournalRoot
from logfs.services.journaling.writing import is_journaled
from logfs.types import MAX_OFFSET, Positions, TopicPartition

MAKING = "logfs.new."
"""What the name of a directory begins with that is just being made."""
_CHUNK_BYTES = 1 << 20
_NO_CONTENT = -1


class _Written(NamedTuple):
    """What a local ``.log`` has: which content of its segment, and how many bytes."""

    content: int
    size: int


class StandbyPartition:
    """One partition of a data directory that follows a store.

    Args:
        partition: The id of the partition.
        topic_partition: The partition by name.

    Attributes:
        files: What the head says; None: there is none yet.
        held: Base offset of a segment of which only the beginning is shown: it was packed before
            all of it was sent. None: there is none.
        is_final: No such segment is held any more, since no reader follows.
        due_s: The head is to be read at this time; None: the journal tells when.
        pause_s: The pause before it is read once more.
    """

    def __init__(self, partition: PartitionId, topic_partition: TopicPartition) -> None:
        self.id = partition
        self.topic_partition = topic_partition
        self.files: HeadFiles | None = None
        self.due_s: float | None = None
        self.pause_s = 1.0
        self._written: dict[int, _Written] = {}
        self._named: HeadFiles | None = None
        self.held: int | None = None
        self.is_final = False

    @property
    def directory(self) -> str:
        """Its directory."""
        return self.topic_partition.directory

    @property
    def is_made(self) -> bool:
        """Whether the directory is there."""
        return bool(self._written)

    @property
    def recovery_point(self) -> int:
        """The offset from which on records are in local files."""
        return min(self._written)

    @property
    def size_bytes(self) -> int:
        """Bytes of the records in local files."""
        return sum(one.size for one in self._written.values())

    def end_offset(self, disk: Disk) -> int:
        """Return the offset after the last record in local files."""
        last = max(self._written)
        data = disk.read(self._log(last), None)
        segment = JournaledSegment(last, Positions(), _NO_CONTENT, data, -1)
        return end_offset_of(last, [segment])

    def continue_epochs(
        self, maker: PartitionFiles, root: JournalRoot, end: JournaledPartition | None
    ) -> None:
        """Let the log continue in a later leader epoch; see ``continued_epochs``."""
        before = latest_epochs(() if self.files is None else self.files.head.leader_epochs, end)
        segments = self.visible(end)
        start = MAX_OFFSET if segments else self.recovery_point
        epochs = continued_epochs(before, root, start)
        maker.write_epochs(self.directory, epochs)

    def visible(self, end: JournaledPartition | None) -> list[JournaledSegment]:
        """Return what continues the segments that the head names."""
        if end is None:
            return []
        return end.after(None if self.files is None else self.files.head.next_offset)

    @property
    def is_unjournaled(self) -> bool:
        """Whether the journal says nothing of the partition."""
        files = self.files
        return files is not None and not is_journaled(
            TopicConfig.from_properties(files.head.config or {})
        )

    def is_gapped(self, end: JournaledPartition | None) -> bool:
        """Whether the journal has segments after a gap, which the head has to fill."""
        return self.held is not None or (
            end is not None and len(end.segments) > len(self.visible(end))
        )

    def show(
        self, disk: Disk, maker: PartitionFiles, end: JournaledPartition | None
    ) -> list[JournaledSegment]:
        """Let the directory have what is known; returns the segments whose bytes were written.

        Args:
            disk: The local disk of the data directory.
            maker: Makes directories there.
            end: What the journal has of the partition.

        Raises:
            OSError: The disk or the store failed.
        """
        segments = self._shown(disk, self.visible(end))
        if self.files is None and not segments and not self.is_made:
            return []
        if not self.is_made:
            self._make(disk, maker, end, segments)
        else:
            self._change(disk, segments, end)
        return segments

    def _shown(self, disk: Disk, segments: list[JournaledSegment]) -> list[JournaledSegment]:
        """Return segments up to one that was packed before all of it was sent.

        Readers know the beginning of that one by other bytes, and get the rest from its head.
        """
        self.held = None
        for number, one in enumerate(segments):
            before = self._written.get(one.base_offset)
            if before is None or before.content in (one.content, _NO_CONTENT):
                continue
            position = self._same_bytes(disk, self._log(one.base_offset), one.data, before.size)
            if self._is_other(one, before.size, position) and not self.is_final:
                self.held = one.base_offset
                return segments[:number]
        return segments

    def _make(
        self,
        disk: Disk,
        maker: PartitionFiles,
        end: JournaledPartition | None,
        segments: Sequence[JournaledSegment],
    ) -> None:
        """Make the directory under another name, so that no reader sees it before it is whole."""
        made = f"{MAKING}{self.id.topic_id.hex}.{self.id.partition}"
        maker.make_directory(made)
        if self.files is not None:
            maker.write_headed(made, self.files, segments)
        elif end is not None:
            maker.write_journaled(made, self.id.topic_id, end, segments)
        before = () if self.files is None else self.files.head.leader_epochs
        maker.write_epochs(made, latest_epochs(before, end))
        disk.rename(made, self.directory)
        self._named = self.files
        self._written = {
            one.base_offset: _Written(one.content, len(one.data)) for one in segments
        } or {self._active: _Written(_NO_CONTENT, 0)}

    @property
    def _active(self) -> int:
        assert self.files is not None
        return self.files.active.base_offset

    def _change(
        self, disk: Disk, segments: Sequence[JournaledSegment], end: JournaledPartition | None
    ) -> None:
        files = self.files
        bases = [one.base_offset for one in segments]
        if self.held is not None:
            bases.append(self.held)
        elif not bases:
            bases.append(self._active)
        if files is not self._named and files is not None and files.entries:
            rows = TieredRows(disk, self.directory, files.place.topic_id, files.head.generation)
            rows.restore(files.entries)
        if files is not self._named or any(base not in self._written for base in bases):
            if files is not None:
                table = table_of(files, segments)
            else:
                assert end is not None
                table = encode_table(end.facts.generation, open_entries(segments))
            disk.replace(f"{self.directory}/{names.SEGMENT_TABLE}", table)
        self._named = files
        for one in segments:
            self._write(disk, one)
        if segments:
            bases.append(segments[-1].next_offset)
        elif self.held is None:
            self._begin(disk, self._active)
        for base in [base for base in self._written if base not in bases]:
            disk.remove(self._log(base))
            del self._written[base]

    def _begin(self, disk: Disk, base_offset: int) -> None:
        """Make the empty ``.log`` of a segment of which no row is there yet."""
        if base_offset not in self._written:
            disk.open(self._log(base_offset), write=True, create=True).close()
            self._written[base_offset] = _Written(_NO_CONTENT, 0)

    def _write(self, disk: Disk, one: JournaledSegment) -> None:
        """Let a ``.log`` have the bytes of a segment."""
        before = self._written.get(one.base_offset, _Written(_NO_CONTENT, 0))
        name, data, position = self._log(one.base_offset), one.data, before.size
        if before.content not in (one.content, _NO_CONTENT):
            position = self._same_bytes(disk, name, data, before.size)
            if self._is_other(one, before.size, position):
                swap, position = self._log(one.base_offset, FileSuffix.SWAP), len(data)
                _write_at(disk, swap, data, 0)
                disk.rename(swap, name)
            elif position < before.size:
                _cut(disk, name, position)  # the owner has lost records
            data = data[position:]
        if data or one.base_offset not in self._written:
            _write_at(disk, name, data, position)
        self._written[one.base_offset] = _Written(one.content, position + len(data))

    def _is_other(self, one: JournaledSegment, size: int, position: int) -> bool:
        """Whether a sealed segment has other bytes than a file, from a position on."""
        return one.next_offset >= 0 and position < min(size, len(one.data))

    def _same_bytes(self, disk: Disk, name: str, data: bytes, size: int) -> int:
        """Return how many bytes of a file are those of another content of the segment."""
        file = disk.open(name)
        try:
            for start in range(0, size, _CHUNK_BYTES):
                found = bytes(file.pread(min(_CHUNK_BYTES, size - start), start))
                other = data[start : start + len(found)]
                if other != found:
                    both = zip(found, other, strict=False)
                    first = next((n for n, (a, b) in enumerate(both) if a != b), len(other))
                    return start + first
        finally:
            file.close()
        return size

    def _log(self, base_offset: int, suffix: FileSuffix = FileSuffix.NONE) -> str:
        return f"{self.directory}/{format_segment_file(base_offset, FileKind.LOG, suffix)}"


def _write_at(disk: Disk, name: str, data: bytes, position: int) -> None:
    file = disk.open(name, write=True, create=True)
    try:
        if data:
            file.pwrite(data, position)
    finally:
        file.close()


def _cut(disk: Disk, name: str, size: int) -> None:
    file = disk.open(name, write=True)
    try:
        file.truncate(size)
    finally:
        file.close()
