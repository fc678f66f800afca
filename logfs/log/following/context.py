"""What the partitions of one followed data directory share."""

from dataclasses import dataclass, field

from logfs.disk.vfs import Disk
from logfs.log.following.files import FollowedSegments
from logfs.log.host import Host


@dataclass(frozen=True, slots=True)
class Following:
    """A data directory that is followed.

    Attributes:
        disk: The directory.
        host: The machine.
        opened: Its open segments.
        cache: Where positions are kept; None: in memory.
        used: The directories of it that belong to a partition.
    """

    disk: Disk
    host: Host
    opened: FollowedSegments
    cache: Disk | None
    used: set[str] = field(default_factory=set)
