"""How soon does a waiting reader get a record, and what do a thousand waiting readers cost."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.data import TOPIC_LINES, LogSpec, build_log, call, numbered_lines, topic_lines
from benchmarks.mounts import mount_floor, mount_logfs
from benchmarks.questions.appending import make_writer
from benchmarks.results import Row, Samples, at_most, compare, hold
from benchmarks.runner import Bench, alternate, percentile, python_command, shell_run

_PAUSE_S = 0.001
_TAIL_PAUSE_S = 1.3
_RESOLVED_S = 1.1
"""Until then @latest may be that of the last run, whose lines a reader would begin with."""
_FOLLOWERS = 1000
_TOPICS = 2000
_STARTED_S = 20.0
"""By then a process follows so many topics."""

_READER = """
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDONLY) if len(sys.argv) > 1 else 0
print("ready", flush=True)
times, text = [], b""
while not text.endswith(b"end\\n"):
    text = os.read(descriptor, 1 << 16)
    now = time.monotonic_ns()
    times += [now] * text.count(b"\\n")
    if not text:
        break
print(*times)
"""
"""Tells when each line came: from the file that is named, or from stdin."""

_CROWD = """
import os, resource, sys, threading
name, count = sys.argv[1], int(sys.argv[2])
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 4 * count), limit))
threading.stack_size(1 << 18)
began = threading.Barrier(count + 1)

def follow():
    descriptor = os.open(name, os.O_RDONLY)
    began.wait()
    while True:
        os.read(descriptor, 4096)

for _ in range(count):
    threading.Thread(target=follow, daemon=True).start()
began.wait()
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""


def rows(bench: Bench) -> Iterator[Row]:
    """One record at a time, with a pause; then appends as fast as they go beside a thousand."""
    point = mount_logfs(bench, bench.directory / "data").point
    (point / "t").mkdir()
    partition = point / "t" / "0"
    floor = mount_floor(bench).point / "t" / "0"
    writes = bench.scaled(1000, 300)
    follow = [sys.executable, "-c", _READER, f"{partition}@latest.follow"]
    seen, least = alternate(
        [lambda: _seen_after(partition, follow, writes), lambda: _paused(floor, writes)],
        bench.pairs,
    )
    tail = ["sh", "-c", 'tail -n 0 -f "$1" | exec "$2" -c "$3"', "sh", str(partition)]
    tailed = _seen_after(
        partition, [*tail, sys.executable, _READER], bench.scaled(10, 3), _TAIL_PAUSE_S
    )
    yield compare(
        "follow",
        "from write(2) until a read of .follow returns, p50",
        at_most(3, "x floor's write(2)"),
        Samples("logfs", "us", seen),
        Samples("floor", "us", least),
        Samples("tail -f", "us", (tailed,)),
    )
    write = make_writer(partition, bench.scaled(2000, 500), 0.5)
    beside, alone = alternate([lambda: _beside_a_crowd(partition, write), write], bench.pairs)
    yield compare(
        "follow",
        f"write(2) of one line while {_FOLLOWERS:,} follow, p50",
        at_most(2, "x without readers"),
        Samples("logfs", "us", beside),
        Samples("without readers", "us", alone),
    )


