"""The standard streams of the process, as the commands find them.

A descriptor that the caller has closed is taken, so that no file of a log gets its number; what is
written to such a stdout fails. Errors of stdout name it, for they are not about what is printed.
"""

import io
import sys
from typing import Any

_STDOUT, _STDERR = 1, 2
_taken: list[io.FileIO] = []


class _Stdout(io.FileIO):
    """Descriptor 1, whose errors name it. After an error nothing more is written to it."""

    is_over = False

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - as FileIO
        if self.is_over:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_over = True
            raise
        except OSError as error:
            self.is_over = True
            raise OSError(error.errno, error.strerror, "stdout") from None


def prepare() -> None:
    """Prepare the streams of this process, unless others have replaced them already."""
    is_ours = sys.stdout is sys.__stdout__
    _take_closed()
    if is_ours:
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        raw = _Stdout(_STDOUT, "w", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=None if sys.stdout is None else sys.stdout.encoding,  # finding it takes long
            errors="surrogateescape",
            line_buffering=is_terminal,
        )


def abandon() -> None:
    """Write nothing more to stdout: what is still buffered may have been written already.

    So it is where Ctrl-C came between a write and the note that it was made.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Stdout):
        raw.is_over = True


def _take_closed() -> None:
    """Open nothing in the place of what is closed; the lowest free number is the one given."""
    while True:
        file = io.FileIO("/dev/null")
        if file.fileno() > _STDERR:
            file.close()
            return
        if file.fileno() == _STDERR:
            file.close()
            _taken.append(io.FileIO("/dev/null", "w"))
            sys.stderr = io.TextIOWrapper(io.BufferedWriter(_taken[-1]))
            continue
        _taken.append(file)
