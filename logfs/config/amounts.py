"""Amounts with units, as people write them: ``10MiB``, ``7d``."""

import re

NUMBER = r"(?a)([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*([A-Za-z]*)"
PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_557_600}


def seconds_of(text: str) -> float | None:
    """Return the seconds of ``90s``, ``15m``, ``1h`` or ``7d``; None if it is no duration."""
    match = re.fullmatch(NUMBER, text.strip())
    if match is None or match[2] not in _SECONDS:
        return None
    return float(match[1]) * _SECONDS[match[2]]


def bytes_of(text: str) -> float | None:
    """Return the bytes of ``1048576``, ``1MiB`` and ``1M`` (1024 each) or ``1MB`` (1000 each).

    None: it is no size.
    """
    match = re.fullmatch(NUMBER, text.strip())
    if match is None:
        return None
    unit = match[2].lower()
    prefix = unit.removesuffix("b").removesuffix("i")
    if prefix not in PREFIXES or unit not in (prefix, f"{prefix}b", f"{prefix}ib") or unit == "ib":
        return None
    base = 1000.0 if unit == f"{prefix}b" else 1024.0  # 64K is what du and ls mean by it
    return float(match[1]) * base ** PREFIXES[prefix]


def setting_in_units(key: str, value: str) -> str:
    """Return the value of a setting as in Kafka, in ms or bytes, of one that may have a unit."""
    if not re.fullmatch(r"(?a)[0-9]+(\.[0-9]+)?[A-Za-z]+", value):
        return value
    seconds = seconds_of(value) if key.endswith(".ms") else None
    if seconds is not None:
        return str(round(seconds * 1000))
    size = bytes_of(value) if key.endswith(".bytes") else None
    return value if size is None else str(round(size))
