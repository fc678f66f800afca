"""A standby: it follows a store, and becomes the owner while programs have its files open."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import (
    COMMAND,
    Mount,
    environment,
    is_mounted,
    kill_with_holder,
    logfs,
    take_away,
    wait_until,
)
from tests.remote.servers import Bucket, FaultProxy
from tests.remote.test_fresh_mounts import names_of
from tests.remote.test_promote import (
    FRESHNESS_MS,
    SETTINGS,
    fresh_mount,
    refusal,
    wait_until_sent,
)
from tests.remote.test_tiered_mount import append, text

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]


class Standby:
    """A standby in the background."""

    def __init__(self, directory: Path, bucket: Bucket) -> None:
        self.bucket = bucket
        self.data, self.point = directory / "data", directory / "mnt"
        self.log_file = directory / "log"
        self.point.mkdir(parents=True)

    def command(self, *more: str | Path) -> list[str | Path]:
        return ["standby", self.bucket.url, self.data, self.point, "--endpoint",
                self.bucket.endpoint, "--config", "remote.log.manager.task.interval.ms=100",
                *more]  # fmt: skip

    @property
    def pid(self) -> int:
        return int(os.getxattr(self.point, "user.logfs.pid"))

    def promote(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            logfs("promote", self.bucket.url, self.data, "--endpoint", self.bucket.endpoint,
                  "--json")
        )  # fmt: skip
        return found


@contextlib.contextmanager
def standby(directory: Path, bucket: Bucket) -> Iterator[Standby]:
    made = Standby(directory, bucket)
    logfs(*made.command("--background", "--log-file", made.log_file))
    try:
        yield made
        logfs("umount", made.point)
        assert "a bug in logfs" not in made.log_file.read_text()
        assert "Traceback" not in made.log_file.read_text()
    finally:
        if is_mounted(made.point):
            with contextlib.suppress(OSError):
                kill_with_holder(made.pid)
            take_away(made.point)
        print(made.log_file.read_text())


def test_a_standby_becomes_the_owner_and_programs_keep_their_files(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", first.point / "orders", *SETTINGS)
        orders = first.point / "orders" / "0"
        append(orders, text(0, 30_000))
        wait_until_sent(orders)
        with standby(tmp_path / "b", bucket) as second:
            there = second.point / "orders" / "0"
            wait_until(lambda: there.read_bytes() == text(0, 30_000), "it has all lines")
            with pytest.raises(OSError, match="Read-only"):
                append(there, b"line\n")
            with pytest.raises(OSError, match="Read-only"):
                (second.point / "other").mkdir()
            before = names_of(second.point)
            with (
                subprocess.Popen(["tail", "-c+1", "-f", there], stdout=subprocess.PIPE) as tail,
                there.open("rb") as file,
            ):
                assert tail.stdout is not None
                assert tail.stdout.read(len(text(0, 30_000))) == text(0, 30_000)
                assert file.read(1000) == text(0, 10)
                inode = there.stat().st_ino
                first.kill()
                first.clear()
                done = second.promote()
                assert done["problems"] == []
                assert names_of(second.point) == before
                append(there, b"continued\n")
                assert there.read_bytes() == text(0, 30_000) + b"continued\n"
                assert file.read() == text(0, 30_000)[1000:] + b"continued\n"
                assert there.stat().st_ino == inode
                assert tail.stdout.read(10) == b"continued\n"
                tail.kill()
            wait_until_sent(there)
            assert f"freshness.ms={FRESHNESS_MS}\n" in (second.data / "logfs.remote").read_text()
        logfs("verify", second.data)
        again = tmp_path / "c" / "data"
        logfs("promote", bucket.url, again, "--endpoint", bucket.endpoint)
        assert logfs("cat", again / "orders" / "0") == text(0, 30_000) + b"continued\n"


def test_a_standby_that_is_killed_continues_to_follow(tmp_path: Path, bucket: Bucket) -> None:
    with fresh_mount(tmp_path / "a", bucket) as owner:
        logfs("topic", "create", owner.point / "orders", *SETTINGS)
        orders = owner.point / "orders" / "0"
        append(orders, text(0, 1000))
        wait_until_sent(orders)
        with standby(tmp_path / "b", bucket) as second:
            there = second.point / "orders" / "0"
            with there.open("rb") as file:
                assert file.read() == text(0, 1000)
                for number in range(1, 4):
                    append(orders, text(1000 * number, 1000))
                    os.kill(second.pid, signal.SIGKILL)
                    wait_until(lambda: there.read_bytes() == orders.read_bytes(), "it is complete")
                assert file.read() == text(1000, 3000)


def test_a_standby_that_was_stopped_is_promoted_and_one_in_the_foreground_says_what_to_do(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as owner:
        logfs("topic", "create", owner.point / "orders", *SETTINGS)
        append(owner.point / "orders" / "0", text(0, 1000))
        with standby(tmp_path / "b", bucket) as second:
            there = second.point / "orders" / "0"
            wait_until(lambda: there.exists() and there.read_bytes(), "it follows")
            assert there.read_bytes() == text(0, 1000)
            (tmp_path / "mnt").mkdir()
            told = refusal("mount", "-o", "ro", second.data, tmp_path / "mnt")
            assert "it is a standby of s3://" in told
    assert "it is a standby of s3://" in refusal("cat", second.data / "orders" / "0")
    assert second.promote()["problems"] == []
    assert logfs("cat", second.data / "orders" / "0") == text(0, 1000)
    assert "the directory is not empty" in refusal(*second.command())
    third = Standby(tmp_path / "c", bucket)
    logfs("standby", "--help")
    with foreground(third) as mount:
        there = mount.point / "orders" / "0"
        wait_until(lambda: there.read_bytes() == text(0, 1000), "it has all lines")
        told = refusal("promote", bucket.url, third.data, "--endpoint", bucket.endpoint)
        assert "owns the store now, but its mount is still read-only" in told
        assert f"'logfs mount {third.data} {third.point}'" in told
        mount.restart()
        append(there, b"continued\n")
        assert there.read_bytes() == text(0, 1000) + b"continued\n"


@contextlib.contextmanager
def foreground(made: Standby) -> Iterator[Mount]:
    """Make a standby, and mount it in the foreground, as a unit would."""
    done = subprocess.run(
        [*COMMAND, *made.command("-o", "unknown")], env=environment(), capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert "mount option unknown" in done.stderr
    with Mount(made.data, made.point, variables=made.bucket.environment) as mount:
        yield mount


def test_a_standby_whose_store_is_away_cannot_be_promoted_and_continues(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as owner:
        logfs("topic", "create", owner.point / "orders", *SETTINGS)
        orders = owner.point / "orders" / "0"
        append(orders, text(0, 1000))
        wait_until_sent(orders)
        with standby(tmp_path / "b", bucket.through(faults)) as second:
            with faults.refusing():
                refusal("promote", bucket.url, second.data)
            append(orders, text(1000, 1000))
            there = second.point / "orders" / "0"
            wait_until(lambda: there.read_bytes() == text(0, 2000), "it continues")
            second.promote()
            append(there, b"continued\n")
            assert there.read_bytes() == text(0, 2000) + b"continued\n"


def test_a_standby_has_groups_owners_and_modes_once_it_owns_the_store(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", first.point / "orders", *SETTINGS)
        orders = first.point / "orders" / "0"
        append(orders, text(0, 1000))
        (first.point / "orders").chmod(0o2750)
        orders.chmod(0o640)
        os.chown(orders, 33, 44)
        logfs("group", "reset", "readers", f"{orders}@offset=700")
        wait_until_sent(orders)
        with standby(tmp_path / "b", bucket) as second:
            there = second.point / "orders" / "0"
            wait_until(lambda: there.read_bytes() == text(0, 1000), "it has all lines")
            first.stop()
            first.clear()
            assert second.promote()["problems"] == []
            (row,) = json.loads(logfs("group", "describe", "--json", second.point, "readers"))
            assert (row["topic"], row["position"]) == ("orders", 700)
            assert (second.point / "orders").stat().st_mode & 0o7777 == 0o2750
            found = there.stat()
            assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o640, 33, 44)
