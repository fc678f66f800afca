"""The Debian package: built, and used in a fresh root of this release under its systemd."""

import os
import subprocess
from pathlib import Path

import pytest

from logfs import __version__
from tests.mounting import ROOT

HERE = Path(__file__).parent
CONFIGURATION = 'data = "/var/lib/logfs"\nmountpoint = "/mnt/logs"\noptions = ["allow_other"]\n'


def call(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **variables}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done
    return done.stdout


def make_second(first: Path, second: Path, work: Path) -> None:
    """Make a later version of a package: another environment with the same contents."""
    call("dpkg-deb", "-R", first, work)
    packaged = work / "opt/logfs/.packaged"
    (old,) = packaged.iterdir()
    new = old.rename(packaged / f"{old.name}-second")
    names = [*(new / "bin").iterdir(), new / "pyvenv.cfg", work / "DEBIAN/postinst"]
    for path in names:
        if not path.is_symlink() and b"\0" not in path.read_bytes():
            path.write_text(path.read_text().replace(old.name, new.name))
    control = work / "DEBIAN/control"
    text = control.read_text()
    control.write_text(text.replace(f"Version: {__version__}-", f"Version: {__version__}-9."))
    call("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", work, second)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap needs root")
def test_install_upgrade_and_removal_in_a_fresh_root(tmp_path: Path) -> None:
    call(ROOT / ".ci/system-packages", "deb")
    call(ROOT / ".ci/system-packages", "packages")
    shared, root = tmp_path / "shared", tmp_path / "root"
    shared.mkdir()
    built = call(ROOT / ".ci/deb", EXTRAS="none").splitlines()[-1]
    (shared / "first.deb").write_bytes((ROOT / built).read_bytes())
    make_second(shared / "first.deb", shared / "second.deb", tmp_path / "work")
    (shared / "web.toml").write_text(CONFIGURATION)
    (shared / "scenario").write_bytes((HERE / "scenario.sh").read_bytes())
    release = call("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").strip()
    packages = "python3,fuse3,systemd,man-db"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    call("debootstrap", "--variant=minbase", f"--include={packages}", release, root, PATH=path)
    call("bash", ROOT / "tests/systemd/boot.sh", shared, "none", LOGFS_ROOT=str(root))
    told = (shared / "out").read_text()
    assert told.splitlines() == [
        f"installed: 0 logfs {__version__}",
        "started: active",
        "pages: 4",
        "upgraded: 0",
        "an open file: no error",
        "another main process: active",
        "it runs the second environment",
        "the first environment is gone",
        "read: first second ",
        "removed: 0, mounted: ",
        "left: 1 segment, web.toml",
    ], f"{told}\n{(shared / 'dpkg').read_text()}"
