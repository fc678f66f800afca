"""What does a store cost: mounts of many tiered segments, appends beside it, copying, Spark.

And its journal: appends beside it, its requests, a promotion after the loss of the machine.

The store is a server on loopback, which logs its requests.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.data import LINE_BYTES, LogSpec, build_log, call_with, numbered_lines
from benchmarks.mounts import mount_logfs, mount_url
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold, rates
from benchmarks.runner import Bench, percentile, settle
from tests.remote.servers import CREDENTIALS, Bucket, FaultServer, ObjectServer

_TOPIC = "lines"
_SETTINGS = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "0"}
_STORE = "remote.log.manager.task.interval.ms=100\ncache.bytes=0\n"
_FRESHNESS_MS = 1000
_OBSERVED_S = 20.0
_PATIENCE_S = 900.0
_PUT_BYTES = 64 << 20
_TICK_S = os.sysconf("SC_CLK_TCK")


def mounts(bench: Bench) -> Iterator[Row]:
    """A mount of ten thousand tiered segments of one partition, and of their bucket elsewhere."""
    segments = bench.scaled(10_000, 1_000)
    spec = LogSpec(batch_lines=10, segment_batches=1, segments=segments, is_rolled=True)
    server = _Server(bench)
    data = build_log(bench, "many", spec)
    bucket = server.tiered(bench, data)
    os.environ["AWS_ENDPOINT_URL"] = bucket.endpoint
    expected = spec.lines * LINE_BYTES
    for what, source, limits in (
        ("data directory", data, (1, 150, 0)),
        ("bucket", bucket.url, (2, 150, 6)),
    ):
        found = [server.mounted(bench, source, expected) for _ in range(bench.pairs)]
        for number, unit in enumerate(("s", "MB", "requests")):
            yield hold(
                "tier-mount",
                f"mount of a {what}, {segments:,} tiered segments",
                at_most(limits[number], unit),
                Samples("logfs", unit, tuple(row[number] for row in found)),
            )


def appends(bench: Bench) -> Iterator[Row]:
    """One line after the other, while the store hangs, and while segments are copied."""
    server = _Server(bench)
    faults = bench.cleanup.enter_context(FaultServer(bench.directory / "proxies"))
    proxy = faults.proxy(server.objects.endpoint)
    bucket = server.objects.bucket("hanging").through(proxy)
    with _Appending(bench, "hanging", bucket) as log:
        with proxy.hanging():
            log.fill(3)
            log.wait_until_it_fails()
            hanging = [log.p99_us() for _ in range(bench.pairs)]
        log.wait_until_copied()
        calm = [log.p99_us() for _ in range(bench.pairs)]
        yield compare(
            "tier-append",
            "append of a line, p99, the store hangs",
            at_most(1.2, "x without"),
            Samples("hanging", "us", tuple(hanging)),
            Samples("calm", "us", tuple(calm)),
        )
    yield from _beside_copies(bench, server)


def _beside_copies(bench: Bench, server: "_Server") -> Iterator[Row]:
    spec = LogSpec(
        batch_lines=10_000, segment_batches=64, segments=bench.scaled(16, 4), is_rolled=True
    )
    with _Appending(bench, "copied", server.objects.bucket("copied"), spec) as log:
        before_s = log.cpu_s()
        log.enable()
        log.wait_until_copied()
        used_s = log.cpu_s() - before_s
    copying = Samples("logfs", "s", (used_s / (spec.lines * LINE_BYTES) * (1 << 30),))
    yield hold(
        "tier-append",
        "processor time of a copy to the store, for 1 GiB",
        at_most(1.5, "s"),
        copying,
    )
    yield compare(
        "tier-append",
        "the same beside the PUTs alone",
        at_most(2, "x PUTs alone"),
        copying,
        Samples("PUTs alone", "s", _puts_alone_s(server.objects.bucket("alone"), bench.pairs)),
    )
    with _Appending(bench, "beside", server.objects.bucket("beside"), spec) as log:
        calm = [log.p99_us() for _ in range(bench.pairs)]
        log.enable()
        busy = []
        while not log.is_copied:
            busy.append(log.p99_us())
    yield compare(
        "tier-append",
        "append of a line, p99, while segments are copied",
        at_most(1.5, "x without"),
        Samples("copying", "us", tuple(busy)),
        Samples("calm", "us", tuple(calm)),
    )


def _puts_alone_s(bucket: Bucket, runs: int) -> tuple[float, ...]:
    """Return the processor time of storing 1 GiB that is in memory, in objects of 64 MiB."""
    store, data = bucket.open(), os.urandom(1 << 20) * (_PUT_BYTES >> 20)
    count = (1 << 30) // _PUT_BYTES
    found = []
    for run in range(runs + 1):
        started_s = time.process_time()
        for number in range(count):
            store.put(f"{run}-{number}", [data])
            store.delete(f"{run}-{number}")
        found.append(time.process_time() - started_s)
    return tuple(found[1:])  # the first one has to take the memory


def spark(bench: Bench) -> Iterator[Row]:
    """``sum(length(value))`` of a bucket, beside the same log in a data directory."""
    spec = LogSpec(
        batch_lines=150,
        segment_batches=bench.scaled(4_000, 1_000),
        segments=bench.scaled(16, 4),
        is_rolled=True,
    )
    server = _Server(bench)
    data = build_log(bench, "scanned", spec)
    local = build_log(bench, "local", spec)
    bucket = server.tiered(bench, data)
    os.environ["AWS_ENDPOINT_URL"] = bucket.endpoint
    settle(bench.directory)
    printed = call_with("benchmarks.sparkscan", local, bucket.url, str(min(bench.pairs, 3)))
    seconds = json.loads(printed.splitlines()[-1])
    size = spec.lines * LINE_BYTES
    yield compare(
        "tier-spark",
        "Spark, sum(length(value)) of a bucket on loopback",
        at_least(0.5, "x local"),
        rates("bucket", size, seconds["url"]),
        rates("local", size, seconds["logfs"]),
    )


def journal(bench: Bench) -> Iterator[Row]:
    """Appends beside the rounds of a journal, its PUTs, its readers, a promotion after a kill."""
    server = _Server(bench)
    times: dict[str, list[float]] = {"with": [], "without": []}
    logs = {
        name: bench.cleanup.enter_context(
            _Appending(bench, name, server.objects.bucket(name), settings=settings)
        )
        for name, settings in (("with", f"freshness.ms={_FRESHNESS_MS}\n"), ("without", ""))
    }
    for _ in range(bench.pairs):
        for name, log in logs.items():
            times[name].append(log.p99_us())
    yield compare(
        "tier-journal",
        "append of a line, p99, freshness.ms=1000",
        at_most(1.1, "x without"),
        Samples("journal", "us", tuple(times["with"])),
        Samples("without", "us", tuple(times["without"])),
    )
    for count in (1, bench.scaled(1_000, 100)):
        yield from _journaled(bench, server, count)


def _journaled(bench: Bench, server: "_Server", count: int) -> Iterator[Row]:
    """The PUTs of a directory of so many topics, a reader, and a promotion after a kill."""
    bucket = server.objects.bucket(f"journaled-{count}")
    data = bench.directory / f"journaled-{count}"
    data.mkdir()
    (data / "logfs.remote").write_text(f"{bucket.properties}freshness.ms={_FRESHNESS_MS}\n")
    mount = mount_logfs(bench, data)
    files = [mount.point / f"t{number}" / "0" for number in range(count)]
    for file in files:
        file.parent.mkdir()
        os.setxattr(file.parent, "user.logfs.remote.storage.enable", b"true")
        with file.open("ab") as out:
            out.write(numbered_lines(0, 10))
    time.sleep(3 * _FRESHNESS_MS / 1000)
    os.environ["AWS_ENDPOINT_URL"] = bucket.endpoint
    with _FreshReader(bench, bucket.url, files[0].stat().st_size) as reader:
        before, begin_s, number = server.puts, time.perf_counter(), 0
        while time.perf_counter() - begin_s < _OBSERVED_S:
            with files[number % count].open("ab") as out:
                out.write(numbered_lines(number, 1))
            if number % count == 0:
                reader.appended_s.append(time.perf_counter())
            number += 1
            time.sleep(0.001)
        rounds = (time.perf_counter() - begin_s) * 1000 / _FRESHNESS_MS
        puts = server.puts - before
    mount.kill()
    shutil.rmtree(data)
    yield hold(
        "tier-journal",
        f"-o ro,fresh: age of what is missing, p99, {count:,} partitions",
        at_most(_FRESHNESS_MS / 1000 + 1, "s"),
        Samples("logfs", "s", (percentile(reader.lags_s, 0.99),)),
    )
    yield hold(
        "tier-journal",
        f"PUTs in freshness.ms, {count:,} partitions",
        at_most(1.05, "PUTs"),
        Samples("logfs", "PUTs", (puts / rounds,)),
    )
    begin_s = time.perf_counter()
    call_with("logfs", "promote", bucket.url, bench.directory / f"promoted-{count}")
    yield hold(
        "tier-journal",
        f"logfs promote, {count:,} partitions",
        at_most(10, "s"),
        Samples("logfs", "s", (time.perf_counter() - begin_s,)),
    )


class _FreshReader(threading.Thread):
    """A mount that follows a journal, and the age of what its topic ``t0`` does not show yet.

    Attributes:
        appended_s: When each line was appended there after the mount.
        lags_s: The age of the oldest line that is missing, many times.
    """

    def __init__(self, bench: Bench, url: str, size: int) -> None:
        super().__init__()
        self.appended_s: list[float] = []
        self.lags_s: list[float] = []
        self._mount = mount_url(bench, url, "ro,fresh")
        self._size = size
        self._is_over = threading.Event()

    def __enter__(self) -> "_FreshReader":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        self._mount.stop()

    def run(self) -> None:
        """Look again and again."""
        while not self._is_over.wait(0.02):
            shown = (self._mount.point / "t0" / "0").stat().st_size - self._size
            missing = self.appended_s[shown // LINE_BYTES :]
            self.lags_s.append(time.perf_counter() - missing[0] if missing else 0.0)


class _Server:
    """A server whose requests are counted."""

    def __init__(self, bench: Bench) -> None:
        os.environ.update(CREDENTIALS)
        self._requests = bench.directory / "requests.log"
        self.objects = bench.cleanup.enter_context(
            ObjectServer(bench.directory / "server", access_log=self._requests)
        )

    @property
    def requests(self) -> int:
        """Requests so far."""
        return self._requests.read_bytes().count(b"\n") if self._requests.exists() else 0

    @property
    def puts(self) -> int:
        """PUTs so far."""
        return (
            self._requests.read_bytes().count(b" s3_PutObject ") if self._requests.exists() else 0
        )

    def tiered(self, bench: Bench, data: Path) -> Bucket:
        """Have a daemon copy all sealed segments of a directory and drop the local files."""
        bucket = self.objects.bucket(data.name)
        (data / "logfs.remote").write_text(bucket.properties + _STORE)
        mount = mount_logfs(bench, data)
        try:
            for name, value in _SETTINGS.items():
                os.setxattr(mount.point / _TOPIC, f"user.logfs.{name}", value.encode())
            _wait(lambda: len(list((data / f"{_TOPIC}-0").glob("*.log"))) == 1)
        finally:
            mount.stop()
        return bucket

    def mounted(
        self, bench: Bench, source: Path | str, expected: int
    ) -> tuple[float, float, float]:
        """Mount; return the seconds until it answers, its memory, and its requests."""
        before = self.requests
        mount = mount_url(bench, source) if isinstance(source, str) else mount_logfs(bench, source)
        try:
            start_s = mount.start_s
            started_s = time.perf_counter()
            size = (mount.point / _TOPIC / "0").stat().st_size
            if isinstance(source, str):
                start_s += time.perf_counter() - started_s  # the first name reads the head
            if size != expected:
                raise RuntimeError(f"{source}: {size} bytes, expected {expected}")
            return start_s, mount.resident_mb(), float(self.requests - before)
        finally:
            mount.stop()


class _Appending:
    """A mounted topic to which one line after the other is appended."""

    def __init__(
        self,
        bench: Bench,
        name: str,
        bucket: Bucket,
        spec: LogSpec | None = None,
        *,
        settings: str = "",
    ) -> None:
        self._lines = bench.scaled(20_000, 5_000)
        self._data = bench.directory / name if spec is None else build_log(bench, name, spec)
        self._data.mkdir(exist_ok=True)
        (self._data / "logfs.remote").write_text(bucket.properties + _STORE + settings)
        self._mount = mount_logfs(bench, self._data)
        self._topic = self._mount.point / _TOPIC
        if spec is None:
            self._topic.mkdir()
            os.setxattr(self._topic, "user.logfs.segment.bytes", b"1048576")
            self.enable()

    def __enter__(self) -> "_Appending":
        return self

    def __exit__(self, *_: object) -> None:
        self._mount.stop()

    def enable(self) -> None:
        """Let sealed segments be copied and go."""
        for name, value in _SETTINGS.items():
            os.setxattr(self._topic, f"user.logfs.{name}", value.encode())

    def fill(self, segments: int) -> None:
        """Append some segments of 1 MiB."""
        with (self._topic / "0").open("ab") as out:
            for _ in range(segments):
                out.write(numbered_lines(0, (1 << 20) // LINE_BYTES))

    def wait_until_it_fails(self) -> None:
        """Wait until the task of the daemon waits for the store."""
        time.sleep(1)

    @property
    def is_copied(self) -> bool:
        """Whether only the last segments are local."""
        return len(list((self._data / f"{_TOPIC}-0").glob("*.log"))) <= 2

    def wait_until_copied(self) -> None:
        """Wait until all sealed segments are in the store alone."""
        _wait(lambda: self.is_copied)

    def p99_us(self) -> float:
        """Append lines one by one; return the time of the slowest of a hundred, in microseconds."""
        line, times = numbered_lines(0, 1), []
        with (self._topic / "0").open("ab", buffering=0) as out:
            for _ in range(self._lines):
                started_s = time.perf_counter()
                out.write(line)
                times.append(time.perf_counter() - started_s)
        return percentile(times, 0.99) * 1e6

    def cpu_s(self) -> float:
        """Return the processor time of the daemon."""
        fields = Path(f"/proc/{self._mount.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK_S


def _wait(holds: Callable[[], bool]) -> None:
    deadline_s = time.perf_counter() + _PATIENCE_S
    while not holds():
        if time.perf_counter() > deadline_s:
            raise RuntimeError("waited in vain")
        time.sleep(0.05)
