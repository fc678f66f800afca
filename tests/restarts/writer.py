"""A program that appends numbered lines to one file until it is told to stop.

    python writer.py PATH NAME SEED LARGEST SYNC STOP

It opens PATH once. Its lines are cut into writes at any byte. It prints how many lines it has
written, and ends with 1 at the first error. SYNC is none, fsync or dsync; with aio it writes as
libaio does. It stops when the file STOP exists. No logfs.
"""

import ctypes
import json
import os
import platform
import random
import struct
import sys
import time

AIO_CALLS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}
"""The numbers of io_setup, io_submit and io_getevents."""


def line(path: str, name: str, number: int, padding: str) -> bytes:
    """Return a line in the form that the view of a path takes."""
    value = f"{name} {number} {padding}"
    if path.endswith(".jsonl"):
        return (json.dumps({"value": value}) + "\n").encode()
    if path.endswith(".tsv"):
        return f"{name}\t{value}\n".encode()
    return f"{value}\n".encode()


def write_all(file: int, data: bytes) -> None:
    """Write all bytes; write(2) may accept fewer."""
    while data:
        data = data[os.write(file, data) :]


class AsynchronousWrites:
    """Writes by the system calls of libaio."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._setup, self._submit, self._events = AIO_CALLS[platform.machine()]
        self._context = ctypes.c_ulong()
        self._check(self._call(self._setup, 4, ctypes.byref(self._context)))

    def write_all(self, file: int, data: bytes) -> None:
        """Write all bytes, of which the kernel may send several requests."""
        while data:
            buffer = ctypes.create_string_buffer(data, len(data))
            command = struct.pack(
                "=QIIHhIQQqQII",
                *(0, 0, 0, 1, 0, file, ctypes.addressof(buffer), len(data), 0, 0, 0, 0),
            )
            block = ctypes.create_string_buffer(command, len(command))
            blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
            event = (ctypes.c_int64 * 4)()
            self._check(self._call(self._submit, self._context, 1, blocks))
            self._check(self._call(self._events, self._context, 1, 1, event, None))
            if event[2] < 0:
                raise OSError(-event[2], os.strerror(-event[2]))
            data = data[event[2] :]

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(path: str, name: str, seed: str, largest: str, sync: str, stop: str) -> int:
    """Write until the file ``stop`` exists."""
    chance = random.Random(int(seed))
    flags = os.O_WRONLY | os.O_APPEND | (os.O_DSYNC if sync == "dsync" else 0)
    file = os.open(path, flags)
    write = AsynchronousWrites().write_all if sync == "aio" else write_all
    number, waiting = 0, b""
    while not os.path.exists(stop):
        for _ in range(chance.randint(1, 4)):
            number += 1
            padding = "x" * int(chance.random() ** 4 * int(largest))
            waiting += line(path, name, number, padding)
        cut = chance.randint(0, len(waiting)) if chance.random() < 0.7 else len(waiting)
        write(file, waiting[:cut])
        waiting = waiting[cut:]
        if sync == "fsync" and chance.random() < 0.3:
            os.fsync(file)
        time.sleep(chance.random() * (0.2 if sync == "aio" else 0.01))
    write(file, waiting)
    os.close(file)
    print(number)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except OSError as error:
        print(f"{sys.argv[1:3]}: {error}", file=sys.stderr)
        sys.exit(1)
