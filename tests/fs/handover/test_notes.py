"""Requests that are not idempotent succeed once, though the kernel sends them again."""

import errno
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
from pyfuse3 import EntryAttributes

from logfs.fs.handover.notes import KEPT_NOTES
from tests.fakestate import Stopped
from tests.fs.handover.kept import KeptWorld
from tests.fs.world import fields, refused

Call = Callable[[KeptWorld], Awaitable[object]]
KEY = b"user.logfs.max.message.bytes"


async def _rmdir(world: KeptWorld) -> None:
    await world.operations.rmdir(1, b"orders", world.user)


async def _set(world: KeptWorld, value: bytes = b"2000000") -> None:
    entry = await world.find("orders")
    await world.operations.setxattr(entry.st_ino, KEY, value, world.user)


async def _remove(world: KeptWorld) -> None:
    entry = await world.find("orders")
    await world.operations.removexattr(entry.st_ino, KEY, world.user)


async def _chmod(world: KeptWorld, mode: int = 0o40700) -> None:
    entry = await world.find("orders")
    changed = cast("EntryAttributes", SimpleNamespace(st_mode=mode, st_uid=0, st_gid=0))
    await world.operations.setattr(entry.st_ino, changed, fields(mode=True), None, world.user)


async def _with_orders(world: KeptWorld) -> None:
    await world.mkdir("orders")
    await _set(world, b"1000000")


async def _nothing(_: KeptWorld) -> None:
    pass


async def _exists(world: KeptWorld) -> bool:
    return "orders" in world.store.topics() and len(world.store.partitions("orders")) == 2


async def _is_gone(world: KeptWorld) -> bool:
    return "orders" not in world.store.topics()


async def _is_set(world: KeptWorld) -> bool:
    return await world.xattr("orders", "max.message.bytes") == "2000000"


async def _is_default(world: KeptWorld) -> bool:
    return "max.message.bytes" not in world.store.topic_properties("orders")


async def _is_private(world: KeptWorld) -> bool:
    return (await world.find("orders")).st_mode == 0o40700


CASES: dict[str, tuple[Call, Call, Callable[[KeptWorld], Awaitable[bool]]]] = {
    "mkdir": (_nothing, lambda world: world.mkdir("orders"), _exists),
    "rmdir": (
        _with_orders,
        lambda world: world.operations.rmdir(1, b"orders", world.user),
        _is_gone,
    ),
    "setxattr": (_with_orders, _set, _is_set),
    "removexattr": (_with_orders, _remove, _is_default),
    "chmod": (_with_orders, _chmod, _is_private),
}


def _world() -> KeptWorld:
    return KeptWorld(options="num.partitions=2")


@pytest.mark.parametrize("name", CASES)
async def test_a_request_that_was_done_and_not_answered_is_not_done_again(name: str) -> None:
    before, call, is_done = CASES[name]
    world = _world()
    await before(world)
    await call(world)
    number = world.kernel.next
    world.kill()

    world.kernel.send_again(number)
    await call(world)

    assert await is_done(world)


@pytest.mark.allow_log("of its topic was interrupted")
@pytest.mark.parametrize("name", CASES)
async def test_a_request_is_completed_wherever_it_was_killed(name: str) -> None:
    before, call, is_done = CASES[name]
    for steps in range(400):
        world = _world()
        await before(world)
        world.disk.stop_before(steps, torn=0.5)
        try:
            await call(world)
        except (Stopped, BaseExceptionGroup):
            number = world.kernel.next
            world.kill()
            world.kernel.send_again(number)
            await call(world)
            assert await is_done(world), steps
        else:
            break
    assert 2 < steps < 399


async def test_an_existing_topic_is_refused_also_when_the_request_comes_again() -> None:
    world = _world()
    await world.mkdir("orders")
    assert await refused(world.mkdir("orders")) == errno.EEXIST
    number = world.kernel.next
    world.kill()

    world.kernel.send_again(number)
    assert await refused(world.mkdir("orders")) == errno.EEXIST


async def test_a_topic_that_was_made_again_meanwhile_is_not_deleted() -> None:
    world = _world()
    await world.mkdir("orders")
    await _rmdir(world)
    number = world.kernel.next
    world.store.create_topic("orders", 1, {}, world.clock.now_ms)
    world.kill()

    world.kernel.send_again(number)
    await _rmdir(world)

    assert "orders" in world.store.topics()


async def test_a_later_change_is_not_taken_back_by_a_request_that_comes_again() -> None:
    world = _world()
    await _with_orders(world)
    await _set(world, b"5000000")
    number = world.kernel.next
    world.store.alter_topic("orders", {"max.message.bytes": "7000000"})
    world.kill()

    world.kernel.send_again(number)
    await _set(world, b"5000000")

    assert await world.xattr("orders", "max.message.bytes") == "7000000"


async def test_notes_do_not_accumulate() -> None:
    world = _world()
    for number in range(KEPT_NOTES + 20):
        await world.mkdir(f"orders{number}")
    world.kill()
    await world.mkdir("last")

    assert len(world.journal.all_begun()) == KEPT_NOTES + 1


async def test_a_request_that_was_not_begun_leaves_the_notes_of_those_that_come_after_it() -> None:
    world = _world()
    await world.mkdir("orders")
    number = world.kernel.next
    world.kill()

    world.kernel.send_again(number + 2)
    await world.mkdir("other")
    world.kernel.send_again(number)
    await world.mkdir("orders")

    assert await _exists(world)
