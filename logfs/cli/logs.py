"""Where the log goes: what the layers below have to say, beside the errors of the command itself.

A command shows warnings as lines on stderr. A mount logs to stderr in the foreground, to syslog or
a file of its own in the background.
"""

import logging
from pathlib import Path

from logfs.cli import failures

SYSLOG = Path("/dev/log")

_LINE = "%(asctime)s %(levelname)s %(message)s"


class _Warnings(logging.Handler):
    """Shows warnings in the manner of errors."""

    def emit(self, record: logging.LogRecord) -> None:
        failures.warn(f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}")


def show_warnings() -> None:
    """Show warnings and errors of all layers on stderr, unless somebody listens already."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(_Warnings(logging.WARNING))


def log_to_stderr() -> None:
    """Log to stderr, with the time."""
    _log_to(logging.StreamHandler(), _LINE)


def log_to_file(path: str) -> None:
    """Log to the end of a file; one that logrotate has moved away is opened anew.

    Raises:
        OSError: The file cannot be written.
    """
    from logging.handlers import WatchedFileHandler

    _log_to(WatchedFileHandler(path, encoding="utf-8"), _LINE)


def log_to_syslog() -> None:
    """Log to the system's log; without one (in many containers) the log is lost, with a warning."""
    from logging.handlers import SysLogHandler

    if not SYSLOG.is_socket():
        failures.warn(f"there is no syslog here ({SYSLOG}): without --log-file nothing is logged")
        _log_to(logging.NullHandler(), _LINE)
        return
    _log_to(SysLogHandler(str(SYSLOG), SysLogHandler.LOG_DAEMON), "logfs[%(process)d]: %(message)s")


def _log_to(handler: logging.Handler, form: str) -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, _Warnings):
            root.removeHandler(old)
    handler.setFormatter(logging.Formatter(form))
    root.addHandler(handler)
    own = logging.getLogger("logfs")
    if own.level == logging.NOTSET:
        own.setLevel(logging.INFO)
