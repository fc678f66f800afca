r"""The text of configuration files: a subset of Java's properties that means the same to Java.

    # comment
    retention.ms=86400000

One ``key=value`` a line, blank lines and lines that begin with ``#`` do not count, nor do blanks
around key and value. Keys are letters, digits, ``.``, ``_`` and ``-``; values are printable ASCII
without ``\``. What Java reads in another way (escapes, continued lines, ``:`` or a blank between
key and value, a key given twice) is refused.
"""

import re
from collections.abc import Mapping

from logfs.errors import InvalidConfigError

_KEY = re.compile(r"[a-zA-Z0-9._-]+")
_VALUE = re.compile(r"[ -\[\]-~]*")


def parse_properties(text: str, *, source: str = "properties") -> dict[str, str]:
    """Parse the text of a configuration file.

    Args:
        source: Name of the file, for messages.

    Raises:
        InvalidConfigError: A line is not as above; the message names it.
    """
    properties: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.strip(" \t\r")
        if not content or content.startswith("#"):
            continue
        key, equals, value = content.partition("=")
        key, value = key.rstrip(" \t"), value.lstrip(" \t")
        reason = _why_not(key, value) if equals else "expected key=value"
        if reason is None and key in properties:
            reason = f"{key} is given twice"
        if reason is not None:
            raise InvalidConfigError(f"{source}, line {number}: {reason}: {content!r}")
        properties[key] = value
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """Write what ``parse_properties`` reads; raise InvalidConfigError if that is impossible."""
    for key, value in properties.items():
        reason = _why_not(key, value)
        if reason is not None:
            raise InvalidConfigError(f"{reason}: {key!r}, {value!r}")
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _why_not(key: str, value: str) -> str | None:
    if not _KEY.fullmatch(key):
        return "a key is letters, digits and . _ -"
    if not _VALUE.fullmatch(value) or value != value.strip(" "):
        return "a value is printable ASCII without \\ and without blanks around it"
    return None
