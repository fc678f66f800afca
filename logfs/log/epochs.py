"""Leader epochs: which leader wrote from which offset on, ``leader-epoch-checkpoint``.

A broker that becomes leader of a partition begins an epoch at the log end offset, and stamps its
batches with it. logfs continues in the latest epoch that it finds.

    assign               a new epoch begins; entries at or after its start, or of it and later
                         epochs, were never replicated and go
    truncate_from_end    the log was cut: epochs that begin at the cut or after it go
    truncate_from_start  the log start moved: the epoch that holds it begins there

Epochs and offsets increase. Pure. Source: Kafka LeaderEpochFileCache.
"""

from collections.abc import Iterable

from logfs.log.checkpoints import EpochEntry


class LeaderEpochs:
    """The leader epochs of one partition, ``latest`` for what is appended next. One owner."""

    def __init__(self, entries: Iterable[EpochEntry]) -> None:
        self.entries = list(entries)
        self.latest = self.entries[-1].epoch if self.entries else 0

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Begin an epoch at an offset; returns whether the entries have changed."""
        last = self.entries[-1] if self.entries else None
        if last is not None and last.epoch == epoch and start_offset >= last.start_offset:
            return False
        self.latest = max(self.latest, epoch)
        # No record has these, and a mirror continues in the epoch before them.
        while self.entries and self.entries[-1].start_offset >= start_offset:
            self.entries.pop()
        if self.entries and self.entries[-1].epoch == epoch:
            return True
        while self.entries and self.entries[-1].epoch >= epoch:
            self.entries.pop()
        self.entries.append(EpochEntry(epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop epochs that begin at an offset or after it; returns whether there were any."""
        count = len(self.entries)
        while self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries.pop()
        return len(self.entries) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Let the epoch that holds an offset begin there; returns whether anything has changed."""
        held = [entry for entry in self.entries if entry.start_offset <= start_offset]
        if not held or held == [EpochEntry(held[-1].epoch, start_offset)]:
            return False
        self.entries[: len(held)] = [EpochEntry(held[-1].epoch, start_offset)]
        return True

    def fit(self, start_offset: int, end_offset: int) -> bool:
        """Fit the entries to a log; return whether that has changed them.

        The log continues in the latest epoch.

        Source: Kafka LogLoader.load, Partition.makeLeader.
        """
        before = list(self.entries)
        self.truncate_from_end(end_offset)
        self.truncate_from_start(start_offset)
        self.assign(self.latest, end_offset)
        return self.entries != before

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """Return the largest known epoch up to one, and the offset at which it ends.

        None if the epoch is negative or later than every known one.
        """
        if self.entries and epoch == self.entries[-1].epoch:
            return epoch, log_end_offset
        higher = next((entry for entry in self.entries if entry.epoch > epoch), None)
        if epoch < 0 or higher is None:
            return None
        floor = [entry.epoch for entry in self.entries if entry.epoch <= epoch]
        return (floor[-1] if floor else epoch), higher.start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset; None if it is not known."""
        found = [entry.epoch for entry in self.entries if entry.start_offset <= offset]
        return found[-1] if found else None
