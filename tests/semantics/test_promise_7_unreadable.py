"""Promise 7 of SEMANTICS.md on a real file system whose disk cannot read one block."""

from pathlib import Path

import pytest

from tests.faultydisks import faulty_disk
from tests.mounting import COMMAND, Mount, run
from tests.processes import wait_until
from tests.semantics.programs import append, configure, meta

pytestmark = pytest.mark.fuse

OPTIONS = "log.initial.task.delay.ms=100,log.retention.check.interval.ms=200"
LINES = b"line\n" * 1000


def test_a_directory_that_the_disk_cannot_read_ends_nothing_of_the_others(tmp_path: Path) -> None:
    """What the disk cannot read of one topic ends nothing of the others."""
    check(tmp_path, "")


@pytest.mark.long
@pytest.mark.parametrize("what", [f"/{0:020}.log", f"/{0:020}.textindex", "/logfs.config"])
def test_a_file_that_the_disk_cannot_read_ends_nothing_of_the_others(
    tmp_path: Path, what: str
) -> None:
    """What the disk cannot read of one topic ends nothing of the others."""
    check(tmp_path, what)


def check(tmp_path: Path, what: str) -> None:
    """Write two topics, let the disk be unable to read one, and use both."""
    with faulty_disk(tmp_path, "ext4") as disk:
        data = disk.point / "data"
        mount = Mount(data, tmp_path / "mnt", OPTIONS, log_directory=tmp_path)
        try:
            mount.start()
            for topic in ("bad", "good"):
                (mount.point / topic).mkdir()
                configure(mount.point / topic, index_interval_bytes=100, segment_bytes=1048576)
                append(mount.point / topic / "0", LINES)
            mount.stop()
            disk.fail_reads(Path(f"{data}/bad-0{what}"))
            for command in ("verify", "backup", "reindex", "salvage"):
                check_command(command, disk.point, f"bad-0{what}")
            for command in ("status", "du"):
                shown = run(*COMMAND, command, data)
                assert b"good" in shown.stdout, shown
            mount.start()
            configure(mount.point / "good", retention_ms=1)
            wait_until(
                lambda: meta(mount.point / "good/0")["log_start_offset"] == 1000, "retention"
            )
            append(mount.point / "good/0", b"more\n")
            mount.stop()
            disk.stop()
            disk.heal()
            disk.start()
            mount.start()
            assert (mount.point / "bad/0").read_bytes() == LINES
            assert not meta(mount.point / "bad/0")["losses"]
        finally:
            mount.clear()


def check_command(command: str, point: Path, bad: str) -> None:
    """Run a command over the whole directory, which has to name what it cannot read."""
    target = [point / command] if command in {"backup", "salvage"} else []
    done = run(*COMMAND, command, point / "data", *target)
    said = (done.stdout + done.stderr).decode()
    if command in ("reindex", "salvage") and bad.endswith(".textindex"):
        return  # it is rewritten
    assert done.returncode == 1, done
    assert f"{point}/data/{bad}: " in said, said
    assert command != "verify" or "2 partitions" in said, said
