"""The disk is full while the store is away, or while segments are copied: copies make room."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, wait_until
from tests.remote.servers import Bucket, FaultProxy
from tests.remote.test_tiered_mount import append, local_logs, make_topic, text
from tests.remote.tiering import TieredBench, no_throttle


def test_local_files_go_when_they_are_due_although_the_store_is_away() -> None:
    bench = TieredBench()
    bench.fill(40)
    bench.tiering.copy(no_throttle)
    bench.fill(40, first=40)
    assert len(bench.local_names(".log")) > 20
    bench.objects.fail("put")
    with pytest.raises(OSError, match="injected"):
        bench.tiering.run_once(no_throttle, bench.now_ms)
    bench.log.remove_due_files(bench.now_ms)
    tiered = len(bench.tier.entries)
    assert tiered > 5
    assert len(bench.local_names(".log")) == len(bench.log.snapshot.segments) - tiered


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A data directory on a file system of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system to fill up")
    point = tmp_path / "data"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


def fill(file: Path, rest: Path) -> int:
    """Append lines, and fill what is left with another file; return how many lines there are."""
    lines = 0
    with contextlib.suppress(OSError):
        while True:
            append(file, text(lines, 500))
            lines += 500
    with contextlib.suppress(OSError), rest.open("ab", buffering=0) as out:
        while True:
            out.write(bytes(4096))
    assert os.statvfs(rest).f_bavail == 0
    return lines


@pytest.mark.fuse
@pytest.mark.programs
def test_a_full_file_system_gets_room_when_the_store_is_back(
    tmp_path: Path, small_disk: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    behind = bucket.through(faults)
    settings = "remote.log.manager.task.interval.ms=100\nread.timeout.ms=1\ncache.bytes=0\n"
    (small_disk / "logfs.remote").write_text(behind.properties + settings)
    with Mount(small_disk, tmp_path / "mnt", variables=behind.environment) as mount:
        file = make_topic(mount)
        with faults.refusing():
            lines = fill(file, small_disk / "rest")
            written = file.read_bytes()
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        wait_until(lambda: not list(small_disk.glob("*/*.deleted")), "there is room")
        append(file, text(lines, 500))
        assert file.read_bytes() == written + text(lines, 500)
        mount.restart()
        assert file.read_bytes() == written + text(lines, 500)
