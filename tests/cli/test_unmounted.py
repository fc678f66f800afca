"""Commands with a path below a mount point where nothing is mounted, and in an empty directory."""

from pathlib import Path

import pytest

from logfs.machine import mountpoints
from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("fstab", "/var/lib/logfs {point} logfs defaults 0 0\n"),
        ("fstab", "# logs\nlogs#x {point} fuse.logfs noauto,user 0 0\n"),
        ("web.toml", 'data = "/var/lib/logfs"\nmountpoint = "{point}"\n'),
    ],
)
def test_a_mount_point_does_not_become_a_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logfs: Call, file: str, text: str
) -> None:
    point = tmp_path / "mnt"
    point.mkdir()
    (tmp_path / file).write_text(text.format(point=point))
    monkeypatch.setattr(mountpoints, "_FSTAB", str(tmp_path / "fstab"))
    monkeypatch.setattr(mountpoints, "_TOML", str(tmp_path / "*.toml"))
    for command in ("topic create {}/orders", "append --create {}/orders/0 /dev/null"):
        outcome = logfs(*command.format(point).split())
        assert outcome.status == 1
        assert f"{file} names it as a mount point of logfs: mount it first" in outcome.errors[0]
    assert list(point.iterdir()) == []


def test_a_refused_topic_leaves_an_empty_directory_empty(tmp_path: Path, logfs: Call) -> None:
    (tmp_path / "data").mkdir()
    for setting in ("remote.storage.enable=true", "retention.ms=soon"):
        outcome = logfs("topic", "create", tmp_path / "data" / "orders", "--config", setting)
        assert outcome.status
        assert not list((tmp_path / "data").iterdir())
    assert logfs("topic", "create", tmp_path / "data" / "orders").status == 0
