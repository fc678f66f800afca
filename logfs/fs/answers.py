"""The way out of every handler: whatever it raises leaves as an errno."""

import functools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pyfuse3 import FUSEError

from logfs.fs.errnos import Translator

OPERATIONS: set[str] = set()
"""The names of all handlers."""


class Requests:
    """What the kernel asked and what it was answered. Event loop only, but for who reads.

    Attributes:
        done: Requests that were answered with what they asked for, by operation.
        failed: Those that were answered with an errno, by operation and errno.
    """

    def __init__(self) -> None:
        self.done: defaultdict[str, int] = defaultdict(int)
        self.failed: defaultdict[tuple[str, int], int] = defaultdict(int)


class Answering(Protocol):
    """What has handlers.

    Attributes:
        translator: Knows the errnos, and what to log.
        requests: Counts them.
    """

    translator: Translator
    requests: Requests


SelfT = TypeVar("SelfT", bound=Answering)
P = ParamSpec("P")
T = TypeVar("T")


def answered(
    handler: Callable[Concatenate[SelfT, P], Awaitable[T]],
) -> Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]]:
    """Turn what a handler raises into an errno; anything else would end the mount."""
    request = handler.__name__
    OPERATIONS.add(request)

    @functools.wraps(handler)
    async def answer(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = await handler(self, *args, **kwargs)
        except FUSEError as error:
            self.requests.failed[request, error.errno] += 1
            raise
        except Exception as error:  # noqa: BLE001 - see above
            number = self.translator.translate(request, error)
            self.requests.failed[request, number] += 1
            raise FUSEError(number) from None
        self.requests.done[request] += 1
        return result

    return answer
