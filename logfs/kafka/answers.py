"""Answers that are none: the one error for what a broker, or a network, has garbled. Pure.

It is an OSError, as a lost connection is: callers connect again and ask again.
"""

import errno
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def undecodable(what: str, reason: object) -> OSError:
    """Return the error for an answer that does not decode.

    Args:
        what: The kind of answer.
        reason: What is wrong with it.
    """
    return OSError(errno.EPROTO, f"{what} does not decode: {reason}")


def only(rows: Sequence[T], what: str) -> T:
    """Return the only row of an answer to a request about one thing.

    Raises:
        OSError: There are other rows, or none.
    """
    if len(rows) != 1:
        raise undecodable(what, f"{len(rows)} rows, expected 1")
    return rows[0]
