"""An open fixed name whose segments are deleted, after the daemon was replaced."""

from collections.abc import Callable

import pytest

from logfs.services.administration import alter_topic
from logfs.services.compaction.manual import compact_now
from logfs.services.compaction.tools import CleaningTools
from logfs.services.retention.trimming import trim
from tests.fs.handover.kept import KeptWorld, orders
from tests.fs.world import Handle

ENDS = pytest.mark.parametrize("end", [KeptWorld.kill, KeptWorld.hand_over])
WHOLE = b"zero\none\ntwo\nthree\n"


def deleted_files(world: KeptWorld) -> list[str]:
    """Return the files of deleted segments."""
    files = world.disk.contents("orders-0").files
    return sorted(name for name in files if name.endswith(".deleted"))


async def close_and_remove(world: KeptWorld, handle: Handle) -> None:
    """Close the last file that reads deleted segments; nothing is left of them then."""
    await world.close(handle)
    remove_files(world)


def remove_files(world: KeptWorld) -> None:
    """Remove the files that no open file needs; none is left."""
    world.clock.advance(3600)
    world.store.remove_due_files(world.clock.now_ms)
    assert not deleted_files(world)
    assert not world.journal.deleted


@ENDS
@pytest.mark.parametrize("offset", [1, 2, 3, 4])
async def test_it_shows_records_that_were_trimmed(
    end: Callable[[KeptWorld], None], offset: int
) -> None:
    world = await orders()
    handle = await world.open("orders/0@earliest..latest")
    trim(world.store.partition("orders", 0), offset, world.clock.now_ms)
    for _ in range(3):
        end(world)
        world.store.remove_due_files(world.clock.now_ms)
        assert await world.read(handle, 0) == WHOLE
        assert await world.read(handle, 7) == WHOLE[7:]
    assert await world.cat("orders/0@earliest..latest") == b"".join(
        WHOLE.splitlines(keepends=True)[offset:]
    )
    await close_and_remove(world, handle)


@ENDS
async def test_it_is_restored_before_its_segments_are_removed(
    end: Callable[[KeptWorld], None],
) -> None:
    world = await orders()
    handle = await world.open("orders/0@earliest..latest")
    trim(world.store.partition("orders", 0), 2, world.clock.now_ms)
    end(world)
    await world.operations.files.restore_all(list(world.journal.files))
    world.clock.advance(3600)
    world.store.remove_due_files(world.clock.now_ms)

    assert await world.read(handle, 0) == WHOLE
    await close_and_remove(world, handle)


@ENDS
async def test_a_name_that_was_opened_after_the_deletion_continues(
    end: Callable[[KeptWorld], None],
) -> None:
    world = await orders()
    inode = (await world.find("orders/0@earliest..latest")).st_ino
    trim(world.store.partition("orders", 0), 2, world.clock.now_ms)
    opened = await world.operations.open(inode, 0, world.user)
    end(world)

    assert bytes(await world.operations.read(opened.fh, 0, 100)) == WHOLE
    await world.operations.release(opened.fh)
    remove_files(world)


@ENDS
async def test_a_log_that_is_compacted_again_and_again(end: Callable[[KeptWorld], None]) -> None:
    world = KeptWorld()
    await world.mkdir("orders")
    alter_topic(world.store, "orders", {"cleanup.policy": "compact"}, None, world.clock.now_ms)
    handles: list[tuple[Handle, bytes]] = []
    for number in range(4):
        for key in (b"a", b"b"):
            await world.append("orders/0.tsv", b"%s\t%s%d\n" % (key, key, number))
        log = world.store.partition("orders", 0)
        log.roll(world.clock.now_ms)
        handle = await world.open("orders/0@earliest..latest")
        handles.append((handle, await world.read(handle, 0)))
        compact_now(log, world.clock.now_ms, CleaningTools(lambda: bytes(16), lambda: 0.0))
        end(world)
        for handle, whole in handles:
            assert await world.read(handle, 0) == whole
    assert len({whole for _, whole in handles}) == 4
    for handle, _ in handles[:-1]:
        await world.close(handle)
    await close_and_remove(world, handles[-1][0])
