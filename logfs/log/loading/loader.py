"""Loading a partition from its directory, with recovery where it is needed.

Source: Kafka LogLoader.load, UnifiedLog.recover.
"""

import contextlib
import errno
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from logfs.config import TopicConfig
from logfs.disk.vfs import DISK_FULL, Disk
from logfs.errors import CorruptIndexError, CorruptRecordError, LogfsError
from logfs.log import names
from logfs.log.checkpoints import (
    EpochEntry,
    read_leader_epochs,
    read_partition_metadata,
    write_leader_epochs,
)
from logfs.log.epochs import LeaderEpochs
from logfs.log.loading.context import LoadContext, Loader
from logfs.log.loading.logend import place_log_end, sync_unflushed
from logfs.log.loading.missing import tell_missing
from logfs.log.loading.preloading import PreloadedPartition
from logfs.log.loading.producers import ProducerLoader
from logfs.log.loading.recovery import load_segments, write_doubtful_again
from logfs.log.loading.swaps import resolve_swaps, take_pending
from logfs.log.loading.tiered import find_tiered, rebuild_lost, remote_status, remove_partial
from logfs.log.losses import LossFile
from logfs.log.mirrorfile import read_mirror
from logfs.log.names import FileKind, FileSuffix, SegmentFileName, format_segment_file
from logfs.log.producers.replay import locate_transactions
from logfs.log.reading.lookup import positions_of_offset
from logfs.log.segments.scan import end_of_data
from logfs.log.segments.segment import SEGMENT_FILE_KINDS, Segment
from logfs.log.segments.snapshot import LogEnd, LogPoint, Snapshot
from logfs.log.segments.table import SegmentState, SegmentTable, TableEntry
from logfs.log.topics import read_properties
from logfs.log.writing.active import remove_segment_files
from logfs.log.writing.state import PartitionState
from logfs.types import Positions, TopicPartition

if TYPE_CHECKING:
    from logfs.log.partition import PartitionLog

logger = logging.getLogger(__name__)

_NO_GENERATION = bytes(16)
_DISK_FAILURES = DISK_FULL | {errno.EIO, errno.EROFS}
_SLOW_LOAD_S = 0.005
_SLOW_LOADS = 8
"""After so many partitions that took longer than that, threads load the others."""


def load_partition(context: LoadContext, topic_partition: TopicPartition) -> "PartitionLog":
    """Load one partition; see ``load_state``."""
    from logfs.log.partition import PartitionLog  # readers make another log of the state

    log = PartitionLog(load_state(context, topic_partition))
    if context.resumed is not None and not context.read_only:
        log.removal.restore(context.resumed.deleted_in(log.directory), context.now_ms)
    return log


def load_state(context: LoadContext, topic_partition: TopicPartition) -> PartitionState:
    """Load one partition directory, and recover it if the last stop was not clean.

    Args:
        context: The facts that the store has.
        topic_partition: The partition.

    Raises:
        UnsupportedFormatError: A newer logfs wrote one of its files.
        InvalidConfigError: Its configuration does not parse.
        CorruptCheckpointError: One of its small files does not parse.
        OSError: The disk failed.
    """
    disk, directory = context.disk, topic_partition.directory
    config = context.config(_read_config(context, directory))
    mirror = read_mirror(disk, directory)
    topic_id = _read_topic_id(context, directory)
    epoch_entries = _read_epochs(disk, directory)
    losses = LossFile(disk, directory, read_only=context.read_only)
    tier = find_tiered(context, directory)
    preloaded = context.take_preloaded(directory)
    kinds, swapped = _list_segments(context, topic_partition, preloaded)
    loader = Loader(context, topic_partition, config, losses, kinds, swapped, preloaded, tier=tier)
    loader.scans_all = epoch_entries is None
    loader.is_mirror = mirror is not None
    remove_partial(loader)
    state = _load(loader, topic_id, epoch_entries)
    state.mirror = mirror
    return state


