"""Inodes of an earlier daemon that the kernel does not know any more."""

import errno

import trio
import trio.testing

from logfs.fs.handover.pruning import FIRST_PAUSE_S, LAST_PAUSE_S, QUESTIONS, Pruning
from tests.fs.handover.kept import KeptWorld, orders
from tests.fs.world import refused


async def test_an_inode_that_the_kernel_does_not_know_twice_is_taken_out(
    nursery: trio.Nursery,
    autojump_clock: trio.testing.MockClock,
) -> None:
    world, numbers = await _many_names(QUESTIONS + 10)
    world.kill()
    known = set(numbers[3:])
    pruning = Pruning(world.operations.inodes, numbers, lambda number: number in known)
    nursery.start_soon(pruning.run)
    await trio.sleep(FIRST_PAUSE_S / 2)
    assert set(numbers) <= world.journal.nodes.keys()
    await trio.sleep(FIRST_PAUSE_S)

    assert set(numbers) & world.journal.nodes.keys() == known
    assert await refused(world.operations.getattr(numbers[0], world.user)) == errno.ESTALE
    await world.operations.getattr(numbers[-1], world.user)


async def test_an_inode_that_is_used_meanwhile_stays(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world, numbers = await _many_names(1)
    world.kill()
    pruning = Pruning(world.operations.inodes, numbers, lambda _: False)
    nursery.start_soon(pruning.run)
    await trio.sleep(FIRST_PAUSE_S / 2)
    await world.operations.getattr(numbers[0], world.user)
    await trio.sleep(FIRST_PAUSE_S)
    await world.operations.forget([(numbers[0], 1)])

    await world.operations.getattr(numbers[0], world.user)


async def test_the_kernel_is_asked_seldom_when_it_knows_all_inodes(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world, numbers = await _many_names(1)
    world.kill()
    asked: list[int] = []

    def knows(number: int) -> bool:
        asked.append(number)
        return True

    nursery.start_soon(Pruning(world.operations.inodes, numbers, knows).run)
    await trio.sleep(24 * LAST_PAUSE_S)

    assert 20 < len(asked) < 40


async def _many_names(count: int) -> tuple[KeptWorld, list[int]]:
    world = await orders()
    await world.append("orders/0", b"x" * count + b"\n")
    return world, [(await world.find(f"orders/0@byte={n}")).st_ino for n in range(count)]
