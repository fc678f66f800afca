"""``logfs verify``: what it says and answers, beside a daemon that writes, too."""

import json
import threading
from pathlib import Path

import pytest

from logfs.cli.commands.verify import verify
from tests.cli.conftest import Call, Mounted, fill, run
from tests.cli.examples import arguments_of, examples_of

CHECKS = 5
LINES = b"".join(b"line %d\n" % n for n in range(200))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", {"orders/0": LINES, "orders/1": LINES, "other/0": b"one\n"})
    return tmp_path / "data"


def log_of(data: Path, name: str = "orders-0") -> Path:
    return data / name / f"{0:020}.log"


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_verify_of_an_undamaged_directory(logfs: Call, data: Path) -> None:
    status, out, errors = logfs("verify", data)
    assert (status, errors) == (0, [])
    [line] = out.decode().splitlines()
    assert line.startswith(f"{data}: 3 partitions, 3 segments, 3 batches, 401 records, ")
    assert line.endswith(": no damage")
    assert logfs("verify", data, "--quiet") == (0, b"", [])


def test_damage_is_a_line_and_sets_the_exit_status(logfs: Call, data: Path) -> None:
    flip(log_of(data), 70)
    status, out, errors = logfs("verify", data / "orders", "-q")
    assert (status, errors) == (1, [])
    [line] = out.decode().splitlines()
    assert line.startswith(f"damage: {log_of(data)}: byte 0: the batch (")
    assert "checksum differs" in line
    assert "restore the segment from a backup" in line
    assert logfs("verify", data / "orders" / "1", "-q") == (0, b"", [])
    assert logfs("verify", data / "orders-1", "-q") == (0, b"", [])


def test_json_has_the_findings(logfs: Call, data: Path) -> None:
    flip(log_of(data), 70)
    (data / "notes").write_text("mine")
    status, out, _ = logfs("verify", data, data / "orders", "--json")
    [found] = json.loads(out)
    assert (status, found["damages"], found["partitions"]) == (1, 1, 3)
    note, damage = found["findings"]
    assert (note["level"], note["file"]) == ("note", "notes")
    assert damage.keys() == {"level", "file", "position", "line", "problem", "expected", "remedy"}
    assert (damage["file"], damage["position"]) == (f"orders-0/{0:020}.log", 0)


@pytest.mark.parametrize("example", examples_of(verify))
def test_the_examples(logfs: Call, data: Path, example: str) -> None:
    fill(data, {"payments/3": LINES})
    status, out, errors = logfs(*arguments_of(example, data))
    assert (status, errors) == (0, [])
    assert bool(out) == ("--quiet" not in example)


def test_a_note_is_no_damage(logfs: Call, data: Path) -> None:
    (data / "orders-0" / "notes.txt").write_text("mine")
    status, out, _ = logfs("verify", data)
    assert status == 0
    assert out.startswith(f"note: {data}/orders-0/notes.txt: ".encode())
    assert logfs("verify", "-q", data) == (0, b"", [])


@pytest.mark.parametrize("address", ["nope", "orders/7", "orders/0/1", "orders/0.jsonl"])
def test_what_cannot_be_checked_has_a_status_of_its_own(
    logfs: Call, data: Path, address: str
) -> None:
    status, out, errors = logfs("verify", data / address)
    assert (status, out, len(errors)) == (2, b"", 1)
    assert errors[0].startswith(f"logfs: {data / address}: ")


def test_no_path_and_no_data_directory(logfs: Call, tmp_path: Path) -> None:
    assert logfs("verify").status == 2
    status, _, errors = logfs("verify", tmp_path / "nothing")
    assert (status, len(errors)) == (2, 1)


def test_several_processes_find_the_same(logfs: Call, tmp_path: Path) -> None:
    data = tmp_path / "large"
    fill(data, {f"big/{n}": b"x" * 99 + b"\n" for n in range(1)})
    text = (b"y" * 99 + b"\n") * 700_000
    fill(data, {"big/0": text, "big/1": text})
    flip(log_of(data, "big-1"), 30_000_000)
    found = [logfs("verify", data, "--jobs", jobs, "--json") for jobs in ("1", "2")]
    assert found[0].status == 1
    assert found[0] == found[1]


@pytest.mark.fuse
@pytest.mark.slow
def test_beside_a_daemon_that_writes_rolls_compacts_and_deletes(mounted: Mounted) -> None:
    """Some rounds beside everything that changes files: no damage is seen."""
    small = ["--config", "segment.bytes=1048576", "--config", "index.interval.bytes=512"]
    compacted = ["--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0"]
    short = ["--config", "retention.bytes=3000000", "--config", "file.delete.delay.ms=0"]
    for topic, config in (("keys", compacted), ("short", short)):
        assert run("topic", "create", mounted.point / topic, *small, *config).status == 0
    stop = threading.Event()

    def write() -> None:
        number = 0
        with (
            (mounted.point / "keys" / "0.tsv").open("ab", buffering=0) as keys,
            (mounted.point / "short" / "0").open("ab", buffering=0) as short,
        ):
            while not stop.is_set():
                rows = range(number, number + 300)
                keys.write(b"".join(b"k%d\tvalue %d %s\n" % (n % 97, n, b"x" * 50) for n in rows))
                short.write(b"".join(b"line %d %s\n" % (n, b"y" * 50) for n in rows))
                number += 300

    def compact() -> None:
        while not stop.is_set():
            assert run("compact", mounted.point / "keys", "--roll").status == 0
            assert run("trim", mounted.point / "short@offset=-20000", "--now").status == 0

    threads = [threading.Thread(target=write), threading.Thread(target=compact)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(CHECKS):
            status, out, errors = run("verify", mounted.data, "--quiet")
            assert (status, out, errors) == (0, b"", [])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert run("verify", mounted.point / "keys", "-q") == (0, b"", [])
    # A damage that stays is found all the same.
    log = min(p for p in (mounted.data / "keys-0").glob("*.log") if p.stat().st_size > 99)
    flip(log, 70)
    status, out, _ = run("verify", mounted.point, "-q")
    assert status == 1
    assert out.startswith(f"damage: {log}: byte 0: ".encode())
