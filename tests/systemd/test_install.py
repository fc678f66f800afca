"""``make install`` and ``make uninstall``, before whose paths a DESTDIR is."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs import __version__
from tests.mounting import ROOT

pytestmark = pytest.mark.slow

LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = re.compile(r'(?:src|srcset|href)="([^"]+)"')
FILES = [
    "etc/fish/completions/logfs.fish",
    "sbin/mount.fuse.logfs",
    "sbin/mount.logfs",
    "usr/lib/systemd/system/logfs-forward@.service",
    "usr/lib/systemd/system/logfs-mirror@.service",
    "usr/lib/systemd/system/logfs-verify@.service",
    "usr/lib/systemd/system/logfs-verify@.timer",
    "usr/lib/systemd/system/logfs@.service",
    "usr/bin/logfs",
    "usr/share/bash-completion/completions/logfs",
    "usr/share/doc/logfs/SECURITY.md",
    "usr/share/doc/logfs/SEMANTICS.md",
    "usr/share/doc/logfs/operators.md",
    "usr/share/doc/logfs/examples/grafana/logfs.json",
    "usr/share/doc/logfs/examples/prometheus/logfs.rules.yml",
    "usr/share/doc/logfs/examples/mnt-logs.automount",
    "usr/share/doc/logfs/examples/mnt-logs.mount",
    "usr/share/doc/logfs/examples/web.toml",
    "usr/share/man/man1/logfs-mount.1",
    "usr/share/man/man1/logfs.1",
    "usr/share/man/man1/logfs-topic-create.1",
    "usr/share/man/man5/logfs.toml.5",
    "usr/share/man/man7/logfs-address.7",
    "usr/share/man/man8/mount.logfs.8",
    "usr/share/zsh/site-functions/_logfs",
]


def make_wheel(directory: Path) -> Path:
    """Put this tree and its native module, which has been built, into a wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = sysconfig.get_config_var("py_version_nodot")
    tag = f"cp{python}-cp{python}-{sysconfig.get_platform().replace('-', '_')}"
    about = f"logfs-{__version__}.dist-info"
    needs = "".join(f"Requires-Dist: {text}\n" for text in project["dependencies"])
    scripts = "".join(f"{name} = {place}\n" for name, place in project["scripts"].items())
    contents = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: logfs\nVersion: {__version__}\n{needs}",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{scripts}",
    }
    files = {name: text.encode() for name, text in contents.items()}
    for path in ROOT.glob("logfs/**/*"):
        if path.suffix in {".py", ".so", ".md", ".typed"}:
            files[str(path.relative_to(ROOT))] = path.read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    wheel = directory / f"logfs-{__version__}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{about}/RECORD", f"{record}{about}/RECORD,,\n")
    return wheel


def below(root: Path) -> set[str]:
    """Return the files and links below a directory, without what is in /opt."""
    found = set[str]()
    for directory, _, names in os.walk(root):
        found |= {str(Path(directory, name).relative_to(root)) for name in names}
    return {name for name in found if not name.startswith("opt/")}


def links_to_nowhere(documents: Path) -> Iterator[str]:
    """Yield the links of installed documents to files that were not installed."""
    pages = sorted(documents.rglob("*.md"))
    assert len(pages) > 15
    for page in pages:
        text = page.read_text()
        for target in LINK.findall(text) + SOURCE.findall(text):
            path = target.partition("#")[0]
            if path and "://" not in path and not (page.parent / path).is_file():
                yield f"{page.relative_to(documents)}: {target}"


def environments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "opt/logfs").iterdir() if path.is_dir())


class Installing:
    """Calls ``.ci/install`` with paths below a directory, and a wheel of this tree.

    Attributes:
        root: The directory.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self._variables = {
            **os.environ,
            "DESTDIR": str(self.root),
            "PREFIX": "/usr",
            "WHEEL": str(make_wheel(directory)),
            # What logfs depends on is here already: no minute goes by with fetching it again.
            "PIP": f"{sys.executable} -m pip",
            "PIP_NO_DEPS": "1",
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "PATH": os.pathsep.join(["/usr/bin", "/bin", os.environ["PATH"]]),
        }

    def call(self, what: str, extras: str = "") -> str:
        done = subprocess.run(
            [str(ROOT / ".ci" / "install"), what], env={**self._variables, "EXTRAS": extras},
            check=False, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done
        return done.stdout


def test_programs_units_and_documents_are_installed(tmp_path: Path) -> None:
    installing = Installing(tmp_path)
    root = installing.root
    installed = installing.call("install")
    assert f"logfs: installed {__version__}-" in installed
    assert set(FILES) <= below(root)
    assert list(links_to_nowhere(root / "usr/share/doc/logfs")) == []
    assert (root / "usr/bin/logfs").readlink() == Path("/opt/logfs/current/bin/logfs")
    (first, current) = environments(root)
    assert (root / "opt/logfs/current").readlink() == Path(first)
    assert current == "current"
    program = (root / "opt/logfs/current/bin/mount.logfs").read_text()
    assert program.startswith(f"#!/opt/logfs/{first}/bin/python")
    # Nothing names the place where it was put together.
    assert not subprocess.run(
        ["grep", "-rlIF", str(root), str(root / "usr"), str(root / "opt/logfs" / first / "bin")],
        check=False, capture_output=True,
    ).stdout  # fmt: skip
    python = root / "opt/logfs/current/bin/python"
    asked = "import logfs, sys; print(logfs.__file__.startswith(sys.argv[1]))"
    version = [str(python), "-I", "-c", asked, f"{root}/opt/logfs/current/"]
    assert subprocess.run(version, check=True, capture_output=True).stdout == b"True\n"
    assert "-m logfs" not in (root / "usr/share/bash-completion/completions/logfs").read_text()


@pytest.mark.long
def test_an_upgrade_and_a_removal_leave_no_file(tmp_path: Path) -> None:
    installing = Installing(tmp_path)
    root = installing.root
    installing.call("install", "export,iceberg")
    (first, _) = environments(root)
    foreign = root / "usr/share/zsh/site-functions/_other"
    foreign.touch()
    gone = root / "usr/share/man/man1/logfs-gone.1"
    gone.touch()
    with (root / "opt/logfs/files").open("a") as file:
        file.write("/usr/share/man/man1/logfs-gone.1\n")
    listed = (root / "opt/logfs/files").read_text().splitlines()
    (root / "opt/logfs/files").write_text("".join(f"{line}\n" for line in sorted(listed)))
    installing.call("install")
    (second, _) = environments(root)
    assert second != first
    assert (root / "opt/logfs/extras").read_text() == "export,iceberg\n"  # it is kept
    assert not gone.exists()

    (root / "etc/logfs/web.toml").touch()
    installing.call("uninstall")
    assert below(root) == {str(foreign.relative_to(root)), "etc/logfs/web.toml"}
    assert not (root / "opt/logfs").exists()
    assert not (root / "usr/share/doc").exists()
    assert not (root / "usr/share/man").exists()


def test_an_unknown_extra_is_refused_before_anything_is_built(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / ".ci" / "install"), "install"],
        env={**os.environ, "DESTDIR": str(tmp_path / "root"), "EXTRAS": "export,nix"},
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, "EXTRAS=export,nix: expected" in done.stderr) == (1, True)
    assert not (tmp_path / "root").exists()
