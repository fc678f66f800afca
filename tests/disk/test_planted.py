"""What another user plants in a data directory: links, FIFOs, sockets, devices."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.disk.link_or_copy import FileTransfer, give_away
from logfs.disk.posix import PosixDisk

SECRET = b"another user's secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data directory with a partition; beside it what must be neither read nor written."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_bytes(SECRET)
    (tmp_path / "data/orders-0").mkdir(parents=True)
    (tmp_path / "data/orders-0/file").write_bytes(b"own")
    return tmp_path / "data"


def outside(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root.parent / "outside").iterdir()}


def make_link(path: Path) -> None:
    path.symlink_to("../../outside/secret")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(path))


def make_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make devices")
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


KINDS: dict[str, Callable[[Path], None]] = {
    "a symbolic link": make_link,
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
    "a character device": make_device,
}

READS: dict[str, Callable[[PosixDisk, str], object]] = {
    "open": lambda disk, name: disk.open(name),
    "open uncached": lambda disk, name: disk.open(name, uncached=True),
    "read": lambda disk, name: disk.read(name),
    "stat": lambda disk, name: disk.stat(name),
    "cached_bytes": lambda disk, name: disk.cached_bytes(name),
    "is_locked": lambda disk, name: disk.is_locked(name),
    "list": lambda disk, name: disk.list(name),
    "inodes": lambda disk, name: disk.inodes(name),
    "sync_directory": lambda disk, name: disk.sync_directory(name),
}
WRITES: dict[str, Callable[[PosixDisk, str], object]] = {
    "open": lambda disk, name: disk.open(name, write=True),
    "create": lambda disk, name: disk.open(name, write=True, create=True),
    "lock": lambda disk, name: disk.lock(name),
}


@pytest.mark.parametrize("call", [*READS, *(f"write: {name}" for name in WRITES)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_refused_at_once(root: Path, kind: str, call: str) -> None:
    KINDS[kind](root / "orders-0/planted")
    run = WRITES[call.removeprefix("write: ")] if call.startswith("write: ") else READS[call]
    with pytest.raises(OSError, match=r"orders-0/planted") as caught:
        run(PosixDisk(root), "orders-0/planted")
    if call not in {"list", "inodes", "sync_directory"}:
        number = errno.ELOOP if kind == "a symbolic link" else errno.ENXIO
        assert caught.value.errno == number
        assert kind in str(caught.value)
    assert outside(root) == {"secret": SECRET}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_told_apart_in_listings(root: Path, kind: str) -> None:
    KINDS[kind](root / "orders-0/planted")
    disk = PosixDisk(root)
    assert disk.list("orders-0") == [("file", False)]
    assert list(disk.inodes("orders-0")) == ["file"]
    files, directories, ((name, what),) = disk.contents("orders-0")
    assert (list(files), list(directories)) == (["file"], [])
    assert name == "planted"
    assert what.startswith(kind)
    assert disk.exists("orders-0/planted")


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_temporary_name_is_replaced(root: Path, kind: str) -> None:
    KINDS[kind](root / "orders-0/file.tmp")
    disk = PosixDisk(root)
    disk.replace("orders-0/file", b"new")
    assert disk.read("orders-0/file") == b"new"
    assert disk.list("orders-0") == [("file", False)]
    assert outside(root) == {"secret": SECRET}


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_name_is_replaced_itself(root: Path, kind: str) -> None:
    KINDS[kind](root / "orders-0/planted")
    disk = PosixDisk(root)
    disk.replace("orders-0/planted", b"new")
    assert (root / "orders-0/planted").read_bytes() == b"new"
    assert not (root / "orders-0/planted").is_symlink()
    assert outside(root) == {"secret": SECRET}


def test_a_dangling_link_makes_no_file_elsewhere(root: Path) -> None:
    (root / "planted").symlink_to("../outside/new")
    disk = PosixDisk(root)
    for call in WRITES.values():
        with pytest.raises(OSError, match="symbolic link"):
            call(disk, "planted")
    assert outside(root) == {"secret": SECRET}


def in_linked_directory(disk: PosixDisk) -> list[Callable[[], object]]:
    return [
        lambda: disk.open("evil-0/secret"),
        lambda: disk.open("evil-0/secret", write=True),
        lambda: disk.open("evil-0/new", write=True, create=True),
        lambda: disk.read("evil-0/secret"),
        lambda: disk.stat("evil-0/secret"),
        lambda: disk.stat("evil-0"),
        lambda: disk.list("evil-0"),
        lambda: disk.contents("evil-0"),
        lambda: disk.inodes("evil-0"),
        lambda: disk.make_directory("evil-0/new"),
        lambda: disk.rename("evil-0/secret", "orders-0/secret"),
        lambda: disk.rename("orders-0/file", "evil-0/file"),
        lambda: disk.remove("evil-0/secret"),
        lambda: disk.remove_tree("evil-0/secret"),
        lambda: disk.replace("evil-0/secret", b"new"),
        lambda: disk.touch_times("evil-0/secret", 0),
        lambda: disk.sync_directory("evil-0"),
        lambda: disk.lock("evil-0/.lock"),
    ]


@pytest.mark.parametrize("number", range(18))
def test_a_directory_that_is_a_link_is_not_entered(root: Path, number: int) -> None:
    (root / "evil-0").symlink_to("../outside")
    before = (root.parent / "outside/secret").stat()
    with pytest.raises(OSError, match="evil-0"):
        in_linked_directory(PosixDisk(root))[number]()
    assert outside(root) == {"secret": SECRET}
    assert (root.parent / "outside/secret").stat().st_mtime_ns == before.st_mtime_ns
    assert not PosixDisk(root).exists("evil-0/secret")


def test_to_remove_a_directory_that_is_a_link_removes_the_link(root: Path) -> None:
    (root / "evil-0").symlink_to("../outside")
    PosixDisk(root).remove_tree("evil-0")
    assert not (root / "evil-0").is_symlink()
    assert outside(root) == {"secret": SECRET}


def test_links_in_the_path_of_the_root_are_followed(root: Path) -> None:
    (root.parent / "link").symlink_to("data")
    disk = PosixDisk(root.parent / "link")
    assert disk.read("orders-0/file") == b"own"
    assert disk.list("") == [("orders-0", True)]


def test_times_of_a_link_are_its_own(root: Path) -> None:
    make_link(root / "orders-0/planted")
    before = (root.parent / "outside/secret").stat()
    PosixDisk(root).touch_times("orders-0/planted", 0)
    assert (root.parent / "outside/secret").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("may_link", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_transfer_reads_no_planted_name(root: Path, kind: str, may_link: bool) -> None:
    KINDS[kind](root / "orders-0/planted")
    (root.parent / "target/orders-0").mkdir(parents=True)
    transfer = FileTransfer(str(root), str(root.parent / "target"), may_link=may_link)
    with pytest.raises(OSError, match="orders-0/planted"):
        transfer.take("orders-0/planted", (root.parent / "outside/secret").stat().st_ino)
    assert list((root.parent / "target/orders-0").iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file.tmp"])
@pytest.mark.parametrize("may_link", [True, False])
def test_a_transfer_writes_through_no_planted_name(root: Path, name: str, may_link: bool) -> None:
    target = root.parent / "target/orders-0"
    target.mkdir(parents=True)
    make_link(target / name)
    transfer = FileTransfer(str(root), str(target.parent), may_link=may_link)
    transfer.take("orders-0/file", (root / "orders-0/file").stat().st_ino)
    assert (target / "file").read_bytes() == b"own"
    assert not (target / "file").is_symlink()
    assert outside(root) == {"secret": SECRET}


def test_a_shared_file_is_not_copied_through_a_planted_temporary_name(root: Path) -> None:
    os.link(root / "orders-0/file", root / "backup")
    make_link(root / "orders-0/file.tmp")
    PosixDisk(root).open("orders-0/file", write=True).pwrite(b"OWN", 0)
    assert (root / "backup").read_bytes() == b"own"
    assert outside(root) == {"secret": SECRET}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_given_away_is_never_after_a_link(root: Path) -> None:
    (root / "evil-0").symlink_to("../outside")
    make_link(root / "orders-0/planted")
    os.chown(root, 65534, 65534)
    give_away([str(root / "orders-0"), str(root / "evil-0")], str(root))
    assert (root / "orders-0/file").stat().st_uid == 65534
    assert (root.parent / "outside").stat().st_uid == 0
    assert (root.parent / "outside/secret").stat().st_uid == 0
