"""How far a compaction is, in words, for whoever has asked for it and waits."""

from collections.abc import Callable
from dataclasses import replace

from logfs.log.cleaning.tools import CleaningTools
from logfs.log.partition import PartitionLog

_PARTS = 10


def watched(tools: CleaningTools, log: PartitionLog, say: Callable[[str], None]) -> CleaningTools:
    """Return tools that tell of every tenth of a log that has been gone through.

    Args:
        tools: Those to work with.
        log: What is going to be compacted.
        say: Gets a line of text; in the thread that compacts.
    """
    snapshot = log.snapshot
    total = sum(snapshot.end_of(number)[2] for number in range(len(snapshot.segments)))
    done = told = 0

    def advance(size_bytes: int) -> None:
        nonlocal done, told
        done += size_bytes
        part = min(_PARTS, _PARTS * done // max(total, 1))
        if part > told:
            told = part
            say(f"{log.topic_partition}: {100 * part // _PARTS} % of {total} bytes gone through")
        tools.advance(size_bytes)

    return replace(tools, advance=advance)
