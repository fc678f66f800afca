"""Whole data directories with changed files: every command, the follower, recovery, both mounts.

A case is JSON: the seed, which is one of the directories that ``_seed`` makes, the edits of its
files, and whether it is mounted. A command ends with a status and its own error; what is
called a bug, a traceback, and an end by a signal are defects.
"""

import base64
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from random import Random

from logfs.cli.main import main
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import LogfsError
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.store import LogStore
from logfs.records._encoding import encode_records
from logfs.records.columns import Columns
from logfs.records.compression import limit_decompressed
from logfs.records.record import Record
from logfs.services.following.files import FollowedSegments
from logfs.services.following.store import AnyStore, FollowedStore
from logfs.services.scanning.ranges import OffsetRange, RangeReader
from logfs.services.scanning.stored import StoredLog
from logfs.services.views.files import GrowingFile
from logfs.types import IsolationLevel, TopicPartition, View
from tests.fuzz.mutation import change_batch, change_bytes, messages
from tests.mounting import Mount, is_mounted, take_away

_NOW_MS = 1_700_000_000_000
SEEDS = ("logfs", "kafka", "compacted", "legacy", "killed")
_MOUNTED_SHARE = 0.05
_LIMIT_BYTES = 16 << 20
_IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a case is, if that can be: on a disk most of the time is that of its syncs."""
_BUG = ("a bug in logfs", "Traceback", "runtime error", "AddressSanitizer")
COMMANDS = (
    *(("verify", "DATA"), ("status", "DATA"), ("status", "-p", "--json", "DATA"), ("du", "DATA")),
    *(("topic", "list", "DATA"), ("offsets", "DATA"), ("offsets", "--as-kafka", "DATA")),
    *(("cat", "DATA/orders/0"), ("cat", "DATA/orders/0.jsonl"), ("cat", "DATA/orders/1")),
    *(("cat", "DATA/orders/0@offset=7..offset=90.tsv"), ("cat", "DATA/orders/0@byte=265")),
    *(("cat", "DATA/orders/0@2023-11-14..latest"), ("cat", "DATA/orders/0.meta")),
    ("cat", "--isolation-level", "read_committed", "DATA/orders/0@offset=3"),
    *(("explain", "DATA/orders/0@2023-11-14..offset=90"), ("explain", "DATA/orders@-1h")),
    *(("tail", "-n", "3", "DATA/orders"), ("tail", "--from", "-9999d", "DATA")),
    *(("topic", "describe", "--all", "DATA/orders"), ("plan", "DATA")),
    *(("dump", "--print-data-log", "DATA/orders-0"), ("dump", "--index-sanity-check", "DATA")),
    *(("backup", "DATA", "FOLDER/backups/one"), ("backup", "DATA", "FOLDER/backups/two")),
    *(("verify", "FOLDER/backups/two"), ("restore", "FOLDER/backups/two", "FOLDER/restored")),
    *(("salvage", "DATA", "FOLDER/salvaged"), ("cat", "FOLDER/salvaged/orders/0")),
    *(("reindex", "DATA"), ("append", "DATA/orders/0.tsv", "FOLDER/lines")),
    ("topic", "alter", "DATA/orders", "--config", "retention.ms=-1", "--partitions", "3"),
    ("topic", "alter", "DATA/orders", "--config", "logfs.sealed.compression.type=zstd"),
    *(("pack", "DATA/orders"), ("compact", "DATA/orders")),
    *(("group", "reset", "readers", "DATA/orders/0@offset=5"), ("group", "list", "DATA")),
    ("group", "describe", "DATA", "readers"),
    *(("trim", "--now", "DATA/orders/0@offset=11"), ("verify", "DATA")),
)
"""Each with the words DATA, the directory of the case, and FOLDER, another one for its results."""
LAST_COMMAND = ("topic", "delete", "DATA/orders")
_READ_OF_A_MOUNT = (
    "orders/0@byte=265",
    "orders/0",
    "orders/0@offset=5..offset=60.jsonl",
    "orders/0@-1h",
    "orders/0.meta",
)


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return a case."""
    seed = chance.choice(SEEDS)
    files = {str(p.relative_to(_seed(seed))): p for p in sorted(_seed(seed).rglob("*"))}
    edits = []
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        name = chance.choice([name for name, path in files.items() if path.is_file()])
        edits.append([name, _edit(chance, name, files[name].read_bytes())])
    mount = chance.choice(("ro", "rw")) if chance.random() < _MOUNTED_SHARE else None
    return json.dumps({"seed": seed, "edits": edits, "mount": mount}).encode()


