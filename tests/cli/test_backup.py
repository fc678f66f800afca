"""``logfs backup`` and ``logfs restore``, with a daemon and without."""

import json
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.cli.verify_data import verify_data
from logfs.library.backup import restore_backup, take_backup
from logfs.log.store import LogStore
from logfs.types import View
from tests.cli.conftest import Call, fill, open_store, run
from tests.log.support import kept_runs_of
from tests.mounting import Mount, now_ms, wait_until

LINES = b"".join(b"line %06d\n" % number for number in range(300))
OTHER_FILE_SYSTEM = Path("/dev/shm")


@pytest.fixture
def data(logfs: Call, tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    logfs("topic", "create", data / "orders", "--config", "internal.segment.bytes=1000")
    for start in range(0, len(LINES), 600):
        fill(data, {"orders/0": LINES[start : start + 600], "users/0": b"somebody\n"})
    return data


def test_a_restored_backup_equals_its_source(logfs: Call, data: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "backups" / "monday", tmp_path / "new"
    status, out, errors = logfs("backup", data, backup, "--verify")
    assert (status, errors) == (0, [])
    assert out.startswith(b"2 partitions, ")
    for root in (backup, new):
        if root is new:
            assert logfs("restore", backup, new).status == 0
        assert logfs("cat", root / "orders" / "0").out == LINES
        assert logfs("offsets", root / "orders").out == logfs("offsets", data / "orders").out
        assert logfs("topic", "list", root).out == b"orders\nusers\n"


def test_json_prints_the_manifest(logfs: Call, data: Path, tmp_path: Path) -> None:
    made = json.loads(logfs("backup", data, tmp_path / "b", "--topic", "orders", "--json").out)
    (row,) = made["partitions"]
    assert (made["state"], made["source"], made["problems"]) == ("whole", str(data), [])
    assert (row["topic"], row["start_offset"], row["end_offset"]) == ("orders", 0, 300)
    assert row["end_position"] == len(LINES)


def test_verify_finds_damage_in_the_backup(logfs: Call, data: Path, tmp_path: Path) -> None:
    path = sorted((data / "orders-0").glob("*.log"))[2]
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    assert logfs("backup", data, tmp_path / "unread").status == 0
    status, out, errors = logfs("backup", data, tmp_path / "read", "--verify")
    assert (status, len(errors)) == (1, 1), errors
    assert out.startswith(b"2 partitions")
    assert path.name in errors[0]


@pytest.mark.skipif(
    not os.access(OTHER_FILE_SYSTEM, os.W_OK), reason="one file system is all there is here"
)
def test_on_another_file_system_previous_copies_only_new_files(
    logfs: Call, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    backups = OTHER_FILE_SYSTEM / tmp_path_factory.mktemp("backups").name
    backups.mkdir()
    try:
        assert logfs("backup", data, backups / "1", "--previous", backups).status == 0
        fill(data, {"orders/0": b"new\n"})
        assert logfs("backup", data, backups / "2", "--previous", backups).status == 0
        second = sorted((backups / "2" / "orders-0").glob("*.log"))
        assert len(second) > 2
        assert [path.stat().st_nlink for path in second][:-1] == [2] * (len(second) - 1)
        assert second[-1].stat().st_nlink == 1
        assert logfs("cat", backups / "2" / "orders" / "0").out == LINES + b"new\n"
    finally:
        run_rm(backups)


def run_rm(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    root.rmdir()


def test_a_backup_by_root_gets_the_owner_of_the_logs(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    owner = 4321 if os.geteuid() == 0 else os.geteuid()
    for path in (data, *data.rglob("*")):
        if owner != os.geteuid():
            os.chown(path, owner, -1)
    data.chmod(0o750)
    assert logfs("backup", data, tmp_path / "backup").status == 0
    assert logfs("restore", tmp_path / "backup", tmp_path / "new").status == 0
    for root in (tmp_path / "backup", tmp_path / "new"):
        assert {path.stat().st_uid for path in (root, *root.rglob("*"))} == {owner}
        assert root.stat().st_mode & 0o777 == 0o750


def test_refusals(logfs: Call, data: Path, tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / "other"
    logfs("backup", data, whole)
    other.mkdir()
    (other / "file").touch()
    fill(data, {"orders/0": b"later\n"})
    cases: list[tuple[list[str | Path], str]] = [
        (["backup", data, whole], f"{whole}: it holds a backup of {data} already, a whole one"),
        (["backup", data, other], f"{other}: the directory is not empty (it holds file)"),
        (["backup", data, data / "b"], "lie in each other: expected a directory outside"),
        (["backup", data, tmp_path / "b", "--topic", "nix"], "no topic nix"),
        (["backup", data / "orders", tmp_path / "b"], "single topics with '--topic'"),
        (["backup", data, tmp_path / "b", "--previous", tmp_path / "no"], "an earlier backup"),
        (["backup", data, tmp_path / "b", "--with-remote"], "it has no object store"),
        (["restore", whole, other], f"{other}: it is not empty: nothing is replaced"),
        (["restore", whole, data], "'--topic' for single topics of the backup"),
        (["restore", whole, data, "--topic", "orders"], "topic orders exists already"),
        (["restore", whole, tmp_path / "r", "--topic", "nix"], f"{whole}: no topic nix"),
        (["restore", whole, data, "--topic", "nix"], f"{whole}: no topic nix"),
        (["backup", data, whole / "b"], f"it is in the data directory {whole}"),
    ]
    for arguments, reason in cases:
        status, out, errors = logfs(*arguments)
        assert (status, out, len(errors)) == (1, b"", 1), arguments
        assert reason in errors[0], errors


def test_backup_refuses_a_directory_that_another_program_writes(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    store = open_store(data)
    status, _, (error,) = logfs("backup", data, tmp_path / "backup")
    assert status == 1
    assert "written by a process that is no daemon of logfs" in error
    store.close(now_ms())
    assert logfs("backup", data, tmp_path / "backup").status == 0


def test_the_same_command_completes_an_interrupted_backup(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    logfs("backup", data, backup)
    manifest = json.loads((backup / "logfs.backup").read_bytes())
    (backup / "logfs.backup").write_text(json.dumps({**manifest, "state": "unfinished"}))
    (backup / "orders-0" / f"{0:020}.log").unlink()
    for command in (["cat", backup / "orders" / "0"], ["restore", backup, tmp_path / "new"]):
        status, _, (error,) = logfs(*command)
        assert status == 1
        assert f"a backup of {data} was interrupted here" in error
        assert "'logfs backup' as before completes it" in error
    assert logfs("backup", data, backup).status == 0
    assert logfs("cat", backup / "orders" / "0").out == LINES


@pytest.mark.fuse
def test_restore_refuses_a_directory_that_a_daemon_serves(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    with Mount(data, tmp_path / "mnt") as mount:
        assert logfs("backup", mount.point, backup).status == 0
        assert "it is not empty" in logfs("restore", backup, data).errors[0]
        refused = logfs("restore", backup, data, "--topic", "orders")
        assert f"process {mount.pid} serves it at {mount.point}" in refused.errors[0]
        busy = logfs("restore", data, tmp_path / "new")
        assert "is in use: unmount it first" in busy.errors[0]
    # The backup itself can be mounted, read-only.
    with Mount(backup, tmp_path / "mnt", "ro") as mount:
        assert (mount.point / "orders" / "0").read_bytes() == LINES


def test_a_backup_is_never_written_to(logfs: Call, data: Path, tmp_path: Path) -> None:
    backup, lines = tmp_path / "backup", tmp_path / "lines"
    lines.write_bytes(b"line\n")
    (tmp_path / "mnt").mkdir()
    assert logfs("backup", data, backup).status == 0
    refused: tuple[tuple[str | Path, ...], ...] = (
        ("append", backup / "orders" / "0", lines),
        ("topic", "create", backup / "new"),
        ("mount", backup, tmp_path / "mnt"),
    )
    for arguments in refused:
        status, _, errors = run(*arguments)
        assert (status, len(errors)) == (1, 1), errors
        assert f"{backup}" in errors[0]
        assert f"it is a backup of {data}, and backups are read-only" in errors[0]
        assert "'logfs restore' makes a data directory of it" in errors[0]
    assert logfs("cat", backup / "orders" / "0").out == LINES
    assert logfs("verify", backup).status == 0


@pytest.mark.fuse
def test_backup_refuses_a_destination_in_a_mount(logfs: Call, data: Path, tmp_path: Path) -> None:
    assert logfs("backup", data, tmp_path / "backup").status == 0
    with Mount(data, tmp_path / "mnt") as mount:
        for arguments in (
            ["backup", mount.point, mount.point / "new"],
            ["restore", tmp_path / "backup", mount.point / "new"],
        ):
            status, _, (error,) = logfs(*arguments)
            assert status == 1
            assert f"{mount.point / 'new'}: it is in the mount {mount.point}" in error
        assert sorted(path.name for path in mount.point.iterdir()) == ["orders", "users"]


WIDTH = len(b"line 00000000\n")
KEYS = 40


class Writing:
    """Programs that append numbered lines to a mount, until they are told to stop.

    Attributes:
        lines, keys: How many were written and acknowledged.
    """

    def __init__(self, point: Path) -> None:
        self._point = point
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=w) for w in (self._write_lines, self._write_keys)]
        self.lines = self.keys = 0

    def __enter__(self) -> "Writing":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self) -> None:
        """Wait until enough has been written for segments to come and go."""
        lines, keys = self.lines + 500, self.keys + 50
        wait_until(lambda: self.lines > lines and self.keys > keys, "more was written")

    def _write_lines(self) -> None:
        """Write pieces that end anywhere, as ``cat`` does."""
        chance, rest, number = random.Random(5), b"", 0
        with (self._point / "lines" / "0").open("ab", buffering=0) as file:
            while not self._stop.is_set():
                count = chance.randint(1, 60)
                text = rest + b"".join(b"line %08d\n" % n for n in range(number, number + count))
                number += count
                size = max(len(text) - chance.randint(0, 30), 1)
                assert file.write(text[:size]) == size
                rest = text[size:]
                self.lines = number - len(rest) // WIDTH - 1
                self._stop.wait(0.002)
            file.write(rest)

    def _write_keys(self) -> None:
        chance = random.Random(6)
        with (self._point / "keys" / "0.tsv").open("ab", buffering=0) as file:
            while not self._stop.is_set():
                key = chance.randrange(KEYS)
                file.write(b"key%04d\tline %08d\n" % (key, self.keys))
                self.keys += 1
                self._stop.wait(0.001)


def lines_in(runs: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    for position, data in runs:
        for start in range(0, len(data), WIDTH):
            yield position + start, data[start : start + WIDTH]


def open_restored(backup: Path) -> LogStore:
    target = backup.with_name(f"{backup.name}-restored")
    restore_backup(str(backup), str(target))
    return open_store(target)


@pytest.mark.fuse
def test_every_backup_of_a_mount_in_use_is_a_prefix_of_its_logs(tmp_path: Path) -> None:
    options = [
        *("log.initial.task.delay.ms=0", "log.retention.check.interval.ms=50"),
        *("log.cleaner.backoff.ms=20",),
    ]
    settings = {
        "lines": ["internal.segment.bytes=3000", "retention.bytes=40000"],
        "keys": [
            *("internal.segment.bytes=1500", "cleanup.policy=compact"),
            "min.cleanable.dirty.ratio=0.01",
        ],
    }
    backups = []
    with Mount(tmp_path / "data", tmp_path / "mnt", *options) as mount:
        for topic, pairs in settings.items():
            words = [
                word for pair in [*pairs, "file.delete.delay.ms=0"] for word in ("--config", pair)
            ]
            assert run("topic", "create", mount.data / topic, *words).status == 0
        with Writing(mount.point) as writing:
            for number in range(8):
                target = tmp_path / f"backup-{number}"
                writing.wait_for_more()
                at_least = (writing.lines, writing.keys)
                made = take_backup(str(mount.data), str(target))
                assert made.problems == []
                backups.append((target, at_least, (writing.lines + 100, writing.keys + 10)))
        assert "Traceback" not in mount.log
        (mount.point / "lines" / "0").read_bytes()
    starts, compacted = set(), 0
    for target, at_least, at_most in backups:
        store = open_restored(target)
        lines, keys = store.partition("lines", 0), store.partition("keys", 0)
        assert (lines.losses, keys.losses) == ([], [])
        assert verify_data(str(target), None, 1, lambda *_: None).damages == []
        found = list(lines_in(kept_runs_of(lines, View.TEXT)))
        numbers = [position // WIDTH for position, _ in found]
        starts.add(numbers[0])
        *whole, last = found
        # All that is kept is there, at its place; the last may be a line that was not finished.
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert all(line == b"line %08d\n" % (at // WIDTH) for at, line in whole)
        assert (b"line %08d" % numbers[-1]).startswith(last[1][:-1])
        assert lines.log_end_offset == numbers[-1] + 1
        assert at_least[0] <= numbers[-1] + 1 <= at_most[0]
        # Of every key at least the last value before the end is there.
        found = list(lines_in(kept_runs_of(keys, View.TEXT)))
        assert all(line == b"line %08d\n" % (at // WIDTH) for at, line in found)
        end = keys.log_end_offset
        assert at_least[1] <= end <= at_most[1]
        chance = random.Random(6)
        newest = {chance.randrange(KEYS): number for number in range(end)}
        assert set(newest.values()) <= {at // WIDTH for at, _ in found}
        compacted += len(found) < end
        store.close(now_ms())
    assert len(starts) > 2, "nothing was deleted meanwhile"
    assert compacted > 2, "nothing was compacted meanwhile"
