"""A file system whose reads are answered after the next write's reply: python FILE POINT.

``file`` has no end: a read waits for the next write, and is answered with what was written, by the
hooks. What its handler answers later, another text, must not reach the reader. ``end`` is the end.
"""

import trio

from logfs.fs.kernel import hooks
from logfs.fs.kernel.earlyreplies import EarlyReplies
from tests.fs.onefile import OneFile, serve

_END = b"end\n"


class _Read:
    def __init__(self, number: int) -> None:
        self.number = number
        self.text = b""
        self.woken = trio.Event()

    def find(self) -> memoryview | None:
        return memoryview(bytearray(self.text))

    def note_answered(self, size: int) -> None:
        assert size == len(self.text)
        self.woken.set()

    def put_back(self) -> None:
        self.woken.set()


class Early(OneFile):
    """Reads at 0 return at once, all others wait."""

    def __init__(self) -> None:
        super().__init__()
        self._prompt = EarlyReplies(hooks.loaded())
        self._waiting: list[_Read] = []

    async def answer(self) -> bytes:
        reading = _Read(self._prompt.request())
        self._waiting.append(reading)
        await reading.woken.wait()
        return b"" if reading.text == _END else b"late\n"

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        waiting, self._waiting = self._waiting, []
        for reading in waiting:
            reading.text = buf
            if buf == _END:
                reading.woken.set()
            else:
                self._prompt.add(reading.number, reading)
        return len(buf)


serve(Early(), "early")
