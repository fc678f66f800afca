"""Wrong command lines, as beginners type them: each gets one line and a status.

The line names the thing, says what was expected and what to do. ``{d}`` is a directory with a data
directory ``data`` (topic ``orders``, two partitions), an empty one, one with other things, a file.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Call, command, environment, fill, open_store, run

HERE = "the last directory of the path that exists, holds no logs"
WRONG = [
    # What the command line itself says; status 2.
    ("nonsense", 2, "no such command 'nonsense'; 'logfs --help' shows what it takes"),
    ("--nix", 2, "no such option '--nix'; 'logfs --help' shows"),
    ("cat", 2, "cat: missing argument 'PATH...'; 'logfs cat --help' shows what it takes"),
    ("cat {d}/data/orders/0 --formt json", 2, "cat: no such option '--formt'"),
    ("mount {d}/data", 2, "mount: missing argument 'MOUNTPOINT'; 'logfs mount --help'"),
    ("topic create {d}/data/x --partitions 0", 2, "'--partitions': 0 is not in the range"),
    ("topic create {d}/data/x --partitions -3", 2, "'--partitions': -3 is not in the range"),
    ("topic create {d}/data/x --partitions many", 2, "'--partitions': 'many' is not a valid int"),
    ("topic create {d}/data/x --config retention.ms", 2, "expected KEY=VALUE, as retention.ms="),
    ("topic alter {d}/data/orders", 2, "topic alter: nothing to change: give --config"),
    ("append", 2, "append: missing argument 'PATH'"),
    ("append {d}/data/orders/0 --flush-every 0", 2, "'--flush-every': 0 is not in the range x>=1"),
    ("append {d}/data/orders/0 --header x", 2, "'x': expected NAME=VALUE, as host=web1"),
    ("append {d}/data/orders/0 --format csv", 2, "'csv' is not one of 'text', 'tsv', 'jsonl'"),
    # Places.
    ("cat {d}/nix", 1, "{d}/nix: expected a data directory or a mount point of logfs before"),
    ("cat {d}/file/0", 1, f"{{d}}/file/0: expected a data directory.*; {{d}}, {HERE}"),
    ("cat {d}/other/orders/0", 1, f"expected a data directory.*; {{d}}/other, {HERE}"),
    ("cat {d}/empty/orders/0", 1, "{d}/empty is empty and no data directory yet; 'logfs topic"),
    ("cat ''", 1, "'': expected a data directory"),
    ("cat {d}/data/order/0", 1, "{d}/data/order/0: no topic order"),
    ("cat {d}/data/orders/7", 1, "topic orders has no partition 7"),
    ("cat {d}/data/orders/-1", 1, "'-1': no such name; expected PARTITION"),
    ("cat {d}/data/orders-0/0", 1, "no topic orders-0; a partition is named orders/0"),
    ("topic list {d}/file", 1, "{d}/file: expected a data directory"),
    ("topic list {d}/data/orders", 1, "a topic is shown by 'logfs topic describe'"),
    ("topic create {d}/other/x", 1, "expected a data directory, an empty directory or a mount"),
    ("topic create {d}/nix/x", 1, "for new logs make an empty directory with mkdir first"),
    ("topic create {d}/data/a/b", 1, "a topic is directly below the data directory"),
    ("topic create {d}/data/orders", 1, "{d}/data/orders: topic orders exists already"),
    ("topic delete {d}/data/nix", 1, "{d}/data/nix: no topic nix"),
    ("topic delete {d}/data", 1, "that is a data directory; expected a topic in it"),
    ("offsets {d}/other", 1, f"{{d}}/other, {HERE}"),
    ("compact {d}/data", 1, "expected a partition, TOPIC/PARTITION, or a topic, TOPIC"),
    ("compact {d}/data/orders/0", 1, "its cleanup.policy is delete, so records stay"),
    ("trim {d}/data/orders/0", 1, "expected one @FROM, the first record to keep"),
    ("trim {d}/data/nix/0@-1d", 1, "no topic nix"),
    ("mount {d}/data {d}/nix", 1, "{d}/nix: the mount point has to be an existing directory"),
    ("mount {d}/data {d}/file", 1, "{d}/file: the mount point has to be an existing directory"),
    ("mount {d}/data {d}/data", 1, "holds logs, which a mount would hide; expected 'logfs mount"),
    ("mount {d}/data {d}/empty -o foo=bar", 1, "mount option foo=bar"),
    ("umount {d}/empty", 1, "{d}/empty: logfs is not mounted there"),
    # Times, offsets, settings, lines.
    ("cat {d}/data/orders/0@soon", 1, "'soon': not a point in a log; a point is"),
    ("cat {d}/data/orders/0@2026-13-01", 1, "'2026-13-01': not a date: month must be in 1..12"),
    ("cat {d}/data/orders/0@20261120", 1, "eight digits could be a date or epoch milliseconds"),
    ("cat {d}/data/orders/0@15m", 1, "'15m': not a point in a log"),
    ("offsets {d}/data --time -15x", 1, "'-15x': a duration ends in one of the units ms s m h d w"),
    ("trim {d}/data/orders/0@offset=99", 1, "offset 99 is outside the log, which holds [0, 2)"),
    ("topic create {d}/data/x --config retention.ms=soon", 1, "expected a whole number in"),
    ("topic create {d}/data/x --config retentionms=5", 1, "did you mean retention.ms?"),
    ("topic alter {d}/data/orders --partitions 1", 1, "it can grow, but not shrink to 1"),
    ("append {d}/data/orders/7 {d}/file", 1, "has no partition 7; --create makes it and those"),
    ("append {d}/data/nix/0 {d}/file", 1, "no topic nix; --create makes it"),
    ("append {d}/data/orders/0@-1h {d}/file", 1, "'0@-1h' cannot be written to; append to"),
    ("append {d}/data/orders/0 {d}/nix", 1, "{d}/nix: No such file or directory"),
    ("append {d}/data/orders/0 {d}/empty", 1, "{d}/empty: a directory; expected a file with lines"),
    ("append {d}/data/orders/0.jsonl {d}/file", 1, "{d}/file, line 1: not JSON in UTF-8"),
    # What a newer logfs has written.
    ("cat {d}/newer/orders/0", 1, "00000000000000000000.textindex: version 9, this logfs reads"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory ``{d}``; no test changes what is in it."""
    path = tmp_path_factory.mktemp("wrong")
    for name in ("data", "newer"):
        fill(path / name, {"orders/1": b"", "orders/0": b"a\nb\n"})
    (path / "empty").mkdir()
    (path / "other").mkdir()
    (path / "other" / "notes").touch()
    (path / "file").write_bytes(b"a line\n")
    index = path / "newer" / "orders-0" / "00000000000000000000.textindex"
    index.write_bytes(index.read_bytes()[:4] + b"\0\0\0\x09" + index.read_bytes()[8:])
    return path