def check(case: bytes) -> None:
    """Make the directory of a case and use it in every way."""
    wanted = json.loads(case)
    limit_decompressed(_LIMIT_BYTES)
    with tempfile.TemporaryDirectory(prefix="logfs-fuzz-", dir=_IN_MEMORY) as folder:
        data = Path(folder) / "data"
        shutil.copytree(_seed(wanted["seed"]), data)
        for name, text in wanted["edits"]:
            if text is None:
                (data / name).unlink(missing_ok=True)
            else:
                (data / name).write_bytes(base64.b64decode(text))
        if wanted["mount"]:
            _mount(data, Path(folder) / "mnt", wanted["mount"])
        os.environ["CACHE_DIRECTORY"] = folder
        make_room(data)
        _follow(data)
        _scan(data)
        for command in COMMANDS:
            call(data, command)
        _recover(data)
        for command in (("cat", "DATA/orders/0"), LAST_COMMAND):
            call(data, command)


def _edit(chance: Random, name: str, data: bytes) -> str | None:
    """Return the new bytes of a file in base64; None: it is removed."""
    if chance.random() < 0.05:
        return None
    if not name.endswith(".log") or chance.random() < 0.3:
        data = _with_number(chance, data) if chance.random() < 0.3 else change_bytes(chance, data)
        return base64.b64encode(data).decode()
    batches = list(_batches(data))
    number = chance.randrange(len(batches) or 1)
    batches[number : number + 1] = [change_batch(chance, b) for b in batches[number : number + 1]]
    return base64.b64encode(b"".join(batches)).decode()


