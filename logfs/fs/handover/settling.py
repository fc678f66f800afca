"""At load: how much of each write that was begun is in the log, and the lines that continue.

A partition is settled after its recovery and before anything is appended to it: before lines of
closed files become records, and before half published batches are completed. What is found is
stored in the slot, so a second kill changes nothing.
"""

from collections.abc import Mapping

from logfs.fs.handover.control import ControlSettling
from logfs.fs.handover.journal import Journal, Words
from logfs.fs.handover.segments import deleted_in
from logfs.fs.handover.slots import partition_key
from logfs.fs.handover.state import SLOTS, SlotWord, Stage, slot_index
from logfs.fs.partitions.partition import identity_of
from logfs.log.lines.writer import LineWriter
from logfs.log.partition import PartitionLog
from logfs.log.writing.segmentremoval import DeletedFiles
from logfs.types import View


class Settling:
    """Settles the partitions of a store while it is loaded; see ``Resumption``. Any thread.

    Args:
        words: The words of the state.
        journal: The journal of the daemon that has ended.

    Attributes:
        writers: By open file, those that continue with its unfinished line.
    """

    def __init__(self, words: Words, journal: Journal) -> None:
        self._words = words
        self._journal = journal
        self.writers: dict[int, LineWriter] = {}
        self._control = ControlSettling(journal)
        self._handles = {line.name: fh for fh, line in journal.lines.items()}
        self._begun = [slot for slot in map(slot_index, range(SLOTS)) if self._is_begun(slot)]

    def view_of(self, name: str) -> View | None:
        """Return the view of the line in a file if its open file continues; see ``Resumption``."""
        line = self._journal.lines.get(self._handles.get(name, 0))
        return None if line is None or line.name != name else line.view

    def deleted_in(self, directory: str) -> list[DeletedFiles]:
        """Return the deleted segments of a partition that open files read; see ``Resumption``."""
        return deleted_in(self._journal, directory)

    def settle(self, log: PartitionLog, writers: Mapping[str, LineWriter]) -> None:
        """Note how much of each begun write is in a log; see ``Resumption``."""
        self._control.settle(log)
        key, words = partition_key(identity_of(log)), self._words
        for name, writer in writers.items():
            self.writers[self._handles[name]] = writer
        for slot in self._begun:
            if words[slot + SlotWord.PARTITION] != key or not self._is_begun(slot):
                continue
            open_writer = self.writers.get(words[slot + SlotWord.FH])
            kept_bytes = 0 if open_writer is None else open_writer.unfinished
            words[slot + SlotWord.LINES] = max(
                0, log.log_end_offset - words[slot + SlotWord.LOG_END]
            )
            words[slot + SlotWord.KEPT_BYTES] = kept_bytes
            words[slot + SlotWord.STAGE] = Stage.SETTLED

    def _is_begun(self, slot: int) -> bool:
        unique, stage = self._words[slot + SlotWord.UNIQUE], self._words[slot + SlotWord.STAGE]
        return bool(unique) and stage == Stage.BEGUN
