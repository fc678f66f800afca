"""The control protocol: what a daemon answers to frames that no client of logfs sends.

A case is what goes over one connection. The daemon answers each, or closes the connection, and
serves the next one.
"""

import atexit
import contextlib
import json
import shutil
import socket
import struct
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from logfs.control.frames import HEAD_BYTES, VERSION, decode_head, encode_frame
from tests.fuzz.mutation import change_bytes, signed
from tests.mounting import Mount

_REQUESTS = (
    *("status", "metrics", "prometheus", "topics", "describe", "create", "alter", "delete"),
    *("undelete", "trim", "retention", "compact", "roll", "append", "publish", "utc_offset", "?"),
)
_KEYS = (
    *("topic", "topics", "partition", "partitions", "offset", "config", "now_ms", "local", "files"),
    *(
        "view",
        "before",
        "at_once",
        "query",
        "batch",
        "size",
        "properties",
        "force",
        "records",
        "id",
    ),
)
_PATIENCE_S = 30.0
_BUG = ("a bug in logfs", "Traceback", "runtime error", "AddressSanitizer")


def make(chance: Random, corpus: list[bytes]) -> bytes:
    """Return what goes over a connection."""
    if corpus and chance.random() < 0.2:
        return change_bytes(chance, chance.choice(corpus))
    header = {key: _value(chance) for key in chance.sample(_KEYS, chance.randrange(5))}
    header["request"] = chance.choice(_REQUESTS)
    frame = encode_frame(header, chance.randbytes(chance.choice((0, 0, 5, 100))))
    if chance.random() < 0.2:
        frame = struct.pack(">4sIII", b"LFSC", VERSION, signed(chance) % 2**32, 0) + frame[16:]
    return change_bytes(chance, frame) if chance.random() < 0.4 else frame


def check(case: bytes) -> None:
    """Send a case, then a request that has to be answered."""
    mount, path = _daemon()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_PATIENCE_S)
        client.connect(str(path))
        with contextlib.suppress(ConnectionError):  # closed before all of it was read
            client.sendall(case)
            client.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_PATIENCE_S)
        client.connect(str(path))
        client.sendall(encode_frame({"request": "topics"}))
        decode_head(client.recv(HEAD_BYTES, socket.MSG_WAITALL))
    assert not any(word in mount.log for word in _BUG), mount.log[-4000:]


def _value(chance: Random) -> object:
    values: tuple[object, ...] = (
        "orders",
        "nope",
        "",
        "..",
        "x" * 300,
        "0",
        "a/b",
        None,
        True,
        0.5,
        [],
        {},
        [[]],
    )
    config = {"retention.ms": "5", "": None}
    return chance.choice((*values, signed(chance), config, ["orders"], json.dumps(config)))


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
    (mount.point / "orders").mkdir()
    with (mount.point / "orders/0").open("ab") as file:
        file.write(b"a line\n")
    return mount, folder / "data/logfs.socket"