@pytest.mark.parametrize(("line", "status", "text"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_command_line(logfs: Call, place: Path, line: str, status: int, text: str) -> None:
    call = run if line.startswith("mount {d}") else logfs  # a mount says where the log goes
    outcome = call(*(word.format(d=place) for word in shlex.split(line)))
    assert (outcome.status, outcome.out) == (status, b"")
    assert len(outcome.errors) == 1
    (error,) = outcome.errors
    assert error.startswith("logfs: ")
    at = 0
    for part in text.format(d=place).split(".*"):
        assert part in error[at:]
        at = error.index(part, at)


def shell(script: str, place: Path) -> tuple[int, list[str]]:
    """Run a script in which ``logfs`` is the command, in the directory ``{d}``."""
    name = shlex.join(command())
    done = subprocess.run(
        ["sh", "-c", f'logfs() {{ {name} "$@"; }}; {script}'],
        check=False,
        capture_output=True,
        cwd=place,
        env=environment(),
        timeout=60,
    )
    return done.returncode, done.stderr.decode().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("logfs cat data/orders/0 > /dev/full",
         "logfs: stdout: No space left on device; make room, then try again"),
        ("logfs topic list data > /dev/full",
         "logfs: stdout: No space left on device; make room, then try again"),
        ("logfs cat data/orders/0 >&-",
         "logfs: stdout: Bad file descriptor; it is closed"),
        ("logfs offsets data >&-", "logfs: stdout: Bad file descriptor; it is closed"),
    ],
)  # fmt: skip
def test_a_stdout_that_takes_nothing(place: Path, script: str, error: str) -> None:
    assert shell(script, place) == (1, [error])


