"""What a growing file must answer, byte by byte, and the programs that read it."""

from logfs.services.views.files import GrowingFile
from logfs.types import View
from tests.log.gaps import HoledLog
from tests.log.model import Model


class Rule:
    """One open growing file, byte by byte."""

    def __init__(self, model: Model, view: View, start: int = 0, limit: int | None = None) -> None:
        self.end = model.end[view] if limit is None else limit
        self.bytes_at = {
            begin + i: data[i : i + 1]
            for begin, data in model.runs(view)
            for i in range(min(len(data), self.end - begin))
        }
        self.start = self.position = start
        self.next_offset = 0

    def read(self, offset: int, size: int) -> bytes:
        if offset == self.next_offset:
            data = self.kept(self.position, self.end)[:size]
            self.position = data[-1] + 1 if data else self.position
        else:
            data = self.seek_and_read(self.start + offset, size)
        self.next_offset = offset + len(data)
        return self.text(data)

    def seek_text(self, offset: int, size: int) -> bytes:
        """What a read after a seek returns."""
        data = self.seek_and_read(self.start + offset, size)
        self.next_offset = offset + len(data)
        return self.text(data)

    def seek_and_read(self, window: int, size: int) -> list[int]:
        data = self.kept(window, window + size)
        if data:
            self.position = window + size
            return data
        data = self.kept(window, self.end)[:size]
        newline = self.text(data).find(b"\n")
        data = data if newline < 0 else data[: max(newline, 1)]
        self.position = data[-1] + 1 if data else window
        return data

    def kept(self, begin: int, end: int) -> list[int]:
        return sorted(at for at in self.bytes_at if begin <= at < end)

    def text(self, positions: list[int]) -> bytes:
        return b"".join(self.bytes_at[at] for at in positions)


class Program:
    """What a program does with an open growing file: seek, read, print."""

    def __init__(self, log: HoledLog, view: View, buffer: int) -> None:
        self.file = GrowingFile(log.log, view, 0, level=log.level)
        self.size = self.file.size()
        self.buffer = buffer
        self.offset = 0

    def read(self, size: int) -> bytes:
        out = bytearray(size)
        self.file.may_block = False
        got = self.file.read_into(memoryview(out), self.offset)
        if self.file.would_block:
            self.file.may_block = True
            got += self.file.read_into(memoryview(out)[got:], self.offset + got)
        self.offset += got
        return bytes(out[:got])

    def cat(self) -> bytes:
        """GNU cat, and cp without copy_file_range: read until nothing comes."""
        printed = b""
        while data := self.read(self.buffer):
            printed += data
        return printed

    def head(self, lines: int) -> bytes:
        """GNU head -n."""
        printed = b""
        while printed.count(b"\n") < lines and (data := self.read(self.buffer)):
            printed += data
        return b"".join(printed.splitlines(keepends=True)[:lines])

    def tail(self, lines: int) -> bytes:
        """GNU tail -n: file_lines of tail.c, which looks for newlines window by window, backwards.

        The end is what stat said, and the first window makes the others aligned.
        """
        position = self.size
        size = position % self.buffer or self.buffer
        position -= size
        data = self.read_at(position, size)
        if data and not data.endswith(b"\n"):
            lines -= 1
        while data:
            found = len(data)
            while (found := data.rfind(b"\n", 0, found)) >= 0:
                if lines == 0:
                    return data[found + 1 :] + self.rest(self.size - position - len(data))
                lines -= 1
            if position == 0:
                self.offset = 0
                return self.rest(self.size)
            position -= self.buffer
            data = self.read_at(position, self.buffer)
        return b""

    def read_at(self, offset: int, size: int) -> bytes:
        self.offset = offset
        return self.read(size)

    def rest(self, limit: int) -> bytes:
        printed = b""
        while data := self.read(min(self.buffer, limit - len(printed))):
            printed += data
        return printed
