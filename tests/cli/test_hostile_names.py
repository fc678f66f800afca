"""No command hands control characters in the names of files to the terminal."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Call, fill

EVIL = "evil\x1b[2J\x1b]0;title\x07\nforged line\x9b31m\udcff"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A data directory in which another user has made files with such names."""
    data = tmp_path / "data"
    fill(data, {"orders/0": b"one\n", "orders/1": b"two\n"})
    for directory in (data, data / "orders-0"):
        for name in (f"{EVIL}.log", f"{EVIL}.tmp", EVIL):
            (directory / name).write_bytes(b"x")
        os.mkfifo(directory / f"{EVIL}.fifo")
    (data / f"{EVIL}-0").mkdir()
    (data / f"{EVIL}-1").symlink_to("orders-0")
    return data


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "{0}"),
        ("verify", "{0}", "--quiet"),
        ("status", "{0}"),
        ("status", "{0}", "--all"),
        ("du", "{0}"),
        ("topic", "list", "{0}"),
        ("topic", "describe", "{0}/orders"),
        ("offsets", "{0}/orders"),
        ("reindex", "{0}"),
        ("dump", "{0}"),
        ("dump", "{0}/orders-0"),
        ("dump", "{0}/orders-0/{1}.log"),
        ("dump", "{0}/orders-0/{1}.fifo"),
        ("cat", "{0}/{1}/0"),
        ("tail", "{0}/{1}"),
        ("verify", "{0}/{1}"),
    ],
)
def test_names_are_escaped(logfs: Call, hostile: Path, words: tuple[str, ...]) -> None:
    _, out, errors = logfs(*(word.format(hostile, EVIL) for word in words))
    lines = [*out.decode().split("\n"), *errors]
    assert any(lines)
    assert not [line for line in lines if any(ord(c) < 32 or 127 <= ord(c) < 160 for c in line)]
    assert not [line for line in lines if line.startswith("forged line")]
    if words[0] == "verify":
        assert any("evil\\x1b[2J" in line for line in lines)