@pytest.mark.slow
def test_no_file_of_a_log_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Else what is printed would be in the log."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "in").write_bytes(b"a line\n")
    script = "logfs append --create empty/t/0 in <&- >&- 2>&-; logfs cat empty/t/0 >&2"
    assert shell(script, tmp_path) == (0, ["a line"])


@pytest.mark.slow
def test_a_directory_that_may_not_be_read(tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    prefix = ""
    if os.geteuid() == 0:
        for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")):
            os.chown(path, 4711, 4711)
        (tmp_path / "data").chmod(0o700)
        prefix = "setpriv --inh-caps=-all --bounding-set=-dac_override,-dac_read_search "
    else:
        (tmp_path / "data").chmod(0)
    line = shlex.join(command())
    for what in ("cat data/orders/0", "topic list data", "offsets data", "topic create data/x"):
        status, errors = shell(f"{prefix}{line} {what}", tmp_path)
        assert (status, len(errors)) == (1, 1)
        named = what.split()[-1]
        found = "" if named == "data" else f"{tmp_path}/data: "
        assert errors[0] == (
            f"logfs: {named}: {found}Permission denied; run it as the owner, or as root"
        )
    (tmp_path / "data").chmod(0o700)


@pytest.mark.slow
def test_a_full_disk_and_one_that_is_read_only(tmp_path: Path) -> None:
    """On its own small file system, which goes with its namespace."""
    line = shlex.join(command())
    (tmp_path / "in").write_bytes(b"".join(b"%099d\n" % n for n in range(60_000)))
    (tmp_path / "one").write_bytes(b"one more\n")
    (tmp_path / "run").write_text(
        f"""
        logfs() {{ {line} "$@"; }}
        mkdir fs && mount -t tmpfs -o size=3m tmpfs fs && mkdir fs/data || exit 9
        logfs append --create fs/data/t/0 in
        echo "status $?" >&2
        logfs cat fs/data/t/0 | cmp - in 2>&1 | grep -o 'EOF on -' >&2
        logfs offsets fs/data/t/0 --time latest | tail -n 1 >&2
        mount -o remount,ro fs
        logfs append fs/data/t/0 one
        logfs topic create fs/data/x
        logfs cat fs/data/t/0@offset=0..offset=1 >&2
        """
    )
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    done = subprocess.run(
        [*namespace, "sh", "run"],
        check=False,
        capture_output=True,
        cwd=tmp_path,
        env=environment(),
        timeout=60,
    )
    full, status, cut, latest, *read_only, first = done.stderr.decode().splitlines()
    records = int(latest.split()[2])
    assert 5_000 < records < 30_000
    assert full.startswith(f"logfs: fs/data/t/0: {tmp_path}/fs/data/t-0/")
    assert full.endswith(
        ".log: No space left on device; make room, then try again; "
        f"{records} records appended ({records * 100 / 2**20:.1f}MiB, offsets 0 to {records - 1}), "
        f"up to line {records} of in"
    )
    assert (status, cut) == ("status 1", "EOF on -")
    lock = f"{tmp_path}/fs/data/.lock: Read-only file system; the mount or the file system is "
    assert read_only == [
        f"logfs: fs/data/t/0: {lock}read-only; nothing was appended",
        f"logfs: fs/data/x: {lock}read-only",
    ]
    assert first == "0" * 99


def test_a_directory_that_another_process_owns(logfs: Call, tmp_path: Path) -> None:
    fill(tmp_path / "data", {"orders/0": b"a\n"})
    (tmp_path / "in").write_bytes(b"a\n")
    store = open_store(tmp_path / "data")
    for words in (["append", "orders/0", "in"], ["topic create", "x"], ["trim", "orders/0@-1d"]):
        name, path, *files = words
        arguments = [*name.split(), tmp_path / "data" / path, *(tmp_path / f for f in files)]
        status, _, errors = logfs(*arguments)
        assert (status, len(errors)) == (1, 1)
        assert ".lock is locked by" in errors[0]
    assert logfs("cat", tmp_path / "data" / "orders" / "0").out == b"a\n"
    store.close(0)
