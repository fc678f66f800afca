"""A store on a disk in memory, restarted in every way, and readings to compare with a model."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from logfs.config import StoreConfig
from logfs.log.host import Host
from logfs.log.lines.writer import LineWriter
from logfs.log.partition import PartitionLog
from logfs.log.reading.readable import ReadableLog
from logfs.log.reading.reader import TextReader
from logfs.log.store import LogStore
from logfs.records._encoding import encode_records
from logfs.records.batch import BatchHeader, decode_header, decode_records
from logfs.records.record import Record
from logfs.services.views.files import FixedFile, GrowingFile
from logfs.types import Positions, TopicPartition, View
from tests.fakes import START_MS, FakeDisk
from tests.records.oracle import rendering

TP = TopicPartition("t", 0)
DIRECTORY = TP.directory


class Bench:
    """One store with one topic of one partition, ``t/0``.

    Attributes:
        disk: Its disk.
        now_ms: The clock.
        store: The open store.
    """

    def __init__(
        self, properties: Mapping[str, str] | None = None, *, disk: FakeDisk | None = None
    ) -> None:
        self.disk = disk or FakeDisk()
        self.now_ms = START_MS
        self._boot = 1
        self._ids = 0
        self.store = self.open()
        if "t" not in self.store.topics():
            self.store.create_topic("t", 1, properties or {}, self.now_ms)

    def _new_id(self) -> bytes:
        self._ids += 1
        return hashlib.md5(self._ids.to_bytes(8, "big"), usedforsecurity=False).digest()

    def open(self, disk: FakeDisk | None = None, *, read_only: bool = False) -> LogStore:
        """Open a store: of this bench, or of another disk on the same machine."""
        host = Host(self.boot, self._new_id)
        config = StoreConfig(num_recovery_threads_per_data_dir=1)
        return LogStore.open(
            disk or self.disk, config, host, now_ms=self.now_ms, read_only=read_only
        )

    @property
    def log(self) -> PartitionLog:
        return self.store.partition("t", 0)

    def restart(self) -> PartitionLog:
        """Stop cleanly and start."""
        self.store.close(self.now_ms)
        self.store = self.open()
        return self.log

    def leave(self) -> None:
        """Close it without a flush."""
        self.store.close(self.now_ms, is_durable=False)

    def kill(self) -> PartitionLog:
        """Kill the process and start again."""
        self.disk.kill()
        self.store = self.open()
        return self.log

    def crash(self, seed: int | None = None) -> PartitionLog:
        """Cut the power and start the machine again."""
        self.disk.crash(seed)
        self.new_boot()
        self.store = self.open()
        return self.log

    @property
    def boot(self) -> str:
        """The boot of the machine."""
        return f"{self._boot:08}"

    def new_boot(self) -> None:
        self._boot += 1

    def reload(self) -> PartitionLog:
        return self.store.reload(TP, self.now_ms)

    def writer(self, view: View = View.TEXT) -> LineWriter:
        return LineWriter(self.log, view)

    def write(self, *lines: bytes) -> None:
        """Append lines of text, each as its own batch."""
        writer = self.writer()
        for line in lines:
            assert writer.write(line + b"\n", self.now_ms) == len(line) + 1

    def append(self, records: Sequence[Record]) -> None:
        """Append records in as few batches as possible; none if one is refused."""
        log = self.log
        encoded = encode_records(records, log.log_end_offset, self.now_ms, log.encode_options())
        if encoded.refusal is not None:
            raise encoded.refusal
        assert log.append(encoded.batches, self.now_ms) == len(encoded.batches)

    def file(self, name: str) -> bytes:
        """The bytes of a file of the partition directory."""
        return self.disk.read(f"{DIRECTORY}/{name}", None)

    def put(self, name: str, data: bytes) -> None:
        """Replace a file of the partition directory, in place."""
        file = self.disk.open(f"{DIRECTORY}/{name}", write=True, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()

    def names(self, suffix: str = "") -> list[str]:
        """The files of the partition directory."""
        return [name for name, _ in self.disk.list(DIRECTORY) if name.endswith(suffix)]


def contents(disk: FakeDisk, directory: str = "") -> dict[str, bytes]:
    """Everything below a directory: names and bytes."""
    found: dict[str, bytes] = {}
    for name, is_directory in disk.list(directory):
        path = f"{directory}/{name}" if directory else name
        found |= contents(disk, path) if is_directory else {path: disk.read(path, None)}
    return found


def log_name(base_offset: int) -> str:
    return f"{base_offset:020}.log"


def batches_in(data: bytes) -> list[tuple[int, BatchHeader]]:
    """The batches of a ``.log``, each with its file position."""
    found, position = [], 0
    while position < len(data):
        header = decode_header(data, position)
        found.append((position, header))
        position += header.size_bytes
    return found


def records_in(data: bytes) -> list[Record]:
    """The records of a ``.log``."""
    return [r for position, _ in batches_in(data) for r in decode_records(data, position)]


def end_of(log: ReadableLog, view: View) -> int:
    return log.snapshot.end.positions[view]


def kept_runs_of(log: ReadableLog, view: View, piece: int = 1 << 16) -> list[tuple[int, bytes]]:
    """Read a whole view: runs of bytes, each with the position at which it begins."""
    reader = TextReader(view, lambda: log.snapshot)
    out = memoryview(bytearray(piece))
    runs: list[tuple[int, bytes]] = []
    end = end_of(log, view)
    position = reader.seek(0)
    while position < end:
        got = reader.read_into(out, end)
        assert got, f"nothing at {position} of {end}"
        if runs and sum((runs[-1][0], len(runs[-1][1]))) == position:
            runs[-1] = (runs[-1][0], runs[-1][1] + bytes(out[:got]))
        else:
            runs.append((position, bytes(out[:got])))
        position = reader.seek(reader.position)
    return runs


def text_of(log: ReadableLog, view: View = View.TEXT) -> bytes:
    """What is kept of a view, without its holes."""
    return b"".join(data for _, data in kept_runs_of(log, view))


def lines_of(log: ReadableLog, view: View = View.TEXT) -> list[bytes]:
    return text_of(log, view).splitlines()


def read_all(file: GrowingFile | FixedFile, piece: int = 1 << 16) -> bytes:
    """Read a file from its start to its end, one read after the other."""
    out = memoryview(bytearray(piece))
    data = b""
    while got := file.read_into(out, len(data)):
        data += out[:got]
    return data


def expected_runs(
    view: View, placed: Iterable[tuple[Record, Positions]]
) -> list[tuple[int, bytes]]:
    """The runs that records at given positions are."""
    runs: list[tuple[int, bytes]] = []
    for record, positions in placed:
        data, position = rendering(view, record), positions[view]
        if runs and sum((runs[-1][0], len(runs[-1][1]))) == position:
            runs[-1] = (runs[-1][0], runs[-1][1] + data)
        else:
            runs.append((position, data))
    return runs


def lengths_of(record: Record) -> Positions:
    text, tsv, jsonl = (len(rendering(view, record)) for view in View)
    return Positions(text, tsv, jsonl)
