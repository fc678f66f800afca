"""Fixed names beside writers, retention and compaction: every read compared with a plain copy.

python -m tests.fs.test_fixed_names SECONDS [SEED]     the same for as long as one likes
"""

import base64
import json
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from logfs.disk.page_cache import cached_bytes
from tests.mounting import PATIENCE_S, Mount, logfs
from tests.semantics.programs import append_all, configure

pytestmark = pytest.mark.fuse

SECONDS = 2.0
READERS = 3
KEYS = 50
LINE_BYTES = 100
BATCH = 200
ATTEMPTS = 5
_OPTIONS = (
    "log.retention.check.interval.ms=20",
    "log.initial.task.delay.ms=0",
    "log.cleaner.backoff.ms=20",
)
_NAMES = (
    "orders/0@earliest..latest",
    "orders/0@offset=-1500..latest",
    "orders/0@byte=-70001..byte=-33",
    "orders/0@-2s..now",
    "prices/0@earliest..latest",
    "prices/0@offset=-3000..offset=-10",
)


def line_of(number: int) -> bytes:
    return b"%d " % number + b"." * (LINE_BYTES - 2 - len(str(number))) + b"\n"


class Comparison:
    """Readers and writers of one mount, and the plain copies of what was written.

    Attributes:
        reads: How many names were read.
        compared: How many bytes were compared.
    """

    def __init__(self, mount: Mount, directory: Path, seed: int) -> None:
        self.mount = mount
        self.reads = 0
        self.compared = 0
        self._directory = directory
        self._seed = seed
        self._is_over = threading.Event()
        self._errors: list[Exception] = []
        for topic in ("orders", "prices"):
            (mount.point / topic).mkdir()
            configure(mount.point / topic, internal_segment_bytes=60_000, file_delete_delay_ms=0)
        configure(mount.point / "orders", retention_bytes=400_000)
        configure(mount.point / "prices", cleanup_policy="compact", min_cleanable_dirty_ratio=0)

    def run(self, seconds: float) -> None:
        """Do all of it; raises what went wrong first."""
        works: list[Callable[[], None]] = [self._write_orders, self._write_prices]
        works += [lambda number=number: self._read(number) for number in range(READERS)]  # type: ignore[misc]
        threads = [threading.Thread(target=self._work, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        self._is_over.wait(seconds)
        self._is_over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        for error in self._errors:
            raise error

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised by ``run``
            self._errors.append(error)
            self._is_over.set()

    def _write_orders(self) -> None:
        self._write("orders", "0", line_of)

    def _write_prices(self) -> None:
        self._write("prices", "0.tsv", lambda n: b"k%d\t" % (n * 7 % KEYS) + line_of(n))

    def _write(self, topic: str, name: str, render: Callable[[int], bytes]) -> None:
        number = 0
        with (self._directory / topic).open("ab", buffering=0) as copy:
            while not self._is_over.is_set():
                numbers = range(number, number + BATCH)
                copy.write(b"".join(map(line_of, numbers)))
                append_all(self.mount.point / topic / name, b"".join(map(render, numbers)))
                number += BATCH
                self._is_over.wait(0.01)

    def _read(self, reader: int) -> None:
        dice = random.Random(self._seed + reader)
        while not self._is_over.is_set():
            name = dice.choice(_NAMES)
            with (self.mount.point / name).open("rb", buffering=0) as file:
                text = file.readall()
                assert len(text) == os.fstat(file.fileno()).st_size, name
                with (self._directory / name.partition("/")[0]).open("rb") as copy:
                    _check(text, copy, is_whole=name.startswith("orders"))
                self.reads += 1
                self.compared += len(text)
                if text:
                    for _ in range(4):
                        again = dice.choice(_WAYS)
                        self.compared += again(file.fileno(), text, dice, self._directory / "ways")


def _check(text: bytes, copy: object, *, is_whole: bool) -> None:
    """Compare what was read with the plain copy; where it is is told by the first whole line."""
    assert hasattr(copy, "fileno")
    begin = text.find(b"\n") + 1 if text[:1] == b"." or not text[:LINE_BYTES].endswith(b"\n") else 0
    if not text[begin:]:
        return
    first = int(text[begin : begin + LINE_BYTES].split(b" ")[0])
    if is_whole:
        position = first * LINE_BYTES - begin
        assert text == os.pread(copy.fileno(), len(text), position)
        return
    last = -1
    for position in range(0, len(text), LINE_BYTES):
        line = text[position : position + LINE_BYTES]
        number = int(line.split(b" ")[0])
        assert number > last
        last = number
        assert line == os.pread(copy.fileno(), LINE_BYTES, number * LINE_BYTES)


def _again_pread(file: int, text: bytes, dice: random.Random, _: Path) -> int:
    begin, size = dice.randrange(len(text)), dice.randrange(1, 200_000)
    got = os.pread(file, size, begin)
    assert got == text[begin : begin + size]
    return len(got)


def _again_mapped(file: int, text: bytes, _dice: random.Random, _: Path) -> int:
    with mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
        assert mapping[:] == text
    return len(text)


def _again_sent(file: int, text: bytes, _dice: random.Random, _: Path) -> int:
    with tempfile.TemporaryFile() as target:
        position = 0
        while sent := os.sendfile(target.fileno(), file, position, 1 << 20):
            position += sent
        target.seek(0)
        assert target.read() == text
    return len(text)


def _again_spliced(file: int, text: bytes, _dice: random.Random, _: Path) -> int:
    reader, writer = os.pipe()
    got = b""
    try:
        while count := os.splice(file, writer, 1 << 16, offset_src=len(got)):
            got += os.read(reader, count)
    finally:
        os.close(reader)
        os.close(writer)
    assert got == text
    return len(text)


def _again_copied(file: int, text: bytes, _dice: random.Random, directory: Path) -> int:
    with tempfile.TemporaryDirectory(dir=directory) as place:
        target = Path(place, "copy")
        subprocess.run(
            ["cp", "--reflink=auto", f"/proc/{os.getpid()}/fd/{file}", target], check=True
        )
        assert target.read_bytes() == text
    return len(text)


_WAYS = (
    *[_again_pread] * 8,
    *[_again_mapped, _again_sent, _again_spliced] * 3,
    _again_copied,
)


@contextmanager
def compared(directory: Path, seed: int) -> Iterator[Comparison]:
    copies = directory / "copies"
    (copies / "ways").mkdir(parents=True)
    with Mount(directory / "data", directory / "mnt", *_OPTIONS) as mount:
        yield Comparison(mount, copies, seed)


def test_every_read_is_that_of_a_plain_copy(tmp_path: Path) -> None:
    with compared(tmp_path, 1) as comparison:
        comparison.run(SECONDS)
        assert comparison.reads > READERS
        start = int(os.getxattr(comparison.mount.point / "orders/0", "user.logfs.log_start_offset"))
        assert start > 0


def requests(mount: Mount) -> tuple[int, int]:
    """Return how many READs and GETATTRs the daemon was asked; asking costs some of these."""
    rows = logfs("metrics", mount.point).decode().splitlines()
    reads, looks = (
        sum(float(row.split()[-1]) for row in rows if f'_requests_total{{operation="{kind}"' in row)
        for kind in ("read", "getattr")
    )
    return int(reads), int(looks)


def second_read(mount: Mount, name: Path) -> tuple[int, int] | None:
    """Read a name twice; returns the READs and GETATTRs of the second time.

    Returns:
        None if the kernel was short of memory, and dropped a page before the second read.
    """
    text = name.read_bytes()
    counts = [requests(mount), requests(mount)]
    assert counts[0][0] > 0
    with name.open("rb") as file:
        is_cached = cached_bytes(file.fileno()) == len(text)
        assert subprocess.run(["cat", name], check=True, capture_output=True).stdout == text
        is_cached = is_cached and cached_bytes(file.fileno()) == len(text)
    counts.append(requests(mount))
    (reads, looks), (reads_again, looks_again) = (
        (after[0] - before[0], after[1] - before[1]) for before, after in pairwise(counts)
    )
    assert reads == 0
    return (reads_again, looks_again - looks) if is_cached or not reads_again else None


def test_the_second_read_asks_for_nothing_but_attributes(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        (mount.point / "orders").mkdir()
        append_all(mount.point / "orders/0", b"".join(map(line_of, range(30_000))))
        name = mount.point / "orders/0@earliest..latest"
        found = None
        for _ in range(ATTEMPTS):
            found = found or second_read(mount, name)
        assert found is not None, "the kernel drops what it has cached each time"
        reads, looks = found
        assert reads == 0
        assert looks <= 2


def test_a_database_in_a_fixed_name(tmp_path: Path) -> None:
    """sqlite reads pages at random, and maps them if it may."""
    database = tmp_path / "numbers.db"
    with closing(sqlite3.connect(database)) as numbers:
        numbers.execute("create table n(i integer primary key, t text)")
        numbers.executemany("insert into n values (?, ?)", [(n, "x" * 50) for n in range(5_000)])
        numbers.commit()
    image = database.read_bytes()
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        (mount.point / "images").mkdir()
        record = {"value": {"base64": base64.b64encode(image).decode()}}
        append_all(mount.point / "images/0.jsonl", json.dumps(record).encode() + b"\n")
        name = mount.point / f"images/0@byte=0..byte={len(image)}"
        for mapped in (0, 1 << 30):
            with closing(sqlite3.connect(f"file:{name}?immutable=1", uri=True)) as numbers:
                numbers.execute(f"pragma mmap_size={mapped}")
                query = "select count(*), sum(i), sum(length(t)) from n where i % 7 < 5"
                found = numbers.execute(query).fetchone()
                chosen = [n for n in range(5_000) if n % 7 < 5]
                assert found == (len(chosen), sum(chosen), 50 * len(chosen))
                assert numbers.execute("pragma integrity_check").fetchone() == ("ok",)


def main(seconds: float, seed: int) -> None:
    """Compare for as long as one likes, and say how much was."""
    directory = Path(tempfile.mkdtemp(prefix="fixed-names-"))
    try:
        with compared(directory, seed) as comparison:
            started_s = time.monotonic()
            comparison.run(seconds)
            print(f"{comparison.reads} names read, {comparison.compared / 1e6:,.0f} MB compared in "
                  f"{time.monotonic() - started_s:.0f} s: no wrong byte")  # fmt: skip
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
