"""The way out of every handler: whatever it raises leaves as an errno."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pyfuse3 import FUSEError

from logfs.fs.errnos import Translator


class Answering(Protocol):
    """What has handlers.

    Attributes:
        translator: Knows the errnos, and what to log.
    """

    translator: Translator


SelfT = TypeVar("SelfT", bound=Answering)
P = ParamSpec("P")
T = TypeVar("T")


def answered(
    handler: Callable[Concatenate[SelfT, P], Awaitable[T]],
) -> Callable[Concatenate[SelfT, P], Coroutine[Any, Any, T]]:
    """Turn what a handler raises into an errno; anything else would end the mount."""
    request = handler.__name__

    @functools.wraps(handler)
    async def answer(self: SelfT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await handler(self, *args, **kwargs)
        except FUSEError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            raise FUSEError(self.translator.translate(request, error)) from None

    return answer
