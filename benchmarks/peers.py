"""The peers: a Kafka broker and its tools, and kcat, each as its users run it.

Java runs with the flags that Kafka's own start scripts give it (kafka-run-class.sh,
kafka-server-start.sh), not with those of the tests. A time is that of a whole process, Java's start
included; where a tool prints its own rate, that is beside it.
"""

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.runner import Bench
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.client import Client

_MACHINE = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_SETTINGS = {
    # What the tests hurry up would only disturb here: Kafka's defaults.
    "log.initial.task.delay.ms": "30000",
    "log.retention.check.interval.ms": "300000",
    "log.cleaner.backoff.ms": "15000",
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "log.flush.start.offset.checkpoint.interval.ms": "60000",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "log.cleaner.dedupe.buffer.size": "134217728",
    # Recovery by one thread: what is measured is one core.
    "num.recovery.threads.per.data.dir": "1",
}
_CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
_CLEAN_STOP = ".kafka_cleanshutdown"


class MeasuredBroker(Broker):
    """A broker that is measured."""

    def __init__(self, directory: Path, **settings: str) -> None:
        chosen = _SETTINGS | {key.replace("_", "."): text for key, text in settings.items()}
        super().__init__(directory, chosen, heap="1g", flags=("-Xms1g", *_MACHINE))


class Spent(NamedTuple):
    """What a run took: seconds, and those of processor time."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Produced:
    """A run of kafka-producer-perf-test.

    Attributes:
        seconds: Time of the whole process.
        own_mb_per_s: What it prints itself, in MB/s (10**6 bytes).
    """

    seconds: float
    own_mb_per_s: float


def start_broker(bench: Bench, **settings: str) -> MeasuredBroker:
    """Start a broker that ends with the question."""
    broker = MeasuredBroker(bench.directory / "broker", **settings)
    bench.cleanup.enter_context(broker)
    return broker


def kcat() -> str:
    """Return the path of kcat.

    Raises:
        RuntimeError: It is not installed.
    """
    found = shutil.which("kcat")
    if found is None:
        raise RuntimeError("kcat is missing: run .ci/system-packages peers, or make bench-peers")
    return found


def rsyslogd() -> str:
    """Return the path of rsyslogd.

    Raises:
        RuntimeError: It is not installed, or without the module that writes to Kafka.
    """
    found = shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None or not list(Path("/usr/lib").glob("*/rsyslog/omkafka.so")):
        raise RuntimeError("rsyslog-kafka is missing: run .ci/system-packages peers")
    return found


def tool(main: str, *arguments: str | Path, heap: str = "512m") -> list[str]:
    """Return the command of one of Kafka's tools."""
    return jars.command(main, arguments, heap=heap, flags=_MACHINE)


def timed(command: Sequence[str], out: int | None = subprocess.DEVNULL) -> tuple[float, str]:
    """Run a whole process; returns its time in seconds and what it printed, if that is kept.

    Raises:
        RuntimeError: It failed.
    """
    started_s = time.perf_counter()
    result = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if out is None else out,
        stderr=subprocess.PIPE,
        text=True,
    )
    seconds = time.perf_counter() - started_s
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return seconds, result.stdout or ""


def spent(command: Sequence[str]) -> Spent:
    """Run a whole process; returns what it took; raises RuntimeError if it failed."""
    return spent_by(lambda: timed(command))


def spent_by(run: Callable[[], object]) -> Spent:
    """Return what the processes took that a function starts and waits for."""
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run()
    seconds, after = time.perf_counter() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Spent(seconds, cpu)


def produce(broker: Broker, topic: str, records: int, record_bytes: int) -> Produced:
    """Run kafka-producer-perf-test, tuned for throughput: large batches that may wait, acks=1."""
    seconds, text = timed(producer_command(broker, topic, records, record_bytes), out=None)
    # The last line sums up: N records sent, R records/sec (S MB/sec), in units of 2**20 bytes.
    rates = re.findall(r"\(([\d.]+) MB/sec\)", text)
    return Produced(seconds, float(rates[-1]) * 2**20 / 1e6)


def producer_command(broker: Broker, topic: str, records: int, record_bytes: int) -> list[str]:
    """Return the command of kafka-producer-perf-test; see ``produce``."""
    return tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}"),
        *("acks=1", "batch.size=1000000", "linger.ms=20", "buffer.memory=134217728"),
        *("max.request.size=4000000", "compression.type=none"),
    )


def create_topic(broker: Broker, name: str, **config: str) -> None:
    """Make a topic of one partition; ``segment_ms`` is ``segment.ms``."""
    properties = {key.replace("_", "."): text for key, text in config.items()}
    Client(broker.bootstrap).create_topics({name: properties})


def install_log(broker: MeasuredBroker, topic: str, source: Path, partition: int = 0) -> Path:
    """Put the files of another partition directory in the place of a topic's; the broker is down.

    Returns:
        The partition directory. Its topic id stays.
    """
    directory = broker.partition(topic, partition)
    for path in directory.iterdir():
        if path.name[0].isdigit():
            path.unlink()
    for path in source.iterdir():
        if path.suffix in {".log", ".index", ".timeindex"}:
            shutil.copy2(path, directory)
    return directory


def forget_clean_stop(broker: MeasuredBroker) -> None:
    """Let a broker that is down find its directory as if it had been killed long ago."""
    for name in (_CLEAN_STOP, *_CHECKPOINTS):
        (broker.data / name).unlink(missing_ok=True)


def forget_cleaning(broker: MeasuredBroker) -> None:
    """Let the cleaner of a broker that is down begin at the beginning."""
    (broker.data / "cleaner-offset-checkpoint").unlink(missing_ok=True)


def cleaned_seconds(broker: MeasuredBroker, topic: str) -> float:
    """Wait until the broker has compacted a log, and return how long it took, as it logs it."""
    pattern = re.compile(
        rf"cleaned log {topic}-0 .*\n\s*([\d.,]+) MB of log processed .* \(([\d.,]+) MB/sec\)"
    )
    broker.wait_until(lambda: pattern.search(broker.log), f"{topic} is compacted")
    found = pattern.search(broker.log)
    assert found is not None
    processed, rate = (float(text.replace(",", "")) for text in found.groups())
    return processed / rate


def load_seconds(broker: MeasuredBroker, topic: str) -> float:
    """Return how long the broker took to load a log when it was started last, as it logged it."""
    pattern = rf"Completed load of .*topic={topic}, partition=0.* in (\d+)ms"
    found = re.findall(pattern, broker.log)
    if not found:
        raise RuntimeError(f"the broker has not logged how long loading {topic} took")
    return int(found[-1]) / 1000


def run_of(command: Sequence[str]) -> Callable[[], float]:
    """Return a run that times a whole process, whose output is dropped."""
    return lambda: timed(command)[0]
