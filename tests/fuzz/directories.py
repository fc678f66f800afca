"""Whole data directories with changed files: every command, the follower, recovery, both mounts.

A case is JSON: the seed, which is one of the directories that ``_seed`` makes, the edits of its
files, and whether it is mounted. A command ends with a status and an error of its own; what is
called a bug, a traceback, and an end by a signal are defects.
"""

import base64
import contextlib
import io
import json
import os
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
from logfs.log.following.store import AnyStore, FollowedStore
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.reading.files import GrowingFile
from logfs.log.store import LogStore
from logfs.records._native import encode_records
from logfs.records.compression import limit_decompressed
from logfs.records.record import Record
from logfs.types import View
from tests.fuzz.mutation import change_batch, change_bytes, messages
from tests.mounting import Mount, take_away

_NOW_MS = 1_700_000_000_000
_SEEDS = ("logfs", "kafka", "compacted", "legacy", "killed")
_MOUNTED_SHARE = 0.05
_LIMIT_BYTES = 16 << 20
_BUG = ("a bug in logfs", "Traceback", "runtime error", "AddressSanitizer")
_COMMANDS = (
    *(("verify",), ("status",), ("du",), ("topic", "list"), ("offsets",)),
    *(("cat", "orders/0"), ("cat", "orders/0.jsonl"), ("cat", "orders/0@offset=7..offset=90.tsv")),
    *(("cat", "orders/0@byte=265"), ("cat", "orders/0@2023-11-14..latest"), ("cat", "orders/1")),
    *(("tail", "-n", "3", "orders/0"), ("topic", "describe", "orders"), ("trim", "--dry-run")),
    *(("reindex", "orders"), ("compact", "orders"), ("verify",)),
)
_READ_OF_A_MOUNT = (
    "orders/0@byte=265",
    "orders/0",
    "orders/0@offset=5..offset=60.jsonl",
    "orders/0@-1h",
    "orders/0.meta",
)


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return a case."""
    seed = chance.choice(_SEEDS)
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
    with tempfile.TemporaryDirectory(prefix="logfs-fuzz-") as folder:
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
        _follow(data)
        for command in _COMMANDS:
            _call(data, command)
        _recover(data)
        _call(data, ("cat", "orders/0"))


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
        _call(data, ("compact", "orders"))
    if name in ("kafka", "legacy"):
        for path in [*data.rglob("logfs.*"), *data.rglob("*.textindex")]:
            path.unlink()
    if name == "legacy":
        with (data / "orders-0/00000000000000000000.log").open("wb") as file:
            file.write(messages(Random(5)) + messages(Random(9)))
    return data


def _open(data: Path) -> LogStore:
    host = Host("00000001", _new_ids())
    return LogStore.open(PosixDisk(data), StoreConfig(), host, now_ms=_NOW_MS)


def _new_ids() -> Callable[[], bytes]:
    """Return what gives another id of 16 bytes at each call, in every run the same."""
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16, "big")


def _call(data: Path, command: tuple[str, ...]) -> None:
    """Call a command in this process; it must not end with what it calls a bug."""
    arguments = [f"{data}/{word}" if word.startswith("orders") else word for word in command]
    if not any(word.startswith("orders") for word in command):
        arguments.append(str(data))
    output = io.TextIOWrapper(io.BytesIO(), errors="replace")
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = main(arguments)
    output.flush()
    text = output.buffer.getvalue().decode(errors="replace")
    assert status in (0, 1, 2), f"{command}: status {status}\n{text[-2000:]}"
    assert not any(word in text for word in _BUG), f"{command}:\n{text[-2000:]}"


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
    """Mount the directory and read from it; the daemon must go on after any error."""
    mount = Mount(data, point, mode)
    with contextlib.suppress(AssertionError):
        mount.start()
    try:
        for name in (*_READ_OF_A_MOUNT, ".segments/orders-0"):
            with contextlib.suppress(OSError):
                path = point / name
                _ = list(path.iterdir()) if path.is_dir() else path.read_bytes()
        for path in (point / ".segments/orders-0").glob("*.txt"):
            with contextlib.suppress(OSError):
                path.read_bytes()
        assert not any(word in mount.log for word in _BUG), mount.log[-4000:]
    finally:
        _end(mount, point)


def _end(mount: Mount, point: Path) -> None:
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        mount.stop()
    if os.path.ismount(point):
        take_away(point)
