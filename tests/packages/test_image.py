"""The OCI image: built without a registry, and run with podman, beside another container."""

import os
import subprocess
from pathlib import Path

import pytest

from logfs import __version__
from tests.mounting import ROOT

SCENARIO = Path(__file__).parent / "image.sh"


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root")
def test_a_container_mounts_and_others_append(tmp_path: Path) -> None:
    subprocess.run([ROOT / ".ci/system-packages", "image"], check=True)
    subprocess.run([ROOT / ".ci/image"], check=True)
    assert (ROOT / f"dist/logfs-{__version__}-amd64.oci.tar").stat().st_size > 1 << 20
    for name in ("data", "mnt"):
        (tmp_path / name).mkdir()
    image = f"localhost/logfs:{__version__}"
    alone = ["unshare", "--mount", "--propagation", "private"]
    done = subprocess.run(
        [*alone, "bash", SCENARIO, tmp_path, image], check=False, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        f"version: logfs {__version__}",
        "read: first second ",
        "mounted: ",
        "without a mount: first second ",
        "without SYS_ADMIN: 1, 1",
    ], done.stderr
