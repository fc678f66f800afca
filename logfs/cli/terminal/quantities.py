"""Amounts on the command line and in print: ``10MiB``, ``2.5k``, ``7d``.

The functions are types of click's options: they raise ``click.BadParameter``, which names the
option.
"""

import re

import click

from logfs.config.amounts import NUMBER, PREFIXES, bytes_of, seconds_of

_MOST = 1e18
"""An exabyte, and more seconds than anything lasts: beyond is a typing mistake."""
_UNITS = (("y", 31_557_600), ("d", 86_400), ("h", 3600), ("min", 60))


def size(text: str) -> float:
    """Read bytes: ``1048576``, ``1MiB`` and ``1M`` (1024 each), ``1MB`` (1000 each)."""
    found = bytes_of(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a size as 500, 64KiB or 1.5GB")
    return _bounded(found, text)


def duration(text: str) -> float:
    """Read seconds: ``90s``, ``15m``, ``1h``, ``7d``."""
    found = seconds_of(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a duration as 90s, 15m, 1h or 7d")
    return _bounded(found, text)


def count(text: str) -> float:
    """Read a number that may be large: ``5000``, ``2.5k``, ``1e6``, ``3M``."""
    found = _count(text)
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a number as 5000, 2.5k or 3M")
    return _bounded(found, text)


def rate(text: str) -> tuple[float, bool]:
    """Read records or bytes a second: ``5000``, ``2k/s``, ``10MB/s``; (number, is it bytes)."""
    amount = text.strip().removesuffix("/s").strip()
    records = _count(amount)
    if records is not None:
        return _bounded(records, text), False
    found = bytes_of(amount)
    if found is None:
        raise click.BadParameter(f"{text!r}: expected records as 5000/s, or bytes as 10MB/s")
    return _bounded(found, text), True


def format_duration(seconds: float) -> str:
    """Write a duration for people, in its largest unit: ``2.5 d``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for name, unit in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} s"


def format_number(number: float) -> str:
    """Write a number for people: three digits, or all before the point."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _bounded(amount: float, text: str) -> float:
    if amount > _MOST:
        raise click.BadParameter(f"{text!r}: expected at most {_MOST:.0e}")
    return amount


def _count(text: str) -> float | None:
    match = re.fullmatch(NUMBER, text.strip())
    if match is None or match[2].lower() not in PREFIXES:
        return None
    return float(match[1]) * 1000.0 ** PREFIXES[match[2].lower()]
