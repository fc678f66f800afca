"""What is known of the compaction of one partition, for ``.meta`` and for whoever compacts next."""

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class CleaningFacts:
    """The compaction of one partition, as far as this process has seen it.

    Attributes:
        lock: Held while it is compacted.
        cleaned_ms: Clock of the last compaction.
        end_offset: Where that ended.
        read_bytes, written_bytes: What it read, and what it left of that.
        dirty_ratio: Share of the bytes that could be cleaned when that was last looked at.
        uncleanable: Why it is not compacted any more until the next start; None if it is.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    cleaned_ms: int | None = None
    end_offset: int | None = None
    read_bytes: int = 0
    written_bytes: int = 0
    dirty_ratio: float | None = None
    uncleanable: str | None = None

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
