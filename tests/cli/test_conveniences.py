"""What other tools take as well: spellings, units, several topics at once."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

import logfs as library
from logfs.log.reading.address import Ago, parse_partition_name, parse_point
from logfs.machine.host import LOCAL_ZONE
from tests.cli.conftest import Call, Mounted, command, environment, fill, run

HOUR_MS = 3_600_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", {"orders/0": b"a\nb\nc\n", "orders/1": b""})
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("word", "meant"), [("moutn", "mount"), ("unmount", "umount"), ("fsck", "verify")]
)
def test_a_command_of_another_name(logfs: Call, word: str, meant: str) -> None:
    status, _, errors = logfs(word, "x")
    assert (status, f"did you mean {meant}?" in errors[0]) == (2, True)
    assert "did you mean" not in logfs("nothing-like-it").errors[0]


def test_a_moment_may_have_its_at_sign(logfs: Call, data: Path) -> None:
    partition = data / "orders" / "0"
    for at in ("", "@"):
        assert logfs("tail", "--from", f"{at}offset=1", partition).out == b"b\nc\n"
        out = logfs("offsets", partition, "--json", "--time", f"{at}-1h").out
        assert json.loads(out)[0]["offset"] == 0
        assert logfs("status", "--since", f"{at}-1d", data).status == 0
        with library.open(partition) as log:
            assert log.offset_at(f"{at}offset=2") == 2


def test_moments_as_journalctl_takes_them() -> None:
    assert parse_point("-1h30m", LOCAL_ZONE) == Ago(HOUR_MS * 3 // 2)
    assert parse_point("2026-11-22 09:00", LOCAL_ZONE) == parse_point(
        "2026-11-22T09:00", LOCAL_ZONE
    )
    found = parse_partition_name("0@-1d12h..-1h30m5s.jsonl", LOCAL_ZONE)
    assert (found.start, found.end) == (Ago(36 * HOUR_MS), Ago(HOUR_MS * 3 // 2 + 5000))
    for text in ("-30m1h", "-1h1h", "-1h30", "-1h30x"):
        with pytest.raises(library.LogfsError):
            parse_point(text, LOCAL_ZONE)


@pytest.mark.parametrize(
    ("selector", "note"),
    [
        ("offset=2..offset=2", "TO is not after FROM"),
        ("2026-11-20..2026-11-20", "TO is not after FROM"),
        ("-1h..-2h", "TO is not after FROM"),
        ("latest..earliest", "TO is not after FROM"),
        ("offset=4", "FROM is after the log end offset 3"),
        ("2999-01-01", "FROM is in the future"),
    ],
)
def test_a_range_that_cannot_contain_a_record_is_named(
    logfs: Call, data: Path, selector: str, note: str
) -> None:
    path = f"{data}/orders/0@{selector}"
    status, out, errors = logfs("cat", path)
    assert (status, out, len(errors)) == (0, b"", 1)
    assert errors[0].startswith(f"logfs: {path}: no records: {note}")
    if ".." not in selector:
        status, out, errors = logfs("tail", "--from", selector, data / "orders/0")
        assert (status, out) == (0, b"")
        assert errors[0].startswith(f"logfs: orders/0: no records: {note}")


@pytest.mark.parametrize("selector", ["offset=3", "latest", "now", "-0s", "offset=-1..latest"])
def test_a_range_that_is_empty_now_is_not_named(logfs: Call, data: Path, selector: str) -> None:
    assert logfs("cat", f"{data}/orders/0@{selector}").errors == []


@pytest.mark.fuse
def test_a_range_that_cannot_contain_a_record_is_named_through_a_mount(mounted: Mounted) -> None:
    assert run("topic", "create", mounted.point / "orders").status == 0
    path = f"{mounted.point}/orders/0@offset=5"
    assert run("cat", path) == (
        0, b"", [f"logfs: {path}: no records: FROM is after the log end offset 0"]
    )  # fmt: skip


def test_since_says_what_it_takes(logfs: Call, data: Path) -> None:
    for text in ("bla", "offset=5"):
        status, _, errors = logfs("status", "--since", text, data)
        assert (status, "offset=N" in errors[0]) == (2, False)
        assert f"--since '{text}': expected a time" in errors[0]


def test_a_count_as_tail_takes_it(logfs: Call, data: Path) -> None:
    partition = data / "orders" / "0"
    assert logfs("tail", "-2", partition).out == b"b\nc\n"
    assert logfs("tail", partition, "-1").out == b"c\n"
    assert logfs("tail", "-n", "-1", partition).status == 2


def test_settings_with_units(logfs: Call, data: Path) -> None:
    units = ["--config", "retention.ms=7d", "--config", "retention.bytes=1GiB"]
    assert logfs("topic", "alter", data / "orders", *units).status == 0
    found = json.loads(logfs("topic", "describe", "--json", data / "orders").out)
    assert found["config"] == {"retention.bytes": str(1 << 30), "retention.ms": "604800000"}
    assert logfs("topic", "alter", data / "orders", "--config", "retention.ms=7x").status != 0


def test_several_topics(logfs: Call, data: Path) -> None:
    assert logfs("topic", "create", data / "a", data / "b", "--partitions", "2").status == 0
    again = logfs("topic", "create", data / "a", data / "c")
    assert (again.status, len(again.errors)) == (1, 1)
    assert logfs("topic", "create", "--if-not-exists", data / "a", data / "d") == (0, b"", [])
    assert logfs("topic", "list", data).out.split() == [b"a", b"b", b"c", b"d", b"orders"]
    assert logfs("topic", "delete", data / "nix", data / "b").status == 1
    assert logfs("topic", "delete", "--if-exists", data / "nix", data / "a") == (0, b"", [])
    assert logfs("topic", "list", data).out.split() == [b"c", b"d", b"orders"]


def test_what_was_appended_is_told_although_a_line_is_refused(logfs: Call, data: Path) -> None:
    lines = data.parent / "lines"
    lines.write_bytes(b'{"value":"x"}\n{"value":"y"}\nno JSON\n')
    status, out, errors = logfs("append", "--json", data / "orders" / "0.jsonl", lines)
    assert (status, "line 3" in errors[0]) == (1, True)
    assert json.loads(out)["records"] == 2


def test_the_status_of_a_partition_is_that_of_the_partition(logfs: Call, data: Path) -> None:
    out = logfs("status", data / "orders" / "0").out.decode()
    assert "PARTITION  START" in out
    assert "orders/0" in out


def test_nothing_is_drawn_over_lines_that_are_typed(data: Path) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        command("append", data / "orders" / "0"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**environment(), "TERM": "xterm"},
        start_new_session=True,
    ) as process:
        os.close(follower)
        os.write(leader, b"typed\n\x04")
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # the terminal is closed
                break
            if not part:
                break
            shown += part
        assert process.wait(30) == 0
    os.close(leader)
    assert b"\x1b" not in shown
    assert b"1 record appended" in shown
