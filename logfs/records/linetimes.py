"""The times that lines of a log contain, in a format of strptime(3). Pure.

The format is looked for anywhere in a line, and the first match applies. Months and days are
in English, in any locale. A year that the format does not have is the one that puts the
time at most a day after now.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MAX_KNOWN = 4096

_DIRECTIVES = {
    "Y": r"(?P<Y>[0-9]{4})",
    "y": r"(?P<y>[0-9]{2})",
    "m": r"(?P<m>[0-9]{1,2})",
    "b": r"(?P<b>(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))[a-z]*",
    "d": r"(?P<d> ?[0-9]{1,2})",
    "H": r"(?P<H> ?[0-9]{1,2})",
    "I": r"(?P<I> ?[0-9]{1,2})",
    "p": r"(?P<p>(?i:am|pm))",
    "M": r"(?P<M>[0-9]{2})",
    "S": r"(?P<S>[0-9]{2})",
    "f": r"(?P<f>[0-9]{1,9})",
    "z": r"(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})",
    "s": r"(?P<s>[0-9]{1,12})",
    "a": r"(?i:mon|tue|wed|thu|fri|sat|sun)[a-z]*",
    "%": "%",
}
_SAME = {"B": "%b", "h": "%b", "e": "%d", "A": "%a", "T": "%H:%M:%S", "F": "%Y-%m-%d", "R": "%H:%M"}
_ISO = (
    r"(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})[T ](?P<H>[0-9]{2}):(?P<M>[0-9]{2})"
    r"(?::(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?(?: ?(?P<z>Z|[+-][0-9]{2}:?[0-9]{2}))?"
)
_ISO_BASIC = (
    r"(?<![0-9])(?P<Y>[0-9]{4})(?P<m>[0-9]{2})(?P<d>[0-9]{2})T(?P<H>[0-9]{2})(?P<M>[0-9]{2})"
    r"(?:(?P<S>[0-9]{2})(?:[.,](?P<f>[0-9]{1,9}))?)?(?P<z>Z|[+-][0-9]{2}:?[0-9]{2})?(?![0-9])"
)
_EPOCH_MS = r"(?P<ms>(?<![0-9])[0-9]{12,14}(?![0-9]))"

FORMAT_TABLE = (
    (
        "iso",
        "2026-11-20T10:00:00.123+01:00; T may be a space, what follows the minute may be missing; "
        "or 20261120T100000Z",
    ),
    ("epoch-ms", "12 to 14 digits: milliseconds since the epoch"),
    ("'%d/%b/%Y:%H:%M:%S %z'", "as web servers write it"),
    ("'%b %d %H:%M:%S'", "as syslog writes it; the year is the one that is not in the future"),
    ("'%Y/%m/%d %H:%M:%S'", "strptime(3): %Y %y %m %b %d %H %I %p %M %S %f %z %s %a %T %F %R %%"),
)
"""Rows (format, meaning)."""


class LineTimes:
    """Finds the times of lines.

    Args:
        form: A format; see ``FORMAT_TABLE``.
        zone: The zone of times that name none.
        now_ms: The clock, for times without a year.

    Raises:
        ValueError: The format is unknown, or does not make a time.
    """

    def __init__(self, form: str, zone: tzinfo, now_ms: int) -> None:
        patterns = [_ISO, _ISO_BASIC] if form == "iso" else [_pattern_of(form)]
        self._patterns = [re.compile(pattern.encode()) for pattern in patterns]
        self._zone = zone
        self._now = _EPOCH + now_ms * _MILLISECOND
        self._known: dict[bytes, int] = {}

    def find(self, line: bytes) -> int | None:
        """Return the time in a line, in ms since the epoch; None if there is none."""
        match = next(filter(None, (pattern.search(line) for pattern in self._patterns)), None)
        if match is None:
            return None
        text = match[0]
        found = self._known.get(text)
        if found is None:
            parts = {name: part.decode() for name, part in match.groupdict().items() if part}
            try:
                found = self._time(parts)
            except (ValueError, OverflowError):
                return None  # February 30
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[text] = found
        return found

    def _time(self, parts: dict[str, str]) -> int:
        if "ms" in parts:
            return int(parts["ms"])
        fraction = int(parts.get("f", "0")[:6].ljust(6, "0"))
        if "s" in parts:
            return int(parts["s"]) * 1000 + fraction // 1000
        zone = _zone(parts["z"]) if "z" in parts else self._zone
        year = int(parts.get("Y", "0"))
        if "y" in parts:
            year = int(parts["y"]) + (1900 if int(parts["y"]) >= 69 else 2000)
        if year:
            return self._of_year(year, parts, zone, fraction)
        year = (self._now + _DAY).astimezone(UTC).year + 1
        while True:  # February 29 may be eight years back
            try:
                found = self._of_year(year, parts, zone, fraction)
            except ValueError:
                found = None
            if found is not None and _EPOCH + found * _MILLISECOND <= self._now + _DAY:
                return found
            if year < self._now.year - 8:
                raise ValueError("there is no such day")
            year -= 1

    @staticmethod
    def _of_year(year: int, parts: dict[str, str], zone: tzinfo, fraction: int) -> int:
        month = _MONTHS.index(parts["b"].lower()) + 1 if "b" in parts else int(parts["m"])
        hour = int(parts.get("H") or int(parts["I"]) % 12)
        if parts.get("p", "").lower() == "pm" and "H" not in parts:
            hour += 12
        minute, second = int(parts["M"]), min(int(parts.get("S", "0")), 59)
        # ISO 8601: 24:00:00 is the end of the day.
        days, hour = (1, 0) if (hour, minute, second, fraction) == (24, 0, 0, 0) else (0, hour)
        moment = datetime(year, month, int(parts["d"]), hour, minute, second, fraction, zone)
        return (moment - _EPOCH) // _MILLISECOND + days * _DAY // _MILLISECOND


def _pattern_of(form: str) -> str:
    if form == "epoch-ms":
        return _EPOCH_MS
    pattern, given, seen = "", form, set[str]()
    for name, expansion in _SAME.items():
        given = re.sub(rf"(?<!%)((?:%%)*)%{name}", rf"\g<1>{expansion}", given)
    for plain, directive in re.findall(r"([^%]+)|%(.?)", given):
        if plain:
            pattern += re.escape(plain)
            continue
        if directive not in _DIRECTIVES:
            raise ValueError(f"{form!r}: %{directive} is no part of a time that logfs knows")
        if directive in seen - {"%", "a"}:
            raise ValueError(f"{form!r}: %{directive} is there twice")
        seen.add(directive)
        pattern += _DIRECTIVES[directive]
    has_month, has_hour = seen & {"m", "b"}, "H" in seen or {"I", "p"} <= seen
    if "s" not in seen and not (has_month and "d" in seen and has_hour and "M" in seen):
        raise ValueError(
            f"{form!r}: no time: expected a day and a time of day, as in '%Y-%m-%d %H:%M:%S', or "
            "iso, epoch-ms or %s"
        )
    return pattern


def _zone(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text.startswith("-") else offset)
