"""What the promise tests do to files, said once."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

APPEND = os.O_WRONLY | os.O_APPEND
BATCH_OVERHEAD_BYTES = 12


def append(path: Path, data: bytes, flags: int = 0) -> int:
    """Open for appending, write(2) once, close; returns the bytes accepted."""
    descriptor = os.open(path, APPEND | flags)
    try:
        return os.write(descriptor, data)
    finally:
        os.close(descriptor)


def append_all(path: Path, data: bytes) -> None:
    """Append everything, in as many calls of write(2) as it takes."""
    with path.open("ab", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]


def configure(topic: Path, **settings: object) -> None:
    """Set configuration of a topic; ``_`` means the dots of Kafka's names."""
    for name, value in settings.items():
        attribute = f"user.logfs.{name.replace('_', '.')}"
        os.setxattr(topic, attribute, str(value).encode())


def meta(partition: Path) -> dict[str, Any]:
    """Read the facts about a partition."""
    facts: dict[str, Any] = json.loads(partition.with_name(f"{partition.name}.meta").read_bytes())
    return facts


def records(partition: Path) -> list[dict[str, Any]]:
    """Read a partition as its ``.jsonl`` view shows it."""
    text = partition.with_name(f"{partition.name}.jsonl").read_bytes()
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def values(partition: Path) -> list[str]:
    """Read the values of a partition's records."""
    return [record["value"] for record in records(partition)]


def attribute(path: Path, name: str) -> int:
    """Read a number from an extended attribute ``user.logfs.*``."""
    return int(os.getxattr(path, f"user.logfs.{name}"))


def errno_of(call: Callable[..., object], *arguments: object) -> int | None:
    """Return the errno a system call fails with, None if it succeeds."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return None


def numbered(first: int, last: int, size: int = 100) -> list[bytes]:
    """Return lines that differ, with their newlines: numbers padded to ``size`` bytes."""
    return [b"%d " % number + b"." * (size - 2 - len(str(number))) + b"\n"
            for number in range(first, last)]  # fmt: skip


def batch_bounds(log: bytes) -> list[tuple[int, int]]:
    """Return where each record batch of a ``.log`` file begins and ends."""
    bounds, position = [], 0
    while position < len(log):
        size = int.from_bytes(log[position + 8 : position + 12], "big") + BATCH_OVERHEAD_BYTES
        bounds.append((position, position + size))
        position += size
    return bounds
