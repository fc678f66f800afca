"""What tells one mount of a file system from the next, on real ones where that is possible."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.disk.mounts import mount_id
from tests.loopdevices import LoopDevice, loop_device


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    with loop_device(tmp_path, 16) as found:
        yield found


def test_it_is_the_same_each_time_and_in_every_directory(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    assert mount_id(str(tmp_path)) == mount_id(str(tmp_path / "below")) is not None


def test_another_mount_of_the_same_file_system_is_another_one(device: LoopDevice) -> None:
    first = mount_id(device.point)
    assert first == mount_id(device.point)
    device.remount()
    assert first != mount_id(device.point) is not None


def test_it_is_the_same_in_a_mount_namespace_of_its_own(device: LoopDevice) -> None:
    ask = f"from logfs.disk.mounts import mount_id; print(mount_id({device.point!r}))"
    command = ["unshare", "--mount", sys.executable, "-c", ask]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert told.strip() == mount_id(device.point)


def test_a_directory_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert mount_id(str(tmp_path / "none")) is None


@pytest.fixture
def no_sysfs(tmp_path: Path) -> str:
    return str(tmp_path / "sys")


def mountinfo(tmp_path: Path, kind: str) -> str:
    number = os.stat(tmp_path).st_dev
    line = f"30 1 {os.major(number)}:{os.minor(number)} / / rw shared:1 - {kind} /dev/x rw\n"
    path = tmp_path / "mountinfo"
    path.write_text(line)
    return str(path)


def test_without_sysfs_mounts_are_told_apart_by_their_ids(tmp_path: Path, no_sysfs: str) -> None:
    found = mount_id(str(tmp_path), no_sysfs, mountinfo(tmp_path, "ext4"))
    assert found is None or " mount " in found


def test_memory_is_as_good_as_the_page_cache(tmp_path: Path, no_sysfs: str) -> None:
    found = mount_id(str(tmp_path), no_sysfs, mountinfo(tmp_path, "tmpfs"))
    assert found is not None
    assert found.startswith("memory ")


def test_what_the_kernel_cannot_tell_is_not_known(
    tmp_path: Path, no_sysfs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    assert mount_id(str(tmp_path), no_sysfs, mountinfo(tmp_path, "ext4")) is None
