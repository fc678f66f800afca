"""A daemon whose cache directory fails, is damaged or goes: its readers get the right bytes."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.loopdevices import LoopDevice, loop_device
from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import Bucket
from tests.remote.test_tiered_mount import append, make_topic, text, tiered_mount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

LINES = 160_000
LINE = len(text(0, 1))
KILLS = [pytest.param(2, id="few"), pytest.param(20, id="many", marks=pytest.mark.long)]
"""How often the daemon is killed, after which everything is read."""


class CachingMount:
    """A mount that has its cache on its own file system, and keeps little in memory."""

    def __init__(self, mount: Mount, device: LoopDevice) -> None:
        self.mount = mount
        self.device = device
        self.cache = Path(device.point, "cache")
        self.lines = text(0, LINES)
        self._chance = Random(1)
        self.raw: list[bytes] = []

    def fill(self) -> None:
        self.file = make_topic(self.mount)
        append(self.file, self.lines)
        directory = self.mount.data / "orders-0"
        self.raw = [path.read_bytes() for path in self._raw_logs()]
        wait_until(lambda: len(list(directory.glob("*.log"))) == 1, "the segments went")

    def _raw_logs(self) -> list[Path]:
        return sorted((self.mount.point / ".segments" / "orders-0").glob("*.log"))

    def read(self) -> None:
        """Read by offsets, from the beginning, and the raw files."""
        for _ in range(20):
            first = self._chance.randrange(LINES - 2000)
            name = f"{self.file}@offset={first}..offset={first + 2000}"
            is_right = Path(name).read_bytes() == self.lines[first * LINE : (first + 2000) * LINE]
            assert is_right, name
        assert self.file.read_bytes() == self.lines
        assert [path.read_bytes() for path in self._raw_logs()] == self.raw

    def number(self, name: str) -> float:
        """Return a metric of the daemon."""
        metrics = logfs("metrics", str(self.mount.point)).decode()
        found = re.search(rf"^{name} ([0-9.e+]+)$", metrics, re.MULTILINE)
        assert found is not None
        return float(found[1])

    def warnings(self) -> int:
        return self.mount.log.count("the store is read instead")

    def check_use(self) -> None:
        """See that the cache is used."""
        for _ in range(4):
            self.read()
        before = self.number("logfs_remote_cache_bytes_total")
        self.read()
        assert self.number("logfs_remote_cache_bytes_total") > before
        assert list((self.cache / "objects").iterdir())


@pytest.fixture
def caching(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CachingMount]:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    with loop_device(tmp_path, 12) as device:
        mount = tiered_mount(tmp_path, bucket, timeout_ms=20_000)
        with (mount.data / "logfs.remote").open("a") as file:
            file.write("memory.bytes=1048576\n")
        cache = str(Path(device.point, "cache"))
        mount = Mount(
            mount.data,
            tmp_path / "mnt",
            variables={**bucket.environment, "CACHE_DIRECTORY": cache},
        )
        with mount:
            found = CachingMount(mount, device)
            found.fill()
            found.check_use()
            assert not found.warnings()
            yield found


def test_a_cache_that_fills_up_and_becomes_read_only(caching: CachingMount) -> None:
    caching.device.fill()
    for path in list((caching.cache / "objects").iterdir()):
        path.unlink()
    caching.device.fill()
    caching.read()
    assert caching.warnings() == 1
    assert caching.number("logfs_remote_cache_errors_total") > 0
    caching.device.make_room()
    caching.check_use()
    subprocess.run(["mount", "-o", "remount,ro", caching.device.point], check=True)
    caching.read()
    assert caching.warnings() == 2
    subprocess.run(["mount", "-o", "remount,rw", caching.device.point], check=True)
    caching.check_use()
    caching.device.go_away()  # EIO from now on
    caching.read()
    caching.read()
    assert caching.warnings() == 3


def test_a_cache_that_is_deleted_unmounted_and_damaged(caching: CachingMount) -> None:
    shutil.rmtree(caching.cache)
    caching.read()
    caching.check_use()
    subprocess.run(["umount", "-l", caching.device.point], check=True)
    caching.read()
    assert list((caching.cache / "objects").iterdir())
    shutil.rmtree(caching.cache)
    caching.device.mount()
    caching.check_use()
    assert not caching.warnings()
    chance = Random(2)
    for path in list((caching.cache / "objects").iterdir()):
        size = path.stat().st_size
        path.write_bytes(chance.randbytes(size - chance.choice([0, 0, 10])))
    caching.read()
    assert caching.warnings() == 1
    assert caching.number("logfs_remote_cache_corrupt_blocks_total") > 0
    caching.check_use()


@pytest.mark.parametrize("kills", KILLS)
def test_a_daemon_that_is_killed_while_it_writes_to_its_cache(
    caching: CachingMount, kills: int
) -> None:
    chance = Random(3)
    for _ in range(kills):
        for path in list((caching.cache / "objects").iterdir()):
            path.unlink()
        reader = subprocess.Popen(["cat", caching.file], stdout=subprocess.DEVNULL)
        for _ in range(chance.randrange(20)):
            first = chance.randrange(LINES - 100)
            Path(f"{caching.file}@offset={first}..offset={first + 100}").read_bytes()
        caching.mount.crash()
        reader.wait()
        caching.read()
    caching.check_use()
