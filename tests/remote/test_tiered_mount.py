"""A mount whose sealed segments are in an object store, for programs that use it."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mounting import Mount, logfs, now_ms, wait_until
from tests.remote.servers import Bucket, FaultProxy

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

START_MS = 1_700_000_000_000
NAMES = (
    "",
    ".tsv",
    ".jsonl",
    "@earliest..latest",
    "@offset=12345..offset=12347",
    "@offset=-100",
    "@byte=500000..byte=500200",
    f"@{START_MS + 9_000_000}..{START_MS + 9_100_000}.jsonl",
    f"@{START_MS + 20_000_500}.tsv",
)
"""What is read of both topics."""

SETTINGS = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.bytes": "0",
    "segment.bytes": "1048576",
    "max.message.bytes": "100000",
    "file.delete.delay.ms": "0",
}


def tiered_mount(tmp_path: Path, bucket: Bucket, *, timeout_ms: int = 1000) -> Mount:
    """Return a mount whose data directory has a store; not started."""
    data = tmp_path / "data"
    data.mkdir()
    settings = f"remote.log.manager.task.interval.ms=100\nread.timeout.ms={timeout_ms}\n"
    (data / "logfs.remote").write_text(bucket.properties + settings)
    return Mount(data, tmp_path / "mnt", variables=bucket.environment)


def make_topic(mount: Mount, name: str = "orders") -> Path:
    """Make a tiered topic; returns its file."""
    settings = [f"--config={key}={value}" for key, value in SETTINGS.items()]
    logfs("topic", "create", str(mount.point / name), *settings)
    return mount.point / name / "0"


def make_plain_topic(mount: Mount) -> Path:
    """Make a topic that is not tiered, with segments of the same size; returns its file."""
    settings = [f"--config={key}={SETTINGS[key]}" for key in ("segment.bytes", "retention.ms")]
    settings.append(f"--config=max.message.bytes={SETTINGS['max.message.bytes']}")
    logfs("topic", "create", str(mount.point / "plain"), *settings)
    return mount.point / "plain" / "0"


def text(first: int, count: int) -> bytes:
    """Return numbered lines of 100 bytes."""
    return b"".join(b"%08d %s\n" % (n, b"x" * 90) for n in range(first, first + count))


def records(first: int, count: int) -> bytes:
    """Return the same lines as records, one every second."""
    return b"".join(
        b'{"timestamp":%d,"key":"k%d","value":"%s"}\n' % (START_MS + n * 1000, n, line)
        for n, line in enumerate(text(first, count).splitlines(), start=first)
    )


def append(file: Path, data: bytes) -> None:
    """Append lines in writes of 50 kB."""
    with file.open("ab") as out:
        for start in range(0, len(data), 50_000):
            out.write(data[start : start + 50_000])


def raw_logs(mount: Mount, topic: str) -> list[bytes]:
    """Return the raw .log files of a partition."""
    logs = sorted((mount.point / ".segments" / f"{topic}-0").glob("*.log"))
    assert logs
    return [path.read_bytes() for path in logs]


def remote_of(file: Path) -> dict[str, Any]:
    """Return the facts of ``.meta`` about the store."""
    found: dict[str, Any] = json.loads(Path(f"{file}.meta").read_text())["remote"]
    return found


def attribute(file: Path, name: str) -> str:
    """Return an extended attribute ``user.logfs.*``."""
    return os.getxattr(file, f"user.logfs.{name}").decode()


def check_attributes(mount: Mount, bucket: Bucket) -> None:
    """See that raw files say which object they are in."""
    logs = sorted((mount.point / ".segments" / "orders-0").glob("*.log"))
    assert attribute(logs[0], "object").startswith(f"{bucket.url}/orders-")
    assert attribute(logs[0], "is_local") == "false"
    assert "user.logfs.object" not in os.listxattr(logs[-1])
    assert json.loads(attribute(mount.point / "orders" / "0", "remote"))["url"] == bucket.url


def fetched_bytes(mount: Mount) -> float:
    """Return what the daemon has fetched from the store, by its metrics."""
    metrics = logfs("metrics", str(mount.point))
    found = re.search(rb"\nlogfs_remote_fetch_bytes_total ([0-9.e+]+)\n", metrics)
    assert found is not None
    return float(found[1])


def cached_bytes(directory: Path) -> int:
    """Return what the cache directory of a mount takes on the disk."""
    files = (directory / "data.cache" / "objects").iterdir()
    return sum(file.stat().st_blocks * 512 for file in files)


def local_logs(mount: Mount, name: str = "orders") -> list[str]:
    """Return the local .log files of a topic's partition."""
    return sorted(path.name for path in (mount.data / f"{name}-0").glob("*.log"))


