"""A reader of old segments does not evict the pages that others use."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk.cold import cached, chill, cold_place
from tests.mounting import Mount, output, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

SEGMENT_BYTES = 2 * 1024 * 1024
LITTLE_BYTES = 256 * 1024
"""What look-ups may leave of a segment: they read little, and likely again."""


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with cold_place(tmp_path) as place, Mount(place / "data", place / "mnt") as mount:
        yield mount


@pytest.fixture
def lines(mount: Mount) -> bytes:
    """What is in ``orders/0``: some segments, of which the older half is not in memory."""
    (mount.point / "orders").mkdir()
    os.setxattr(mount.point / "orders", "user.logfs.segment.bytes", str(SEGMENT_BYTES).encode())
    lines = b"".join(b"%0199d\n" % n for n in range(60_000))
    with (mount.point / "orders" / "0").open("ab") as file:
        file.write(lines)
        os.fsync(file.fileno())
    cold, hot = halves(mount)
    for log in cold:
        chill(log)
    assert len(cold) >= 3
    assert sum(map(cached, cold)) == 0
    wait_until(lambda: all(is_warm(log) for log in hot), "the newer half is in memory")
    return lines


def is_warm(log: Path) -> bool:
    """Read a file; returns whether all of it is in memory afterwards."""
    size = len(log.read_bytes())
    return cached(log) == size


def halves(mount: Mount) -> tuple[list[Path], list[Path]]:
    """Return the older and the newer half of the ``.log`` files."""
    logs = sorted((mount.data / "orders-0").glob("*.log"))
    return logs[: len(logs) // 2], logs[len(logs) // 2 :]


@pytest.mark.parametrize("name", ["0", "0@earliest..latest", "0.jsonl"])
def test_a_scan_leaves_only_the_tail_in_memory(mount: Mount, lines: bytes, name: str) -> None:
    printed = output("cat", mount.point / "orders" / name)
    assert printed == lines or name.endswith(".jsonl")
    assert printed.count(b"\n") == lines.count(b"\n")
    cold, hot = halves(mount)
    assert max(map(cached, cold)) <= LITTLE_BYTES
    # The kernel may take a page of any file meanwhile.
    assert all(cached(log) >= 0.9 * log.stat().st_size for log in hot)


def test_pages_that_another_reader_has_warmed_stay_in_memory(mount: Mount, lines: bytes) -> None:
    cold, _ = halves(mount)
    cold[1].read_bytes()
    assert output("cat", mount.point / "orders" / "0") == lines
    assert cached(cold[1]) == cold[1].stat().st_size
    assert cached(cold[0]) <= LITTLE_BYTES


def test_meta_shows_how_much_of_each_segment_is_in_memory(mount: Mount, lines: bytes) -> None:
    newest_first = [log for half in reversed(halves(mount)) for log in reversed(half)]
    meta = json.loads((mount.point / "orders" / "0.meta").read_bytes())
    told = meta["page_cache"]
    # All of them, unless the machine is so busy that looking takes too long.
    looked_at = newest_first[: len(told["segments"])]
    assert looked_at
    assert told["segments"] == {str(int(log.stem)): cached(log) for log in looked_at}
    assert told["cached_bytes"] == sum(map(cached, looked_at))
    assert told["looked_at_bytes"] == sum(log.stat().st_size for log in looked_at)
