"""Programs that keep something open and read it until they are told to stop; no logfs.

    python readers.py ROLE PATH EXPECTED STOP

    mapped    PATH, a fixed name that is mapped and open, always has the bytes of the file EXPECTED
    polled    PATH is polled and read without waiting; what it holds is appended to EXPECTED
    listed    PATH is listed a few names at a time; each name in EXPECTED comes once
    read      PATH is read from its beginning to its end, again and again; it is EXPECTED

Each ends with 1, and says why, at the first error or difference. STOP is a file. The last line says
how often something was compared.
"""

import ctypes
import mmap
import os
import random
import select
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

STEP_S = 0.005
_libc = ctypes.CDLL(None, use_errno=True)
_LISTED_BYTES = 200
_NAME_AT = 19


def mapped(path: str, expected: Path, is_over: Callable[[], bool]) -> Iterator[None]:
    """Compare ranges of a mapped and open file."""
    whole, chance = expected.read_bytes(), random.Random(path)
    with (
        open(path, "rb", buffering=0) as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory,
    ):
        while not is_over():
            start = chance.randrange(len(whole))
            end = min(start + chance.randint(1, 100_000), len(whole))
            assert memory[start:end] == whole[start:end], f"mapped: {start} to {end}"
            got = os.pread(file.fileno(), end - start, start)
            assert got == whole[start : start + len(got)], f"read: {start} to {end}"
            assert got, f"nothing at {start} of {len(whole)}"
            yield


def polled(path: str, expected: Path, is_over: Callable[[], bool]) -> Iterator[None]:
    """Append what can be read to a file; the last lines come after the stop."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    poller = select.poll()
    poller.register(file, select.POLLIN)
    with expected.open("wb", buffering=0) as output:
        while True:
            ends = is_over()
            if not poller.poll(500):
                if ends:
                    return
                continue
            try:
                output.write(os.read(file, 65536))
            except BlockingIOError:
                continue
            yield


def listed(path: str, expected: Path, is_over: Callable[[], bool]) -> Iterator[None]:
    """List a directory, a few names at a time."""
    wanted = sorted(expected.read_text().split())
    file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    buffer = ctypes.create_string_buffer(_LISTED_BYTES)
    while not is_over():
        os.lseek(file, 0, os.SEEK_SET)
        names: list[str] = []
        while True:
            size = _libc.getdents64(file, buffer, _LISTED_BYTES)
            assert size >= 0, f"getdents64: {os.strerror(ctypes.get_errno())}"
            if not size:
                break
            at = 0
            while at < size:
                (length,) = struct.unpack_from("H", buffer.raw, at + 16)
                names.append(buffer.raw[at + _NAME_AT : at + length].split(b"\0")[0].decode())
                at += length
            time.sleep(STEP_S)
        found = sorted(name for name in names if name not in (".", ".."))
        assert found == wanted, f"listed {len(found)} of {len(wanted)} names: {found}"
        yield


def read(path: str, expected: Path, is_over: Callable[[], bool]) -> Iterator[None]:
    """Read a file in small steps, again and again."""
    whole, chance = expected.read_bytes(), random.Random(path)
    file = os.open(path, os.O_RDONLY)
    position = 0
    while not is_over():
        got = os.read(file, chance.randint(1, 20_000))
        assert got == whole[position : position + len(got)], f"at {position} of {len(whole)}"
        assert got or position == len(whole), f"ends at {position} of {len(whole)}"
        position = position + len(got) if got else os.lseek(file, 0, os.SEEK_SET)
        yield
        time.sleep(STEP_S)


ROLES = {"mapped": mapped, "polled": polled, "listed": listed, "read": read}


def main(role: str, path: str, expected: str, stop: str) -> int:
    """Run a role until the file ``stop`` exists."""
    count = 0
    for _ in ROLES[role](path, Path(expected), Path(stop).exists):
        count += 1
        if role == "mapped":
            time.sleep(STEP_S)
    print(count)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (OSError, AssertionError) as error:
        print(f"{sys.argv[1:3]}: {error}", file=sys.stderr)
        sys.exit(1)
