"""A bucket that systemd mounts: as a service, and by a line of /etc/fstab."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote.servers import Bucket
from tests.remote.stored import make_stored

HERE = Path(__file__).parent


@pytest.mark.fuse
@pytest.mark.slow
@pytest.mark.programs
def test_a_bucket_is_mounted_with_credentials_from_a_file(tmp_path: Path, bucket: Bucket) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    stored, store = make_stored(tmp_path / "stored"), bucket.open()
    for path in sorted(stored.bucket.rglob("*")):
        if path.is_file():
            store.put(str(path.relative_to(stored.bucket)), [path.read_bytes()])
    lines = [f"{name}={value}\n" for name, value in bucket.environment.items()]
    (shared / "store.env").write_text("".join(lines))
    (shared / "archive.toml").write_text(
        f'data = "{bucket.url}"\nmountpoint = "/mnt/logs"\noptions = ["ro", "allow_other"]\n'
    )
    (shared / "fstab").write_text(f"{bucket.url} /mnt/logs logfs ro,allow_other,nofail,_netdev\n")
    (shared / "scenario").write_bytes((HERE / "bucket.sh").read_bytes())
    as_root = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
    logfs = f"{shlex.quote(sys.executable)} -m logfs"
    command = [*as_root, "bash", str(HERE / "boot.sh"), str(shared), logfs, "host"]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result
    daemon = (shared / "daemon").read_text()
    mounted = f"{bucket.url} fuse.logfs"
    told = (shared / "out").read_text()
    assert told.splitlines() == [
        "a service without credentials: 1, nothing",
        f"a service: 0, {mounted}, 3000 lines",
        "reloaded: 0, 3000 lines",
        "stopped: nothing",
        "fstab without credentials: 1, nothing",
        f"fstab: 0, {mounted}, 3000 lines",
        "stopped: nothing",
        "done",
    ], f"{told}\n{(shared / 'err').read_text()}\n{daemon}"
    assert "no credentials were found" in daemon