def _load(
    loader: Loader, topic_id: UUID | None, epoch_entries: list[EpochEntry] | None
) -> PartitionState:
    context, disk = loader.context, loader.context.disk
    loader.table = _load_table(loader)
    if rebuild_lost(loader, topic_id):
        loader.kinds, loader.swapped = _list_segments(
            context, loader.topic_partition, PreloadedPartition()
        )
    _mark_first_start(loader)
    write_doubtful_again(loader)
    take_pending(loader)
    present = frozenset(loader.bases)
    load_segments(loader)
    tell_missing(loader, present)
    sync_unflushed(loader)
    reserved = place_log_end(loader)
    producers = ProducerLoader(loader)
    producers.load()
    # After everything else: it makes the names durable as well.
    table = _store_table(loader, reserved, topic_id)
    snapshot = _snapshot(loader)
    locate_transactions(producers.state, snapshot)
    snapshot = snapshot.with_transactions(tuple(producers.aborted), producers.state.unstable)
    epochs = _load_epochs(loader, epoch_entries or [], snapshot)
    return PartitionState(
        disk=disk,
        host=context.host,
        opened=context.opened,
        topic_partition=loader.topic_partition,
        topic_id=None if topic_id is None else names.format_topic_id(topic_id),
        config=loader.config,
        epochs=epochs,
        table=table,
        snapshot=snapshot,
        reserved=reserved,
        losses=loader.losses,
        recovery_point=loader.recovery_point(snapshot.end.offset),
        last_modified_ms=_last_modified_ms(disk, snapshot.active),
        read_only=context.read_only,
        producers=producers.state,
        snapshot_offset=producers.snapshot_offset,
        producer_expiration_ms=context.producer_expiration_ms,
        counters=loader.counters,
        has_new_epochs=_save_epochs(loader, epochs, epoch_entries),
        deferred=loader.deferred,
        unsynced_indexes=loader.unsynced_indexes,
        tier=loader.tier,
        remote=remote_status(context.disk, loader.directory),
        usage=context.usages.of(loader.topic_partition.topic),
    )


def _read_config(context: LoadContext, directory: str) -> dict[str, str] | None:
    """Read the topic's configuration; defaults if it cannot be read and the log is salvaged."""
    try:
        return read_properties(context.disk, directory)
    except OSError as error:
        if not context.salvages:
            raise
        logger.warning("%s: the default configuration is used instead", error)
        return {"cleanup.policy": ""}


def _read_topic_id(context: LoadContext, directory: str) -> UUID | None:
    try:
        return read_partition_metadata(context.disk, directory)
    except OSError as error:
        if not context.salvages:
            raise
        logger.warning("%s: the topic has no id without it", error)
        return None


def _list_segments(
    context: LoadContext, topic_partition: TopicPartition, preloaded: PreloadedPartition
) -> tuple[dict[int, set[FileKind]], dict[int, set[FileKind]]]:
    """List the segment files, and remove the files that Kafka's loader removes.

    Nothing is removed in a read-only store. ``context.leftovers`` receives the other files of
    writers and jobs.

    Returns:
        The kinds of files by base offset; and those of them that still have the suffix ``.swap``.

    Raises:
        OSError: A ``.log`` is no regular file: its records must not be treated as deleted.
    """
    disk, directory = context.disk, topic_partition.directory
    contents = preloaded.contents(disk, directory)
    _refuse_irregular(disk, directory, contents.irregular)
    kinds, others = preloaded.group(_without_kept(context, directory, contents.files))
    suffixed: list[SegmentFileName] = []
    context.leftovers[topic_partition] = leftovers = []
    for name in others:
        parsed = names.parse_segment_file(name)
        if parsed is not None:
            suffixed.append(parsed)
        elif names.is_leftover(name) and not context.read_only:
            disk.remove(f"{directory}/{name}")
        elif names.stops_kafka(name):
            logger.warning(
                "%s/%s is ignored: it is named like a segment file, but does not begin with the "
                "20 digits of an offset; a Kafka broker does not start with it", directory, name
            )  # fmt: skip
        elif names.parse_unfinished_file(name) or names.parse_staged_file(name):
            leftovers.append(name)
    swapped: dict[int, set[FileKind]] = {}
    if suffixed:
        plain = [SegmentFileName(base, kind) for base, found in kinds.items() for kind in found]
        files, waiting = resolve_swaps(
            disk, directory, [*plain, *suffixed], read_only=context.read_only
        )
        kinds, swapped = _by_base_offset(files), _by_base_offset(waiting)
    if not context.read_only:
        for base_offset in kinds.keys() - names.log_bases(kinds):
            if kinds[base_offset] == {FileKind.SNAPSHOT}:
                continue
            segment = Segment(context.opened, directory, base_offset, Positions())
            remove_segment_files(disk, segment)
    return kinds, swapped


