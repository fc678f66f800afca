"""A process that reads objects at random through a cache directory, until it is ended.

``python -m tests.remote.cachereader DIRECTORY SEED ROUNDS`` ends with 0 if all bytes were right.
"""

import sys
import time
from random import Random

from logfs.disk.remote.cache import CacheDirectory
from tests.remote.fakestore import FakeStore
from tests.remote.files import MIB, StoredLog, files_of, some_bytes

LIMIT_BYTES = 12 * MIB
SIZE = 3 * MIB + 4321


def stored_logs(store: FakeStore) -> list[StoredLog]:
    """Return the objects, the same in each process."""
    return [StoredLog(store, f"log-{n}", some_bytes(SIZE, seed=n)) for n in range(6)]


def main(path: str, seed: int, rounds: int) -> None:
    """Read; an AssertionError says that bytes were wrong."""
    store, chance = FakeStore(), Random(seed)
    logs = stored_logs(store)
    cache = CacheDirectory(path, store.url, LIMIT_BYTES, now_ns=time.time_ns)
    files = files_of(store, memory_bytes=4 * MIB, cache=cache)
    print("reading", flush=True)
    for _ in range(rounds):
        log = chance.choice(logs)
        file = files.open("t-0/x.log", log.part())
        position = chance.randrange(SIZE)
        length = chance.choice([100, 5000, 2 * MIB])
        assert file.pread(length, position) == log.data[position : position + length]
        file.close()
        if chance.random() < 0.5:
            files.blocks.forget(files.blocks.object(log.key, SIZE))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
