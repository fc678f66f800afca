"""How fast is a mirror of a topic of a broker, beside kcat, and how fast is its append alone."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from confluent_kafka import Producer

from benchmarks import peers
from benchmarks.data import LINE_BYTES
from benchmarks.mirrormaker import cpu_per_record_s
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold, rates
from benchmarks.runner import Bench, alternate, percentile, python_command, settle
from logfs.library.owner import opened_store
from logfs.machine.host import system_clock
from tests.kafka.client import Client
from tests.processes import wait_until

_TOPIC = "lines"
_PAUSE_S = 0.02
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
    yield _latency_row(bench, broker)
    yield _mirrormaker_row(bench, broker, [cpu / (size // LINE_BYTES) for _, cpu in logfs])


def _mirrormaker_row(bench: Bench, broker: peers.MeasuredBroker, ours_s: Sequence[float]) -> Row:
    """Hold the processor time of a record against that of MirrorMaker 2, its start left out."""
    records = bench.scaled(1_000_000, 300_000)
    peers.create_topic(broker, "copied")
    peers.produce(broker, "copied", records, LINE_BYTES)
    client = Client(broker.bootstrap)
    theirs_s = cpu_per_record_s(bench.directory, broker, client, "copied", records)
    return compare(
        "mirror",
        "records a second of processor time",
        at_least(20, "x MirrorMaker 2"),
        Samples("logfs", "records/s", tuple(1 / seconds for seconds in ours_s)),
        Samples("MirrorMaker 2", "records/s", (1 / theirs_s,)),
    )


def _latency_row(bench: Bench, broker: peers.MeasuredBroker) -> Row:
    """One record at a time: from the broker's acknowledgement until a read of .follow returns."""
    count, topic = bench.scaled(300, 100), "seen"
    peers.create_topic(broker, topic)
    point = mount_logfs(bench, bench.directory / "mounted").point
    mirror = python_command(
        "logfs", "mirror", point, topic, "--from", f"kafka://{broker.bootstrap}"
    )
    process = subprocess.Popen(mirror)
    try:
        seen_s, acked_s = _seen_and_acknowledged(broker, topic, point / topic / "0", count)
    finally:
        process.terminate()
        process.wait()
    if len(seen_s) != count:
        raise RuntimeError(f"{len(seen_s)} lines were seen, expected {count}")
    delays_ms = [1000 * (seen - acked) for seen, acked in zip(seen_s, acked_s, strict=True)]
    return hold(
        "mirror",
        "from a broker's acknowledgement until a read of .follow returns, p50",
        at_most(20, "ms"),
        Samples("logfs", "ms", (percentile(delays_ms, 0.5),)),
    )


def _seen_and_acknowledged(
    broker: peers.MeasuredBroker, topic: str, path: Path, count: int
) -> tuple[list[float], list[float]]:
    """Produce records; returns when a read of .follow had each, and when it was acknowledged."""
    seen_s: list[float] = []
    acked_s: list[float] = []
    wait_until(path.exists, "the topic is mirrored")
    descriptor = os.open(f"{path}@latest.follow", os.O_RDONLY)

    def read() -> None:
        while len(seen_s) < count and (text := os.read(descriptor, 1 << 16)):
            seen_s.extend([time.monotonic()] * text.count(b"\n"))

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": "0"})
    for number in range(count):
        producer.produce(
            topic,
            b"line %d" % number,
            partition=0,
            on_delivery=lambda *_: acked_s.append(time.monotonic()),
        )
        producer.flush()
        time.sleep(_PAUSE_S)
    reading.join(60)
    os.close(descriptor)
    return seen_s, acked_s


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
                used += log.replication.append_replica(piece, clock.now_ms()).used_bytes
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
