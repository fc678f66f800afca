"""Mounts for the promises of ``logfs/fs/SEMANTICS.md``."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.mounting import Mount

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def shared_mount(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """A mount for tests that leave its daemon alone."""
    directory = tmp_path_factory.mktemp("semantics")
    # Retention would remove records of long ago, in the middle of any test.
    options = ("log.initial.task.delay.ms=86400000",)
    with Mount(directory / "data", directory / "mnt", *options) as mount:
        yield mount


@pytest.fixture
def topic(shared_mount: Mount) -> Path:
    """A new topic with one partition, in the shared mount."""
    path = shared_mount.point / f"topic-{next(_NUMBERS)}"
    path.mkdir()
    return path


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A mount with its own daemon and one topic: orders, with one partition."""
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        (mount.point / "orders").mkdir()
        yield mount
