"""Sealed files that the kernel reads itself, and what happens where it does not."""

import json
import mmap
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from logfs.fs.kernel.passthrough import ON
from tests.fs.mounting import Mounted
from tests.mounting import PATIENCE_S, ROOT, environment, logfs, output, wait_until

_CAP_SYS_ADMIN = 21
_LINE = b"x" * 99 + b"\n"
_SEGMENT_BYTES = 1_100_000


def _release() -> tuple[int, ...]:
    return tuple(int(part) for part in platform.release().split(".")[:2])


def _kernel_can() -> bool:
    """Return whether this machine allows passthrough, found out without logfs."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return _release() >= (6, 9) and bool(capabilities >> _CAP_SYS_ADMIN & 1)


needs_passthrough = pytest.mark.skipif(
    not _kernel_can(), reason="passthrough takes Linux 6.9 and CAP_SYS_ADMIN"
)


@pytest.fixture
def sealed(mounted: Mounted) -> Path:
    """The first sealed segment of a topic with several."""
    _fill(mounted)
    return _first_log(mounted)


def _fill(mounted: Mounted, lines: int = 40_000) -> None:
    topic = mounted.point / "orders"
    topic.mkdir()
    os.setxattr(topic, "user.logfs.segment.bytes", b"%d" % _SEGMENT_BYTES)
    with (topic / "0").open("ab") as file:
        file.writelines(_LINE for _ in range(lines))


def _first_log(mounted: Mounted) -> Path:
    return min((mounted.point / ".segments" / "orders-0").glob("*.log"))


def _sealed_files(mounted: Mounted) -> list[Path]:
    """Return all files of the sealed segments; those of the active one have the last name."""
    found = [path for path in _first_log(mounted).parent.glob("0*") if path.suffix != ".snapshot"]
    active = max(path.stem for path in found)
    return sorted(path for path in found if path.stem != active)


def _on_disk(mounted: Mounted, sealed: Path) -> Path:
    return mounted.data / "orders-0" / sealed.name


def _reads(mounted: Mounted) -> int:
    """Return how many reads have reached the daemon."""
    for line in logfs("metrics", mounted.data).decode().splitlines():
        if line.startswith('logfs_requests_total{operation="read"}'):
            return int(float(line.split()[1]))
    return 0


def _says(mounted: Mounted) -> str:
    """Return how sealed files are read, which has to be said everywhere in the same words."""
    said = str(json.loads((mounted.point / "orders/0.meta").read_bytes())["sealed_files"])
    status = json.loads(logfs("status", mounted.data, "--json"))
    assert status["daemon"]["sealed_files"] == said
    assert f"sealed files: {said}" in logfs("status", mounted.data).decode()
    assert f"sealed files are read by: {said}" in mounted.log
    return said


@needs_passthrough
@pytest.mark.fuse
def test_reads_of_sealed_files_do_not_reach_the_daemon(
    mounted: Mounted, sealed: Path, tmp_path: Path
) -> None:
    assert _says(mounted) == ON
    content = _on_disk(mounted, sealed).read_bytes()
    before = _reads(mounted)
    for path in _sealed_files(mounted):
        assert path.read_bytes() == _on_disk(mounted, path).read_bytes(), path
    copy = tmp_path / "copy"
    with (
        sealed.open("rb", buffering=0) as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        copy.open("wb") as target,
    ):
        os.kill(mounted.pid, signal.SIGSTOP)
        try:
            assert os.pread(file.fileno(), len(content) + 1, 0) == content
            assert os.pread(file.fileno(), 1000, 777) == content[777:1777]
            assert mapped[:] == content
            assert _sent(file.fileno(), target.fileno()) == len(content)
            assert _spliced(file.fileno()) == content
        finally:
            os.kill(mounted.pid, signal.SIGCONT)
    assert copy.read_bytes() == content
    output("cp", "--reflink=auto", sealed, copy)
    output("cmp", sealed, copy)
    assert _reads(mounted) == before


def _sent(source: int, target: int) -> int:
    position = 0
    while sent := os.sendfile(target, source, position, 1 << 20):
        position += sent
    return position


def _spliced(source: int) -> bytes:
    reader, writer = os.pipe()
    got = b""
    while size := os.splice(source, writer, 65536):
        got += os.read(reader, size)
    os.close(reader)
    os.close(writer)
    return got


@needs_passthrough
@pytest.mark.fuse
def test_a_segment_that_is_deleted_while_it_is_open(mounted: Mounted, tmp_path: Path) -> None:
    """Open files and mappings stay readable; after the last of them the space is free."""
    mounted.stop()
    disk = tmp_path / "disk"
    disk.mkdir()
    output("mount", "-t", "tmpfs", "-o", "size=64m", "none", disk)
    mounted.data = disk
    mounted.options = ("log.segment.delete.delay.ms=10",)
    mounted.start()
    try:
        _fill(mounted, 100_000)
        path = _first_log(mounted)
        content = path.read_bytes()
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        again = path.open("rb", buffering=0)
        logfs("topic", "delete", mounted.point / "orders")
        wait_until(lambda: not list(disk.glob("orders-0*/*.log")), "its files were removed")
        assert again.readall() == content
        again.close()
        assert mapped[:] == content
        used = _used(disk)
        mapped.close()
        wait_until(lambda: _used(disk) <= used - len(content), "the room was given back")
        mounted.stop()
    finally:
        mounted.clear()
        output("umount", disk)


def _used(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@needs_passthrough
@pytest.mark.fuse
def test_many_open_the_same_inodes_at_once(mounted: Mounted) -> None:
    """Thousands of opens, some of them mapped, from several threads: none is refused."""
    _fill(mounted)
    paths = _sealed_files(mounted)
    expected = {path: _on_disk(mounted, path).read_bytes() for path in paths}
    wrong: list[object] = []

    def run(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(700):
            path = chosen.choice(paths)
            try:
                with path.open("rb", buffering=0) as file:
                    if expected[path] and chosen.random() < 0.3:
                        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                            wrong.extend([path] * (mapped[:] != expected[path]))
                    else:
                        wrong.extend([path] * (file.read(10) != expected[path][:10]))
            except OSError as error:
                wrong.append((path, error))

    before = _reads(mounted)
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert _reads(mounted) == before


@pytest.mark.fuse
def test_without_passthrough_the_kernel_caches(mounted: Mounted) -> None:
    mounted.stop()
    mounted.options = ("no_passthrough",)
    mounted.start()
    _fill(mounted)
    assert _says(mounted) == "page cache (mount option no_passthrough)"
    _check_cached(mounted)


@pytest.mark.fuse
def test_without_the_library_the_kernel_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A logfs that was built where the headers of libfuse are not."""
    tree = tmp_path / "tree"
    shutil.copytree(
        ROOT / "logfs",
        tree / "logfs",
        ignore=shutil.ignore_patterns("_hooks*.so"),
    )
    monkeypatch.chdir(tree)  # python -m looks there first
    mounted = Mounted(tmp_path)
    mounted.start()
    try:
        _fill(mounted)
        assert _says(mounted) == "page cache (logfs was built without the headers of libfuse)"
        _check_cached(mounted)
        mounted.stop()
    finally:
        mounted.clear()


