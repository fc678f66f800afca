from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fs.mounting import Mounted
from tests.fs.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A file system over an empty disk in memory."""
    world = World()
    yield world
    world.store.close(world.clock.now_ms)


@pytest.fixture
async def orders(world: World) -> World:
    """A file system with the topic ``orders`` of one partition."""
    await world.mkdir("orders")
    return world


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """A mounted empty store whose daemon complains about nothing the test does not expect."""
    mounted = Mounted(tmp_path)
    mounted.start()
    yield mounted
    mounted.clear()
    mounted.check()


@pytest.fixture
def native(mounted: Mounted) -> Mounted:
    """The same with the topic ``t`` of one partition, for requests that are answered natively."""
    (mounted.point / "t").mkdir()
    return mounted