def _without_kept(context: LoadContext, directory: str, files: Sequence[str]) -> Sequence[str]:
    """Return the files of a directory but those of deleted segments that open files read.

    A kill may have left some of these under their own names: they are renamed.
    """
    if context.resumed is None or context.read_only:
        return files
    deleted = context.resumed.deleted_in(directory)
    if not deleted:
        return files
    found = set(files)
    for entry, copy in deleted:
        base = entry.base_offset
        if names.format_deleted_file(base, FileKind.LOG, copy) not in found:
            continue
        is_replaced = names.format_segment_file(base, FileKind.LOG) in found or any(
            names.format_segment_file(base, kind, FileSuffix.SWAP) in found for kind in FileKind
        )
        for kind in SEGMENT_FILE_KINDS:
            old = names.format_segment_file(base, kind)
            new = names.format_deleted_file(base, kind, copy)
            if old in found and new not in found and not is_replaced:
                context.disk.rename(f"{directory}/{old}", f"{directory}/{new}")
                found.discard(old)
            found.discard(new)
    return list(found)


def _by_base_offset(files: Iterable[SegmentFileName]) -> dict[int, set[FileKind]]:
    kinds: dict[int, set[FileKind]] = {}
    for file in files:
        kinds.setdefault(file.base_offset, set()).add(file.kind)
    return kinds


def _refuse_irregular(disk: Disk, directory: str, irregular: Iterable[tuple[str, str]]) -> None:
    """Raise OSError if a ``.log`` is a link, a FIFO or the like."""
    for name, _ in irregular:
        parsed = names.parse_segment_file(name)
        if parsed is not None and parsed.kind is FileKind.LOG:
            disk.stat(f"{directory}/{name}")  # raises an error that says what it is


def _load_epochs(loader: Loader, entries: list[EpochEntry], snapshot: Snapshot) -> LeaderEpochs:
    """Return the leader epochs, limited to the offsets of the loaded log.

    Source: Kafka LogLoader.load, LogSegment.recover; Partition.makeLeader.
    """
    epochs = LeaderEpochs(entries)
    for epoch, offset in loader.leader_epochs:
        if epoch > epochs.latest:
            epochs.assign(epoch, offset)
    epochs.fit(loader.start_offset, snapshot.end.offset)
    return epochs


def _read_epochs(disk: Disk, directory: str) -> list[EpochEntry] | None:
    """Read the leader epochs; None if they cannot be read and come from the batches instead."""
    try:
        return read_leader_epochs(disk, directory)
    except OSError as error:
        logger.warning("%s; the leader epochs are rebuilt from the batches", error)
        return None


def _save_epochs(loader: Loader, epochs: LeaderEpochs, before: list[EpochEntry] | None) -> bool:
    """Write the leader epochs if they have changed; returns whether this is still to be done."""
    if epochs.entries == before or loader.context.read_only:
        return False
    try:
        write_leader_epochs(loader.context.disk, loader.directory, epochs.entries)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        logger.warning("%s: %s; it is done later", loader.topic_partition, error)
        return True
    return False


def _load_table(loader: Loader) -> SegmentTable | None:
    """Read the segment table; None if the directory never had one, or it is lost."""
    bases = loader.bases
    try:
        known = loader.preloaded.table
        table = SegmentTable.load(loader.context.disk, loader.directory, known)
        if not bases or _is_usable(table, bases, is_clean=loader.context.is_clean):
            return table
        reason = "has lost entries"
    except FileNotFoundError:
        has_text = any(FileKind.TEXT_INDEX in kinds for kinds in loader.kinds.values())
        is_marked = loader.context.disk.exists(f"{loader.directory}/{names.SEGMENT_TABLE}")
        if is_marked or not has_text or _has_only_begun(loader):
            return None
        reason = "is gone"
    except CorruptIndexError as error:
        reason = f"does not decode ({error})"
    except OSError as error:
        if not loader.context.salvages:
            raise
        reason = f"cannot be read ({error})"
    loader.has_lost_table = True
    loader.lose(
        "positions",
        names.SEGMENT_TABLE,
        0,
        0,
        f"the segment table {reason}: the positions of {loader.topic_partition} restart at 0, "
        "under new inode numbers",
    )
    return None


