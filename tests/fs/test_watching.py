"""What is counted while it is watched, and that nothing is counted otherwise."""

import re
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from logfs.errors import ControlError
from logfs.fs.files.watching import Watching
from logfs.fs.kernel import hooks as kernel_hooks
from logfs.fs.kernel.hooks import Answered, Hooks, WatchedRow
from logfs.types import TopicPartition
from tests.fs.world import World

AT = TopicPartition("web", 0)


class FakeHooks:
    """Hooks that have seen some requests."""

    is_active = True
    watched_missed = 0

    def __init__(self) -> None:
        self.switched: list[bool] = []
        self.rows: list[WatchedRow] = []

    def watch(self, *, is_watched: bool) -> None:
        self.switched.append(is_watched)

    def watched(self) -> list[WatchedRow]:
        return self.rows


@pytest.fixture
def hooks() -> FakeHooks:
    return FakeHooks()


@pytest.fixture
async def watching(hooks: FakeHooks) -> Watching:
    world = World()
    await world.mkdir("web")
    store = world.store
    return Watching(store, cast("Hooks", hooks), lambda _number: None, trio.current_time)


async def test_counting_continues_as_long_as_there_is_a_watcher(
    watching: Watching, hooks: FakeHooks, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching.watch, 1000)
        nursery.start_soon(watching.watch, 3000)
        await trio.sleep(2)
        assert hooks.switched == [True]
    assert hooks.switched == [True, False]


async def test_a_watcher_that_is_gone_stops_the_counting(
    watching: Watching, hooks: FakeHooks, autojump_clock: MockClock
) -> None:
    with trio.move_on_after(1):
        await watching.watch(60_000)
    assert hooks.switched == [True, False]


async def test_each_watcher_gets_what_came_in_its_time(
    watching: Watching, hooks: FakeHooks, autojump_clock: MockClock
) -> None:
    found = []

    async def watch() -> None:
        found.append(await watching.watch(1000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watching.watch, 5000)
        await trio.sleep(0.5)
        watching.note_client((7, 1), AT, 10)
        nursery.start_soon(watch)
        await trio.sleep(0.5)
        watching.note_client((7, 1), AT, 32)
    [row] = cast("list[dict[str, object]]", found[0]["programs"])
    assert (row["pid"], row["uid"], row["requests"], row["bytes"]) == (7, 1, 1, 32)


async def test_clients_are_not_counted_without_a_watcher(watching: Watching) -> None:
    watching.note_client((7, 1), AT, 10)
    assert (await watching.watch(1))["programs"] == []


@pytest.mark.parametrize("milliseconds", [-1, 60_001])
async def test_a_time_that_is_too_long_is_refused(watching: Watching, milliseconds: int) -> None:
    with pytest.raises(ControlError, match="expected 0 to 60000"):
        await watching.watch(milliseconds)


def test_requests_have_the_numbers_that_the_kernel_gives_them() -> None:
    header = Path(kernel_hooks.__file__).parent / "native" / "requests.h"
    numbers = dict(re.findall(r"FUSE_OPCODE_(\w+) = (\d+)", header.read_text()))
    for kind in Answered:
        assert kind is Answered.AHEAD or int(numbers[kind.name]) == kind
