"""What a target is, and all of them by name."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Protocol

CORPUS = Path(__file__).parent / "corpus"
NAMES = ("native", "cursor", "directories", "addresses", "control", "texts")


class Target(Protocol):
    """A module of this package."""

    def make(self, chance: Random, corpus: list[bytes]) -> bytes:
        """Return a new case."""
        ...

    def check(self, case: bytes) -> None:
        """Raise AssertionError, or end the process, for a case that shows a defect."""
        ...


def load(name: str) -> Target:
    """Return a target."""
    target: Target = import_module(f"tests.fuzz.{name}")
    return target


def corpus(name: str) -> Mapping[str, bytes]:
    """Return the cases of a target that are kept, by their names."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / name).iterdir())}
