"""Errors do not print passwords, terminals get no sequences, and new files keep others out."""

import contextlib
import os
import pty
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call, command, environment, fill, run


@pytest.mark.parametrize(
    "line",
    [
        "mirror {data} orders --from kafka://user:hunter2@broker:9092",
        "mirror {data} orders --from kafka:/user:hunter2@broker:9092",
        "mirror {data} orders --from user:hunter2@broker:9092",
        "mirror {data} orders --from kafka://b1:9092,user:hunter2@b2:9092",
        "forward {data}/orders --to kafka://user:hunter2@broker:9092/orders",
        "remote init {data} s3://user:hunter2@bucket/prefix",
        "remote init {data} s3:/user:hunter2@bucket/prefix",
        "cat s3://user:hunter2@bucket/prefix/orders/0",
        "cat s4://user:hunter2@bucket/prefix/orders/0",
        "status gs:/user:hunter2@bucket",
    ],
)
def test_a_password_in_an_address_is_not_printed(tmp_path: Path, logfs: Call, line: str) -> None:
    data = tmp_path / "data"
    fill(data, {"orders/0": b"one\n"})
    outcome = logfs(*line.format(data=data).split())
    assert outcome.status
    assert outcome.errors
    assert "hunter2" not in "\n".join(outcome.errors)


def test_a_dump_shows_the_terminal_sequences_of_records_and_does_not_send_them(
    tmp_path: Path,
) -> None:
    fill(tmp_path / "data", {"orders/0": b"\x1b]0;title\x07\tplain \xc3\xa4 \xc2\x9b31m\n"})
    log = tmp_path / "data" / "orders-0" / f"{0:020}.log"
    dump = command("dump", "--print-data-log", log)
    assert b"\x1b]0;title\x07" in run("dump", "--print-data-log", log).out
    ours, terminal = pty.openpty()
    with subprocess.Popen(dump, stdout=terminal, env=environment()) as process:
        os.close(terminal)
        shown = bytearray()
        with contextlib.suppress(OSError):  # EIO: the process has ended
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert process.returncode == 0
    assert rb"\x1b]0;title\x07" in shown
    assert "plain ä \\x9b31m".encode() in shown
    assert b"\x1b]" not in shown


def test_files_and_directories_are_not_writable_by_all_users_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fill(tmp_path / "data", {"orders/0": b"one\n", "orders/1": b"two\n"})
    finally:
        os.umask(before)
    found = [path for path in (tmp_path / "data").rglob("*") if not path.is_socket()]
    assert len(found) > 5
    assert [path for path in found if path.stat().st_mode & stat.S_IWOTH] == []
