"""A consumer for trio and asyncio."""

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Self

from logfs.aio.threads import Items, run
from logfs.library.consumer import Consumer, ConsumerRecord
from logfs.library.points import Point
from logfs.library.store import Store, open_store


class AsyncConsumer:
    """Reads topics from where its group was. Get one from ``logfs.aio.consumer``. One task.

    Use it in an ``async with`` block, which opens and closes it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: str,
        topics: str | Iterable[str] | Mapping[str, Iterable[int]],
        start: Point,
        isolation_level: str | None,
    ) -> None:
        self._path = path
        self._group = group
        self._topics = topics
        self._start = start
        self._level = isolation_level
        self._opened: tuple[Store, Consumer] | None = None

    async def __aenter__(self) -> Self:
        self._opened = await run(self._open)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._opened is not None:
            await run(self._opened[0].close)

    def follow(
        self,
        *,
        timeout: float | None = None,
    ) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records, and over new ones as they come; see ``Consumer.follow``.

        ``commit`` in the loop includes the record that was returned last.
        """
        return self._noted(timeout)

    def read(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over the present records, partition by partition."""
        return self._noted(0)

    async def commit(self, *, metadata: str = "", durable: bool = False) -> None:
        """Commit the positions after the records returned so far; see ``Consumer.commit``."""
        await run(partial(self._consumer.commit, metadata=metadata, durable=durable))

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """The offset of the next record of each topic and partition."""
        return {(topic, n): at for (topic, n), at in self._consumer.positions.items()}

    @property
    def _consumer(self) -> Consumer:
        if self._opened is None:
            raise ValueError(f"{self._path}: not open: use it in an 'async with' block")
        return self._opened[1]

    def _open(self) -> tuple[Store, Consumer]:
        store = open_store(self._path, isolation_level=self._level)
        try:
            return store, store.consumer(self._group, self._topics, start=self._start)
        except BaseException:
            store.close()
            raise

    def _noted(self, timeout_s: float | None) -> AsyncIterator[ConsumerRecord]:
        consumer = self._consumer
        return Items(partial(consumer.follow_lists, timeout=timeout_s), consumer.note)


def consumer(
    path: str | os.PathLike[str],
    group: str,
    topics: str | Iterable[str] | Mapping[str, Iterable[int]],
    *,
    start: Point = "earliest",
    isolation_level: str | None = None,
) -> AsyncConsumer:
    """Return a consumer to be opened by ``async with``; see ``Store.consumer``.

    Args:
        path: The data directory or the mount point.
    """
    return AsyncConsumer(path, group, topics, start, isolation_level)
