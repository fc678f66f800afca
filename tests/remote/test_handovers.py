"""Programs that read tiered segments while the daemon of their mount is replaced."""

import subprocess
from pathlib import Path

import pytest

from tests.mounting import logfs, wait_until
from tests.remote.servers import Bucket, FaultProxy
from tests.remote.test_tiered_mount import SETTINGS, append, text, waits
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def test_readers_of_tiered_segments_continue_with_the_next_daemon(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    data = tmp_path / "data"
    data.mkdir()
    more = "remote.log.manager.task.interval.ms=100\nread.timeout.ms=60000\ncache.bytes=0\n"
    (data / "logfs.remote").write_text(bucket.through(faults).properties + more)
    with HeldMount(tmp_path, data=data) as mount:
        options = [f"--config={key}={value}" for key, value in SETTINGS.items()]
        logfs("topic", "create", str(mount.point / "orders"), *options)
        file, whole = mount.point / "orders" / "0", text(0, 40_000)
        append(file, whole)
        wait_until(lambda: len(list((data / "orders-0").glob("*.log"))) == 1, "the segments went")
        names = [file, Path(f"{file}@earliest..latest"), Path(f"{file}@offset=15000")]
        begun = [subprocess.Popen(["cat", name], stdout=subprocess.PIPE) for name in names]
        firsts = [reader.stdout.read(500_000) for reader in begun if reader.stdout]
        with faults.hanging():
            # These are looked up, and wait for the store, in a daemon that is gone then.
            late = [f"{file}@offset=35001", f"{file}@offset=36001..offset=36101"]
            waiting = [subprocess.Popen(["cat", name], stdout=subprocess.PIPE) for name in late]
            for reader in waiting:
                wait_until(lambda pid=reader.pid: waits(pid), "it waits")  # type: ignore[misc]
            mount.end_daemon()
        found = [first + rest(reader) for first, reader in zip(firsts, begun, strict=True)]
        assert found == [whole, whole, text(15_000, 25_000)]
        assert [rest(reader) for reader in waiting] == [text(35_001, 4999), text(36_001, 100)]


def rest(reader: subprocess.Popen[bytes]) -> bytes:
    """Return what a program prints until it ends without an error."""
    with reader:
        assert reader.stdout is not None
        found = reader.stdout.read()
    assert reader.returncode == 0
    return found
