"""How fast is a mirror of a topic of a broker, beside kcat, and how fast is its append alone."""

import shutil
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from benchmarks import peers
from benchmarks.data import LINE_BYTES
from benchmarks.results import Row, Samples, at_least, compare, rates
from benchmarks.runner import Bench, alternate, python_command, settle
from logfs.library.owner import opened_store
from logfs.machine.host import system_clock

_TOPIC = "lines"
_PIECE_BYTES = 4 << 20
"""What a fetch answer brings, about."""


def mirror(bench: Bench) -> Iterator[Row]:
    """``logfs mirror --until now`` to a new directory; ``kcat -C`` to /dev/null."""
    size = bench.scaled(512_000_000, 128_000_000)
    broker = peers.start_broker(bench)
    peers.create_topic(broker, _TOPIC)
    peers.produce(broker, _TOPIC, size // LINE_BYTES, LINE_BYTES)
    stored = b"".join(path.read_bytes() for path in sorted(broker.partition(_TOPIC).glob("*.log")))
    numbers = count()

    def ours() -> peers.Spent:
        data = bench.directory / f"mirror-{next(numbers)}"
        data.mkdir()
        address = f"kafka://{broker.bootstrap}"
        words = ("mirror", str(data), _TOPIC, "--from", address, "--until", "now")
        spent = peers.spent(python_command("logfs", *words))
        settle(data)
        if sum(p.stat().st_size for p in (data / f"{_TOPIC}-0").glob("*.log")) != len(stored):
            raise RuntimeError(f"{data}: not the bytes of the broker")
        shutil.rmtree(data)
        return spent

    where = ["-b", broker.bootstrap, "-t", _TOPIC, "-p", "0"]
    read = [peers.kcat(), "-C", "-q", "-e", "-o", "beginning", *where]
    logfs, kcat = alternate([ours, lambda: peers.spent(read)], bench.pairs)
    what = "a topic of a broker"
    yield compare(
        "mirror",
        f"{what}, MB/s",
        at_least(1, "x kcat"),
        rates("logfs", len(stored), [seconds for seconds, _ in logfs]),
        rates("kcat", len(stored), [seconds for seconds, _ in kcat]),
    )
    yield compare(
        "mirror",
        f"{what}, MB a second of processor time",
        at_least(1, "x kcat"),
        Samples("logfs", "MB/s", tuple(len(stored) / 1e6 / cpu for _, cpu in logfs)),
        Samples("kcat", "MB/s", tuple(len(stored) / 1e6 / cpu for _, cpu in kcat)),
    )
    yield _append_row(bench, stored)


def _append_row(bench: Bench, stored: bytes) -> Row:
    """Append the same batches, checked and indexed, beside a copy of their bytes into a file."""

    def ours() -> float:
        data = bench.directory / "append"
        data.mkdir()
        with opened_store(str(data)) as store:
            clock = system_clock()
            store.create_topic(_TOPIC, 1, {"retention.ms": "-1"}, clock.now_ms())
            log, used = store.partition(_TOPIC, 0), 0
            started = time.process_time()
            while used < len(stored):
                piece = memoryview(stored)[used : used + _PIECE_BYTES]
                used += log.append_replica(piece, clock.now_ms()).used_bytes
            seconds = time.process_time() - started
        shutil.rmtree(data)
        return seconds

    def plain() -> float:
        path = Path(bench.directory) / "plain"
        started = time.process_time()
        with path.open("wb", buffering=0) as file:
            for used in range(0, len(stored), _PIECE_BYTES):
                file.write(memoryview(stored)[used : used + _PIECE_BYTES])
        seconds = time.process_time() - started
        path.unlink()
        return seconds

    logfs, beside = alternate([ours, plain], bench.pairs)
    return compare(
        "mirror",
        "append of fetched batches, MB a second of processor time",
        at_least(0.3, "x plain"),
        rates("logfs", len(stored), logfs),
        rates("plain", len(stored), beside),
    )
