"""From any error to one line on stderr, ``logfs: THING: what was expected and what to do``.

The exit status is 1; 2 where the command line itself is wrong, as in click; 130 after Ctrl-C.
``--debug`` or ``LOGFS_DEBUG=1`` prints the traceback.
"""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from logfs.cli.escapes import printable, without_login
from logfs.errors import LogfsError

FAILED = 1
USAGE = 2
"""The command line itself is wrong, as in click."""
INTERRUPTED = 130
"""128 + SIGINT, as in shells."""

_HINTS = {
    errno.ENOTCONN: "the daemon of this mount has died; 'logfs umount' removes the mount, "
    "'logfs mount' mounts again",
    errno.EROFS: "the mount or the file system is read-only",
    errno.EACCES: "run it as the owner, or as root",
    errno.EBADF: "it is closed",
    errno.ENOSPC: "make room, then try again",
    errno.EMFILE: "raise the limit: ulimit -n, LimitNOFILE= of a service",
}


class AboutError(Exception):
    """An error, the argument that it is about, and what has been done so far (state)."""

    def __init__(self, thing: str, cause: Exception, state: str = "") -> None:
        super().__init__(thing, cause)
        self.thing = thing
        self.cause = cause
        self.state = state


@contextmanager
def about(thing: str) -> Iterator[None]:
    """Turn errors inside into ``AboutError``."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output ended: no argument is wrong
    except (LogfsError, OSError) as error:
        raise AboutError(thing, error) from error


def explain(error: BaseException) -> str:
    """Return the message of an error for the user, in one line."""
    match error:
        case AboutError(thing=thing, cause=cause, state=state):
            reason = explain(_unnamed(cause, thing)) + (f"; {state}" if state else "")
            # A message that starts with the argument need not name it again.
            text = reason if reason.startswith(f"{thing}:") else f"{thing or repr(thing)}: {reason}"
        case LogfsError():
            text = str(error)
        case click.ClickException():
            text = error.format_message()
        case OSError():
            text = _explain_os_error(error)
        case _:
            text = (
                f"a bug in logfs, {type(error).__name__}: {error}; "
                "run it again with 'logfs --debug' for the traceback"
            )
    return " ".join(text.split())


def _unnamed(cause: Exception, thing: str) -> Exception:
    """Leave out the name of a file if it is another spelling of the argument."""
    if not isinstance(cause, OSError) or not isinstance(cause.filename, str):
        return cause
    if os.path.realpath(cause.filename) != os.path.realpath(thing):
        return cause
    if "://" in thing:
        return LogfsError(cause.strerror)  # a store says by itself what to do
    return OSError(cause.errno, cause.strerror)


def explain_usage(error: click.UsageError) -> str:
    """Return the message of a wrong command line for the user, in one line."""
    path = "logfs" if error.ctx is None else error.ctx.command_path
    text = " ".join(error.format_message().split()).rstrip(".")
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    name = path.partition(" ")[2]
    return f"{name and name + ': '}{text}; '{path} --help' shows what it takes"


def report(error: BaseException, *, debug: bool | None = None) -> int:
    """Print an error to stderr, with ``--debug`` its traceback, and return the exit status."""
    context = click.get_current_context(silent=True)
    if debug or (debug is None and context is not None and getattr(context.obj, "debug", False)):
        traceback.print_exception(error)
    warn(explain(error))
    return FAILED


class Reports:
    """What went wrong with single arguments of a command, which continues with the others.

    Attributes:
        status: The exit status so far.
    """

    def __init__(self) -> None:
        self.status = 0

    def add(self, error: AboutError) -> None:
        """Print an error after the output that precedes it."""
        sys.stdout.flush()
        self.status = report(error)

    @contextmanager
    def about(self, thing: str) -> Iterator[None]:
        """Report errors inside, and leave out the rest; see ``failures.about``."""
        try:
            with about(thing):
                yield
        except AboutError as error:
            self.add(error)


def warn(text: str) -> None:
    """Print a line for the user to stderr."""
    click.echo(f"logfs: {printable(without_login(text))}", err=True)


def progress() -> Callable[[str], None] | None:
    """Return a function that prints progress; None if stderr is not a terminal."""
    return warn if sys.stderr.isatty() else None


def exit_with(status: int) -> NoReturn:
    """End the command with an exit status; print nothing more."""
    raise click.exceptions.Exit(status)


def _explain_os_error(error: OSError) -> str:
    reason = error.strerror or str(error)
    text = reason if error.filename is None else f"{error.filename}: {reason}"
    number = error.errno
    # A store says by itself what to do.
    is_here = not isinstance(error.filename, str) or "://" not in error.filename
    hint = _HINTS.get(number) if number is not None and is_here else None
    return text if hint is None else f"{text}; {hint}"
