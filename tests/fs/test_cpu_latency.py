"""Processors are kept awake while small reads are answered, and not longer."""

import contextlib
import os
import struct
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from logfs.fs.kernel.cpulatency import DEVICE, HOLD_S, CpuLatency
from tests.fs.mounting import Mounted
from tests.mounting import wait_until


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "device"
    path.touch()
    return path


async def test_they_are_awake_as_long_as_reads_come(
    device: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    awake = CpuLatency(lambda: 0, wanted=True, device=device)
    nursery.start_soon(awake.run)
    for _ in range(2):
        await trio.sleep(1)
        assert not awake.is_held
        for _ in range(10):
            awake.note()
            await trio.sleep(HOLD_S / 2)
            assert awake.is_held
        await trio.sleep(2 * HOLD_S)
        assert not awake.is_held
    assert _text(device) == struct.pack("i", 0)


async def test_they_are_awake_as_long_as_native_reads_come(
    device: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    reads = [0]
    awake = CpuLatency(lambda: reads[0], wanted=True, device=device)
    nursery.start_soon(awake.run)
    awake.note()
    for reads[0] in range(9):
        await trio.sleep(HOLD_S * 0.9)
        assert awake.is_held
    await trio.sleep(3 * HOLD_S)
    assert not awake.is_held


async def test_processors_sleep_without_the_option(
    device: Path, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    awake = CpuLatency(lambda: 0, wanted=False, device=device)
    nursery.start_soon(awake.run)
    awake.note()
    await trio.sleep(HOLD_S / 2)
    assert not awake.is_held
    assert _text(device) == b""


@pytest.mark.expect_log("mount option keep_awake has no effect: ")
async def test_a_device_that_may_not_be_opened_is_logged_once(
    tmp_path: Path,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    awake = CpuLatency(lambda: 0, wanted=True, device=tmp_path / "missing")
    nursery.start_soon(awake.run)
    for _ in range(3):
        awake.note()
        await trio.sleep(1)
        assert not awake.is_held
    assert len(caplog.records) == 1


@pytest.mark.fuse
def test_the_daemon_holds_the_device_while_a_program_reads(mounted: Mounted) -> None:
    assert DEVICE.exists(), "the kernel was built without PM QoS"
    mounted.end()
    mounted.options = ("keep_awake",)
    mounted.start()
    mounted.shell("mkdir orders; yes | head -c 12000000 >> orders/0")
    assert not _holds(mounted)
    with (mounted.point / "orders/0").open("rb", buffering=0) as file:

        def is_held_after_a_read() -> bool:
            assert file.read(4096) or file.seek(0) == 0
            return _holds(mounted)

        for _ in range(3):
            wait_until(is_held_after_a_read, "they are awake")
            wait_until(lambda: not _holds(mounted), "they may sleep")


def _text(device: Path) -> bytes:
    return device.read_bytes()


def _holds(mounted: Mounted) -> bool:
    targets = []
    for link in Path(f"/proc/{mounted.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            targets.append(os.readlink(link))
    return str(DEVICE) in targets
