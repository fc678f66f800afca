"""Input that is far outside of what anybody means is refused as such, never as a bug."""

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import logfs as library
from logfs import NewRecord
from logfs.machine.packages import how_to_add
from tests.cli.conftest import Call, Mounted, command, environment, fill, run


@pytest.mark.parametrize(
    "words",
    [
        "tail -n 9223372036854775807 orders",
        "tail -n 9223372036854775808 orders",
        "plan --rate 10 --record 1e99",
        "plan --rate 10 --record 1e12",
        "plan --rate 10 --record 1e400",
        "plan --rate 1e300 --record 10",
        "plan --rate 10 --key 1e99",
        "plan --rate 10 --batch 1e99",
        "plan --rate 10 --tail 1e300d",
        "status --watch 1e308",
        "status --watch nan",
        "status --watch inf",
    ],
)
def test_commands_refuse_odd_numbers(
    logfs: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\nb\n"})
    monkeypatch.chdir(tmp_path / "data")
    status, out, errors = logfs(*words.split())
    if status == 0:
        assert (out, errors) == (b"a\nb\n", [])
    else:
        assert (out, len(errors)) == (b"", 1)
        reasons = ("expected", "is not in the range", "exceeds")
        assert any(reason in errors[0] for reason in reasons)
    assert "bug" not in "".join(errors)


@pytest.fixture
def log(tmp_path: Path) -> library.Partition:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    return library.open(tmp_path / "data" / "orders" / "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"producer_id": -1}, r"producer_id=-1: expected 0 to 2\*\*63 - 1"),
        ({"producer_id": 2**70}, r"producer_id=\d+: expected 0 to 2\*\*63 - 1"),
        ({"producer_id": "x"}, "producer_id='x': expected an int"),
        ({"producer_id": True}, "producer_id=True: expected an int"),
        ({"producer_id": 1, "epoch": 2**15}, r"epoch=32768: expected 0 to 2\*\*15 - 1"),
        ({"producer_id": 1, "sequence": -1}, r"sequence=-1: expected 0 to 2\*\*31 - 1"),
    ],
    ids=str,
)
def test_producers_refuse_odd_arguments(
    log: library.Partition, arguments: dict[str, object], message: str
) -> None:
    with log, pytest.raises((TypeError, ValueError), match=message):
        log.producer(**arguments)  # type: ignore[arg-type]


def odd(**fields: Any) -> NewRecord:  # noqa: ANN401 - what a program may give
    """Return a record as a program without types makes it."""
    return NewRecord(**fields)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (b"abc", r"b'abc': expected several records, as in \[value\]"),
        ("abc", "'abc': expected several records"),
        (NewRecord(b"x"), "expected several records"),
        ([odd(value=b"x", headers={"a": b"b"})], "headers={'a': b'b'}: expected pairs"),
        ([odd(value=b"x", headers=[("a", "b")])], "the value is 'b'; expected bytes or None"),
        ([odd(value=b"x", headers=[(1, b"b")])], "the key is 1; expected str or bytes"),
        ([odd(value=b"x", headers=[("a",)])], "expected a pair of a key and a value"),
        ([odd(value=b"x", timestamp=1.5)], r"timestamp=1.5: expected ms since the epoch \(int\)"),
        ([odd(value="x")], "value='x': expected bytes or None"),
        ([odd(value=b"x", key=1)], "key=1: expected bytes or None"),
    ],
    ids=str,
)
def test_appends_refuse_odd_records(log: library.Partition, records: object, message: str) -> None:
    with log, pytest.raises(TypeError, match=message):
        log.append_many(records)  # type: ignore[arg-type]


def test_help_of_the_library_lists_what_it_has() -> None:
    assert set(library.__all__) >= {"open", "open_store", "Partition", "Store", "Record"}
    assert dir(library) == sorted(set(dir(library)))
    assert not {"client", "control", "disk"} & set(dir(library))


@pytest.mark.parametrize("words", [["status", "-p"], ["status"], ["topic", "list"], ["offsets"]])
def test_a_reader_that_ends_early_is_no_error(tmp_path: Path, words: list[str]) -> None:
    fill(tmp_path / "data", {f"topic{n}/0": b"x\n" for n in range(3)})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(*words, tmp_path / "data"),
        check=False,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_status_watch_ends_with_the_reader_of_its_output(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/0": b"x\n"})
    with subprocess.Popen(
        command("status", "--watch", "0.1", tmp_path / "data"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


def test_a_missing_package_is_added_to_this_environment() -> None:
    text = how_to_add("export")
    assert "-m pip install 'pyarrow>=18'" in text
    assert "logfs[" not in text
    python = Path(text.split()[3])
    assert python.stat().st_mode & stat.S_IXUSR


@pytest.mark.fuse
def test_reindexing_what_a_daemon_serves_names_the_daemon(mounted: Mounted) -> None:
    status, _, errors = run("reindex", mounted.data)
    assert status == 1
    assert f"process {mounted.pid} serves it at {mounted.point}" in errors[0]
    assert errors[0].endswith(f"'logfs umount {mounted.point}' first")


@pytest.mark.fuse
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_unmounting_what_another_user_has_mounted(mounted: Mounted) -> None:
    program = (
        "import os, sys; from logfs.cli.main import main; import logfs.fs.session.unmounting;"
        "os.setuid(65534); sys.exit(main(['umount', sys.argv[1]]))"
    )
    done = subprocess.run(
        [command()[0], "-c", program, mounted.point],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
    )
    assert done.returncode == 1
    assert "mounted by root; only that user and root may unmount it" in done.stderr
