"""Kinds of configuration values: text <-> value, with Kafka's type names and bounds.

Every kind promises: ``parse`` gives a valid value or raises ValueError, ``format`` is its inverse,
and a value is valid if ``parse(format(value))`` gives it back. Kafka's parsing rules hold: blanks
around a value do not count, booleans ignore case, lists are separated by commas. Stricter than
Java are numbers: ASCII digits only, and a double has no suffix and is finite.

Source: Kafka ConfigDef.parseType.
"""

import math
import re
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

T_co = TypeVar("T_co", covariant=True)
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


class Kind(Protocol[T_co]):
    """The kind of values that a key takes."""

    @property
    def type_name(self) -> str:
        """Kafka's name of the type: int, long, double, boolean, string or list."""

    @property
    def expected(self) -> str:
        """What is valid, to follow "expected"."""

    def parse(self, text: str) -> T_co:
        """Return the value; raise ValueError if the text is not valid."""

    def format(self, value: object) -> str:
        """Return the text of a value; of a wrong one, a text that does not parse."""


class Whole(NamedTuple):
    """A whole number in ``[lower, upper]``, or -1 where that means its own default."""

    type_name: str
    lower: int
    upper: int
    or_minus_one: bool = False

    @property
    def expected(self) -> str:
        """The valid values, in words."""
        alternative = " or -1" if self.or_minus_one else ""
        return f"a whole number in [{self.lower}, {self.upper}]{alternative}"

    def parse(self, text: str) -> int:
        """Return the number; raise ValueError if it is none or out of bounds."""
        match = re.fullmatch(r"[+-]?0*([0-9]{1,19})", text.strip(" \t"))
        if match is None:
            raise ValueError(text)
        value = -int(match[1]) if "-" in text else int(match[1])
        if self.lower <= value <= self.upper or (self.or_minus_one and value == -1):
            return value
        raise ValueError(text)

    def format(self, value: object) -> str:
        """Return its decimal digits."""
        return str(value)


def int_kind(
    lower: int = -MAX_INT - 1, upper: int = MAX_INT, *, or_minus_one: bool = False
) -> Whole:
    """Return Kafka's type INT within bounds."""
    return Whole("int", lower, upper, or_minus_one)


def long_kind(lower: int = -MAX_LONG - 1, *, or_minus_one: bool = False) -> Whole:
    """Return Kafka's type LONG with a lower bound."""
    return Whole("long", lower, MAX_LONG, or_minus_one)


class Double(NamedTuple):
    """A finite decimal number in ``[lower, upper]``."""

    lower: float = -math.inf
    upper: float = math.inf

    @property
    def type_name(self) -> str:
        """Kafka's name of the type."""
        return "double"

    @property
    def expected(self) -> str:
        """The valid values, in words."""
        if math.isinf(self.upper):
            return "a number"
        return f"a number in [{self.lower:g}, {self.upper:g}]"

    def parse(self, text: str) -> float:
        """Return the number; raise ValueError if it is none or out of bounds."""
        text = text.strip(" \t")
        if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            raise ValueError(text)
        value = float(text)
        if math.isinf(value) or not self.lower <= value <= self.upper:
            raise ValueError(text)
        return value

    def format(self, value: object) -> str:
        """Return its shortest exact decimal form."""
        return str(value)


class Boolean(NamedTuple):
    """True or false."""

    type_name: str = "boolean"
    expected: str = "true or false"

    def parse(self, text: str) -> bool:
        """Return the truth value; raise ValueError for any other word."""
        word = text.strip(" \t").lower()
        if word not in {"true", "false"}:
            raise ValueError(text)
        return word == "true"

    def format(self, value: object) -> str:
        """Return it in lower case, as Java does."""
        return str(value).lower()


class Choice(NamedTuple, Generic[ChoiceT]):
    """One word of an enumeration."""

    words: type[ChoiceT]

    @property
    def type_name(self) -> str:
        """Kafka's name of the type."""
        return "string"

    @property
    def expected(self) -> str:
        """The valid values, in words."""
        return "one of " + ", ".join(self.words)

    def parse(self, text: str) -> ChoiceT:
        """Return the word; raise ValueError for any other."""
        return self.words(text.strip(" \t"))

    def format(self, value: object) -> str:
        """Return the word."""
        return str(value)


class Choices(NamedTuple, Generic[ChoiceT]):
    """A set of words of an enumeration, separated by commas; may be empty."""

    words: type[ChoiceT]

    @property
    def type_name(self) -> str:
        """Kafka's name of the type."""
        return "list"

    @property
    def expected(self) -> str:
        """The valid values, in words."""
        return "a list of " + ", ".join(self.words)

    def parse(self, text: str) -> frozenset[ChoiceT]:
        """Return the set; raise ValueError if one is no such word."""
        return frozenset(self.words(item) for item in _split(text))

    def format(self, value: object) -> str:
        """Return the words in alphabetical order."""
        return ",".join(sorted(value)) if isinstance(value, frozenset) else repr(value)


class Replicas(NamedTuple):
    """Partitions and the brokers that hold them, as quotas name them: a list of P:B, or ``*``."""

    type_name: str = "list"
    expected: str = "* or a list of PARTITION:BROKER"

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the items in their order; raise ValueError if one is malformed.

        Source: Kafka ThrottledReplicaListValidator.
        """
        items = tuple(_split(text))
        if items != ("*",) and not all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in items):
            raise ValueError(text)
        return items

    def format(self, value: object) -> str:
        """Return the items in their order."""
        return ",".join(map(str, value)) if isinstance(value, tuple) else repr(value)


def _split(text: str) -> list[str]:
    text = text.strip(" \t")
    return [item.strip(" \t") for item in text.split(",")] if text else []
