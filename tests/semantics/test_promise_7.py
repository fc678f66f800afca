"""Promise 7 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import mmap
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mounting import COMMAND, Mount, now_ms, opened_store, run
from tests.semantics.programs import (
    append,
    attribute,
    batch_bounds,
    configure,
    errno_of,
    meta,
    numbered,
    values,
)

pytestmark = pytest.mark.fuse

LINES = numbered(0, 1_000)
BATCHES = [b"".join(LINES[at : at + 10]) for at in range(0, 1_000, 10)]


def fill(partition: Path) -> None:
    """Append the lines, ten a batch."""
    for batch in BATCHES:
        append(partition, batch)


def last_log(mount: Mount) -> Path:
    """Return the ``.log`` of the active segment of ``orders/0``."""
    return max((mount.data / "orders-0").glob("*.log"))


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below a directory, with its bytes and the time of its last change."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def truncate(log: bytes) -> bytes:
    return log[:-17]


def flip_in_last_batch(log: bytes) -> bytes:
    return log[:-5] + bytes([log[-5] ^ 1]) + log[-4:]


def add_garbage(log: bytes) -> bytes:
    return log + b"\xab" * 5_000


@pytest.mark.parametrize(
    ("damage", "whole_batches"), [(truncate, 99), (flip_in_last_batch, 99), (add_garbage, 100)]
)
def test_a_bad_end_is_cut_and_kept(
    mount: Mount, damage: Callable[[bytes], bytes], whole_batches: int
) -> None:
    """After a crash a log is truncated where Kafka truncates it, at the end of its last whole
    batch. The truncated bytes are kept in a plain file beside it."""
    path = mount.point / "orders" / "0"
    fill(path)
    mount.kill()
    log = last_log(mount)
    damaged = damage(log.read_bytes())
    log.write_bytes(damaged)
    mount.start()
    assert path.read_bytes() == b"".join(BATCHES[:whole_batches])
    position = batch_bounds(log.read_bytes())[-1][1]
    assert log.read_bytes() == damaged[:position]
    (copy,) = (mount.data / "orders-0").glob("*.cut")
    assert copy.read_bytes() == damaged[position:]
    assert copy.name in mount.log
    losses = meta(path)["losses"]
    if damage is truncate:  # as a kill leaves an append that was not over, which lost nothing
        assert losses == []
    else:
        (loss,) = losses
        assert (loss["kind"], loss["position"]) == ("cut", position)
        assert loss["bytes"] == len(damaged) - position
        assert copy.name in loss["detail"]
    append(path, b"continues\n")
    assert path.read_bytes() == b"".join(BATCHES[:whole_batches]) + b"continues\n"


def test_losses_are_counted_and_stay(mount: Mount) -> None:
    """Every loss is in the daemon's log, with file, position and byte count, and for good in
    `.meta` and `user.logfs.losses`.
    """
    path = mount.point / "orders" / "0"
    fill(path)
    losses = meta(path)["losses"]
    assert attribute(path, "losses") == len(losses) == 0
    for count in (1, 2):
        mount.kill()
        log = last_log(mount)
        log.write_bytes(flip_in_last_batch(log.read_bytes()))
        mount.start()
        losses = meta(path)["losses"]
        assert len(losses) == attribute(path, "losses") == count
        for part in (log.name, str(losses[-1]["position"]), str(losses[-1]["bytes"])):
            assert part in mount.log
        append(path, b"between\n")
    mount.restart()
    assert meta(path)["losses"] == losses


def corrupt(mount: Mount, number: int) -> None:
    """Flip a bit of a batch of the first segment while it is not mounted."""
    mount.stop()
    log = mount.data / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    begin, end = batch_bounds(bytes(data))[number]
    data[(begin + end) // 2] ^= 4
    log.write_bytes(data)
    mount.start()


def test_corrupt_data_stays_and_is_an_error(mount: Mount) -> None:
    """A corrupt batch in a sealed segment, which recovery does not truncate, stays where it is.
    Reading shows the records before it, then fails with EIO; any address after it can be read."""
    orders = mount.point / "orders"
    configure(orders, internal_segment_bytes=30_000, index_interval_bytes=2_000)
    path = orders / "0"
    fill(path)
    corrupt(mount, 7)
    raw = (mount.data / "orders-0" / f"{0:020}.log").read_bytes()
    before = b"".join(BATCHES[:7])
    for name, page in (("0", 0), ("0@offset=0", 0), ("0@earliest..latest", mmap.PAGESIZE)):
        result = run("cat", orders / name)
        assert before.startswith(result.stdout)
        assert len(result.stdout) >= len(before) - page  # the kernel caches whole pages
        assert b"Input/output error" in result.stderr
        assert result.returncode == 1
    for offset in range(80, 1_000, 41):
        assert (orders / f"0@offset={offset}").read_bytes() == b"".join(LINES[offset:])
        with path.open("rb", buffering=0) as file:
            file.seek(offset * 100)
            assert file.readall() == b"".join(LINES[offset:])
    tail = run("tail", "-n", "900", path)
    assert (tail.stdout, tail.returncode) == (b"".join(LINES[-900:]), 0)
    assert errno_of((orders / "0@offset=75..offset=78").read_bytes) == errno.EIO
    append(path, b"continues\n")
    assert (orders / "0@offset=1000").read_bytes() == b"continues\n"
    assert (mount.data / "orders-0" / f"{0:020}.log").read_bytes() == raw


def test_corrupt_data_is_counted_when_it_is_met(mount: Mount) -> None:
    """Every loss is in the daemon's log, with file, position and byte count, and for good in
    `.meta` and `user.logfs.losses`.
    """
    orders = mount.point / "orders"
    configure(orders, internal_segment_bytes=30_000)
    fill(orders / "0")
    corrupt(mount, 7)
    bounds = batch_bounds((mount.data / "orders-0" / f"{0:020}.log").read_bytes())[7]
    assert run("cat", orders / "0").returncode == 1
    assert run("cat", orders / "0").returncode == 1
    assert f"{0:020}.log" in mount.log
    assert str(bounds[0]) in mount.log
    (loss,) = meta(orders / "0")["losses"]
    assert (loss["kind"], loss["position"]) == ("corrupt", bounds[0])
    assert loss["bytes"] == bounds[1] - bounds[0]


def test_the_way_on_after_a_corrupt_batch_is_named(mount: Mount) -> None:
    """The offset at which reading continues is in the daemon's log, in `.meta` and in the report of
    `logfs verify`."""
    orders = mount.point / "orders"
    configure(orders, internal_segment_bytes=30_000)
    fill(orders / "0")
    corrupt(mount, 7)
    assert run("cat", orders / "0").returncode == 1
    (loss,) = meta(orders / "0")["losses"]
    assert (orders / f"0@offset={loss['offset']}").read_bytes() == b"".join(BATCHES[8:])
    words = f"read on with @offset={loss['offset']}"
    assert words in mount.log
    assert words in run(*COMMAND, "verify", mount.data).stdout.decode()
    mount.stop()
    assert words in run(*COMMAND, "cat", mount.data / "orders" / "0").stderr.decode()


def test_a_read_only_mount_changes_nothing(mount: Mount) -> None:
    """A read-only mount writes nothing and shows the records that recovery would keep."""
    path = mount.point / "orders" / "0"
    fill(path)
    mount.kill()
    log = last_log(mount)
    log.write_bytes(flip_in_last_batch(log.read_bytes()))
    (mount.data / "orders-0" / f"{0:020}.textindex").unlink()
    before = contents(mount.data)
    mount.options = ("ro",)
    mount.start()
    left = b"".join(BATCHES[:99])
    assert path.read_bytes() == left
    assert (path.parent / "0@offset=500").read_bytes() == left[50_000:]
    assert [loss["kind"] for loss in meta(path)["losses"]] == ["cut"]
    assert "recovery would cut" in mount.log
    mount.stop()
    assert contents(mount.data) == before
    mount.options = ()
    mount.start()
    assert path.read_bytes() == left


def _garbage_metadata(directory: Path) -> None:
    (directory / "partition.metadata").write_bytes(b"\x00\xffwhat is this?\n")


def _garbage_epochs(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\nmany\n")


def _newer_table(directory: Path) -> None:
    table = bytearray((directory / "logfs.segments").read_bytes())
    table[4:8] = (99).to_bytes(4, "big")
    (directory / "logfs.segments").write_bytes(table)


def _garbage_config(directory: Path) -> None:
    (directory / "logfs.config").write_text("retention.ms=soon\n")


def _no_log(directory: Path) -> None:
    name = f"{0:020}.log"
    (directory / name).rename(directory / "elsewhere")
    (directory / name).mkdir()


@pytest.mark.parametrize(
    "damage",
    [_garbage_metadata, _garbage_epochs, _garbage_config, _newer_table, _no_log],
)
def test_the_mount_always_comes_up(mount: Mount, damage: Callable[[Path], None]) -> None:
    """The mount always comes up. A partition that cannot be loaded is listed, its reason is in
    `.meta` and in the daemon's log, and it answers EIO. All others work."""
    others = mount.point / "others"
    others.mkdir()
    path = mount.point / "orders" / "0"
    fill(path)
    fill(others / "0")
    mount.stop()
    damage(mount.data / "orders-0")
    before = contents(mount.data / "orders-0")
    mount.start()
    assert os.listdir(mount.point / "orders") == ["0"]
    assert errno_of(path.read_bytes) == errno.EIO
    assert errno_of(append, path, b"x\n") == errno.EIO
    reason = meta(path)["offline"]
    assert reason.startswith("it could not be loaded: ")
    assert reason.removeprefix("it could not be loaded: ") in mount.log
    append(others / "0", b"more\n")
    assert (others / "0").read_bytes() == b"".join(BATCHES) + b"more\n"
    mount.stop()
    assert contents(mount.data / "orders-0") == before
    mount.start()


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "logfs.attributes",
        "orders-0/logfs.losses",
    ],
)
def test_small_files_may_be_garbage(mount: Mount, name: str) -> None:
    """Small files that are damaged or lost are recreated where logfs can work without them."""
    path = mount.point / "orders" / "0"
    fill(path)
    for garbage in (b"\xff\x00\xff", b"0\n1\n", b""):
        mount.stop()
        (mount.data / name).write_bytes(garbage)
        mount.start()
        assert path.read_bytes() == b"".join(BATCHES)
        assert meta(path)["offline"] is None
    mount.stop()
    (mount.data / name).unlink()
    mount.start()
    assert path.read_bytes() == b"".join(BATCHES)
    append(path, b"more\n")


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"\xff" * 500)])
def test_lost_positions_are_reported(mount: Mount, damage: Callable[[Path], object]) -> None:
    """Only positions cannot be recreated. If the segment table is lost they start again, the files
    are other inodes, and that is reported as a loss."""
    path = mount.point / "orders" / "0"
    fill(path)
    inode, shown = os.stat(path).st_ino, path.read_bytes()
    mount.stop()
    with opened_store(mount.data) as store:
        store.partition("orders", 0).advance_log_start_offset(600, now_ms())
    damage(mount.data / "orders-0" / "logfs.segments")
    mount.start()
    assert path.read_bytes() == shown[60_000:]
    assert os.stat(path).st_ino != inode
    (loss,) = meta(path)["losses"]
    assert loss["kind"] == "positions"
    assert loss["detail"] in mount.log
    inode = os.stat(path).st_ino
    mount.restart()
    assert (os.stat(path).st_ino, len(values(path))) == (inode, 400)
    assert len(meta(path)["losses"]) == 1


