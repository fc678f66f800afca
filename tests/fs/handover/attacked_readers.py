"""Programs that read a log while it is attacked, each in its way; no logfs.

    python attacked_readers.py ROLE PATH OUTPUT SEED

What a program has read is in the file OUTPUT, from the first byte of PATH on. It ends with 0 once
it has read a line ``end``, and with 1 at the first error or wrong byte.

    sized       reads of random sizes
    tiny        reads of one byte, a hundred times; then a larger one
    signalled   reads that a signal ends every few milliseconds
    direct      O_DIRECT
    random      pread(2) of bytes that were read before, between the reads in order
    doubled     two threads read at the same place with pread(2), and get the same bytes
    shared      two processes read through one open file; each piece, with its size, is in OUTPUT.N
"""

import contextlib
import mmap
import os
import random
import signal
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

_END = b"end\n"
_PAUSE_S = 0.002
_CUT_BYTES = 255 * 4096
_SIZES = (1, 7, 100, 4096, 4096, 65536, 1 << 20)


def sized(path: str, chance: random.Random) -> Generator[bytes]:
    """Read pieces of random sizes."""
    file = os.open(path, os.O_RDONLY)
    while True:
        yield os.read(file, chance.choice(_SIZES))


def tiny(path: str, _: random.Random) -> Generator[bytes]:
    """Read single bytes, and now and then more, to keep up."""
    file = os.open(path, os.O_RDONLY)
    while True:
        for size in (*[1] * 100, 20_000):
            yield os.read(file, size)


def signalled(path: str, chance: random.Random) -> Generator[bytes]:
    """Read again whenever a signal has ended a read."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    try:
        yield from sized(path, chance)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def direct(path: str, chance: random.Random) -> Generator[bytes]:
    """Read without the page cache."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    room = mmap.mmap(-1, 1 << 20)
    while True:
        size = os.readv(file, [memoryview(room)[: chance.choice((4096, 65536))]])
        yield room[:size]


def random_places(path: str, chance: random.Random) -> Generator[bytes]:
    """Read earlier bytes again, where they are."""
    file, text = os.open(path, os.O_RDONLY), bytearray()
    while True:
        got = os.read(file, chance.choice(_SIZES))
        text += got
        yield got
        begin = chance.randrange(len(text) + 1)
        size = min(len(text) - begin, chance.choice(_SIZES))
        found = os.pread(file, size, begin) if size else b""
        # A large read(2) of a name that waits may be two requests, and ends with the first: see
        # followreads.py.
        least = min(size, _CUT_BYTES) if path.endswith(".follow") else size
        assert len(found) >= least, f"{len(found)} bytes of {size} at {begin}"
        assert text.startswith(found, begin), f"other bytes at {begin}"


def doubled(path: str, chance: random.Random) -> Generator[bytes]:
    """Read everything twice at the same time."""
    file, position = os.open(path, os.O_RDONLY), 0
    with ThreadPoolExecutor(2) as pool:
        while True:
            reads = [pool.submit(os.pread, file, chance.choice(_SIZES), position) for _ in "ab"]
            first, second = sorted((read.result() for read in reads), key=len)
            assert second.startswith(first), f"two reads at {position} differ"
            yield first
            position += len(first)


def shared(path: str, output: str, chance: random.Random) -> None:
    """Read in two processes through one open file; the child is killed when its parent is done."""
    file = os.open(path, os.O_RDONLY)
    child = os.fork()
    size = chance.choice((50, 1000, 20_000)) + (child == 0)
    with open(f"{output}.{int(child == 0)}", "wb", buffering=0) as pieces:
        while True:
            got = os.read(file, size)
            pieces.write(len(got).to_bytes(4, "little") + got)
            if got.endswith(_END):
                break
    if child == 0:
        os.kill(os.getppid(), signal.SIGUSR1)
        os._exit(0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


ROLES = {
    "sized": sized,
    "tiny": tiny,
    "signalled": signalled,
    "direct": direct,
    "random": random_places,
    "doubled": doubled,
}


def main(role: str, path: str, output: str, seed: str) -> None:
    """Play a role until a line ``end`` comes."""
    chance = random.Random(int(seed))
    if role == "shared":
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
        shared(path, output, chance)
        return
    last = b""
    with (
        open(output, "wb", buffering=0) as file,
        contextlib.closing(ROLES[role](path, chance)) as reads,
    ):
        for got in reads:
            assert got or not path.endswith(".follow"), "a read that waits has returned nothing"
            file.write(got)
            last = (last + got)[-5:]
            if last == b"\n" + _END:
                return
            if not got:
                time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
