"""The library that is loaded before all others, and the memory that it shares with the parent."""

import ctypes
import mmap
import os
import sys
from enum import IntEnum
from pathlib import Path

from tests.compiling import compiled

_SOURCE = Path(__file__).with_name("preload.c")
_VARIABLE = "LD_PRELOAD"


class Shared(IntEnum):
    """The words; the same in ``preload.c``."""

    CALLS_LEFT = 0
    PART = 1
    CALLS = 2
    HASH = 3
    TIME_NS = 4
    ROOM = 5
    FAILS_LEFT = 6
    FAILURES = 7
    STORE_FAULTS = 8


class SharedWords:
    """Words that parent and daemon share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._words = (ctypes.c_int64 * len(Shared)).from_buffer(self._memory)
        for word in (Shared.CALLS_LEFT, Shared.ROOM, Shared.FAILS_LEFT):
            self[word] = -1

    def __getitem__(self, word: Shared) -> int:
        return self._words[word]

    def __setitem__(self, word: Shared, value: int) -> None:
        self._words[word] = value

    def begin(self, undo: int, dump: int) -> int:
        """Have this process simulated from now on; returns the address of its clock.

        Args:
            undo: A file for what a power cut undoes; -1: none.
            dump: A file for lines of text; -1: none.
        """
        library = ctypes.CDLL(None)
        address = ctypes.c_void_p(ctypes.addressof(self._words))
        library.simulation_begin(address, ctypes.c_int(undo), ctypes.c_int(dump))
        return ctypes.cast(library.simulation_clock, ctypes.c_void_p).value or 0


def run_preloaded(module: str, arguments: list[str]) -> None:
    """Replace this process by one with the library, unless it has it."""
    library = str(compiled("simulation.so", "-shared", "-fPIC", "-O2", _SOURCE, "-ldl"))
    if os.environ.get(_VARIABLE) != library:
        # A compiled module would be written under a name that has an address in memory.
        variables = {**os.environ, _VARIABLE: library, "PYTHONDONTWRITEBYTECODE": "1"}
        os.execve(sys.executable, [sys.executable, "-m", module, *arguments], variables)
