"""This version opens what earlier versions have written, and continues in it."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.compatibility.making import names_of
from tests.mounting import now_ms

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))

OPENED = {"clean": "clean", "killed": "recovered"}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where the directories of a version are."""
    with tarfile.open(request.param) as archive:
        archive.extraction_filter = lambda member, _: member  # it is our own archive
        archive.extractall(tmp_path)
    return tmp_path


def printed(logfs: Call, data: Path) -> dict[str, str]:
    found = {}
    for name in names_of(data):
        outcome = logfs("cat", data / name)
        assert outcome.status == 0, (name, outcome)
        found[name] = outcome.out.decode()
    return without_recovery_time(found)


def without_recovery_time(found: dict[str, str]) -> dict[str, str]:
    """An unfinished line becomes a record at the time of the recovery."""
    last = re.compile(r'"timestamp":[0-9]+(?=,"key":null,"value":"not fini")')
    return {name: last.sub('"timestamp":0', text) for name, text in found.items()}


def expected(written: Path, state: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((written / "expected.json").read_text())[state]
    assert len(found) > 40
    return without_recovery_time(found)


@pytest.mark.allow_log("t")
@pytest.mark.parametrize("state", ["clean", "killed"])
def test_every_name_reads_as_with_the_version_that_wrote_it(
    logfs: Call, written: Path, state: str
) -> None:
    """Before this version writes, and after it has opened the directory as its owner."""
    data = written / state
    assert printed(logfs, data) == expected(written, state)
    assert logfs("topic", "create", data / "new").status == 0
    assert printed(logfs, data) == expected(written, OPENED[state])
    assert logfs("verify", data).status == 0
    assert logfs("status", data).status == 0


@pytest.mark.parametrize("state", ["clean", "killed"])
def test_records_are_appended_after_those_of_an_older_version(
    logfs: Call, written: Path, state: str
) -> None:
    data = written / state
    lines = written / "lines.txt"
    lines.write_bytes(b"a new line\n" * 100)
    before = expected(written, OPENED[state])["lines/0"]
    assert logfs("append", data / "lines/0", lines).status == 0
    text = logfs("cat", data / "lines/0").out.decode()
    assert text == before + "a new line\n" * 100
    assert logfs("compact", data / "compacted", "--roll").status == 0
    assert logfs("trim", "--now", data / "trimmed/0@offset=60").status == 0
    assert logfs("cat", data / "trimmed/0").out.decode().startswith("line 060 ")
    assert logfs("verify", data).status == 0


def test_a_topic_that_an_older_version_deleted_comes_back(logfs: Call, written: Path) -> None:
    data = written / "clean"
    (note,) = data.glob("deleted-0.*-delete/logfs.deleted")
    found = json.loads(note.read_text())
    note.write_text(json.dumps(found | {"deleted_ms": now_ms()}))
    assert logfs("topic", "undelete", data / "deleted").status == 0
    assert logfs("cat", data / "deleted/0").out.count(b"\n") == 8


def test_rebuilt_indexes_show_the_same(logfs: Call, written: Path) -> None:
    data = written / "clean"
    for pattern in ("*/*.index", "*/*.timeindex", "lines-0/*.textindex"):
        for path in data.glob(pattern):
            path.unlink()
    assert logfs("reindex", data).status == 0
    assert printed(logfs, data) == expected(written, "clean")


def test_a_backup_of_an_older_directory_is_restored(logfs: Call, written: Path) -> None:
    data, backup, again = written / "clean", written / "backup", written / "again"
    assert logfs("backup", data, backup).status == 0
    shutil.rmtree(data)
    assert logfs("restore", backup, again).status == 0
    assert printed(logfs, again) == expected(written, "clean")
