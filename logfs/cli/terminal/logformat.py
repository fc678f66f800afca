"""The lines of the log: one line for each record, also if the message has line breaks.

    text       2026-11-21 22:44:54,497 WARNING orders/0 is offline: ...
    json       {"time": "2026-11-21T22:44:54.497Z", "level": "warning", "message": ..., "topic":
               "orders", "partition": 0, "position": 120, "bytes": 60, ...}
    journald   <4>orders/0 is offline: ...       starts with the level, as in sd-daemon(3); the
               journal adds the time and the rest

Characters that do not print (line breaks in a file's name, terminal sequences) are escaped.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from logfs.cli.escapes import printable
from logfs.errors import LogfsError
from logfs.log.names import parse_partition_directory
from logfs.types import TopicPartition

_TEXT = "%(asctime)s %(levelname)s %(message)s"
_PRIORITIES = {
    logging.CRITICAL: 2,
    logging.ERROR: 3,
    logging.WARNING: 4,
    logging.INFO: 6,
    logging.DEBUG: 7,
}
"""Those of syslog(3)."""
_OF_ERRORS = {
    "file": "file",
    "position": "position",
    "size_bytes": "bytes",
    "limit_bytes": "limit_bytes",
    "offset": "offset",
}
"""Attributes of errors, and what they are called in the log."""

WINDOW_S = 60.0
MOST_ALIKE = 10
"""How many warnings of one place about one thing are shown in that time."""
_MOST_KINDS = 1024
_TELL_APART = ("topic", "partition", "file", "error")


class LineFormatter(logging.Formatter):
    """Makes one line of a record, a traceback included."""

    def __init__(self, form: str = _TEXT) -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        message, *traceback = super().format(record).splitlines() or [""]
        return " | ".join([message, *(printable(line.rstrip()) for line in traceback)])

    def formatTime(  # noqa: N802 - logging's name
        self,
        record: logging.LogRecord,
        datefmt: str | None = None,
    ) -> str:
        """Return the local time of a record with its offset from UTC."""
        del datefmt
        moment = datetime.fromtimestamp(record.created).astimezone()
        return moment.isoformat(sep=" ", timespec="milliseconds")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without a traceback."""
        return printable(super().formatMessage(record)) + left_out(record)


class JournalFormatter(LineFormatter):
    """Makes a line for the journal, which starts with the level."""

    def __init__(self) -> None:
        super().__init__("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return f"<{_PRIORITIES.get(record.levelno, 6)}>{super().format(record)}"


class JsonFormatter(logging.Formatter):
    """Makes a JSON object of a record, with the fields of its subject."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.fromtimestamp(record.created, UTC)
        row: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage() + left_out(record),
            "logger": record.name,
            **{key: value for key, value in fields(record).items() if value is not None},
        }
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


class Flood(logging.Filter):
    """Leaves out warnings when the same place says too much about the same thing.

    The first that is shown again says how many were left out. A loss is never left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[object, ...], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record is shown."""
        if record.levelno < logging.WARNING:
            return True
        about = fields(record)
        if about.get("event") == "loss":
            return True
        place = record.pathname, record.lineno, *_raised_at(record)
        key = *place, *map(about.get, _TELL_APART)
        if len(self._seen) >= _MOST_KINDS and key not in self._seen:
            self._seen.clear()
        row = self._seen.setdefault(key, [record.created, 0, 0])
        begin_s, count, left = row
        if record.created - begin_s >= WINDOW_S:
            record.left_out = int(left)
            row[:] = [record.created, 1, 0]
            return True
        is_shown = count < MOST_ALIKE
        row[:] = [begin_s, count + is_shown, left + (not is_shown)]
        return is_shown


def _raised_at(record: logging.LogRecord) -> tuple[object, ...]:
    """Return the kind of an exception and the line that raised it; empty without one."""
    kind, _, traceback = record.exc_info or (None, None, None)
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if kind is None or traceback is None:
        return ()
    return kind, traceback.tb_frame.f_code.co_filename, traceback.tb_lineno


def left_out(record: logging.LogRecord) -> str:
    """Return what to say of warnings that were left out before a record."""
    count = getattr(record, "left_out", 0)
    return f" ({count} more like this were left out since)" if count else ""


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Return what a record is about: what it was given, and what its arguments know.

    A logger is given fields by ``extra={"fields": {...}}``.
    """
    found: dict[str, object] = {}
    arguments = record.args if isinstance(record.args, tuple) else ()
    for argument in arguments:
        if isinstance(argument, TopicPartition):
            found |= {"topic": argument.topic, "partition": argument.partition}
        elif isinstance(argument, LogfsError):
            found |= _of_error(argument)
        elif isinstance(argument, OSError):
            found |= {"errno": argument.errno, "file": argument.filename}
    given = getattr(record, "fields", None)
    return found | dict(given) if isinstance(given, Mapping) else found


def _of_error(error: LogfsError) -> dict[str, object]:
    known = vars(error)
    found = {name: known[key] for key, name in _OF_ERRORS.items() if known.get(key) is not None}
    directory = parse_partition_directory(str(found.get("file", "")).partition("/")[0])
    if directory is not None:
        found |= {"topic": directory.topic, "partition": directory.partition}
    return {"error": type(error).__name__, **found}
