"""JSON from a file, a peer or an option: the one way to read it.

Anything that is wrong with a text is a ``ValueError``: it is no JSON or not UTF-8, it is nested too
deeply, its members are missing or of another type, or a text in it cannot be written as UTF-8
(a lone surrogate). A caller turns that one error into its own, which names the file and what to do.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from logfs.errors import LogfsError

T = TypeVar("T")


def decode_json(text: bytes | str, build: Callable[[Any], T]) -> T:
    """Return what ``build`` makes of the value of a JSON text.

    Args:
        text: JSON, in UTF-8 if it is bytes.
        build: Takes the value; it may index it as if it had the expected shape.

    Raises:
        ValueError: The text is no such JSON, or ``build`` found another shape.
        LogfsError: ``build`` raised it.
    """
    try:
        found = json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
        escape = "\\u" if isinstance(text, str) else b"\\u"
        if escape in text:  # type: ignore[operator]  # of the same type
            json.dumps(found, ensure_ascii=False).encode()  # surrogates raise
        return build(found)
    except LogfsError:
        raise
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except KeyError as error:
        raise ValueError(f"no member {error}") from None
    except AttributeError:
        raise ValueError("JSON of another shape") from None
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair in a text, which is not UTF-8") from None
    except (ValueError, TypeError, LookupError, OverflowError) as error:
        raise ValueError(str(error)) from None


def decode_object(text: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a text.

    Raises:
        ValueError: The text is no JSON object; see ``decode_json``.
    """
    return decode_json(text, _object)


def decode_record(text: str, *, numbers_as_written: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of a JSON text of a record.

    Args:
        numbers_as_written: Numbers are texts.

    Raises:
        ValueError: It is no JSON, or it is nested too deeply. Any text may be in a record, also
            one that cannot be written as UTF-8.
    """
    number = str if numbers_as_written else None
    try:
        return json.loads(text, parse_int=number, parse_float=number, parse_constant=number)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _object(found: object) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("expected a JSON object")
    return found
