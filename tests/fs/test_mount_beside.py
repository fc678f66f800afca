"""A read-only mount beside the daemon that serves the same directory."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs, run, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[tuple[Mount, Mount]]:
    with (
        Mount(tmp_path / "data", tmp_path / "mnt") as writing,
        Mount(tmp_path / "data", tmp_path / "beside", "ro") as beside,
    ):
        yield writing, beside


def test_a_second_mount_shows_the_same_at_the_same_positions(mounts: tuple[Mount, Mount]) -> None:
    writing, beside = mounts
    topic = writing.point / "orders"
    topic.mkdir()
    os.setxattr(topic, "user.logfs.segment.bytes", b"1048576")
    path, other = topic / "0", beside.point / "orders" / "0"
    wait_until(other.exists, "the topic was seen")

    def agree() -> bool:
        same = path.read_bytes() == other.read_bytes()
        return same and path.stat().st_size == other.stat().st_size

    for _ in range(5):
        run("bash", "-c", f"seq 100000 >> {path}")
        wait_until(agree, "both showed the same")
    position = path.stat().st_size
    logfs("trim", f"{path}@offset=150000")
    wait_until(agree, "both showed the same")
    beside.restart()
    assert agree()
    writing.restart()
    run("bash", "-c", f"seq 100000 >> {path}")
    wait_until(agree, "both showed the same")
    for mount in mounts:
        with (mount.point / "orders" / "0").open("rb") as file:
            file.seek(position)
            assert file.readline() == b"1\n"
    assert other.with_name("0.meta").read_text().count('"losses": []') == 1
    writing.kill()
    assert other.read_bytes()[-7:] == b"100000\n"
    writing.start()
    run("bash", "-c", f"seq 100000 >> {path}")
    wait_until(agree, "both showed the same")
