"""A view that is drawn on the terminal again and again, until a key or a signal ends it."""

import io
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_ESCAPE = "\x1b"


class LiveScreen:
    """Takes the terminal; at the end of the ``with`` block it is as before."""

    def __init__(self) -> None:
        self._modes: list[Any] | None = None

    def __enter__(self) -> "LiveScreen":
        if sys.stdin is not None and sys.stdin.isatty():
            self._modes = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._write(_HIDE_CURSOR + _HOME + _REST)
        return self

    def __exit__(self, *_: object) -> None:
        if self._modes is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._modes)
        self._write(_SHOW_CURSOR)

    @property
    def lines(self) -> int:
        """How many lines the terminal has now."""
        return shutil.get_terminal_size().lines

    @property
    def columns(self) -> int:
        """How many characters a line has now."""
        return shutil.get_terminal_size().columns

    def draw(self, show: Callable[[], None], *, is_plain: bool = False) -> None:
        """Show what a function prints, as much of it as the terminal has room for.

        Args:
            is_plain: Whether output is as for a file: no colours, no lines of tables.
        """
        printed = _Printed(is_terminal=not is_plain)
        with redirect_stdout(printed):
            show()
        width, height = shutil.get_terminal_size()
        lines = printed.getvalue().splitlines()[:height]
        # A table with escape sequences is printed only if it has room.
        cut = [line if _ESCAPE in line else line[:width] for line in lines]
        self._write(_HOME + f"{_REST_OF_LINE}\n".join(cut) + _REST_OF_LINE + _REST)

    def has_key(self, key: str, wait_s: float = 0) -> bool:
        """Return whether a key was pressed since the last call, or is within a time."""
        if self._modes is None:
            select.select([], [], [], wait_s)
            return False
        if not select.select([sys.stdin], [], [], wait_s)[0]:
            return False
        return key.encode() in os.read(sys.stdin.fileno(), 1024)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class _Printed(io.StringIO):
    """The output for programs that ask whether it is a terminal."""

    encoding = sys.stdout.encoding if sys.stdout is not None else "utf-8"

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal
