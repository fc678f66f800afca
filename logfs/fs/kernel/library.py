"""The types of the functions of the hooks, declared for ctypes."""

import ctypes
from collections.abc import Mapping


def declare(library: ctypes.CDLL, types: Mapping[str, tuple[object, ...]]) -> None:
    """Set what functions return and take.

    Args:
        library: Has the functions.
        types: By the name without ``logfs_``: what it returns, then its arguments.
    """
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"logfs_{name}")
        function.restype, function.argtypes = result, arguments
