"""Appending, following and consuming from trio and asyncio."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

import logfs
import logfs.aio

Program = Callable[[], Awaitable[None]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with logfs.open_store(tmp_path) as store:
        store.create_topic("orders", 2)
    return tmp_path


@pytest.fixture(params=["trio", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Program], None]:
    """Run a program in an event loop."""

    def call(program: Program) -> None:
        if request.param == "trio":
            trio.run(program)
        else:
            asyncio.run(program())  # type: ignore[arg-type]

    return call


def test_records_are_appended_read_and_followed(data: Path, run: Callable[[Program], None]) -> None:
    async def program() -> None:
        async with logfs.aio.open(data / "orders" / "0") as orders:
            assert await orders.append(b"one", key=b"k", durable=True) == 0
            assert await orders.append_many([b"two", b"three"]) == range(1, 3)
            await orders.flush()
            found = [record.value async for record in orders.read(1)]
            assert found == [b"two", b"three"]
            async for record in orders.follow("offset=-1", timeout=30):
                if record.value == b"three":
                    await orders.append(b"four")  # the iterator waits for it
                else:
                    assert record.value == b"four"
                    break
            assert [r.value async for r in orders.follow("earliest", "offset=2")] == [
                b"one",
                b"two",
            ]
            await orders.commit("billing", 2)
            assert await orders.committed("billing") == 2
            assert await orders.offset_at("group=billing") == 2

    run(program)


def test_a_consumer_commits_what_it_has_returned(
    data: Path, run: Callable[[Program], None]
) -> None:
    with logfs.open(data / "orders" / "1") as orders:
        orders.append_many([b"%d" % n for n in range(5)])

    async def program() -> None:
        async with logfs.aio.consumer(data, "billing", "orders") as consumer:
            async for record in consumer.follow():
                if record.offset == 2:
                    await consumer.commit()
                    break
        async with logfs.aio.consumer(data, "billing", ["orders"]) as consumer:
            assert [record.value async for record in consumer.read()] == [b"3", b"4"]
            assert consumer.positions["orders", 1] == 5

    run(program)


def test_a_waiting_iterator_can_be_cancelled(data: Path, run: Callable[[Program], None]) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            if is_trio():
                await trio.sleep(0.01)
            else:
                await asyncio.sleep(0.01)

    async def follow() -> None:
        async with logfs.aio.open(data / "orders" / "0") as orders:
            async for _ in orders.follow():
                pass

    async def program() -> None:
        if is_trio():
            with trio.move_on_after(0.3):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(tick)
                    nursery.start_soon(follow)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(tick(), follow()), 0.3)

    run(program)
    assert ticks > 1, "the event loop continued while the iterator waited"


def is_trio() -> bool:
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
