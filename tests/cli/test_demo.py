"""The demo: it checks itself, so it only has to be run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, environment


@pytest.mark.fuse
@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    # Where logfs is not installed in .venv, this is in for it.
    program = tmp_path / "bin" / "logfs"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m logfs "$@"\n')
    program.chmod(0o755)
    environ = {
        **environment(),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", ROOT / "examples" / "demo.sh"],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("checks passed\n")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
