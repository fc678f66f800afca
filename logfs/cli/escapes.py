"""Text that a terminal shows and does not obey: names and records may hold any character.

What commands say about errors leaves out a name and a password before ``@HOST`` as well: people
type them into addresses.
"""

import re
from typing import BinaryIO

_LOGIN = re.compile(r"[^\s/,'\"]+:[^\s/,'\"]*@(?=[^\s'\"])")
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


def printable(text: str) -> str:
    """Escape the characters that do not print: line breaks and terminal sequences."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def without_login(text: str) -> str:
    """Return a message without the ``USER:PASSWORD@`` of addresses in it."""
    return _LOGIN.sub("...@", text)


class TerminalOutput:
    """Binary output to a terminal: lines and tabs; other control characters are escaped.

    Args:
        out: The terminal.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, data: bytes | memoryview, /) -> None:
        """Write all of some bytes."""
        self._out.write(_CONTROL.sub(_escaped, data))

    def flush(self) -> None:
        """Write what is buffered."""
        self._out.flush()


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % found[0][-1]