def _check_cached(mounted: Mounted) -> None:
    """The first read of a sealed file reaches the daemon, the second does not."""
    sealed = _first_log(mounted)
    content = _on_disk(mounted, sealed).read_bytes()
    before = _reads(mounted)
    assert sealed.read_bytes() == content
    after = _reads(mounted)
    assert after > before
    with sealed.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:] == content
    assert _reads(mounted) == after


_IN_A_NAMESPACE = """
set -eu
"$PYTHON" -m logfs mount --background --log-file log data mnt
mkdir mnt/orders
setfattr -n user.logfs.segment.bytes -v 1100000 mnt/orders
seq 1 500000 >> mnt/orders/0
cat mnt/orders/0.meta
cmp mnt/.segments/orders-0/00000000000000000000.log data/orders-0/00000000000000000000.log
"$PYTHON" -m logfs umount mnt
cat log >&2
"""


@pytest.mark.fuse
def test_without_privileges_the_kernel_caches(tmp_path: Path) -> None:
    """Root of a user namespace may mount, but has no CAP_SYS_ADMIN over the machine."""
    for name in ("data", "mnt"):
        (tmp_path / name).mkdir()
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", _IN_A_NAMESPACE],
        cwd=tmp_path,
        env=environment(PYTHON=sys.executable),
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    why_not = "without CAP_SYS_ADMIN" if _release() >= (6, 9) else "Linux has it from 6.9 on"
    assert json.loads(done.stdout)["sealed_files"] == f"page cache ({why_not})"
    assert f"read by: page cache ({why_not})" in done.stderr.decode()
