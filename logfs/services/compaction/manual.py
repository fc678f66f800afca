"""Compacting a log on request, however dirty it is."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from logfs.errors import NoSuchTopicError, PolicyViolationError
from logfs.log.catalog import Catalog
from logfs.log.cleanercheckpoint import note_cleaned, read_cleaner_offsets
from logfs.log.partition import PartitionLog
from logfs.services.compaction.dirtyrange import find_dirty_range
from logfs.services.compaction.offsetmap import FindKeys, find_keys
from logfs.services.compaction.rounds import clean
from logfs.services.compaction.tools import CleanerStats, CleaningTools

_STEPS = 10
"""How often progress is reported."""


class Compacted(NamedTuple):
    """What compaction on request did to a partition.

    Attributes:
        end_offset: End of the part that is clean now.
        rounds: Number of rounds; more than one if the keys did not fit into memory.
        read_bytes, written_bytes: Bytes of the ``.log`` files, before and after.
        read_records, written_records: Records in these files.
    """

    partition: int
    end_offset: int
    rounds: int
    read_bytes: int
    written_bytes: int
    read_records: int
    written_records: int
    elapsed_s: float


def check_compactable(log: PartitionLog) -> None:
    """Refuse a log that must not be compacted.

    Raises:
        PolicyViolationError: ``cleanup.policy`` does not contain compact.
        MirrorError: It is a mirror; its records go as those of its source do.
        LogOfflineError, DeletedError, ReadOnlyError: See ``PartitionLog.check_writable``.
    """
    log.check_appendable()
    if not log.config.is_compacted:
        policy = log.config.get("cleanup.policy")
        both = f"{policy},compact" if policy else "compact"
        raise PolicyViolationError(
            f"{log.topic_partition}: its cleanup.policy is {policy or 'empty'}, so records stay "
            "even if later ones have the same key; 'logfs topic alter TOPIC --config "
            f"cleanup.policy={both}' allows compaction"
        )


def compact_now(
    log: PartitionLog,
    now_ms: int,
    tools: CleaningTools,
    find: FindKeys = find_keys,
    *,
    roll: bool = False,
) -> Compacted:
    """Compact a log up to its first uncleanable offset, however dirty it is.

    The clean part is read as well, for tombstones and markers whose delete horizon has passed.

    Args:
        log: The log; see ``check_compactable``.
        roll: Start a new segment first, so that the records of the active one can be compacted.

    Raises:
        CleaningAbortedError: The log was truncated or trimmed meanwhile, or ``tools`` said so.
        CorruptRecordError: A batch is damaged.
        LogfsError, OSError: See ``rounds.clean``.
    """
    return _compact(log, now_ms, tools, find, roll=roll)


def preview_compaction(
    log: PartitionLog, now_ms: int, tools: CleaningTools, find: FindKeys = find_keys
) -> Compacted:
    """Return what ``compact_now`` would do in its first round, and change nothing.

    The new segments are written, counted and removed, so this takes as long, and as much room. Only
    a round that was done shows what the next one finds: ``end_offset`` is where it would begin.

    Raises:
        See ``compact_now``.
    """
    return _compact(log, now_ms, tools, find, is_preview=True)


def _compact(
    log: PartitionLog,
    now_ms: int,
    tools: CleaningTools,
    find: FindKeys,
    *,
    roll: bool = False,
    is_preview: bool = False,
) -> Compacted:
    check_compactable(log)
    stats, rounds = CleanerStats(), 0
    with log.cleaning.lock:
        if roll:
            log.roll(now_ms)
        while True:
            offsets = read_cleaner_offsets(log.disk)
            dirty = find_dirty_range(
                log.snapshot, log.config, offsets.get(log.topic_partition), now_ms
            )
            is_clean = dirty.first_dirty >= dirty.first_uncleanable
            if dirty.first_uncleanable <= log.snapshot.segments[0].base_offset or (
                rounds and is_clean
            ):
                break
            done = clean(log, dirty, now_ms, tools, find, is_preview=is_preview)
            if is_preview:
                return _compacted(log, done.end_offset, 1, done.stats)
            note_cleaned(log.disk, log.topic_partition, done.end_offset)
            stats.add(done.stats)
            rounds += 1
        if not is_preview:
            log.cleaning.uncleanable = None
    return _compacted(log, dirty.first_dirty, rounds, stats)


def _compacted(log: PartitionLog, end_offset: int, rounds: int, stats: CleanerStats) -> Compacted:
    return Compacted(
        log.topic_partition.partition,
        end_offset,
        rounds,
        stats.bytes_read,
        stats.bytes_written,
        stats.messages_read,
        stats.messages_written,
        stats.elapsed_s,
    )


def logs_of(
    store: Catalog[PartitionLog],
    topic: str,
    number: int | None,
    check: Callable[[PartitionLog], None],
) -> list[PartitionLog]:
    """Return one partition of a topic, or all of them, each of which has passed a check.

    Raises:
        NoSuchTopicError, NoSuchPartitionError: The topic or partition does not exist.
        LogfsError: See ``check``.
    """
    if topic not in store.topics():
        raise NoSuchTopicError(f"no topic {topic}")
    numbers = store.partitions(topic) if number is None else [number]
    logs = [store.partition(topic, n) for n in numbers]
    for log in logs:
        check(log)
    return logs


def watched(tools: CleaningTools, log: PartitionLog, say: Callable[[str], None]) -> CleaningTools:
    """Return tools that report every tenth of the log that a compaction has read."""
    snapshot = log.snapshot
    total = sum(snapshot.end_of(number)[2] for number in range(len(snapshot.segments)))
    done = told = 0

    def advance(size_bytes: int) -> None:
        nonlocal done, told
        done += size_bytes
        part = min(_STEPS, _STEPS * done // max(total, 1))
        if part > told:
            told = part
            say(f"{log.topic_partition}: {100 * part // _STEPS} % of {total} bytes read")
        tools.advance(size_bytes)

    return replace(tools, advance=advance)