@pytest.mark.parametrize("options", [(), ("no_native",)], ids=["native", "no_native"])
@pytest.mark.parametrize("removes_directory", [True, False])
def test_an_fsync_of_a_removed_log_fails(
    tmp_path: Path, options: tuple[str, ...], removes_directory: bool
) -> None:
    """If another program removes the active log of a partition below a mount, the next fsync(2)
    is EIO and a loss is told."""
    with Mount(tmp_path / "data", tmp_path / "mnt", *options) as mount:
        path = mount.point / "orders" / "0"
        path.parent.mkdir()
        append(path, b"before\n")
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(file, b"synced\n")
        os.fsync(file)
        if removes_directory:
            shutil.rmtree(mount.data / "orders-0")
        else:
            last_log(mount).unlink()
        os.write(file, b"lost\n")
        assert errno_of(os.fsync, file) == errno.EIO
        assert errno_of(os.write, file, b"refused\n") == errno.EIO
        assert path.read_bytes() == b"before\nsynced\nlost\n"
        assert [loss["kind"] for loss in meta(path)["losses"]] == ["removed"]
        assert errno_of(os.close, file) == errno.EIO
        assert mount.log.count("[loss: removed, ") == 1
        if removes_directory:
            assert errno_of(append, path, b"refused\n") == errno.EIO
            assert path.read_bytes() == b"before\nsynced\nlost\n"
