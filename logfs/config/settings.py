"""The machinery under every table of settings: rows, parsing, errors that name the way out.

A table is a frozen dataclass whose fields are declared with ``setting``: the declaration is the row
(type and bounds, default, meaning, the broker's names for it), the field's name is Kafka's key with
underscores for dots. Nothing else in logfs lists the keys.
"""

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from logfs.config.kinds import Kind
from logfs.errors import InvalidConfigError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row of a table of settings.

    Attributes:
        key: Kafka's name, as ``segment.bytes``.
        field: Name of the attribute that holds the value, as ``segment_bytes``.
        kind: Type and bounds.
        default: Kafka's default; None if unset has a meaning of another kind.
        meaning: One line for people.
        synonyms: For a topic's key: the broker's names for its default, the strongest first.
        unused: Why logfs keeps the value but makes no use of it; empty if it does use it.
    """

    key: str
    field: str
    kind: Kind[object]
    default: object
    meaning: str
    synonyms: tuple[str, ...] = ()
    unused: str = ""

    def parse(self, text: str, *, key: str | None = None) -> object:
        """Return the value of a text.

        Args:
            key: The name it was given under, if that was not ``self.key``.

        Raises:
            InvalidConfigError: The text is not valid; the message says what is.
        """
        try:
            return self.kind.parse(text)
        except ValueError:
            raise InvalidConfigError(
                f"{key or self.key}={text!r}: expected {self.kind.expected}"
            ) from None

    def format(self, value: object) -> str:
        """Return the text of a value; empty for None."""
        return "" if value is None else self.kind.format(value)


def setting(
    kind: Kind[T], default: T, meaning: str, *, broker: tuple[str, ...] = (), unused: str = ""
) -> T:
    """Declare a field of a ``Settings`` class; the arguments are those of ``ConfigKey``."""
    row = ConfigKey("", "", kind, default, meaning, broker, unused)
    return dataclasses.field(default=default, metadata={"row": row})


@cache
def config_keys(settings: type[Any]) -> Mapping[str, ConfigKey]:
    """Return the table of a ``Settings`` class by Kafka's key, in order of declaration."""
    rows = {}
    for field in dataclasses.fields(settings):
        if "row" in field.metadata:
            key = field.name.replace("_", ".")
            rows[key] = dataclasses.replace(field.metadata["row"], key=key, field=field.name)
    return MappingProxyType(rows)


class Settings:
    """Base of the tables; see ``TopicConfig`` and ``StoreConfig``.

    Instances are valid: a value out of bounds raises InvalidConfigError.
    """

    __slots__ = ()
    noun: ClassVar[str]
    """The thing that the settings belong to."""
    explicit: frozenset[str]
    """The keys that were given, even if with the value they have anyway."""

    def __post_init__(self) -> None:
        """Check every value that is not the default, then all together."""
        for row in self._rows().values():
            value = getattr(self, row.field)
            if value != row.default and row.parse(row.format(value)) != value:
                raise InvalidConfigError(f"{row.key}={value!r}: expected {row.kind.expected}")
        self._check_together()

    def get(self, key: str) -> str:
        """Return the value in effect, empty if unset; raise InvalidConfigError for another key."""
        row = self._row(key)
        return row.format(getattr(self, row.field))

    def effective(self) -> dict[str, str]:
        """Return every key with the value in effect; one that is unset is left out."""
        return {
            row.key: self.get(row.key)
            for row in self._rows().values()
            if getattr(self, row.field) is not None
        }

    def overrides(self) -> dict[str, str]:
        """Return the keys that were given, or differ from what they fall back to.

        This is what a file of settings holds; ``from_properties`` is the inverse.
        """
        return {
            row.key: self.get(row.key) for row in self._rows().values() if self._is_override(row)
        }

    def _is_override(self, row: ConfigKey) -> bool:
        value = getattr(self, row.field)
        # An unset value has no text, so no file can say it.
        return value is not None and (row.key in self.explicit or value != self._fallback(row))

    def _fallback(self, row: ConfigKey) -> object:
        """Return the value of a key that is not given."""
        return row.default

    def _check_together(self) -> None:
        """Raise InvalidConfigError for values that are valid alone but not together."""

    @classmethod
    def _rows(cls) -> Mapping[str, ConfigKey]:
        """Return the table."""
        return config_keys(cls)  # type: ignore[arg-type] # a class is hashable

    @classmethod
    def _parse(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """Return the values by field; raise InvalidConfigError for the first that is wrong."""
        rows = {key: cls._row(key) for key in properties}
        return {rows[key].field: rows[key].parse(text) for key, text in properties.items()}

    @classmethod
    def _row(cls, key: str) -> ConfigKey:
        """Return the row of a key; raise InvalidConfigError if there is none."""
        row = cls._rows().get(key)
        if row is None:
            raise cls._unknown(key)
        return row

    @classmethod
    def _unknown(cls, key: str) -> InvalidConfigError:
        """Return the error for a key that is not in the table, with the likeliest one that is."""
        import difflib  # only for mistakes

        hint = cls._hints().get(key)
        if hint is None:
            close = difflib.get_close_matches(key, cls._names(), n=1)
            hint = f"did you mean {close[0]}?" if close else "the keys are those of Kafka 4.1"
        return InvalidConfigError(f"{key!r}: no such {cls.noun} setting; {hint}")

    @classmethod
    def _names(cls) -> list[str]:
        """Return every key that may be given."""
        return list(cls._rows())

    @classmethod
    def _hints(cls) -> Mapping[str, str]:
        """Return what to say about keys that are refused though Kafka knows them, or knew."""
        return {}
