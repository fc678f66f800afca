"""Dates without a time zone: the same moment to every command, the mount and the library."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import logfs
from tests.cli.conftest import Call, Mounted, command, environment, take_away
from tests.processes import wait_until

ROME = "CET-1CEST,M3.5.0,M10.5.0/3"
NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"
HOURS = 24


def run_in(zone: str, *arguments: str | Path) -> str:
    """Call ``logfs`` in a time zone; returns what it prints."""
    done = subprocess.run(
        command(*arguments),
        check=False,
        capture_output=True,
        text=True,
        env={**environment(), "TZ": zone},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def make(data: Path) -> None:
    """Make a topic with a record for every hour of a day in winter and of one in summer."""
    data.mkdir()
    run_in("UTC0", "topic", "create", data / "orders", "--config", "retention.ms=-1")
    lines = []
    for day in (datetime(2026, 1, 20, tzinfo=UTC), datetime(2026, 7, 20, tzinfo=UTC)):
        for hour in range(HOURS):
            moment = day + timedelta(hours=hour)
            lines.append(
                json.dumps(
                    {"timestamp": int(moment.timestamp() * 1000), "value": f"{moment:%m-%d %H} UTC"}
                )
            )
    (data.parent / "lines").write_text("\n".join(lines) + "\n")
    run_in("UTC0", "append", data / "orders" / "0.jsonl", data.parent / "lines")


@pytest.fixture
def in_rome(tmp_path: Path) -> Iterator[Mounted]:
    """Serve the topic by a daemon whose time zone is Rome's."""
    found = Mounted(tmp_path / "data", tmp_path / "mnt")
    make(found.data)
    found.point.mkdir()
    log = tmp_path / "mount.log"
    run_in(ROME, "mount", found.data, found.point, "--background", "--log-file", log)
    yield found
    take_away(found)


LIBRARY = """
import sys
from datetime import datetime
import logfs
with logfs.open(sys.argv[1]) as log:
    text = next(log.read(sys.argv[2])).value
    assert text == next(log.read(datetime.fromisoformat(sys.argv[2]))).value
    print(text.decode())
"""


def first_of_each(root: Path, date: str, zone: str) -> dict[str, str]:
    """Return the first record at a date without a zone, as each way of reading has it."""
    partition = root / "orders" / "0"
    found = {
        "cat": run_in(zone, "cat", f"{partition}@{date}").splitlines()[0],
        "cat of another level": run_in(
            zone, "cat", "--isolation-level", "read_committed", f"{partition}@{date}"
        ).splitlines()[0],
        "tail": run_in(zone, "tail", "--from", date, partition).splitlines()[0],
    }
    row = json.loads(run_in(zone, "offsets", "--json", "--time", date, partition))[0]
    found["offsets"] = run_in(
        zone, "cat", f"{partition}@offset={row['offset']}..offset={row['offset'] + 1}"
    ).strip()
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY, partition, date],
        check=False,
        capture_output=True,
        text=True,
        env={**environment(), "TZ": zone},
        timeout=60,
    )
    assert done.stderr == ""
    return found | {"library": done.stdout.strip()}


@pytest.mark.parametrize(
    ("date", "expected"),
    [("2026-01-20T12:00", "01-20 11 UTC"), ("2026-07-20T12:00", "07-20 10 UTC")],
)
@pytest.mark.fuse
def test_a_date_is_in_the_zone_of_the_daemon(in_rome: Mounted, date: str, expected: str) -> None:
    for root in (in_rome.point, in_rome.data):
        found = first_of_each(root, date, NEW_YORK)
        assert set(found.values()) == {expected}, (root, found)
    name = in_rome.point / "orders" / f"0@{date}"
    assert name.read_text().splitlines()[0] == expected


@pytest.mark.fuse
def test_trim_keeps_what_its_preview_shows(in_rome: Mounted) -> None:
    date = "2026-01-20T12:00"
    preview = run_in("UTC0", "tail", "--from", date, in_rome.data / "orders" / "0")
    run_in("UTC0", "trim", in_rome.data / "orders" / f"0@{date}")
    assert run_in("UTC0", "cat", in_rome.data / "orders" / "0") == preview
    assert preview.startswith("01-20 11 UTC\n")


def test_without_a_daemon_a_date_is_in_the_zone_of_the_caller(tmp_path: Path) -> None:
    data = tmp_path / "data"
    make(data)
    found = first_of_each(data, "2026-07-20T12:00", NEW_YORK)
    assert set(found.values()) == {"07-20 16 UTC"}, found
    run_in(NEW_YORK, "trim", data / "orders" / "0@2026-07-20T12:00")
    assert run_in("UTC0", "cat", data / "orders" / "0").startswith("07-20 16 UTC\n")


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["status", "-p"], ["topic", "describe"], ["offsets"]],
    ids=lambda words: " ".join(words),
)
@pytest.mark.fuse
def test_printed_times_have_their_offset(in_rome: Mounted, arguments: list[str]) -> None:
    path = in_rome.point / "orders"
    out = run_in(NEW_YORK, *arguments, path)
    assert "2026-07-20T19:00:00" in out
    assert all(word.endswith(("-04:00", "-05:00")) for word in out.split() if word[4:8] == "-07-")


@pytest.mark.fuse
def test_a_zone_that_cannot_be_learned_is_refused(logfs: Call, in_rome: Mounted) -> None:
    """A daemon that answers no such question, as one of an earlier version, is not guessed at."""
    refusing = """
import sys
from logfs.fs.service import query_commands
from logfs.fs.tree import xattrs
def refuse(*_): raise ValueError("no such question")
query_commands.utc_offset_s = xattrs.utc_offset_s = refuse
from logfs.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    take_away(in_rome)
    arguments = ("mount", str(in_rome.data), str(in_rome.point))
    command = [sys.executable, "-c", refusing, *arguments]
    with subprocess.Popen(command, env={**environment(), "TZ": ROME}):
        wait_until((in_rome.point / "orders").exists, "it is mounted")
        for root in (in_rome.point, in_rome.data):
            status, out, errors = logfs("tail", "--from", "2026-07-20T12:00", root / "orders")
            assert (status, out, len(errors)) == (1, b"", 1)
            assert "write the zone, as in 2026-07-20T12:00:00Z" in errors[0]
        assert logfs("tail", "--from", "2026-07-20T12:00Z", in_rome.data / "orders").status == 0
        take_away(in_rome)


@pytest.mark.fuse
def test_a_naive_datetime_of_an_appended_record_is_in_the_zone_of_the_daemon(
    in_rome: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", NEW_YORK)
    time.tzset()
    try:
        with logfs.open(in_rome.data / "orders" / "0") as log:
            offset = log.append(b"x", timestamp=datetime(2026, 7, 20, 12))
            assert (
                log.timestamp_of(offset) == datetime(2026, 7, 20, 10, tzinfo=UTC).timestamp() * 1000
            )
    finally:
        monkeypatch.undo()
        time.tzset()
