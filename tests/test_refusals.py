"""The guide to refusals tells the truth: each row of its table, and its advice."""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import ROOT, Mount, logfs, run
from tests.transcripts import table_of

GUIDE = ROOT / "logfs" / "guides" / "refusals.md"
_CODE = re.compile(r"`([^`\n]+)`")


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    directory = tmp_path_factory.mktemp("refusals")
    with Mount(directory / "data", directory / "mnt") as mount:
        yield mount


@pytest.fixture
def point(mounted: Mount) -> Path:
    """The mount point, with a topic orders of one partition in it and nothing else."""
    for topic in mounted.point.iterdir():
        logfs("topic", "delete", topic)
    (mounted.point / "orders").mkdir()
    result = run("bash", "-c", "seq -f 'order %g' 10 >> orders/0", cwd=mounted.point)
    assert result.returncode == 0
    return mounted.point


REFUSALS = table_of(GUIDE.read_text(), "what you do")
COMMANDS = [row for row in REFUSALS if row[0].startswith("`")]

ELSEWHERE = {
    "any change on a read-only mount": "test_a_read_only_mount_refuses_every_change",
    "append to a mirror of a topic of a cluster": "test_a_mirror_takes_no_appends",
    "append when the disk is full": "test_a_full_disk",
    "append to a topic that was deleted meanwhile": "test_a_deleted_topic",
    "append or fsync after the disk failed": "test_a_failed_write_takes_the_partition_offline",
    "read a corrupt record": "test_corrupt_data_stays_and_is_an_error",
    "anything after the daemon of a mount in the foreground has died": (
        "test_an_unfinished_line_outlives_the_daemon"
    ),
}
"""What takes more than a command, and the test in ``tests/semantics`` that does it."""


def code(cell: str) -> str:
    """Return the last piece of code in a cell, "" if there is none."""
    found: list[str] = _CODE.findall(cell)
    return found[-1] if found else ""


@pytest.mark.fuse
@pytest.mark.parametrize(("what", "error", "instead"), COMMANDS, ids=[row[0] for row in COMMANDS])
def test_a_refusal_is_what_the_table_says(point: Path, what: str, error: str, instead: str) -> None:
    command = f"set -o pipefail; {code(what)}"
    refused = run("bash", "-c", command, cwd=point)
    assert refused.returncode != 0
    assert os.strerror(getattr(errno, error)) in refused.stderr.decode()
    if code(instead):
        done = run("bash", "-c", code(instead), cwd=point)
        assert (done.returncode, done.stderr) == (0, b"")


def test_the_other_refusals_are_tested_elsewhere() -> None:
    others = [row for row in REFUSALS if row not in COMMANDS]
    assert [row[0] for row in others] == list(ELSEWHERE)
    sources = "".join(
        path.read_text() for path in (ROOT / "tests" / "semantics").glob("test_promise_*.py")
    )
    for (_, error, _), test in zip(others, ELSEWHERE.values(), strict=True):
        body = sources[sources.index(f"def {test}(") :].split("\ndef ")[0]
        assert f"errno.{error}" in body or os.strerror(getattr(errno, error)) in body
