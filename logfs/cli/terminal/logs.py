"""The output of the log: the messages of the layers below.

A command shows warnings as lines on stderr. A mount logs to stderr in the foreground, to syslog or
its own file in the background; what its lines look like is in ``logformat``.
"""

import logging
import os
import stat
import sys
from collections.abc import Callable
from typing import NamedTuple

from logfs.cli import failures

SYSLOG = "/dev/log"
FORMATS = ("auto", "text", "json", "journald")
LEVELS = ("debug", "info", "warning", "error")


class LogOutput(NamedTuple):
    """The target and form of a daemon's log; without a file stderr, or syslog in the background."""

    file: str | None = None
    form: str = "auto"
    level: str | None = None


STDERR = LogOutput()
"""In the foreground."""


class _Warnings(logging.Handler):
    """Shows warnings in the manner of errors, if no error is going to say the same."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_told_by_commands", False):
            return
        failures.warn(f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}")


def show_warnings() -> None:
    """Show warnings and errors of all layers on stderr, unless the log has a handler already."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_Warnings(logging.WARNING))


def log_to_stderr(form: str = "auto") -> None:
    """Log to stderr.

    Args:
        form: One of ``FORMATS``; ``auto`` is ``journald`` where stderr leads to the journal, else
            ``text``.
    """
    if form == "auto":
        form = "journald" if leads_to_journal(2) else "text"
    _log_to(logging.StreamHandler(sys.stderr), form)


def log_to_file(path: str, form: str = "auto") -> None:
    """Log to the end of a file; one that logrotate has moved away is reopened."""
    from logging.handlers import WatchedFileHandler

    handler = WatchedFileHandler(path, encoding="utf-8", errors="backslashreplace")
    _log_to(handler, "text" if form == "auto" else form)


def _mode_of(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except OSError:
        return 0


def log_to_syslog(form: str = "auto") -> None:
    """Log to the system's log; without one (in many containers) the log is lost, with a warning."""
    from logging.handlers import SysLogHandler

    if not stat.S_ISSOCK(_mode_of(SYSLOG)):
        failures.warn(f"there is no syslog here ({SYSLOG}): without --log-file nothing is logged")
        _log_to(logging.NullHandler(), "text")
        return
    handler = SysLogHandler(str(SYSLOG), SysLogHandler.LOG_DAEMON)
    handler.ident = f"logfs[{os.getpid()}]: "
    _log_to(handler, "json" if form == "json" else "syslog")


def set_level(level: str | None) -> None:
    """Log what is as important as a level, one of ``LEVELS``; None leaves it as it is."""
    if level is not None:
        logging.getLogger("logfs").setLevel(level.upper())


def leads_to_journal(descriptor: int) -> bool:
    """Tell whether a descriptor is the stream that systemd has connected to the journal.

    Source: systemd.exec(5), ``$JOURNAL_STREAM``.
    """
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        found = os.fstat(descriptor)
    except OSError:
        return False
    return (device, inode) == (str(found.st_dev), str(found.st_ino))


def _log_to(handler: logging.Handler, form: str) -> None:
    from logfs.cli.terminal import logformat

    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, _Warnings):
            root.removeHandler(old)
    formatters: dict[str, Callable[[], logging.Formatter]] = {
        "text": logformat.LineFormatter,
        "json": logformat.JsonFormatter,
        "journald": logformat.JournalFormatter,
        "syslog": lambda: logformat.LineFormatter("%(message)s"),
    }
    handler.setFormatter(formatters[form]())
    handler.addFilter(logformat.Flood())
    root.addHandler(handler)
    own = logging.getLogger("logfs")
    if own.level == logging.NOTSET:
        own.setLevel(logging.INFO)