def topics(bench: Bench) -> Iterator[Row]:
    """The last lines of many topics in a new process, and a line that comes to one of them."""
    data, files = bench.directory / "data", bench.directory / "files"
    count = bench.scaled(_TOPICS, _TOPICS // 4)
    for directory in (data, files):
        directory.mkdir()
    call("benchmarks.library", "topics", data, str(count))
    for number in range(count):
        (files / f"t{number}").write_bytes(topic_lines(number))
    one = build_log(bench, "one", LogSpec(batch_lines=TOPIC_LINES, segment_batches=count))
    ours, alone, theirs = alternate(
        [
            _last_lines(python_command("logfs", "tail", "-n", "10", data)),
            _last_lines(python_command("logfs", "tail", "-n", str(10 * count), one)),
            shell_run('cd "$1" && tail -q -n 10 -- * | cat > /dev/null', files),
        ],
        bench.pairs,
    )
    yield compare(
        "tails",
        f"logfs tail -n 10, {count:,} topics",
        at_most(20, "x as many lines of one topic"),
        _milliseconds("logfs", ours),
        _milliseconds("one topic", alone),
        _milliseconds("tail", theirs),
    )
    point = mount_logfs(bench, data).point
    pipe = '"$@" | exec "$PYTHON" -c "$READER"'
    follow = python_command("logfs", "tail", "-f", "-n", "0", "--no-prefix", point)
    plain = ["sh", "-c", 'cd "$0" && exec tail -q -n 0 -f -- *', str(files)]
    readers = [_piped(pipe, command) for command in (follow, plain)]
    writes = bench.scaled(10, 5)
    seen, least = alternate(
        [
            lambda: _seen_after(point / "t7" / "0", readers[0], writes, _TAIL_PAUSE_S, _STARTED_S),
            lambda: _seen_after(files / "t7", readers[1], writes, _TAIL_PAUSE_S, _STARTED_S),
        ],
        1,
    )
    yield hold(
        "tails",
        f"logfs tail -f, {count:,} topics: from write(2) until a line is printed, p50",
        at_most(100, "ms"),
        Samples("logfs", "ms", tuple(us / 1000 for us in seen)),
        Samples("tail -f", "ms", tuple(us / 1000 for us in least)),
    )


def _last_lines(command: Sequence[str]) -> Callable[[], float]:
    return shell_run('"$@" | cat > /dev/null', *command)


def _milliseconds(system: str, seconds: Sequence[float]) -> Samples:
    return Samples(system, "ms", tuple(1000 * s for s in seconds))


def _piped(script: str, command: Sequence[str]) -> list[str]:
    return [
        "env",
        f"PYTHON={sys.executable}",
        f"READER={_READER}",
        "sh",
        "-c",
        script,
        "sh",
        *command,
    ]


@contextmanager
def _started(command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"{command[0]} did not start")
            yield process
        finally:
            process.kill()


def _seen_after(
    path: Path,
    reader: Sequence[str],
    writes: int,
    pause_s: float = _PAUSE_S,
    started_s: float = 0.2,
) -> float:
    """Return the median time in us from write(2) of a line until a reader has it."""
    time.sleep(_RESOLVED_S)
    with _started(reader) as process:
        time.sleep(max(started_s, pause_s))
        started_ns = _write(path, writes, pause_s)[0]
        with path.open("ab") as file:
            file.write(b"end\n")
        seen_ns = [int(word) for word in process.communicate()[0].split()]
    if len(seen_ns) != writes + 1:
        raise RuntimeError(f"{len(seen_ns)} lines were seen, expected {writes + 1}")
    delays = [seen - started for seen, started in zip(seen_ns, started_ns, strict=False)]
    return percentile(delays, 0.5) / 1000


def _paused(path: Path, writes: int) -> float:
    """Return the median time in us of write(2) of a line, with the same pauses."""
    started_ns, done_ns = _write(path, writes, _PAUSE_S)
    return percentile([b - a for a, b in zip(started_ns, done_ns, strict=True)], 0.5) / 1000


def _write(path: Path, writes: int, pause_s: float) -> tuple[list[int], list[int]]:
    """Append lines one by one; returns when each was begun and done, in ns."""
    line = numbered_lines(0, 1)
    started, done = [], []
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(writes):
            started.append(time.monotonic_ns())
            os.write(descriptor, line)
            done.append(time.monotonic_ns())
            time.sleep(pause_s)
    finally:
        os.close(descriptor)
    return started, done


def _beside_a_crowd(partition: Path, run: Callable[[], float]) -> float:
    name, count = f"{partition}@latest.follow", str(_FOLLOWERS)
    time.sleep(_RESOLVED_S)
    with _started([sys.executable, "-c", _CROWD, name, count]):
        return run()
