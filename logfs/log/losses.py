"""The losses of a partition, in its plain file ``logfs.losses``: one JSON object a line.

The first line is ``{"version": 1}``. A loss is anything a reader could have expected and does not
get: bytes that recovery cut, a batch that does not decode, an unfinished line that no view accepts,
positions that had to start again. Losses are shown in ``.meta``, and metrics give their number.
"""

import json
import logging
import threading
from typing import Any, NamedTuple

from logfs.disk.vfs import DISK_FULL, Disk
from logfs.errors import UnsupportedFormatError
from logfs.log import names
from logfs.records.jsontext import decode_object
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 1
CUT = "cut"
CORRUPT = "corrupt"
DIVERGED = "diverged"
"""The source of a mirror has lost records that the mirror had."""
MISSED = "missed"
"""The source of a mirror has deleted records that the mirror had not fetched yet."""
NOT_FORWARDED = "not forwarded"
"""Records were deleted that should have gone to a cluster before."""
REMOVED = "removed"
"""Another program has removed the file."""
KINDS = (CUT, CORRUPT, "line", "positions", DIVERGED, MISSED, NOT_FORWARDED, REMOVED)
"""The kinds of losses: ``Loss.kind``."""
EXPIRED = "expired"
"""Records were deleted before a reader reached them: logged, but no loss: they had expired."""


class Loss(NamedTuple):
    """One loss.

    Attributes:
        kind: One of ``KINDS``, or ``EXPIRED``.
        file: The file it concerns, relative to the partition directory.
        position: Byte in that file at which it begins.
        offset: Offset of the first record concerned, if known. For damage that a reader met
            (corrupt), the offset at which reading continues after it.
        detail: The event, and the place of the bytes now, in a sentence.
    """

    time_ms: int
    kind: str
    file: str
    position: int
    bytes: int
    offset: int | None
    detail: str


class LossFile:
    """The losses of one partition; read when first asked for."""

    def __init__(self, disk: Disk, directory: str, *, read_only: bool) -> None:
        self._disk = disk
        self._name = f"{directory}/{names.LOSSES}"
        self._read_only = read_only
        self._lock = threading.Lock()
        self._losses: list[Loss] | None = None
        self._is_unreadable = False
        self.is_dirty = False

    def all(self) -> list[Loss]:
        """Return every loss, oldest first."""
        with self._lock:  # or two threads would read it, each its own list
            if self._losses is None:
                self._losses = self._read()
            return self._losses

    def note(self, loss: Loss) -> bool:
        """Add a loss in memory, which ``save`` writes; return False if it was added before."""
        losses = self.all()
        if any(_what(loss) == _what(other) for other in losses):
            return False
        losses.append(loss)
        self.is_dirty = not (self._read_only or self._is_unreadable)
        return True

    def save(self) -> None:
        """Write the new losses; durable when this returns. Nothing if the store is read-only."""
        if not self.is_dirty:
            return
        rows = list(self.all())
        lines = [json.dumps({"version": VERSION}), *(json.dumps(row._asdict()) for row in rows)]
        self._disk.replace(self._name, ("\n".join(lines) + "\n").encode())
        self.is_dirty = len(self.all()) > len(rows)

    def add(self, loss: Loss) -> None:
        """Add a loss and save it; on a full disk ``save`` must be called again."""
        self.note(loss)
        try:
            self.save()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            logger.warning("%s: %s; the loss is noted there later", self._name, error)

    def _read(self) -> list[Loss]:
        try:
            lines = self._disk.read(self._name).splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            # Not to be overwritten: another start may be able to read it.
            self._is_unreadable = True
            logger.warning("%s: its losses are not known until the next start", error)
            return []
        rows = [row for line in lines if (row := _parse(line)) is not None]
        versions = [row["version"] for row in rows if "version" in row]
        if versions and versions[0] != VERSION:
            raise UnsupportedFormatError(
                f"{self._name}: version {versions[0]}, "
                f"this logfs reads version {VERSION}: use a newer logfs"
            )
        losses = [Loss(**row) for row in rows if row.keys() == set(Loss._fields)]
        if not versions or len(losses) != len(lines) - 1:
            logger.warning("%s: lines that do not parse are passed over", self._name)
        return losses


def log_loss(topic_partition: TopicPartition, loss: Loss) -> None:
    """Tell the log of a loss: what happened, and at the end the same for programs."""
    logger.warning(
        "%s: %s [loss: %s, %s, position %d, %d bytes]",
        topic_partition, loss.detail, loss.kind, loss.file, loss.position, loss.bytes,
        extra={
            "fields": {
                "event": "loss",
                "kind": loss.kind,
                "file": loss.file,
                "position": loss.position,
                "bytes": loss.bytes,
                "offset": loss.offset,
            }
        },
    )  # fmt: skip


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        return decode_object(line)
    except ValueError:
        return None


def _what(loss: Loss) -> tuple[str, str, int, int, str]:
    # A batch that cannot be read is one loss, however a scan and the readers put it.
    detail = "" if loss.kind == CORRUPT and loss.bytes else loss.detail
    return loss.kind, loss.file, loss.position, loss.bytes, detail
