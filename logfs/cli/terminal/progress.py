"""How far long work is: one line on a terminal that is written again and again."""

import sys
import time

import click

from logfs.cli.terminal import tables

_SHOWN_EVERY_S = 0.1


class ProgressLine:
    """The line; entered, it is taken away in the end. Nothing is written without a terminal."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._is_shown = sys.stderr.isatty()
        self._last_s = self._started_s = time.monotonic()
        self._width = 0

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, done: int, total: int) -> None:
        """Show how many bytes of how many are done. Any thread."""
        now_s = time.monotonic()
        if not self._is_shown or now_s < self._last_s + _SHOWN_EVERY_S:
            return
        self._last_s = now_s
        rate = tables.format_bytes(int(done / (now_s - self._started_s)))
        sizes = " of ".join(map(tables.format_bytes, (done, total)))
        text = f"{100 * done // max(total, 1):3}%  {sizes} {self._done}, {rate}/s"
        click.echo(f"\r{text.ljust(self._width)}", nl=False, err=True)
        self._width = len(text)

    def clear(self) -> None:
        """Take the line away."""
        if self._width:
            click.echo(f"\r{' ' * self._width}\r", nl=False, err=True)
            self._width = 0
