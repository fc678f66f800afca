"""A request that came through the control socket, its arguments of the kinds that are expected."""

import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from logfs.errors import ControlError
from logfs.records.encoded import ProducerBatch

T = TypeVar("T")

Say = Callable[[str], None]


class Request(NamedTuple):
    """A request.

    Attributes:
        arguments: By name.
        payload: What came behind them.
        say: Where lines about its progress go.
        descriptor: Of the file that came with it, open until it is answered; None: there is none.
    """

    arguments: Mapping[str, Any]
    payload: bytes | bytearray
    say: Say
    descriptor: int | None = None

    def get(self, name: str, kind: type[T]) -> T:
        """Return an argument.

        Raises:
            ControlError: It is missing, or not of that kind.
        """
        value = self.arguments.get(name)
        if type(value) is not kind:
            raise ControlError(f"{name}={value!r}: expected {kind.__name__}")
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            raise ControlError(f"{name}={value!r}: expected text; half a surrogate pair is none")
        return value

    def get_optional(self, name: str, kind: type[T]) -> T | None:
        """Return an argument that may be null or missing."""
        return None if self.arguments.get(name) is None else self.get(name, kind)

    def file(self) -> int:
        """Return the descriptor of the regular file that came with it.

        Raises:
            ControlError: There is none, or it is no regular file.
        """
        if self.descriptor is None or not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            raise ControlError("expected a regular file with the request")
        return self.descriptor

    def changed_settings(self, name: str) -> dict[str, str | None]:
        """Return settings by their keys; null takes one back."""
        settings = self.get(name, dict)
        if not all(value is None or isinstance(value, str) for value in settings.values()):
            raise ControlError(f"{name}={settings!r}: expected texts")
        return settings

    def settings(self, name: str) -> dict[str, str]:
        """Return settings by their keys."""
        changes = self.changed_settings(name)
        settings = {key: value for key, value in changes.items() if value is not None}
        if len(settings) < len(changes):
            raise ControlError(f"{name}={changes!r}: expected texts")
        return settings

    def producer(self) -> ProducerBatch | None:
        """Return who appends; None for a plain writer."""
        fields = self.get_optional("producer", list)
        if fields is None:
            return None
        if [type(field) for field in fields] != [int, int, int, bool]:
            raise ControlError(f"producer={fields!r}: expected the fields of a ProducerBatch")
        return ProducerBatch(*fields)
