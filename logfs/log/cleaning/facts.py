"""What is known of the compaction of one partition, for ``.meta`` and for whoever compacts next."""

import threading
from dataclasses import dataclass, field

_SHORTEST_PAUSE_MS = 60_000
_LONGEST_PAUSE_MS = 3_600_000


@dataclass(slots=True)
class CleaningFacts:
    """The compaction of one partition, as far as this process has seen it.

    Attributes:
        lock: Held while it is compacted.
        cleaned_ms: Clock of the last compaction.
        end_offset: Where that ended.
        read_bytes, written_bytes: What it read, and what it left of that.
        dirty_ratio: Share of the bytes that could be cleaned when that was last looked at.
        unsaved_offset: ``end_offset`` as long as the checkpoint file does not have it.
        pause_ms: How long it was left alone the last time, since the disk was full; 0 if it is not.
        paused_until_ms: Clock until which it is left alone.
        uncleanable: Why it is not compacted any more until the next start; None if it is.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    cleaned_ms: int | None = None
    end_offset: int | None = None
    read_bytes: int = 0
    written_bytes: int = 0
    dirty_ratio: float | None = None
    uncleanable: str | None = None
    unsaved_offset: int | None = None
    pause_ms: int = 0
    paused_until_ms: int = 0

    def pause(self, now_ms: int) -> None:
        """Leave it alone for a while, each time for longer."""
        self.pause_ms = min(max(2 * self.pause_ms, _SHORTEST_PAUSE_MS), _LONGEST_PAUSE_MS)
        self.paused_until_ms = now_ms + self.pause_ms

    def as_json(self) -> dict[str, object]:
        """Return them for ``.meta``."""
        return {
            "last_cleaned": self.cleaned_ms,
            "first_dirty_offset": self.end_offset,
            "bytes_read": self.read_bytes,
            "bytes_written": self.written_bytes,
            "dirty_ratio": self.dirty_ratio,
            "uncleanable": self.uncleanable,
        }
