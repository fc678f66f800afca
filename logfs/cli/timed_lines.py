"""``logfs append --timestamp-format``: lines of text with the times that they contain.

The lines become those of .jsonl, which carry timestamps. A line without a time belongs to the line
before it, as those of a stack trace, and has its time.
"""

import json
from base64 import b64encode
from collections.abc import Iterator

from logfs.cli.append_files import LineAppender
from logfs.errors import UnparsableLineError
from logfs.log.lines.form import Lines
from logfs.records.compression import Buffer
from logfs.records.linetimes import LineTimes


class TimedAppender:
    """See ``LineAppender``. Appends lines of text as records with their times.

    Args:
        appender: Takes lines of .jsonl.
        times: Finds the times.
        key_delimiter: What is between key and value; empty: there are no keys.
    """

    def __init__(self, appender: LineAppender, times: LineTimes, key_delimiter: bytes) -> None:
        self.chunk_bytes = max(appender.chunk_bytes // 4, 1 << 16)  # JSON is longer
        self._appender = appender
        self._times = times
        self._delimiter = key_delimiter
        self._last_ms: int | None = None

    def can_read(self, _descriptor: int) -> bool:
        """See ``LineAppender``: every line is read here."""
        return False

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """See ``LineAppender``."""
        given = bytes(lines).split(b"\n")[:-1]
        before_ms = self._last_ms
        refusal: UnparsableLineError | None = None
        rows: list[bytes] = []
        try:
            for row in self._rows(given):
                rows.append(row)  # noqa: PERF402 - those before an error are wanted
        except UnparsableLineError as error:
            refusal = error
        done = (
            self._appender.append(b"".join(rows), unkeyed=unkeyed) if rows else Lines([], 0, None)
        )
        count, size = 0, 0
        for row in rows:
            size += len(row)
            if size > done.accepted:
                break
            count += 1
        if done.refusal is not None or count < len(rows):
            self._last_ms = before_ms
        accepted = sum(len(line) + 1 for line in given[:count])
        return Lines(done.appended, accepted, done.refusal or refusal)

    def append_file(self, descriptor: int, position: int, *, unkeyed: int) -> Lines:
        """See ``LineAppender``; never called, since ``can_read`` is false."""
        raise NotImplementedError

    def flush(self) -> None:
        """See ``LineAppender``."""
        self._appender.flush()

    def _rows(self, lines: list[bytes]) -> Iterator[bytes]:
        delimiter = self._delimiter
        for line in lines:
            found = self._times.find(line)
            if found is None:
                found = self._last_ms
            if found is None:
                raise UnparsableLineError(
                    "no time in the format of --timestamp-format; only lines after the first one "
                    "may lack it"
                )
            self._last_ms = found
            key, is_keyed, value = line.partition(delimiter) if delimiter else (b"", b"", line)
            row: dict[str, object] = {"timestamp": found}
            if delimiter and is_keyed:
                row |= {"key": _text(key), "value": _text(value)}
            else:
                row["value"] = _text(line)
            yield json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
