"""What a short command loads: a module that it does not need delays every call of it."""

import subprocess
import sys
from pathlib import Path

import pytest

import logfs
from tests.cli.conftest import command, environment

SLOW = {
    *("asyncio", "concurrent.futures", "difflib", "hashlib", "pathlib", "shutil", "socket"),
    *("importlib.metadata", "logfs.client", "logfs.log.partition", "logfs.services.meta"),
    *("logfs.log.remote.bucket", "logfs.log.remote.catalog", "logfs.disk.remote.treedisk"),
    "obstore",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with logfs.open_store(tmp_path) as store:
        store.create_topic("orders")
        store.partition("orders", 0).append(b"first order")
    return tmp_path


def loaded(*arguments: str | Path) -> set[str]:
    """Return the modules that a command has loaded."""
    code = (
        "import sys; from logfs.__main__ import main; main(); print(*sys.modules, file=sys.stderr)"
    )
    python = [sys.executable, "-c", code, *command(*arguments)[3:]]
    done = subprocess.run(python, env=environment(), capture_output=True, check=True)
    return set(done.stderr.decode().split())


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["cat"], {"logfs.log.partition"}),
        (["cat", "--grep", "first"], set[str]()),
        (["tail"], set[str]()),
        (["offsets", "--time", "latest"], {"logfs.log.partition", "shutil"}),
    ],
    ids=["cat", "cat --grep", "tail", "offsets"],
)
def test_a_command_that_reads_loads_nothing_of_what_it_does_not_need(
    data: Path, arguments: list[str], needed: set[str]
) -> None:
    modules = loaded(arguments[0], data / "orders" / "0", *arguments[1:])
    assert "logfs.records._reading" in modules
    assert modules & SLOW <= needed


def test_help_loads_no_layer_below_the_command_line() -> None:
    modules = loaded("--help")
    assert "click" in modules
    assert modules & SLOW <= {"shutil"}  # click asks it for the width of the terminal
    assert not {name for name in modules if name.startswith(("logfs.log", "logfs.library"))}
