"""``logfs salvage``: a damaged directory is copied, and its user is told what is missing."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call, fill
from tests.mounting import Mount

LINES = [b"line %d\n" % number for number in range(6)]


@pytest.fixture
def data(logfs: Call, tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    assert logfs("topic", "create", data / "orders").status == 0
    for line in LINES:
        fill(data, {"orders/0": line, "users/0": b"a user\n"})
    return data


def damage(data: Path) -> Path:
    """Damage the batch of the third line; returns its file."""
    (path,) = (data / "orders-0").glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"line 2", b"l1ne 2"))
    return path


def test_what_is_sound_is_copied_and_the_rest_is_named(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    path, saved = damage(data), tmp_path / "saved"
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    status, out, errors = logfs("salvage", data, saved)
    gone, summary = out.decode().splitlines()
    assert (status, errors) == (1, [])
    assert gone.startswith(f"gone: {path}: byte ")
    assert "checksum differs" in gone
    assert "; offset 2 is missing, written after 20" in gone
    kept = Path(gone.rpartition(" ")[2])
    assert kept.parent == saved / "orders-0"
    assert b"payload: l1ne 2" in logfs("dump", "--print-data-log", kept).out
    assert summary.startswith("2 partitions, 11 records, ")
    assert summary.endswith(" copied; 1 offset missing")
    assert {file: file.read_bytes() for file in before} == before
    assert logfs("cat", saved / "orders" / "0").out == b"".join([*LINES[:2], *LINES[3:]])
    assert logfs("cat", saved / "orders" / "0@offset=3").out == b"".join(LINES[3:])
    assert logfs("cat", saved / "users" / "0").out == b"a user\n" * 6


@pytest.mark.fuse
def test_the_copy_is_mounted_and_written_and_is_sound(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    damage(data)
    saved = tmp_path / "saved"
    assert logfs("salvage", data, saved).status == 1
    with Mount(saved, tmp_path / "mnt") as mount:
        name = mount.point / "orders" / "0"
        assert name.read_bytes() == b"".join([*LINES[:2], *LINES[3:]])
        with name.open("ab") as file:
            file.write(b"more\n")
        assert (mount.point / "orders" / "0@offset=6").read_bytes() == b"more\n"
    status, out, _ = logfs("verify", saved)
    assert (status, out.splitlines()[-1].endswith(b"no damage")) == (0, True)
    assert b"1 loss, the last at " in logfs("status", saved).out


def test_json_has_everything_that_is_printed(logfs: Call, data: Path, tmp_path: Path) -> None:
    damage(data)
    status, out, _ = logfs("salvage", data, tmp_path / "saved", "--topic", "orders", "--json")
    (one,) = json.loads(out)["partitions"]
    (gone,) = one["gone"]
    assert (status, one["topic"], one["records"], one["end_offset"]) == (1, "orders", 5, 6)
    assert (gone["first_offset"], gone["next_offset"]) == (2, 3)


def test_a_sound_directory_is_copied_whole(logfs: Call, data: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    status, out, errors = logfs("salvage", data, saved)
    assert (status, errors) == (0, [])
    assert out.endswith(b"copied; nothing is missing\n")


def test_a_link_is_not_followed_but_named(logfs: Call, data: Path, tmp_path: Path) -> None:
    (data / "orders-0" / "00000000000000000100.log").symlink_to("/etc/passwd")
    status, out, _ = logfs("salvage", data, tmp_path / "saved")
    note, _ = out.decode().splitlines()
    assert status == 1
    assert note.startswith(f"note: {data}/orders-0/00000000000000000100.log is left out: it is a ")


def test_a_preview_writes_nothing(logfs: Call, data: Path, tmp_path: Path) -> None:
    damage(data)
    status, out, _ = logfs("salvage", "--dry-run", data, tmp_path / "saved")
    assert (status, out.count(b"gone: ")) == (1, 1)
    assert b"would be copied" in out
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("source", "target", "options", "problem"),
    [
        ("data/orders-0", "new", (), "orders-0: it has no partition: expected a data directory"),
        ("data", "new", ("--topic", "orderz"), "data: no topic orderz"),
        ("data", "full", (), "full: the directory is not empty (it holds file)"),
        ("data", "data/new", (), "lie in each other: expected a directory outside"),
        ("none", "new", (), "none: No such file or directory"),
    ],
)
def test_what_cannot_be_salvaged_or_written_is_refused(
    logfs: Call, data: Path, source: str, target: str, options: tuple[str, ...], problem: str
) -> None:
    full = data.with_name("full")
    full.mkdir()
    (full / "file").touch()
    status, _, (error,) = logfs("salvage", data.parent / source, data.parent / target, *options)
    assert status == 1
    assert problem in error
    assert not data.with_name("new").exists()


@pytest.mark.fuse
def test_a_directory_in_use_is_refused(logfs: Call, data: Path, tmp_path: Path) -> None:
    with Mount(data, tmp_path / "mnt"):
        (error,) = logfs("salvage", data, tmp_path / "saved").errors
    assert "a process uses it: stop that first, or copy it with 'logfs backup'" in error
