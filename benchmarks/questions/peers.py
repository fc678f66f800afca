"""How fast is logfs beside a Kafka broker, its tools and kcat, on the same bytes."""

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks import peers
from benchmarks.data import COMPACTED, LINE_BYTES, LogSpec, build_log, open_log, write_lines
from benchmarks.mounts import mount_logfs
from benchmarks.results import Row, Samples, at_least, compare, rates
from benchmarks.runner import Bench, alternate, python_command, settle, shell_run, timed_shell

_TOPIC = "lines"
_NO_LIMIT = str(2**31 - 1)
_BATCHES = (("16 KiB", 150), ("1 MiB", 9600))
"""Name and lines of a batch, as in ``recovery``."""
_COMPACTED_SEGMENTS = 8
_COPIES = (10, 2)
"""How often a key comes in a log that is compacted."""
_INDEXES = (".index", ".timeindex", ".textindex")


def append(bench: Bench) -> Iterator[Row]:
    """``cat FILE >>`` through a mount; a producer tuned for throughput. A topic for every run."""
    source = bench.directory / "source"
    size = write_lines(source, bench.scaled(512_000_000, 128_000_000))
    broker = peers.start_broker(bench)
    topics = iter(range(100))

    def logfs() -> peers.Produced:
        data = bench.directory / "data"
        mount = mount_logfs(bench, data)
        (mount.point / "t").mkdir()
        seconds, _ = timed_shell('exec cat "$1" >> "$2"', source, mount.point / "t" / "0")
        mount.stop()
        shutil.rmtree(data)
        return peers.Produced(seconds, size / 1e6 / seconds)

    def kafka() -> peers.Produced:
        topic = f"t{next(topics)}"
        peers.create_topic(broker, topic)
        produced = peers.produce(broker, topic, size // LINE_BYTES, LINE_BYTES)
        written = sum(path.stat().st_size for path in broker.partition(topic).glob("*.log"))
        if written < size:
            raise RuntimeError(f"{written} bytes in {topic}, expected more than {size}")
        return produced

    ours, theirs = alternate([logfs, kafka], bench.pairs)
    yield compare(
        "append",
        "cat FILE >>",
        at_least(5, "x broker"),
        rates("logfs", size, [run.seconds for run in ours]),
        rates("perf-test", size, [run.seconds for run in theirs]),
        Samples("by its own clock", "MB/s", tuple(run.own_mb_per_s for run in theirs)),
    )


def cat(bench: Bench) -> Iterator[Row]:
    """``cat`` of a growing name; kcat and the console consumer read the same lines of a broker."""
    source = bench.directory / "source"
    size = write_lines(source, bench.scaled(512_000_000, 128_000_000))
    point = mount_logfs(bench, bench.directory / "data").point
    (point / "t").mkdir()
    timed_shell('cat "$1" >> "$2"', source, point / "t" / "0")
    broker = peers.start_broker(bench)
    peers.create_topic(broker, _TOPIC)
    where = ["-b", broker.bootstrap, "-t", _TOPIC, "-p", "0"]
    peers.timed([peers.kcat(), "-P", "-q", *where, "-X", "linger.ms=20", "-l", str(source)])
    console = peers.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", _TOPIC, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(size // LINE_BYTES)),
    )
    read = [peers.kcat(), "-C", "-q", "-e", "-o", "beginning", *where]
    _, count = timed_shell('"$@" | wc -c', *read)
    if int(count) != size:
        raise RuntimeError(f"kcat prints {count} bytes, expected {size}")
    runs = [
        shell_run('exec cat "$1" > /dev/null', point / "t" / "0"),
        peers.run_of(read),
        peers.run_of(console),
    ]
    ours, theirs, slow = (
        rates(who, size, seconds)
        for who, seconds in zip(
            ("logfs", "kcat", "console consumer"), alternate(runs, bench.pairs), strict=True
        )
    )
    what = "cat of a growing name"
    yield compare("cat", what, at_least(8, "x kcat"), ours, theirs)
    yield compare("cat", what, at_least(30, "x console consumer"), ours, slow)


def recovery(bench: Bench) -> Iterator[Row]:
    """A segment that was not closed is checked and indexed; the broker logs the time."""
    for what, lines in _BATCHES:
        data, source = _segment(bench, lines, is_closed=False)
        broker = _broker_with(bench, source, lines)
        ours, theirs = alternate([partial(_open, data), partial(_recover, broker)], bench.pairs)
        yield _load_row("recovery", f"recovery, batches of {what}", source, ours, theirs)


def rebuild(bench: Bench) -> Iterator[Row]:
    """The index files of a log that was closed are deleted, and recreated by both."""
    for what, lines in _BATCHES:
        data, source = _segment(bench, lines, is_closed=True)
        broker = _broker_with(bench, source, lines)
        broker.start()
        broker.stop()  # knows the log now, and leaves it closed
        ours, theirs = alternate(
            [partial(_open_without_indexes, data, source), partial(_index, broker)], bench.pairs
        )
        yield _load_row("rebuild", f"index rebuild, batches of {what}", source, ours, theirs)


def compaction(bench: Bench) -> Iterator[Row]:
    """``logfs compact`` and the cleaner of a broker, each by its own clock."""
    for copies in _COPIES:
        yield _compaction_row(bench, copies)


