"""How fast is a forward to a broker, beside Kafka's producer, kcat and rsyslog."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from benchmarks import peers
from benchmarks.data import LINE_BYTES, write_lines
from benchmarks.peers import MeasuredBroker, Spent
from benchmarks.results import Row, Samples, at_least, compare, rates
from benchmarks.runner import Bench, alternate, python_command
from tests.kafka.client import Client
from tests.processes import wait_until

_TOPIC = "lines"
_RSYSLOG = """
module(load="imfile")
module(load="omkafka")
global(workDirectory="{work}")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{file}" tag="l" ruleset="out" maxLinesAtOnce="10000")
ruleset(name="out" queue.type="LinkedList" queue.size="1000000" queue.dequeueBatchSize="4096") {{
    action(type="omkafka" broker="{broker}" topic="{topic}" template="line" resubmitOnFailure="on"
           confParam=["linger.ms=20", "batch.num.messages=10000"])
}}
"""
"""As its users run it; with larger batches than its defaults."""


def forward(bench: Bench) -> Iterator[Row]:
    """``logfs forward --until now`` of a topic of lines; the others send the same lines.

    A run of logfs notes its position durably and sends each line once; kcat and rsyslog read a
    file, keep no position or one of the file, and send at least once.
    """
    size = bench.scaled(200_000_000, 60_000_000)
    broker = peers.start_broker(bench)
    file, data = bench.directory / "lines", bench.directory / "data"
    write_lines(file, size)
    data.mkdir()
    peers.timed(python_command("logfs", "topic", "create", data / _TOPIC))
    peers.timed(python_command("logfs", "append", data / _TOPIC / "0", file))
    lines, client, numbers = size // LINE_BYTES, Client(broker.bootstrap), count()

    def sent(run: Callable[[str], Spent]) -> Callable[[], Spent]:
        def check() -> Spent:
            topic = f"sent-{next(numbers)}"
            client.create_topic(topic)
            spent = run(topic)
            if (there := client.latest(topic)) != lines:
                raise RuntimeError(f"{topic} has {there} records, expected {lines}")
            client.delete_topic(topic)
            return spent

        return check

    def ours(topic: str) -> Spent:
        to = f"kafka://{broker.bootstrap}/{topic}"
        words = ("forward", str(data / _TOPIC), "--to", to, "--until", "now")
        return peers.spent(python_command("logfs", *words))

    def kcat(topic: str) -> Spent:
        where = ["-b", broker.bootstrap, "-t", topic, "-p", "0"]
        return peers.spent([peers.kcat(), "-P", *where, "-l", str(file)])

    def producer(topic: str) -> Spent:
        return peers.spent(peers.producer_command(broker, topic, lines, LINE_BYTES))

    def rsyslog(topic: str) -> Spent:
        return _rsyslog(bench, broker, client, file, topic, lines)

    names = ("logfs", "perf-test", "kcat", "rsyslog")
    runs = alternate([sent(run) for run in (ours, producer, kcat, rsyslog)], bench.pairs)
    wall = [
        rates(name, size, [spent.seconds for spent in found])
        for name, found in zip(names, runs, strict=True)
    ]
    cpu = {
        name: Samples(name, "MB/s", tuple(size / 1e6 / spent.cpu_s for spent in found))
        for name, found in zip(names, runs, strict=True)
    }
    yield compare("forward", "lines to a broker, MB/s", at_least(2, "x perf-test"), *wall)
    yield compare(
        "forward",
        "lines to a broker, MB a second of processor time",
        at_least(2, "x kcat"),
        *(cpu[name] for name in ("logfs", "kcat", "perf-test", "rsyslog")),
    )


def _rsyslog(
    bench: Bench, broker: MeasuredBroker, client: Client, file: Path, topic: str, lines: int
) -> Spent:
    """Run rsyslogd until everything is there; its time and processor time."""
    work = bench.directory / topic
    work.mkdir()
    text = _RSYSLOG.format(work=work, file=file, broker=broker.bootstrap, topic=topic)
    (work / "conf").write_text(text)
    command = [peers.rsyslogd(), "-n", "-f", str(work / "conf"), "-i", str(work / "pid")]

    def until_there() -> None:
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait_until(lambda: client.latest(topic) >= lines, "rsyslog has sent everything")
            process.send_signal(signal.SIGTERM)

    return peers.spent_by(until_there)
