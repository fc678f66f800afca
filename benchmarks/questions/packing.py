"""What does packing make of a web log that was written line by line, and how fast is it to read."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from benchmarks.data import FIRST_MS
from benchmarks.library import UnsyncedDisk
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, Samples, at_least, at_most, compare, hold, rates
from benchmarks.runner import Bench, alternate, settle, shell_run, timed_shell
from logfs.config import StoreConfig
from logfs.log.store import LogStore
from logfs.machine.host import current_host, system_clock
from logfs.records._encoding import encode_lines
from logfs.services.compaction.tools import tools_for
from logfs.services.packing.packer import pack_now
from logfs.types import View

_PATHS = ("/", "/index.html", "/products/%d", "/cart", "/static/app.js", "/api/orders/%d")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)",
    "curl/8.9.1",
)
_SEGMENT_BYTES = 16 << 20


def rows(bench: Bench) -> Iterator[Row]:
    """The same lines in a topic that is packed and in one that is not, each line a batch."""
    lines = bench.scaled(1_000_000, 250_000)
    data = bench.directory / "data"
    data.mkdir()
    before, after, seconds, cpu_s = _build(data, lines)
    yield hold(
        "packing",
        "sealed segments of a web log, of their size before",
        at_most(0.15, "x before"),
        Samples("logfs", "x before", (after / before,)),
        Samples("packing", "MB/s", (before / 1e6 / seconds,)),
        Samples("packing by CPU time", "MB/s", (before / 1e6 / cpu_s,)),
    )
    settle(bench.directory)
    point = mount_logfs(bench, data).point
    packed, plain = (point / topic / "0" for topic in ("packed", "plain"))
    timed_shell('cmp "$1" "$2"', packed, plain)
    size = packed.stat().st_size
    cat = 'exec cat "$1" > /dev/null'
    ours, theirs = alternate([shell_run(cat, path) for path in (packed, plain)], bench.pairs)
    yield compare(
        "packing",
        "cat of a packed log",
        at_least(0.5, "x not packed"),
        rates("logfs", size, ours),
        rates("not packed", size, theirs),
    )


def _build(data: Path, lines: int) -> tuple[int, int, float, float]:
    """Write both topics and pack one; return its size before and after, and the time it took."""
    store = LogStore.open(UnsyncedDisk(str(data)), StoreConfig(), current_host(), now_ms=FIRST_MS)
    for topic, codec in (("plain", "uncompressed"), ("packed", "zstd")):
        settings = {
            "segment.bytes": str(_SEGMENT_BYTES),
            "retention.ms": "-1",
            "logfs.sealed.compression.type": codec,
        }
        store.create_topic(topic, 1, settings, FIRST_MS)
        log, random = store.partition(topic, 0), Random(1)
        for number in range(lines):
            line, now_ms = _line(random, number), FIRST_MS + number
            options = log.encode_options()
            encoded = encode_lines(View.TEXT, b"", line, 0, len(line), number, now_ms, options)
            log.append(encoded.batches, now_ms)
        log.roll(FIRST_MS + lines)
        log.flush()
    clock = system_clock()
    tools = tools_for(store.config, store.new_id, clock.monotonic_s, time.sleep)
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    done = pack_now(store.partition("packed", 0), FIRST_MS + lines, tools)
    seconds, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    store.close(FIRST_MS + lines)
    os.sync()
    return done.read_bytes, done.written_bytes, seconds, cpu_s


def _line(random: Random, number: int) -> bytes:
    """Return a line in the combined format, about 150 bytes."""
    path = random.choice(_PATHS)
    path = path % random.randrange(5000) if "%" in path else path
    return (
        b"%s - - [20/Nov/2026:%02d:%02d:%02d +0000] \"GET %s HTTP/1.1\" %d %d \"-\" \"%s\"\n"
        % (
            f"10.{random.randrange(4)}.{random.randrange(256)}.{random.randrange(256)}".encode(),
            number // 3_600_000 % 24, number // 60_000 % 60, number // 1000 % 60,
            path.encode(), random.choice((200, 200, 200, 304, 404)), random.randrange(200, 90_000),
            random.choice(_AGENTS).encode(),
        )
    )  # fmt: skip
