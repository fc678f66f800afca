"""The units, as systemd reads them. No systemd has to run for this."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from logfs.cli.commands.mount import make_mount_request
from logfs.cli.mount_file import read_mount_file
from tests.mounting import ROOT

UNITS = ROOT / "systemd"
OF_SYSTEMD = Path("/usr/lib/systemd/system")
NAMES = [
    "logfs@web.service",
    "logfs-mirror@web.service",
    "logfs-forward@web.service",
    "logfs-verify@web.service",
    "logfs-verify@web.timer",
    "mnt-logs.mount",
    "mnt-logs.automount",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory with the units, those of systemd, and the programs they start."""
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    found = [path for path in UNITS.rglob("*") if path.suffix in {".service", ".timer"}]
    found += (UNITS / "examples").glob("mnt-logs.*")
    for path in found:
        shutil.copy(path, units)
    shutil.copytree(OF_SYSTEMD, tmp_path / "usr/lib/systemd/system", symlinks=True)
    (tmp_path / "lib").symlink_to("usr/lib")
    for program in ("opt/logfs/current/bin/logfs", "bin/sh"):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", tmp_path / program)
    return tmp_path


def verify(root: Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "verify", f"--root={root}", "--man=no", *NAMES]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_systemd_has_nothing_to_say(root: Path) -> None:
    result = verify(root)
    assert (result.returncode, result.stderr) == (0, "")


def test_systemd_would_say_it(root: Path) -> None:
    path = root / "etc/systemd/system/logfs@.service"
    path.write_text(path.read_text().replace("WatchdogSec=60", "WatchdogSecs=60"))
    (root / "opt/logfs/current/bin/logfs").unlink()
    result = verify(root)
    assert result.returncode
    assert "WatchdogSecs" in result.stderr
    assert "/opt/logfs/current/bin/logfs is not executable" in result.stderr


@pytest.mark.parametrize(
    ("name", "worst"),
    [
        ("logfs@.service", 5.0),  # of 10; a service that is seen mounting cannot get below 4
        ("logfs-mirror@.service", 4.0),
        ("logfs-forward@.service", 4.0),
        ("logfs-verify@.service", 2.0),
    ],
)
def test_what_a_service_may_do_is_limited(name: str, worst: float) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNITS / name)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", result.stdout)
    assert found is not None, result.stdout
    assert float(found[1]) <= worst


OWN_NAMESPACE = re.compile(
    r"^(?:Private(?!Users=no)\w+|Protect\w+|(?:ReadWrite|ReadOnly|Inaccessible|Exec|NoExec)Paths|"
    r"Root(?:Directory|Image)|DynamicUser|Bind\w*Paths|TemporaryFileSystem|Mount\w+|ProcSubset)=",
    re.MULTILINE,
)


def test_the_mount_is_made_in_the_namespace_of_the_host() -> None:
    assert not OWN_NAMESPACE.findall((UNITS / "logfs@.service").read_text())
    assert OWN_NAMESPACE.findall((UNITS / "logfs-verify@.service").read_text())


@pytest.mark.parametrize("name", ["systemd/examples/web.toml", "examples/compose/compose.toml"])
def test_the_examples_of_a_configuration_are_read(name: str) -> None:
    path = str(ROOT / name)
    found = read_mount_file(path)
    request = make_mount_request(None, None, (), config_file=path)
    assert (request.data, request.point) == (found.data, found.mountpoint)
    assert request.options.allow_other
