"""The file after --config-file."""

from pathlib import Path

import pytest

from logfs.cli.mount_file import MountFile, read_mount_file
from logfs.errors import InvalidConfigError


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "x.toml"
    path.write_text(text)
    return str(path)


def test_a_file_with_every_key(tmp_path: Path) -> None:
    text = """
data = "/var/lib/logfs"
mountpoint = "/mnt/logs"
options = ["allow_other", "umask=027,ro"]
[kafka]
num.partitions = 3
"log.retention.hours" = 24
log.cleaner.enable = false
log.cleaner.io.buffer.load.factor = 0.8
log.cleanup.policy = ["compact", "delete"]
"""
    assert read_mount_file(write(tmp_path, text)) == MountFile(
        "/var/lib/logfs",
        "/mnt/logs",
        ("allow_other", "umask=027,ro"),
        {
            "num.partitions": "3",
            "log.retention.hours": "24",
            "log.cleaner.enable": "false",
            "log.cleaner.io.buffer.load.factor": "0.8",
            "log.cleanup.policy": "compact,delete",
        },
    )


def test_options_may_be_one_text_and_every_key_may_be_missing(tmp_path: Path) -> None:
    assert read_mount_file(write(tmp_path, 'options = "ro,create"')).options == ("ro,create",)
    assert read_mount_file(write(tmp_path, "")) == MountFile()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("data = ", "not TOML: "),
        ("data = 'var'", "data = 'var': expected a path from the root"),
        ("mountpoint = 1", "mountpoint = 1: expected a path from the root"),
        ("mount_point = '/mnt'", "did you mean mountpoint?"),
        ("num.partitions = 3", r"settings of a broker stand below \[kafka\]"),
        ("options = 1", "options = 1: expected a text or a list of texts"),
        ("options = [1]", "expected a text or a list of texts"),
        ("kafka = 3", r"kafka: expected a table: \[kafka\]"),
        ("[kafka]\nnum.partitions = 2026-11-21", "kafka|num.partitions = .*expected a text"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, reason: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InvalidConfigError, match=reason) as caught:
        read_mount_file(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_data_may_be_in_an_object_store(tmp_path: Path) -> None:
    found = read_mount_file(write(tmp_path, 'data = "s3://logs/web"\nmountpoint = "/mnt/logs"'))
    assert found.data == "s3://logs/web"
    with pytest.raises(InvalidConfigError, match=r"mountpoint = 's3://logs/web'"):
        read_mount_file(write(tmp_path, 'mountpoint = "s3://logs/web"'))
    with pytest.raises(InvalidConfigError, match=r"s4://logs: it is no address"):
        read_mount_file(write(tmp_path, 'data = "s4://logs"'))
