"""What can be asked of the daemon about its partitions, without changing any of them."""

from logfs.errors import LogOfflineError
from logfs.fs.appending import find_partition
from logfs.fs.operations import Operations
from logfs.fs.requests import Request
from logfs.log.backup.point import take_point


class LookingCommands:
    """Carries them out. Event loop only.

    Args:
        operations: The file system, whose lanes are those of everybody.
    """

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def point(self, request: Request) -> object:
        """Make what a partition holds durable, and tell where it stands."""
        partition = await find_partition(self._operations, request)
        log = partition.log
        if log.is_unreadable:
            raise LogOfflineError(str(log.offline))
        if log.offline is None:
            await partition.lane.sync(log.flush)
        point = await partition.lane.alone(take_point, log)
        return point._asdict()