def _compaction_row(bench: Bench, copies: int) -> Row:
    """Compact a log in which each key comes so many times."""
    lines = bench.scaled(4_000_000, 1_000_000)
    spec = LogSpec(
        batch_lines=150,
        segment_batches=lines // 150 // _COMPACTED_SEGMENTS,
        segments=_COMPACTED_SEGMENTS,
        is_rolled=True,
        topic=_TOPIC,
        keys=lines // copies,
    )
    data = build_log(bench, f"data-{copies}", spec)
    source = data / f"{_TOPIC}-0"
    size = _log_bytes(source)
    broker = peers.MeasuredBroker(
        bench.directory / f"broker-{copies}", log_cleaner_backoff_ms="1000"
    )
    bench.cleanup.enter_context(broker)
    peers.create_topic(broker, _TOPIC, segment_bytes=str(2**30), **_underscored(COMPACTED))
    broker.stop()
    left, whole = [], []

    def logfs() -> float:
        copied = bench.directory / "copy"
        shutil.copytree(data, copied)
        settle(bench.directory)
        command = python_command("logfs", "compact", "--json", copied / _TOPIC / "0")
        whole_s, text = peers.timed(command, out=None)
        whole.append(whole_s)
        left.append(_log_bytes(copied / f"{_TOPIC}-0"))
        shutil.rmtree(copied)
        [done] = json.loads(text)
        return float(done["elapsed_s"])

    def kafka() -> float:
        peers.install_log(broker, _TOPIC, source)
        peers.forget_cleaning(broker)
        settle(bench.directory)
        broker.start()
        seconds = peers.cleaned_seconds(broker, _TOPIC)
        broker.stop()
        left.append(_log_bytes(broker.partition(_TOPIC)))
        return seconds

    ours, theirs = alternate([logfs, kafka], bench.pairs)
    if not max(left) < min(left) * 1.01 < size / copies * 1.1:
        raise RuntimeError(f"of {size} bytes are left {left}, expected always 1 / {copies}")
    shutil.rmtree(data)
    return compare(
        "compaction",
        f"compaction, {copies} records a key",
        at_least(5, "x broker"),
        rates("logfs", size, ours),
        rates("broker", size, theirs),
        rates("as a whole process", size, whole[1:]),
    )


def _underscored(settings: Mapping[str, str]) -> dict[str, str]:
    return {key.replace(".", "_"): value for key, value in settings.items()}


def _log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def dump(bench: Bench) -> Iterator[Row]:
    """``logfs dump --print-data-log`` and kafka-dump-log, on one segment."""
    for what, lines in _BATCHES:
        _, source = _segment(
            bench, lines, is_closed=True, size=bench.scaled(256_000_000, 64_000_000)
        )
        log = source / f"{0:020}.log"
        options = ["--print-data-log", "--files", str(log)]
        runs = [
            peers.run_of(python_command("logfs", "dump", *options)),
            peers.run_of(peers.tool("kafka.tools.DumpLogSegments", *options)),
        ]
        ours, theirs = alternate(runs, bench.pairs)
        size = log.stat().st_size
        yield compare(
            "dump",
            f"dump with records, batches of {what}",
            at_least(10, "x kafka-dump-log"),
            rates("logfs", size, ours),
            rates("kafka-dump-log", size, theirs),
        )


def _segment(
    bench: Bench, lines: int, *, is_closed: bool, size: int | None = None
) -> tuple[Path, Path]:
    """Build a data directory with one segment; return it and the partition directory."""
    size = bench.scaled(1_000_000_000, 250_000_000) if size is None else size
    batches = size // LINE_BYTES // lines
    spec = LogSpec(batch_lines=lines, segment_batches=batches, is_closed=is_closed, topic=_TOPIC)
    data = build_log(bench, f"data-{lines}", spec)
    settle(bench.directory)
    return data, data / f"{_TOPIC}-0"


def _broker_with(bench: Bench, source: Path, lines: int) -> peers.MeasuredBroker:
    """Return a broker, stopped, that has a log of ours."""
    broker = peers.MeasuredBroker(bench.directory / f"broker-{lines}")
    bench.cleanup.enter_context(broker)
    peers.create_topic(broker, _TOPIC, segment_bytes=_NO_LIMIT)
    broker.stop()
    peers.install_log(broker, _TOPIC, source)
    peers.forget_clean_stop(broker)
    settle(bench.directory)
    return broker


def _recover(broker: peers.MeasuredBroker) -> float:
    peers.forget_clean_stop(broker)
    broker.start()
    seconds = peers.load_seconds(broker, _TOPIC)
    broker.kill()
    return seconds


def _index(broker: peers.MeasuredBroker) -> float:
    for suffix in (".index", ".timeindex"):
        for path in broker.partition(_TOPIC).glob(f"*{suffix}"):
            path.unlink()
    broker.start()
    seconds = peers.load_seconds(broker, _TOPIC)
    broker.stop()
    return seconds


def _open(data: Path) -> float:
    return open_log(data, close=False).seconds


def _open_without_indexes(data: Path, source: Path) -> float:
    log = source / f"{0:020}.log"
    for suffix in _INDEXES:
        log.with_suffix(suffix).unlink()
    return open_log(data, close=True).seconds


def _load_row(
    question: str,
    what: str,
    source: Path,
    ours: tuple[float, ...],
    theirs: tuple[float, ...],
) -> Row:
    size = (source / f"{0:020}.log").stat().st_size
    return compare(
        question,
        what,
        at_least(1.5, "x broker"),
        rates("logfs", size, ours),
        rates("broker", size, theirs),
    )
