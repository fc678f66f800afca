"""The control protocol: what a daemon answers to frames that no client of logfs sends.

A case is what goes over one connection. Most requests have the fields of their row in the table,
of the right types, so that they reach the handlers. The daemon answers each, or closes the
connection, and serves the next one.
"""

import atexit
import contextlib
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random

from logfs.control.frames import HEAD_BYTES, VERSION, decode_head, encode_frame
from logfs.control.requests import REQUESTS, FieldType
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from tests.fuzz.mutation import change_bytes, signed
from tests.mounting import Mount

NAMES = tuple(sorted(set(REQUESTS) - {"reload"}))
"""Without the one that starts another daemon."""
_TEXTS = (
    "orders",
    "orders",
    "orders",
    "other",
    "nope",
    "",
    "..",
    ".segments",
    "x" * 300,
    "a/b",
    "0",
)
_LISTS: tuple[Sequence[object], ...] = (
    *([], [[]], [None], ["orders"], [1, 2, 3, False], [-1, 0, 0, False], [2**62, 5, 2**31, True]),
    *([["61", None]], [["61", "6"]], [["zz", "zz"]], ["orders", "0@offset=1"], ["orders@-1d"]),
    *(["orders", "0@byte=3"], ["orders", "0@earliest", "0@latest"], ["orders", "9@now"]),
)
_MAPS: tuple[Mapping[str, object], ...] = (
    *({}, {"retention.ms": "5"}, {"cleanup.policy": "compact"}, {"segment.bytes": "x"}, {"": None}),
    *({"max.message.bytes": "0"}, {"compression.type": "zstd"}, {"retention.ms": None}, {"a": [1]}),
)
_VALUES: dict[type, Callable[[Random], object]] = {
    str: lambda chance: chance.choice((*_TEXTS, "2026-11-20T10:00", "\ud800", "2c")),
    int: lambda chance: _number(chance),
    bool: lambda chance: chance.choice((True, False)),
    list: lambda chance: chance.choice(_LISTS),
    dict: lambda chance: chance.choice(_MAPS),
}
_SLOW_NUMBERS = range(50, 10_001)
"""Numbers of partitions that are created one after the other for seconds."""
_PATIENCE_S = 30.0
_BUG = ("a bug in logfs", "Traceback", "runtime error", "AddressSanitizer")


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return what goes over a connection."""
    if corpus and chance.random() < 0.2:
        return change_bytes(chance, chance.choice(corpus))
    name = chance.choice((*NAMES, "?"))
    header = {"request": name, **_fields(chance, name)}
    if chance.random() < 0.2:
        header |= {"client": signed(chance), "number": chance.randrange(3)}
    frame = encode_frame(header, _payload(chance, name))
    if chance.random() < 0.05:
        frame = struct.pack(">4sIII", b"LFSC", VERSION, signed(chance) % 2**32, 0) + frame[16:]
    return change_bytes(chance, frame) if chance.random() < 0.25 else frame


def check(case: bytes) -> None:
    """Send a case, then a request that has to be answered."""
    mount, path = _daemon()
    _make_topics(mount)
    with socket.socket(socket.AF_UNIX) as client, _descriptor(mount, case) as sent:
        client.settimeout(_PATIENCE_S)
        client.connect(str(path))
        with contextlib.suppress(ConnectionError):  # closed before all of it was read
            if case:
                count = socket.send_fds(client, [case], [] if sent is None else [sent])
                client.sendall(case[count:])
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_PATIENCE_S)
        client.connect(str(path))
        client.sendall(encode_frame({"request": "topics"}))
        decode_head(client.recv(HEAD_BYTES, socket.MSG_WAITALL))
    assert not any(word in mount.log for word in _BUG), mount.log[-4000:]


def _fields(chance: Random, name: str) -> dict[str, object]:
    """Return the fields of a request, now and then one of another type or none at all."""
    row = REQUESTS.get(name)
    found = {}
    for field, kind in ({} if row is None else row.fields).items():
        if chance.random() < 0.03:
            continue
        found[field] = _value(chance, kind) if chance.random() > 0.05 else _any(chance)
    return found


def _value(chance: Random, kind: FieldType) -> object:
    if kind.is_optional and chance.random() < 0.4:
        return None
    return _VALUES[kind.kind](chance)


def _number(chance: Random) -> int:
    number = chance.choice((0, 0, 1, 1, 2, -1, 10_001, signed(chance)))
    return 3 if number in _SLOW_NUMBERS else number


def _any(chance: Random) -> object:
    return chance.choice((None, 0.5, {}, [[]], *(make(chance) for make in _VALUES.values())))


def _payload(chance: Random, name: str) -> bytes:
    if name == "append" and chance.random() < 0.8:
        values = [b"value %d" % n for n in range(chance.randrange(4))]
        records = [Record(0, 1_700_000_000_000, None, value, ()) for value in values]
        encoded = encode_records(records, 0, 1_700_000_000_000, EncodeOptions(1 << 20))
        data = b"".join(bytes(batch.data) for batch in encoded.batches)
        return change_bytes(chance, data) if data and chance.random() < 0.5 else data
    if name == "lines":
        return chance.choice((b"", b"a\n", b"a\tb\n", b'{"value":"v"}\n', b"no end", b"\xff\n" * 9))
    return chance.randbytes(chance.choice((0, 0, 5, 100)))


@contextmanager
def _descriptor(mount: Mount, case: bytes) -> Iterator[int | None]:
    """Open what a case sends along; which file it is depends on the bytes of the case only."""
    folder = mount.data.parent
    paths = (
        *(None, None, None, folder / "lines", folder / "lines", folder / "fifo", folder),
        *(mount.point / "orders/0", mount.point / "orders", Path("/dev/zero")),
    )
    path = paths[sum(case) % len(paths)]
    if path is None:
        yield None
        return
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield opened
    finally:
        os.close(opened)


def _make_topics(mount: Mount) -> None:
    """Make the topics that requests name; earlier cases may have deleted them."""
    for topic in ("orders", "other"):
        partition = mount.point / topic / "0"
        if not partition.exists():
            partition.parent.mkdir(exist_ok=True)
            with contextlib.suppress(OSError), partition.open("ab") as file:
                file.write(b"a line\n")


@cache
def _daemon() -> tuple[Mount, Path]:
    """Start a daemon that serves all cases of this process."""
    folder = Path(tempfile.mkdtemp(prefix="logfs-fuzz-"))
    mount = Mount(folder / "data", folder / "mnt")

    def end() -> None:
        mount.stop()
        shutil.rmtree(folder)

    atexit.register(end)
    mount.start()
    (folder / "lines").write_bytes(b"k\tone\nk\ttwo\n")
    os.mkfifo(folder / "fifo")
    return mount, folder / "data/logfs.socket"