def _mark_first_start(loader: Loader) -> None:
    """Have a stop before the table is stored mean no loss: text indexes are made before it."""
    context, directory = loader.context, loader.directory
    has_begun = loader.table is not None or loader.has_lost_table
    if has_begun or context.read_only or not loader.bases:
        return

    def mark() -> None:
        SegmentTable.mark(context.disk, directory)

    with loader.deferring(mark):
        mark()
    loader.has_no_mark = loader.deferred is not None


def _has_only_begun(loader: Loader) -> bool:
    """Whether nothing was ever appended, as where a stop interrupted the creation of a topic."""
    if loader.kinds.keys() != {0}:
        return False
    name = f"{loader.directory}/{format_segment_file(0, FileKind.LOG)}"
    try:
        log = loader.context.disk.open(name)
    except FileNotFoundError:
        return True
    with contextlib.closing(log):
        return end_of_data(log, 0, log.size()) == 0


def _is_usable(table: SegmentTable, bases: list[int], *, is_clean: bool) -> bool:
    """Whether the entries that decode are enough; those of a torn write may be missing."""
    if not table.is_damaged:
        return bool(table.entries)
    # The first entry was durable before anything was appended, so it cannot be torn.
    oldest = min(table.entries.keys() | table.state.dropped, default=bases[0] + 1)
    return not is_clean and table.state.has_reservation and oldest <= bases[0]


def _store_table(loader: Loader, reserved: Positions, topic_id: UUID | None) -> SegmentTable:
    """Write the segments that were found to the segment table."""
    context, table = loader.context, loader.table
    last = loader.segments[-1]
    known = None if table is None else table.entries.get(last.base_offset)
    is_closed = known is not None and known == last.entry(SegmentState.CLOSED)
    if context.read_only:
        return table or SegmentTable(context.disk, loader.directory, _NO_GENERATION)
    tail = TableEntry(
        last.base_offset,
        SegmentState.OPEN,
        last.bases,
        reserved,
        max_timestamp=last.max_timestamp,
        first_timestamp=last.first_timestamp,
        boot=loader.cache_mark,
        is_after_gap=last.is_after_gap,
    )
    if table is None:
        table = SegmentTable(context.disk, loader.directory, _new_generation(loader, topic_id))
        loader.has_changed = True
    if min(table.entries, default=last.base_offset) < loader.segments[0].base_offset:
        loader.has_changed = True  # removed without an entry, because the disk was full
    # After a clean stop a damaged table would pass for one that has lost entries.
    loader.has_changed |= table.is_damaged
    # Deferred work comes before the table, which has the ends of segments still to be truncated.
    if loader.deferred is None and (loader.has_changed or not is_closed):
        sealed = [segment.entry(SegmentState.SEALED) for segment in loader.segments[:-1]]
        with loader.deferring():
            table.rewrite([*sealed, tail])
    return table


def _new_generation(loader: Loader, topic_id: UUID | None) -> bytes:
    """Return the generation of positions that begin with the first segment.

    On a full disk no table is stored, and readers get them all the same. The next start gives the
    first segment the same positions, so it finds the same generation.
    """
    if loader.tier is not None and loader.tier.entries:
        return loader.tier.rows.generation  # their positions are in the store for ever
    if topic_id is None or loader.has_lost_table:
        return loader.context.host.new_id()
    from hashlib import blake2b  # rarely needed, and slow to import

    text = f"{topic_id} {loader.topic_partition.partition} {loader.segments[0].base_offset}"
    return blake2b(text.encode(), digest_size=16).digest()


def _snapshot(loader: Loader) -> Snapshot:
    segments = tuple(loader.segments)
    last = segments[-1]
    end = LogEnd(last.next_offset, last.ends, last.size_bytes, last.max_timestamp)
    start = LogPoint(segments[0].base_offset, segments[0].bases)
    snapshot = Snapshot.of(segments, start, end)
    offset = loader.start_offset
    if offset <= start.offset:
        return snapshot
    offset = min(offset, end.offset)
    noted = None if loader.tier is None else loader.tier.positions_of_start(offset)
    try:
        positions = noted or positions_of_offset(snapshot, offset)
    except CorruptRecordError as error:
        logger.warning("%s: no log start at %d: %s", loader.topic_partition, offset, error)
        return snapshot
    return snapshot.changed(segments, LogPoint(offset, positions), end)


def _last_modified_ms(disk: Disk, active: Segment) -> int:
    try:
        return disk.stat(active.name).mtime_ms
    except FileNotFoundError:
        return disk.stat(active.directory).mtime_ms


