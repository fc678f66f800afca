"""What a dump prints."""

from collections.abc import Callable
from dataclasses import dataclass

MAX_INT32 = 2**31 - 1

Parse = Callable[[int, bytes | None, bytes | None], tuple[bytes | None, bytes | None]]
"""(offset, key, value) -> key and value as they are printed; None: nothing."""


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The tool's options, with its defaults.

    Attributes:
        records: Print a line for every record (``--deep-iteration``).
        payloads: Print key and value of every record (``--print-data-log``).
        metadata: Print the other facts of a record (not ``--skip-record-metadata``).
        parse: Turns keys and values into text; None if they are text.
        verify_only: Check an index without printing it.
        sanity_only: Check only that an index is not obviously wrong.
        max_message_bytes: How much of the log is looked at for a batch that an index points to.
        max_bytes: How much of a ``.log`` is read.
    """

    records: bool = False
    payloads: bool = False
    metadata: bool = True
    parse: Parse | None = None
    verify_only: bool = False
    sanity_only: bool = False
    max_message_bytes: int = 5 * 1024 * 1024
    max_bytes: int = MAX_INT32