def test_programs_read_the_same_bytes_when_most_of_the_log_is_remote(
    tmp_path: Path, bucket: Bucket
) -> None:
    with tiered_mount(tmp_path, bucket) as mount:
        file, plain = make_topic(mount), make_plain_topic(mount)
        rows = records(0, 30_000)
        for target in (file, plain):
            with Path(f"{target}.jsonl").open("ab") as out:
                out.write(rows)
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        remote = remote_of(file)
        assert remote["error"] is None
        assert remote["remote_only_segments"] == remote["segments"] > 2
        for _ in range(2):
            for name in NAMES:  # cp compares stat(2) before and after it opens a file
                subprocess.run(["cp", f"{file}{name}", tmp_path / "copied"], check=True)
                assert (tmp_path / "copied").read_bytes() == Path(f"{plain}{name}").read_bytes()
                assert Path(f"{file}{name}").read_bytes() == Path(f"{plain}{name}").read_bytes()
            assert subprocess.run(["cmp", file, plain], check=False).returncode == 0
            command: list[str | Path] = ["grep", "-c", "7 x", file]
            assert subprocess.run(command, capture_output=True, check=True).stdout == b"3000\n"
            assert raw_logs(mount, "orders") == raw_logs(mount, "plain")
            check_attributes(mount, bucket)
            assert 0 < remote_of(file)["cached_bytes"] == cached_bytes(tmp_path)
            assert fetched_bytes(mount) > 0
            mount.restart()
        assert subprocess.check_output(["tail", "-n", "3", file]) == text(29_997, 3)
        logfs("verify", str(mount.data))
        used = {row["name"]: row for row in json.loads(logfs("du", "--json", str(mount.data)))}
        assert used["orders"]["log"] < 2_000_000 < used["orders"]["remote"]
        assert used["plain"]["remote"] == 0
        assert used["(total)"]["remote"] == used["orders"]["remote"]
        assert b"REMOTE" in logfs("du", str(mount.data))
        logfs("backup", str(mount.point), str(tmp_path / "copy"))
    copied = sorted(path.name for path in (tmp_path / "copy" / "orders-0").glob("*.log"))
    assert len(copied) == 1
    copy = tmp_path / "copy"
    properties = (copy / "logfs.remote").read_text()
    assert f"url={bucket.url}" in properties
    assert "directory.id" in (tmp_path / "data" / "logfs.remote").read_text()
    assert "directory.id" not in properties, "the copy is another directory"
    with Mount(copy, tmp_path / "restored", "ro", variables=bucket.environment) as restored:
        again = restored.point / "orders" / "0"
        assert again.read_bytes() == text(0, 30_000)


def test_readers_continue_while_segments_leave_the_disk(tmp_path: Path, bucket: Bucket) -> None:
    with tiered_mount(tmp_path, bucket) as mount:
        file = make_topic(mount)
        append(file, text(0, 100))
        with (
            subprocess.Popen(["tail", "-n", "+1", "-f", file], stdout=subprocess.PIPE) as tail,
            subprocess.Popen(["cat", f"{file}.follow"], stdout=subprocess.PIPE) as follow,
        ):
            try:
                for start in range(100, 40_000, 1900):
                    append(file, text(start, 1900))
                everything = text(0, 40_000)
                for reader in (tail, follow):
                    assert reader.stdout is not None
                    assert reader.stdout.read(len(everything)) == everything
            finally:
                tail.kill()
                follow.kill()
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        assert file.read_bytes() == text(0, 40_000)


