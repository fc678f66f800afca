"""The access log of a mount: its lines, its limit, its file."""

import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logfs.fs.tree.accesslog import MOST_LINES, AccessLog, name_of_node
from tests.fs.world import World
from tests.mounting import COMMAND, Mount, is_mounted
from tests.mounting import logfs as run

ROOT = {1: ".", 2: "web"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access"


@pytest.fixture
def log(path: Path) -> Iterator[AccessLog]:
    log = AccessLog(str(path), lambda: 1_700_000_000_000, ROOT.get)
    yield log
    log.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_more_lines_than_the_limit_are_dropped_and_said(log: AccessLog, path: Path) -> None:
    for _ in range(MOST_LINES + 5):
        log.note_request("mkdir", (1, b"web", None), 0)
    log.close()
    *lines, last = lines_of(path)
    assert len(lines) == MOST_LINES
    assert last["dropped"] == 5


def test_a_file_that_was_moved_away_is_opened_again(log: AccessLog, path: Path) -> None:
    log.note_request("mkdir", (1, b"one", None), 0)
    log.close()
    path.rename(path.with_name("access.1"))
    log.note_request("mkdir", (1, b"two", None), 0)
    log.close()
    assert [line["name"] for line in lines_of(path)] == ["two"]


@pytest.mark.expect_log("the access log cannot be written")
def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "missing" / "access"), lambda: 0, ROOT.get)
    for _ in range(2):
        log.note_request("mkdir", (1, b"web", None), errno.EDQUOT)
        log.close()


def test_names_with_line_feeds_and_other_bytes_stay_in_one_line(log: AccessLog, path: Path) -> None:
    log.note_request("create", (2, b"a\n\xff", 0, 0, None), errno.EPERM)
    log.close()
    [line] = lines_of(path)
    assert line["name"] == "web/a\n\ufffd"
    assert line["result"] == "EPERM"


@pytest.mark.fuse
@pytest.mark.slow
def test_a_mount_writes_a_line_for_each_open_and_change(tmp_path: Path, path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt", f"access_log={path}") as mount:
        topic = mount.point / "web"
        topic.mkdir()
        with (topic / "0").open("ab", buffering=0) as file:
            for _ in range(50):
                file.write(b"x\n")
        (topic / "0@earliest..latest").read_bytes()
        with pytest.raises(PermissionError):
            (topic / "0").unlink()
        with pytest.raises(OSError, match="argument"):
            os.setxattr(topic, "user.logfs.retention.ms", b"soon")
        for _ in range(3):
            os.system(f"exec echo x >> {topic}/0")
        for _ in range(3):
            (topic / "0").read_bytes()
        run("append", mount.data / "web" / "0", data=b"y\n")
        run("topic", "delete", mount.data / "web")
    lines = lines_of(path)
    shown = [(line["operation"], line["name"], line["result"]) for line in lines]
    assert shown == [
        ("mkdir", "web", "ok"),
        ("open", "web/0", "ok"),
        ("open", "web/0@earliest..latest", "ok"),
        ("unlink", "web/0", "EPERM"),
        ("setxattr", "web", "EINVAL"),
        *[("open", "web/0", "ok")] * 6,
        ("lines", "web/0", "ok"),
        ("delete", "web", "ok"),
    ]
    assert [line.get("mode") for line in lines[1:3]] == ["a", "r"]
    assert {line["uid"] for line in lines} == {os.getuid()}
    assert {line["pid"] for line in lines[:5]} == {os.getpid()}
    assert [line["mode"] for line in lines[5:11]] == ["a", "a", "a", "r", "r", "r"]
    assert len({line["pid"] for line in lines[5:9]}) == 4
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["web/0", "web/0.tsv", "web/0.meta", "."])
async def test_names_that_an_earlier_daemon_has_looked_up(world: World, name: str) -> None:
    await world.mkdir("web")
    await world.append("web/0", b"x\n")
    entry = await world.find("" if name == "." else name)
    assert name_of_node(world.operations.inodes.node(entry.st_ino)) == name
    entry = await world.find("web/0@earliest..latest")
    assert name_of_node(world.operations.inodes.node(entry.st_ino)) == "web/0@?"


@pytest.mark.fuse
@pytest.mark.slow
def test_a_file_in_the_mount_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    point = tmp_path / "mnt"
    point.mkdir()
    tmp_path.joinpath("link").symlink_to(point)
    for path in (point / "web" / "0", tmp_path / "link" / "access"):
        arguments = ("mount", tmp_path / "data", point, "-o", f"access_log={path}")
        done = subprocess.run([*COMMAND, *arguments], check=False, capture_output=True, timeout=60)
        assert done.returncode == 1
        assert b"it lies in the mount whose log it is to be" in done.stderr
        assert not is_mounted(point)
