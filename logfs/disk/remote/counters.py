"""The cost of reads from a store, and of a journal."""

from dataclasses import dataclass


class BlockCounters:
    """What the blocks of a process have cost. Any thread may read.

    Attributes:
        requests: GETs that were sent.
        bytes: Bytes that they have returned.
        errors: GETs that failed.
        hits: Reads that found their block in memory.
        misses: Reads that had to wait for one.
        loaded_bytes: Bytes that came from the cache directory.
        corrupt: Blocks whose checksum differed.
        cache_errors: Errors of the cache directory.
        cache_corrupt: Blocks of the cache directory whose checksum differed.
        wait_s: Seconds that reads have waited.
    """

    __slots__ = (
        *(
            "cache_corrupt",
            "cache_errors",
            "bytes",
            "corrupt",
            "errors",
            "hits",
            "loaded_bytes",
            "misses",
            "requests",
            "wait_s",
        ),
    )

    def __init__(self) -> None:
        self.requests = self.bytes = self.errors = self.hits = self.misses = 0
        self.loaded_bytes = self.corrupt = self.cache_errors = self.cache_corrupt = 0
        self.wait_s = 0.0


@dataclass(slots=True)
class JournalCounters:
    """What the journal of a data directory has cost since the daemon began.

    Attributes:
        rounds, failures: Rounds that were complete, and that failed.
        objects, size_bytes: Objects that were stored, and their bytes.
        complete_ms: The last complete round began at this moment; 0: none was yet.
    """

    rounds: int = 0
    failures: int = 0
    objects: int = 0
    size_bytes: int = 0
    complete_ms: int = 0
