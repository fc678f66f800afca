"""What the kernel has cached of a fixed name stays cached: each look-up gives the same inode.

The kernel drops what it has cached when a reply shows another inode, size or time of change, or
when the file is opened without ``keep_cache``.
"""

import random

import pytest
import trio

from tests.fs.world import World

NAMES = ("0@earliest..latest", "0@earliest..now", "0@offset=-3..latest", "0@earliest..offset=5")
TIMES_S = (0.0, 0.001, 0.999, 1.001, 59.0, 61.0, 3600.0, 86_400.0, 1e8, -1e8)
ENDED = "0@earliest..offset=5"

Seen = tuple[int, ...]


@pytest.fixture
async def filled(orders: World) -> World:
    """``orders`` with ten records."""
    await orders.append("orders/0", b"".join(b"%d\n" % number for number in range(10)))
    orders.clock.advance(1)
    return orders


async def look_up(world: World, name: str) -> Seen:
    """Look a name up; returns what the kernel compares before it keeps what it has cached."""
    entry = await world.find(f"orders/{name}")
    return entry.st_ino, entry.generation, entry.st_mode, entry.st_size, entry.st_mtime_ns


async def open_cached(world: World, name: str) -> Seen:
    """Look a name up, and open it without harm to what is cached; returns what was looked up."""
    seen = await look_up(world, name)
    handle = await world.open(f"orders/{name}")
    assert handle.keeps_cache
    assert not handle.is_direct
    assert handle.inode == seen[0]
    await world.close(handle)
    return seen


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_was_read_stays_cached_however_much_later(
    filled: World, name: str
) -> None:
    before = await open_cached(filled, name)
    await filled.cat(f"orders/{name}")
    for seconds in TIMES_S:
        filled.clock.advance(seconds)
        assert await open_cached(filled, name) == before


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_was_read_stays_cached_through_maintenance(
    filled: World, name: str
) -> None:
    before = await open_cached(filled, name)
    log = filled.store.partition("orders", 0)
    for work in (log.flush, log.maintain, filled.store.checkpoint):
        work()
        assert await open_cached(filled, name) == before
    filled.clock.advance(3600)
    log.roll(filled.clock.now_ms)
    log.maintain()
    assert await open_cached(filled, name) == before


@pytest.mark.parametrize("name", NAMES)
async def test_a_forgotten_name_comes_back_as_the_same_inode(filled: World, name: str) -> None:
    before = await open_cached(filled, name)
    for _ in range(3):
        await filled.operations.forget([(before[0], 1000)])
        filled.clock.advance(61)
        assert await open_cached(filled, name) == before


async def test_look_ups_that_overlap_give_the_same_inode(filled: World) -> None:
    """Some are answered in threads, and one is forgotten meanwhile."""
    before = await open_cached(filled, ENDED)
    executor = filled.operations.tree.partition("orders", 0).executor
    seen: list[Seen] = []

    async def look() -> None:
        executor.expect_long()
        seen.append(await look_up(filled, ENDED))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(look)
        await filled.append("orders/0", b"more\n")
        await filled.operations.forget([(before[0], 1)])
    assert seen == [before] * 4


@pytest.mark.parametrize("seed", range(20))
async def test_an_inode_does_not_change_while_the_kernel_knows_it(filled: World, seed: int) -> None:
    """Look-ups, FORGETs, appends and time in any order, as many FORGETs as there were look-ups."""
    dice = random.Random(seed)
    topic = (await filled.find("orders")).st_ino
    known: Seen | None = None
    lookups = 0
    for _ in range(100):
        match dice.choice(["look", "look", "open", "forget", "append", "wait", "slow"]):
            case "look":
                entry = await filled.operations.lookup(topic, ENDED.encode(), filled.user)
                seen = entry.st_ino, entry.generation, entry.st_size, entry.st_mtime_ns
                assert known in (None, seen)
                known, lookups = seen, lookups + 1
            case "open" if known is not None:
                info = await filled.operations.open(known[0], 0, filled.user)
                assert info.keep_cache
                await filled.operations.release(info.fh)
            case "forget" if lookups:
                taken = dice.randint(1, lookups)
                lookups -= taken
                assert known is not None
                await filled.operations.forget([(known[0], taken)])
                known = known if lookups else None
            case "append":
                await filled.append("orders/0", b"more\n")
            case "wait":
                filled.clock.advance(dice.choice(TIMES_S[:-1]))
            case "slow":
                filled.operations.tree.partition("orders", 0).executor.expect_long()