def load_all(
    context: LoadContext, found: Iterable[TopicPartition], workers: int
) -> "Iterator[PartitionLog]":
    """Load partitions, with threads if there is something to wait for.

    After a clean stop everything is normally in the page cache. Threads would then only take the
    interpreter from each other.
    """
    left, slow = iter(found), 0
    while context.is_clean and slow < _SLOW_LOADS:
        topic_partition = next(left, None)
        if topic_partition is None:
            return
        started_s = context.host.clock_s()
        yield load_or_take_offline(context, topic_partition)
        slow += context.host.clock_s() - started_s > _SLOW_LOAD_S
    with context.host.pool(workers, "recovery") as pool:
        yield from pool.map(lambda tp: load_or_take_offline(context, tp), left)


def load_or_take_offline(context: LoadContext, topic_partition: TopicPartition) -> "PartitionLog":
    """Load a partition and its unfinished lines; return an offline log if it cannot be loaded."""
    started_s = context.host.clock_s()
    try:
        log = _load_or_salvage(context, topic_partition)
    except (LogfsError, OSError) as error:
        return offline_partition(context, topic_partition, error)
    if not context.is_clean:
        log.counters.recoveries += 1
        log.counters.recovery_s += context.host.clock_s() - started_s
        _log_recovery(log)
    if not context.read_only and log.offline is None:
        try:
            left = context.leftovers[topic_partition]
            lines = sorted(name for name in left if names.parse_unfinished_file(name))
            from logfs.log.lines.writer import adopt_unfinished

            adopt_unfinished(log, context.now_ms, lines, context.resumed)
        except (LogfsError, OSError) as error:
            logger.warning("%s: unfinished lines wait: %s", topic_partition, error)
    return log


def _load_or_salvage(context: LoadContext, topic_partition: TopicPartition) -> "PartitionLog":
    """Load a partition; if the disk fails or has no room to recover it, only for reading.

    Nothing is written then. A later attempt finds the same files.
    """
    try:
        return load_partition(context, topic_partition)
    except OSError as error:
        if error.errno not in _DISK_FAILURES:
            raise
        salvaging = replace(context, read_only=True, salvages=True)
        try:
            log = load_partition(salvaging, topic_partition)
        except (LogfsError, OSError):
            raise error from None
        log.state.read_only = context.read_only
        log.state.offline = f"it could not be loaded as a whole: {error}"
        logger.warning("%s can be read, but not written: %s", topic_partition, log.offline)
        return log


def _log_recovery(log: "PartitionLog") -> None:
    """Log how much the recovery of a partition scanned, and how long it took."""
    found = log.counters
    logger.info(
        "%s: recovered, %d segments of %d bytes scanned in %.3f s",
        log.topic_partition, found.recovered_segments, found.recovered_bytes, found.recovery_s,
        extra={"fields": {
            "event": "recovery", "segments": found.recovered_segments,
            "bytes": found.recovered_bytes, "seconds": round(found.recovery_s, 6),
            "offset": log.log_end_offset,
        }},
    )  # fmt: skip


def offline_partition(
    context: LoadContext, topic_partition: TopicPartition, reason: Exception
) -> "PartitionLog":
    """Return an empty, unreadable log for a partition that could not be loaded."""
    # For daemons' logs: a command reports it itself.
    logger.warning(
        "%s could not be loaded: %s", topic_partition, reason, extra={"is_told_by_commands": True}
    )
    directory, nothing = topic_partition.directory, Positions()
    segment = Segment(context.opened, directory, 0, nothing)
    snapshot = Snapshot((segment,), LogPoint(0, nothing), LogEnd(0, nothing, 0, -1))
    from logfs.log.partition import PartitionLog

    return PartitionLog(
        PartitionState(
            disk=context.disk,
            host=context.host,
            opened=context.opened,
            topic_partition=topic_partition,
            topic_id=None,
            config=TopicConfig(),
            epochs=LeaderEpochs([]),
            table=SegmentTable(context.disk, directory, bytes(16)),
            snapshot=snapshot,
            reserved=nothing,
            losses=LossFile(context.disk, directory, read_only=True),
            recovery_point=context.recovery_points.get(topic_partition, 0),
            read_only=context.read_only,
            offline=f"it could not be loaded: {reason}",
            is_unreadable=True,
        )
    )