def _with_number(chance: Random, data: bytes) -> bytes:
    """Put another number at a place where an index or a table has one."""
    at, width = 4 * chance.randrange(1 + len(data) // 4), chance.choice((4, 8))
    number = chance.choice((0, 1, 2**31 - 1, 2**40, 2**63 - 1, -1, -(2**31), -(2**63)))
    return data[:at] + (number % (1 << 8 * width)).to_bytes(width, "big") + data[at + width :]


def _batches(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 12 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        yield data[at : at + size]
        at += size


@cache
def _seed(name: str) -> Path:
    """Make a directory of which cases are copies, the same in every run; return where it is."""
    data = Path(tempfile.mkdtemp(prefix="logfs-fuzz-seed-"))
    store = _open(data)
    properties = {"index.interval.bytes": "200", "internal.segment.bytes": "2500"}
    if name == "compacted":
        properties["cleanup.policy"] = "compact"
    store.create_topic("orders", 2, properties, _NOW_MS)
    log = store.partition("orders", 0)
    for number in range(90):
        key = b"key %d" % (number % 7)
        records = [Record(0, _NOW_MS + number, key, b"value %d\n" % number, ((b"h", None),))]
        base_offset = log.log_end_offset
        log.append(
            encode_records(records, base_offset, _NOW_MS, log.encode_options()).batches, _NOW_MS
        )
    writer = LineWriter(store.partition("orders", 1), View.TSV)
    writer.write(b"k\tline\nk\tunfin", _NOW_MS)
    if name == "killed":
        shutil.copytree(data, data / "copy", ignore=shutil.ignore_patterns("copy", "*.socket"))
    store.close(_NOW_MS)
    if name == "killed":
        copy = (data / "copy").rename(data.with_name(f"{data.name}-killed"))
        shutil.rmtree(data)
        data = copy
    if name == "compacted":
        call(data, ("compact", "DATA/orders"))
    if name in ("kafka", "legacy"):
        for path in [*data.rglob("logfs.*"), *data.rglob("*.textindex")]:
            path.unlink()
    if name == "legacy":
        with (data / "orders-0/00000000000000000000.log").open("wb") as file:
            file.write(messages(Random(5)))
    return data


def _open(data: Path) -> LogStore:
    host = Host("00000001", _new_ids())
    return LogStore.open(PosixDisk(data), StoreConfig(), host, now_ms=_NOW_MS)


def _new_ids() -> Callable[[], bytes]:
    """Return what gives another id of 16 bytes at each call, in every run the same."""
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def make_room(data: Path) -> None:
    """Make what the commands need beside a directory."""
    (data.parent / "backups").mkdir()
    (data.parent / "lines").write_bytes(b"k\tone\nk\ttwo\n")


def call(data: Path, command: tuple[str, ...]) -> int:
    """Call a command in this process; return its status. It must not end with what it calls a bug.

    Args:
        command: Its words, see ``COMMANDS``; FOLDER is the directory that contains ``data``.
    """
    places = {"DATA": str(data), "FOLDER": str(data.parent)}
    arguments = [re.sub("DATA|FOLDER", lambda word: places[word[0]], word) for word in command]
    output = io.TextIOWrapper(io.BytesIO(), errors="replace")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = main(arguments)
    output.flush()
    text = output.buffer.getvalue().decode(errors="replace")
    assert status in (0, 1, 2), f"{command}: status {status}\n{text[-2000:]}"
    assert not any(word in text for word in _BUG), f"{command}:\n{text[-2000:]}"
    return status


def seed(name: str) -> Path:
    """Return an undamaged directory of one of ``SEEDS``; only copies of it may be changed."""
    return _seed(name)


def _follow(data: Path) -> None:
    """Read everything as a read-only mount would."""
    host = Host("00000002", _new_ids())
    try:
        store = FollowedStore.follow(PosixDisk(data), StoreConfig(), host, None, now_ms=_NOW_MS)
    except (LogfsError, OSError):
        return
    with contextlib.suppress(LogfsError, OSError):
        for view in View:
            _read_all(store, view)
    store.close(_NOW_MS)


def _scan(data: Path) -> None:
    """Read everything as Spark and the export do: columns of ranges of offsets."""
    disk, one = PosixDisk(data), TopicPartition("orders", 0)
    log = StoredLog(disk, FollowedSegments(disk, 4), one)
    with contextlib.suppress(LogfsError, OSError):
        log.refresh(_NOW_MS)
        for level in IsolationLevel:
            log.offset_for_time(_NOW_MS + 40, level, _NOW_MS)
            end = log.latest(level, _NOW_MS)
            for piece in log.cut(log.earliest(), end, 1500, _NOW_MS):
                _read_range(disk, OffsetRange(one, piece.start, piece.end), level)


def _read_range(disk: PosixDisk, wanted: OffsetRange, level: IsolationLevel) -> None:
    reader = RangeReader(
        disk,
        wanted,
        ~Columns(0),
        hides_aborted=level is IsolationLevel.READ_COMMITTED,
        on_loss=lambda _first, _behind: None,
    )
    with contextlib.suppress(LogfsError, OSError):
        for columns in reader.columns():
            assert columns.rows >= 0


def _read_all(store: AnyStore, view: View) -> None:
    file = GrowingFile(store.partition("orders", 0), view, 0)
    out, offset = memoryview(bytearray(4096)), 0
    while (got := file.read_into(out, offset)) and offset < 1 << 20:
        offset += got
    file.close()


def _recover(data: Path) -> None:
    """Open the directory for writing as after a crash, append and read."""
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    try:
        store = _open(data)
    except (LogfsError, OSError):
        return
    with contextlib.suppress(LogfsError, OSError):
        LineWriter(store.partition("orders", 0), View.TSV).write(b"k\tlater\n", _NOW_MS)
        _read_all(store, View.JSONL)
    with contextlib.suppress(LogfsError, OSError):
        store.close(_NOW_MS)


def _mount(data: Path, point: Path, mode: str) -> None:
    """Mount the directory and read from it; the daemon must continue after any error."""
    mount = Mount(data, point, mode)
    with contextlib.suppress(AssertionError):
        mount.start()
    try:
        for name in (*_READ_OF_A_MOUNT, ".segments/orders-0"):
            with contextlib.suppress(OSError):
                path = point / name
                _ = list(path.iterdir()) if path.is_dir() else path.read_bytes()
        raw = point / ".segments/orders-0"
        with contextlib.suppress(OSError):
            for name in os.listdir(raw):
                for read in (name, name.replace(".log", ".txt")):
                    with contextlib.suppress(OSError):
                        (raw / read).read_bytes()
        _write_into(point)
        assert not any(word in mount.log for word in _BUG), mount.log[-4000:]
        if is_mounted(point):
            _check_alive(mount)
    finally:
        _end(mount, point)


def _check_alive(mount: Mount) -> None:
    """See that the daemon answers, so that a case cannot end it unnoticed."""
    try:
        os.listdir(mount.point)
    except OSError as error:
        raise AssertionError(f"the daemon has ended: {error}\n{mount.log[-4000:]}") from error


def _write_into(point: Path) -> None:
    """Change the mounted directory; a read-only mount refuses all of it."""
    for name, data in (("orders/0", b"a line\n"), ("orders/0.tsv", b"k\tv\n"), ("new/0", b"x\n")):
        with contextlib.suppress(OSError), (point / name).open("ab", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
    with contextlib.suppress(OSError):
        os.setxattr(point / "orders", "user.logfs.segment.ms", b"1")
    for act in ((point / "new").mkdir, (point / "orders/2").touch):
        with contextlib.suppress(OSError):
            act()
    with contextlib.suppress(OSError), (point / "orders/0").open("ab", buffering=0) as file:
        file.write(b"a line of the next segment\nunfinished")
    with contextlib.suppress(OSError):
        (point / "orders/0@earliest..latest").read_bytes()


def _end(mount: Mount, point: Path) -> None:
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        mount.stop()
    if os.path.ismount(point):
        take_away(point)
