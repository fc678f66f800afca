"""The forms of the values of options. Pure."""

from collections.abc import Mapping

from logfs.errors import InvalidConfigError


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false; raise InvalidConfigError if it is neither."""
    text = given.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise InvalidConfigError(f"{name} {given[name]!r}: expected true or false")
    return text == "true"


def positive(given: Mapping[str, str], name: str) -> int | None:
    """Return an option that is a positive number, None without; raise InvalidConfigError."""
    if name not in given:
        return None
    text = given[name].strip()
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise InvalidConfigError(f"{name} {given[name]!r}: expected a positive number")
    return int(text)
