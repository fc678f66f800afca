"""A partition for trio and asyncio."""

import os
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from functools import partial
from typing import Self

from logfs.aio.threads import Items, run
from logfs.library.partition import Partition
from logfs.library.points import Point
from logfs.library.records import Appendable, Headers
from logfs.library.store import open_partition
from logfs.records.record import Record


class AsyncPartition:
    """One partition. Get one from ``logfs.aio.open``; tasks may share it.

    Use it in an ``async with`` block, which opens and closes it.
    """

    def __init__(self, path: str | os.PathLike[str], isolation_level: str | None) -> None:
        self._path = path
        self._level = isolation_level
        self._opened: Partition | None = None

    async def __aenter__(self) -> Self:
        self._opened = await run(partial(open_partition, self._path, isolation_level=self._level))
        return self

    async def __aexit__(self, *_: object) -> None:
        await run(self._partition.close)

    @property
    def _partition(self) -> Partition:
        if self._opened is None:
            raise ValueError(f"{self._path}: not open: use it in an 'async with' block")
        return self._opened

    async def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | datetime | None = None,
        durable: bool = False,
    ) -> int:
        """Append one record and return its offset; see ``Partition.append``."""
        options = {"key": key, "headers": headers, "timestamp": timestamp, "durable": durable}
        call = partial(self._partition.append, value, **options)  # type: ignore[arg-type]
        return await run(call)

    async def append_many(self, records: Iterable[Appendable], *, durable: bool = False) -> range:
        """Append records and return their offsets; see ``Partition.append_many``."""
        return await run(partial(self._partition.append_many, records, durable=durable))

    async def flush(self) -> None:
        """Make all earlier appends of all writers durable; see ``Partition.flush``."""
        await run(self._partition.flush)

    async def offset_at(self, point: Point) -> int:
        """Return the offset of the first record at or after a point."""
        return await run(partial(self._partition.offset_at, point))

    async def committed(self, group: str) -> int | None:
        """Return the offset that a consumer group has committed here; None: none."""
        return await run(partial(self._partition.committed, group))

    async def commit(
        self, group: str, offset: int, *, metadata: str = "", durable: bool = False
    ) -> None:
        """Commit the position of a consumer group; see ``Partition.commit``."""
        options = {"metadata": metadata, "durable": durable}
        call = partial(self._partition.commit, group, offset, **options)  # type: ignore[arg-type]
        await run(call)

    def read(self, start: Point = "earliest", stop: Point | None = None) -> AsyncIterator[Record]:
        """Iterate over the present records; see ``Partition.read``."""
        return Items(partial(self._partition.read_batches, start, stop))

    def follow(
        self,
        start: Point = "latest",
        stop: Point | None = None,
        *,
        timeout: float | None = None,
    ) -> AsyncIterator[Record]:
        """Iterate over records from a point, and new ones as they come.

        See ``Partition.follow``.
        """
        call = partial(self._partition.follow_batches, start, stop, timeout=timeout, ticks=True)
        return Items(call)


def open(  # noqa: A001 - as logfs.open is called
    path: str | os.PathLike[str], *, isolation_level: str | None = None
) -> AsyncPartition:
    """Return a partition to be opened by ``async with``; see ``logfs.open``."""
    return AsyncPartition(path, isolation_level)
