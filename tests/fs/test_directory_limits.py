"""The limits of a whole data directory, on a file system that is really full."""

import os
import re
from pathlib import Path

import pytest

from tests.loopdevices import loop_device
from tests.mounting import Mount, wait_until
from tests.semantics.programs import append, append_all, configure, numbered

pytestmark = [pytest.mark.fuse, pytest.mark.long]

SMALL = {"internal_segment_bytes": 500_000, "max_message_bytes": 100_000, "retention_ms": -1}
FREE_BYTES = 4_000_000


def make(mount: Mount, topic: str, mebibytes: int) -> Path:
    """Make a topic of sealed segments."""
    (mount.point / topic).mkdir()
    configure(mount.point / topic, **SMALL)
    block = b"".join(numbered(0, 1000))
    path = mount.point / topic / "0"
    while path.stat().st_size < mebibytes << 20:
        append_all(path, block)
    return path


def available(point: Path) -> int:
    """Return how many bytes users other than root may still write to a file system."""
    found = os.statvfs(point)
    return found.f_bavail * found.f_frsize


def deletions(mount: Mount, rule: str) -> list[tuple[str, int]]:
    """Return what the daemon's log says of deletions: the partition, and how many segments."""
    found = re.findall(rf"(\S+): deleted (\d+) segments .* because of {rule}", mount.log)
    return [(name, int(count)) for name, count in found]


def test_a_full_disk_gets_room_from_the_oldest_segments_of_the_largest_topic(
    tmp_path: Path,
) -> None:
    rule = "log.retention.keep.free.bytes"
    with (
        loop_device(tmp_path, 32) as device,
        Mount(
            *(Path(device.point, "data"), tmp_path / "mnt"),
            *(f"{rule}={FREE_BYTES}", "log.segment.delete.delay.ms=60000"),
            log_directory=tmp_path,
        ) as mount,
    ):
        small, large = make(mount, "small", 2), make(mount, "large", 10)
        last, kept = large.read_bytes()[-1000:], small.read_bytes()
        device.fill()
        # What is kept for root was taken too: the first deletion frees less for other users.
        wait_until(
            lambda: available(Path(device.point)) >= FREE_BYTES, "the daemon has deleted enough"
        )
        assert {name for name, _ in deletions(mount, rule)} == {"large/0"}
        append(small, b"again\n")
        assert small.read_bytes() == kept + b"again\n"
        assert large.read_bytes()[-1000:] == last


def test_all_logs_together_stay_within_their_bytes(tmp_path: Path) -> None:
    rule = "log.retention.total.bytes"
    with (
        loop_device(tmp_path, 32) as device,
        Mount(
            *(Path(device.point, "data"), tmp_path / "mnt"),
            *(f"{rule}=6000000", "log.segment.delete.delay.ms=1000"),
            log_directory=tmp_path,
        ) as mount,
    ):
        small, large = make(mount, "small", 1), make(mount, "large", 10)
        kept = small.read_bytes()
        wait_until(lambda: len(large.read_bytes()) < 5_000_000, "the daemon has deleted")
        assert {name for name, _ in deletions(mount, rule)} == {"large/0"}
        assert small.read_bytes() == kept
