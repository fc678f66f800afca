"""How fast are segments read that are in an object store alone.

The store is a server on loopback. A proxy makes it as distant as a store in another building: 30
ms, and 90 MB/s for each connection. Beside it rclone mounts the same objects, and a program reads
them with one request of 2 MiB at a time. Every reader begins with nothing in memory.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from benchmarks.data import LogSpec, build_log
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold
from benchmarks.runner import Bench, alternate, settle, timed_shell
from logfs.disk.remote.blocks import BLOCK_BYTES, LONGEST_SPAN
from tests.remote import programs
from tests.remote.servers import CREDENTIALS, Bucket, FaultProxy, FaultServer, ObjectServer

_CAT = 'exec cat "$1" > /dev/null'
_CAT_LOGS = 'find "$1" -name "*.log" | sort | xargs cat > /dev/null'
_FIRST_BYTE = 'exec head -c 1 "$1" > /dev/null'
_BEGIN = 'exec head -c "$2" "$1" > /dev/null'
_LATENCY_MS, _JITTER_MS = 30, 10
_RATE_KB_S = 90_000
_ROUND_TRIP_MS = 200
"""So long that the time tells how many requests were sent one after the other."""
_PIECE = 2 << 20
_SPAN = LONGEST_SPAN * BLOCK_BYTES
_AT_ONCE = 8
_BATCH_LINES = 150
_SEGMENTS = 16
_IN_MEMORY = 100_000_000
_STORE = "remote.log.manager.task.interval.ms=100\ncache.bytes=0\n"
_TOPIC = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "0"}
_PATIENCE_S = 60.0
_T = TypeVar("_T")


def rows(bench: Bench) -> Iterator[Row]:
    """``cat`` from a distant and a near store, a cold open, a second read, a killed reader."""
    os.environ.update(CREDENTIALS)
    spec = LogSpec(
        batch_lines=_BATCH_LINES,
        segment_batches=bench.scaled(4_000, 1_000),
        segments=_SEGMENTS,
        is_rolled=True,
    )
    server = bench.cleanup.enter_context(ObjectServer(bench.directory / "server"))
    proxies = bench.cleanup.enter_context(FaultServer(bench.directory / "proxies"))
    faults = proxies.proxy(server.endpoint)
    bucket = server.bucket("logs").through(faults)
    reading = _Reading(bench, spec, bucket)
    with faults.latency(_LATENCY_MS, _JITTER_MS), faults.bandwidth(_RATE_KB_S):
        runs = [reading.tiered, reading.one_by_one, reading.rclone]
        ours, one_by_one, rclone = alternate(runs, bench.pairs)
    distant = Samples("logfs", "MB/s", ours)
    yield compare(
        "tiered",
        f"cat, {_LATENCY_MS} ms, {_RATE_KB_S // 1000} MB/s a connection",
        at_least(5, "x one GET of 2 MiB at a time"),
        distant,
        Samples("one GET", "MB/s", one_by_one),
    )
    yield compare(
        "tiered",
        "the same beside rclone mount with 8 streams",
        at_least(1, "x rclone"),
        distant,
        Samples("rclone", "MB/s", rclone),
    )
    near, local, alone = alternate([reading.tiered, reading.local, reading.alone], bench.pairs)
    loopback = Samples("logfs", "MB/s", near)
    yield compare(
        "tiered",
        "cat, store on loopback",
        at_least(0.5, "x local segments"),
        loopback,
        Samples("local", "MB/s", local),
        Samples("GETs alone", "MB/s", alone),
    )
    yield compare(
        "tiered",
        "the same beside the GETs alone",
        at_least(0.5, "x GETs alone"),
        loopback,
        Samples("GETs alone", "MB/s", alone),
    )
    yield from reading.opens(faults)
    yield reading.again(faults)
    yield reading.killed(faults)


class _Reading:
    """The same log three times: tiered, local, and as objects."""

    def __init__(self, bench: Bench, spec: LogSpec, bucket: Bucket) -> None:
        self._bench = bench
        self._spec = spec
        self._bucket = bucket
        self._data = build_log(bench, "data", spec)
        self._local = mount_logfs(bench, build_log(bench, "local", spec))
        self._point = bench.directory / "rclone"
        self._point.mkdir()
        self._tier()
        settle(bench.directory)
        self._size = self._name_in(self._local.point).stat().st_size

    def tiered(self) -> float:
        """Return MB/s of cat of a mount that has just been started."""
        return self._with_mount(lambda point: self._rate_of(self._name_in(point)))

    def local(self) -> float:
        """Return MB/s of the same with local segments."""
        return self._rate_of(self._name_in(self._local.point))

    def one_by_one(self) -> float:
        """Return MB/s of a program that sends one request at a time."""
        store = self._bucket.open()
        logs = [stat for stat in store.list_all("") if stat.key.endswith(".log")]
        started_s = time.perf_counter()
        for stat in logs[: max(len(logs) // 4, 1)]:
            for start in range(0, stat.size, _PIECE):
                store.get_range(stat.key, start, min(_PIECE, stat.size - start))
        seconds = time.perf_counter() - started_s
        return sum(stat.size for stat in logs[: max(len(logs) // 4, 1)]) / seconds / 1e6

    def alone(self) -> float:
        """Return MB/s of the requests that cat needs, sent at once, without anything else."""
        store = self._bucket.open()
        logs = [stat for stat in store.list_all("") if stat.key.endswith(".log")]
        parts = [
            (stat.key, start, min(_SPAN, stat.size - start))
            for stat in logs
            for start in range(0, stat.size, _SPAN)
        ]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            started_s = time.perf_counter()
            for _ in pool.map(lambda part: len(store.get_range(*part)), parts):
                pass
            seconds = time.perf_counter() - started_s
        return sum(length for _, _, length in parts) / seconds / 1e6

    def rclone(self) -> float:
        """Return MB/s of cat of all objects in a mount of rclone."""
        remote = f":s3,provider=Other,env_auth,endpoint='{self._bucket.endpoint}':"
        source = remote + self._bucket.name
        command: list[str | Path] = [programs.found(programs.RCLONE), "mount", source]
        options = ["--read-only", "--config", "/dev/null", "--vfs-read-chunk-size", "8M"]
        options += ["--vfs-read-chunk-streams", "8", "--s3-force-path-style"]
        with subprocess.Popen([*command, self._point, *options]) as process:
            try:
                _wait(lambda: os.path.ismount(self._point))
                logs = list(self._point.rglob("*.log"))
                size = sum(log.stat().st_size for log in logs)
                return size / timed_shell(_CAT_LOGS, self._point)[0] / 1e6
            finally:
                process.send_signal(signal.SIGINT)

    def opens(self, faults: FaultProxy) -> Iterator[Row]:
        """Yield how many requests a look-up and its first byte send one after the other."""
        lines = self._spec.lines
        first, second = lines // 3, lines // 3 + 30_000  # of one segment, 3 MB apart
        with faults.latency(_ROUND_TRIP_MS):
            found = [
                self._with_mount(lambda point: self._trips(point, first, second))
                for _ in range(self._bench.pairs)
            ]
        for what, limit, number in (("nothing in memory", 3, 0), ("the index in memory", 1, 1)):
            yield hold(
                "tiered",
                f"requests one after the other: open at an offset and first byte, {what}",
                at_most(limit, "requests"),
                Samples("logfs", "requests", tuple(trips[number] for trips in found)),
            )

    def again(self, faults: FaultProxy) -> Row:
        """Return how fast a second read is, while the store does not answer."""

        def read_twice(point: Path) -> float:
            name = self._name_in(point)
            timed_shell(_BEGIN, name, str(_IN_MEMORY))
            with faults.hanging():
                return _IN_MEMORY / timed_shell(_BEGIN, name, str(_IN_MEMORY))[0] / 1e6

        def local() -> float:
            name = self._name_in(self._local.point)
            return _IN_MEMORY / timed_shell(_BEGIN, name, str(_IN_MEMORY))[0] / 1e6

        ours, theirs = alternate([lambda: self._with_mount(read_twice), local], self._bench.pairs)
        return compare(
            "tiered",
            "a second read of 100 MB, without any request",
            at_least(0.8, "x local segments"),
            Samples("logfs", "MB/s", ours),
            Samples("local", "MB/s", theirs),
        )

    def killed(self, faults: FaultProxy) -> Row:
        """Return how long a reader lives that gets SIGTERM while the store hangs."""

        def kill(point: Path) -> float:
            with faults.hanging():
                times = []
                for _ in range(5):
                    with subprocess.Popen(["cat", self._name_in(point)]) as reader:
                        time.sleep(0.3)
                        started_s = time.perf_counter()
                        reader.terminate()
                        reader.wait(_PATIENCE_S)
                        times.append(time.perf_counter() - started_s)
            return max(times) * 1000

        times = [self._with_mount(kill) for _ in range(self._bench.pairs)]
        return hold(
            "tiered",
            "a reader that is killed while the store hangs, the longest of 5",
            at_most(100, "ms"),
            Samples("logfs", "ms", tuple(times)),
        )

    def _tier(self) -> None:
        """Have a daemon copy all segments to the store and drop the local files."""
        (self._data / "logfs.remote").write_text(self._bucket.properties + _STORE)

        def copy(point: Path) -> None:
            for name, value in _TOPIC.items():
                os.setxattr(point / self._spec.topic, f"user.logfs.{name}", value.encode())
            logs = self._data / f"{self._spec.topic}-0"
            _wait(lambda: len(list(logs.glob("*.log"))) == 1)

        self._with_mount(copy)

    def _with_mount(self, run: Callable[[Path], _T]) -> _T:
        mount = mount_logfs(self._bench, self._data)
        try:
            return run(mount.point)
        finally:
            mount.stop()

    def _rate_of(self, name: Path) -> float:
        return self._size / timed_shell(_CAT, name)[0] / 1e6

    def _name_in(self, point: Path) -> Path:
        return point / self._spec.topic / "0"

    def _trips(self, point: Path, *offsets: int) -> list[float]:
        """Return how many round trips the first byte at each offset takes, one after the other."""
        local_s = timed_shell(_FIRST_BYTE, f"{self._name_in(self._local.point)}@offset=9")[0]
        found = []
        for offset in offsets:
            seconds = timed_shell(_FIRST_BYTE, f"{self._name_in(point)}@offset={offset}")[0]
            found.append(max(seconds - local_s, 0) * 1000 // _ROUND_TRIP_MS)
        return found


def _wait(holds: Callable[[], bool]) -> None:
    deadline_s = time.perf_counter() + _PATIENCE_S
    while not holds():
        if time.perf_counter() > deadline_s:
            raise RuntimeError("waited in vain")
        time.sleep(0.05)
