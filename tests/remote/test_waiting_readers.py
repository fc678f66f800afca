"""Programs that read tiered segments through a mount while the store hangs or is away."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import Bucket, FaultProxy

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

SETTINGS = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.bytes": "0",
    "segment.bytes": "1048576",
    "max.message.bytes": "100000",
    "file.delete.delay.ms": "0",
}
TEXT = b"".join(b"%08d %s\n" % (number, b"x" * 90) for number in range(40_000))


@pytest.fixture
def mount(tmp_path: Path, bucket: Bucket, faults: FaultProxy) -> Iterator[Mount]:
    """A mount of which all segments of ``orders/0`` but the last are in the store alone."""
    data = tmp_path / "data"
    data.mkdir()
    # Far longer than any test waits: what ends earlier was interrupted.
    settings = "remote.log.manager.task.interval.ms=100\nread.timeout.ms=3600000\ncache.bytes=0\n"
    (data / "logfs.remote").write_text(bucket.through(faults).properties + settings)
    with Mount(data, tmp_path / "mnt", variables=bucket.environment) as made:
        options = [f"--config={key}={value}" for key, value in SETTINGS.items()]
        logfs("topic", "create", str(made.point / "orders"), *options)
        with (made.point / "orders" / "0").open("ab") as out:
            for start in range(0, len(TEXT), 50_000):
                out.write(TEXT[start : start + 50_000])
        logs = data / "orders-0"
        wait_until(lambda: len(list(logs.glob("*.log"))) == 1, f"the segments went\n{made.log}")
        yield made


def waits_in_the_kernel(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a program waits for an answer of the mount."""
    return "request_wait" in Path(f"/proc/{process.pid}/wchan").read_text()


def test_programs_that_wait_for_the_store_can_be_killed(mount: Mount, faults: FaultProxy) -> None:
    file = mount.point / "orders" / "0"
    with faults.hanging():
        for name in ("0", "0@offset=5..offset=30000", "0@earliest.follow", "0.jsonl"):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with subprocess.Popen(["cat", mount.point / "orders" / name]) as reader:
                    wait_until(lambda: waits_in_the_kernel(reader), "it waits")
                    reader.send_signal(number)
                    assert reader.wait(60) == -number
        with file.open("ab") as out:
            out.write(b"meanwhile\n")
        assert subprocess.check_output(["tail", "-n", "1", file]) == b"meanwhile\n"
    assert file.read_bytes() == TEXT + b"meanwhile\n"


@pytest.mark.parametrize("program", [["sort"], ["sed", "-n", "$p"], ["md5sum"], ["cat"]])
def test_programs_that_are_stopped_while_they_wait_continue(
    mount: Mount, faults: FaultProxy, program: list[str]
) -> None:
    command: list[str | Path] = [*program, mount.point / "orders" / "0"]
    expected = subprocess.check_output(command)
    mount.restart()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        with faults.hanging():
            wait_until(lambda: waits_in_the_kernel(reader), "it waits")
            reader.send_signal(signal.SIGSTOP)
            time.sleep(0.2)  # the daemon hears of it
            reader.send_signal(signal.SIGCONT)
        found, _ = reader.communicate(timeout=60)
        assert (reader.returncode, found) == (0, expected)


def test_a_program_that_was_stopped_can_be_killed(mount: Mount, faults: FaultProxy) -> None:
    with faults.hanging():
        for number in (signal.SIGTERM, signal.SIGKILL):
            with subprocess.Popen(["cat", mount.point / "orders" / "0"]) as reader:
                wait_until(lambda: waits_in_the_kernel(reader), "it waits")
                reader.send_signal(signal.SIGSTOP)
                time.sleep(0.2)  # as above
                reader.send_signal(number)
                reader.send_signal(signal.SIGCONT)
                assert reader.wait(60) == -number


HANDLES_A_SIGNAL = """
import os, signal, sys

signal.signal(signal.SIGUSR1, lambda *_: print("handled", file=sys.stderr, flush=True))
file = os.open(sys.argv[1], os.O_RDONLY)
while data := os.read(file, 100_000):
    while data:
        data = data[os.write(1, data) :]
"""
"""A signal interrupts its reads; Python runs the handler then, and reads again."""


@pytest.mark.parametrize("view", ["", ".jsonl", ".tsv"])
def test_a_program_handles_signals_while_it_waits_and_reads_every_byte(
    mount: Mount, faults: FaultProxy, view: str
) -> None:
    name = f"{mount.point / 'orders' / '0'}{view}"
    expected = Path(name).read_bytes()
    mount.restart()
    command = [sys.executable, "-c", HANDLES_A_SIGNAL, name]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as reader:
        output, errors = reader.stdout, reader.stderr
        assert output is not None
        assert errors is not None
        found = output.read(150_000)  # ends inside a record
        with faults.hanging():
            rest: list[bytes] = []
            collector = threading.Thread(target=lambda: rest.append(output.read()))
            collector.start()
            wait_until(lambda: waits_in_the_kernel(reader), "it waits")
            for _ in range(3):
                reader.send_signal(signal.SIGUSR1)
                assert errors.readline() == b"handled\n"
        collector.join(60)
        complaint = errors.read()
    found += rest[0]
    assert (reader.returncode, complaint, len(found)) == (0, b"", len(expected))
    assert (found == expected) is True  # a difference of megabytes takes minutes to describe


def test_a_mount_stops_while_programs_wait_for_the_store(mount: Mount, faults: FaultProxy) -> None:
    with faults.hanging():
        readers = [subprocess.Popen(["cat", mount.point / "orders" / "0"]) for _ in range(12)]
        for reader in readers:
            wait_until(lambda: waits_in_the_kernel(reader), "it waits")  # noqa: B023
        mount.stop()
        for reader in readers:
            assert reader.wait(60)


def test_reading_continues_after_the_store_was_away(mount: Mount, faults: FaultProxy) -> None:
    file = mount.point / "orders" / "0"
    with subprocess.Popen(["cat", file], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        found = reader.stdout.read(1_500_000)
        with faults.refusing():
            with file.open("ab") as out:
                out.write(b"meanwhile\n")
            assert subprocess.check_output(["tail", "-n", "1", file]) == b"meanwhile\n"
        found += reader.stdout.read()
    assert found == TEXT + b"meanwhile\n"


def test_damage_in_the_store_is_an_error_where_it_is(mount: Mount, bucket: Bucket) -> None:
    store = bucket.open()
    logs = sorted(stat.key for stat in store.list_all("") if stat.key.endswith(".log"))
    bucket.damage(logs[2], 500_000)
    file = mount.point / "orders" / "0"
    result = subprocess.run(["cat", file], check=False, capture_output=True)
    assert b"Input/output error" in result.stderr
    assert TEXT.startswith(result.stdout)
    assert len(result.stdout) >= 1_000_000  # a read of 1 MiB fails as a whole
    assert subprocess.check_output(["tail", "-n", "5", file]) == b"".join(
        TEXT.splitlines(keepends=True)[-5:]
    )
    assert "another checksum" in mount.log
