"""``logfs append --timestamp-format``: lines of text with the times that they contain.

The lines become those of .jsonl, which carry timestamps. A line without a time belongs to the line
before it, as those of a stack trace, and has its time.
"""

import json
from base64 import b64encode
from collections.abc import Iterator

from logfs.cli.append_files import LineAppender
from logfs.errors import UnparsableLineError
from logfs.library.writer import Writer
from logfs.log.lines.form import LineForm, Lines, LineTarget
from logfs.records.compression import Buffer
from logfs.records.linetimes import LineTimes
from logfs.types import View


class TimedAppender(LineAppender):
    """Appends lines of text as records with their times, which are .jsonl.

    Args:
        target: For the lines of text.
        times: Finds the times.
    """

    chunk_bytes = LineAppender.chunk_bytes // 4  # JSON is longer

    def __init__(self, writer: Writer, target: LineTarget, times: LineTimes) -> None:
        form = target.form
        super().__init__(writer, target._replace(form=LineForm(View.JSONL, b"", form.headers)))
        self._times = times
        self._delimiter = form.key_delimiter
        self._last_ms: int | None = None

    def can_read(self, _descriptor: int) -> bool:
        """Return False: every line is read here."""
        return False

    def append(self, lines: Buffer, *, unkeyed: int) -> Lines:
        """Append lines up to the first one without a time; see ``LineAppender``."""
        given = bytes(lines).split(b"\n")[:-1]
        before_ms = self._last_ms
        refusal: UnparsableLineError | None = None
        rows: list[bytes] = []
        try:
            for row in self._rows(given):
                rows.append(row)  # noqa: PERF402 - those before an error are wanted
        except UnparsableLineError as error:
            refusal = error
        done = super().append(b"".join(rows), unkeyed=unkeyed) if rows else Lines([], 0, None)
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