def test_a_daemon_that_is_killed_again_and_again_copies_everything(
    tmp_path: Path, bucket: Bucket
) -> None:
    with tiered_mount(tmp_path, bucket) as mount:
        file = make_topic(mount)
        done = 0
        for number in range(6):
            append(file, text(done, 12_000))
            done += 12_000
            time.sleep(0.05 * number)
            mount.crash()
            assert file.read_bytes() == text(0, done)
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        assert file.read_bytes() == text(0, done)
        assert remote_of(file)["epoch"] > 3


def test_a_store_that_is_away_stops_nothing_but_the_copies(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    with tiered_mount(tmp_path, bucket.through(faults)) as mount:
        file = make_topic(mount)
        append(file, text(0, 30_000))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        with faults.refusing():
            append(file, text(30_000, 30_000))
            wait_until(lambda: "error" in mount_error(file), "an error is shown")
            assert len(local_logs(mount)) > 1
            tail = Path(f"{file}@offset=-100").read_bytes()
            assert tail == text(59_900, 100)
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        assert file.read_bytes() == text(0, 60_000)
        assert "takes segments again" in mount.log


def test_bodies_that_are_cut_short_are_never_taken_for_whole(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    with tiered_mount(tmp_path, bucket.through(faults)) as mount:
        file = make_topic(mount)
        append(file, text(0, 30_000))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        mount.restart()
        with faults.cutting(300_000):
            for name in (file, Path(f"{file}@earliest..latest"), Path(f"{file}.tsv")):
                result = subprocess.run(["cat", name], check=False, capture_output=True)
                assert result.returncode == 1
                assert b"Input/output error" in result.stderr
                assert text(0, 30_000).startswith(result.stdout)
        assert file.read_bytes() == text(0, 30_000)
        assert Path(f"{file}@earliest..latest").read_bytes() == text(0, 30_000)


def test_a_reader_that_waits_for_the_store_can_be_killed(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    with tiered_mount(tmp_path, bucket.through(faults), timeout_ms=60_000) as mount:
        file = make_topic(mount)
        append(file, text(0, 30_000))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        mount.restart()
        with faults.hanging():
            commands: list[list[str | Path]] = [
                ["cat", file],
                ["cat", f"{file}@offset=15000"],
                ["cat", f"{file}.follow"],
                ["stat", f"{file}@{now_ms() - 86_400_000}"],
                ["cat", f"{mount.point}/.segments/orders-0/{0:020}.log"],
            ]
            readers = [subprocess.Popen(row, stdout=subprocess.DEVNULL) for row in commands]
            for reader in readers:
                wait_until(lambda pid=reader.pid: waits(pid), f"{reader.args!r} waits")  # type: ignore[misc]
            # The kernel does not know these names yet: it locks the directory to open them.
            subprocess.run(["sh", "-c", f"printf 'k\\tv\\n' >> {file}.tsv"], check=True, timeout=20)
            subprocess.run(["ls", "-l", file.parent], check=True, timeout=20)
            append(file, text(30_000, 100))
            assert Path(f"{file}@offset=-100").read_bytes() == text(30_000, 100)
            for reader in readers:
                reader.kill()
            for reader in readers:
                assert reader.wait(timeout=20) == -signal.SIGKILL
        assert file.read_bytes() == text(0, 30_000) + b"v\n" + text(30_000, 100)


def waits(pid: int) -> bool:
    """Whether a process waits in the kernel for an answer of the mount, or for pages of it."""
    place = Path(f"/proc/{pid}/wchan").read_text()
    return "request_wait_answer" in place or "folio_wait" in place


def mount_error(file: Path) -> str:
    """Return "error: …" once a copy has failed."""
    error = remote_of(file)["error"]
    return "" if error is None else f"error: {error}"
