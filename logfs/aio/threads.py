"""Calls that block, in threads of the library whose event loop runs."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Self, TypeVar

import sniffio

T = TypeVar("T")


async def run(call: Callable[[], T]) -> T:
    """Run a call in a thread. Its task is cancelled after the call only.

    Raises:
        sniffio.AsyncLibraryNotFoundError: Neither trio nor asyncio runs.
    """
    if sniffio.current_async_library() == "trio":
        import trio

        return await trio.to_thread.run_sync(call)
    import asyncio  # noqa: TID251 - for programs that use it

    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def run_abandoned(call: Callable[[], T]) -> T:
    """Run a call in a thread; if its task is cancelled, the thread continues without it."""
    if sniffio.current_async_library() == "trio":
        import trio

        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)
    import asyncio  # noqa: TID251 - for programs that use it

    return await asyncio.to_thread(call)


class Items(AsyncIterator[T]):
    """The items of the lists of an iterator that blocks, for a second at most each time.

    No asynchronous generator: those want to be closed by the task that leaves them.

    Args:
        make: Returns the iterator; called in a thread. Its lists may be empty.
        note: Called with each item that is returned.
    """

    def __init__(
        self, make: Callable[[], Iterator[list[T]]], note: Callable[[T], None] | None = None
    ) -> None:
        self._make = make
        self._note = note
        self._lists: Iterator[list[T]] | None = None
        self._items: Iterator[T] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._items:
                if self._note is not None:
                    self._note(item)
                return item
            items = await run_abandoned(self._next)
            if items is None:
                raise StopAsyncIteration
            self._items = iter(items)

    def _next(self) -> list[T] | None:
        if self._lists is None:
            self._lists = self._make()
        return next(self._lists, None)
