"""Records that wait to be forwarded to a cluster, which retention and trim keep.

The process that forwards notes what was acknowledged, see ``forwardfile``. It need not run: what it
has not forwarded is kept until it does, unless it has a limit.
"""

from logfs.errors import HeldError
from logfs.log.forwardfile import NO_HOLD, NO_LIMIT, ForwardNote, read_notes
from logfs.log.losses import NOT_FORWARDED
from logfs.log.partition import PartitionLog
from logfs.log.segments.snapshot import Snapshot


def held_offset(log: PartitionLog) -> int | None:
    """Return the offset from which on records are held; None: none are.

    Raises:
        OSError: The directory cannot be read.
    """
    snapshot = log.snapshot
    offsets = [_held(snapshot, note) for note in read_notes(log.disk, log.directory)]
    return min((offset for offset in offsets if offset is not None), default=None)


def refuse_held(log: PartitionLog, offset: int) -> None:
    """Raise HeldError if records below an offset are held."""
    snapshot = log.snapshot
    for note in read_notes(log.disk, log.directory):
        held = _held(snapshot, note)
        if held is not None and max(held, snapshot.start.offset) < offset:
            if note.problem:
                raise HeldError(
                    f"{log.topic_partition}: it is not known what was forwarded: {note.problem}, "
                    "or use --even-if-not-forwarded"
                )
            raise HeldError(
                f"{log.topic_partition}: offsets from {held} on were not forwarded to "
                f"{note.identity.destination} yet: let 'logfs forward' finish, remove "
                f"{log.directory}/{note.name} if it is not needed any more, or use "
                "--even-if-not-forwarded"
            )


def note_not_forwarded(log: PartitionLog, before: int, now_ms: int) -> None:
    """Note a loss for each forward that has a limit, if records went that it had not forwarded.

    Args:
        log: The partition.
        before: The start of the log before.
        now_ms: The clock.
    """
    start = log.log_start_offset
    for note in read_notes(log.disk, log.directory):
        first = max(before, note.held_offset)
        if note.identity.hold_bytes != NO_HOLD and first < start:
            detail = (
                f"offsets {first} to {start - 1} were deleted before they were forwarded to "
                f"{note.identity.destination}, which may hold {note.identity.hold_bytes} bytes"
            )
            log.add_loss(NOT_FORWARDED, note.name, 0, 0, detail, now_ms)


def _held(snapshot: Snapshot, note: ForwardNote) -> int | None:
    limit = note.identity.hold_bytes
    if limit == NO_HOLD:
        return None
    held = note.held_offset
    if limit == NO_LIMIT:
        return held
    size = 0
    for number in reversed(range(len(snapshot.segments))):
        size += snapshot.end_of(number)[2]
        if size > limit:
            return max(held, snapshot.end_of(number)[1])
    return held
