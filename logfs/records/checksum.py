"""CRC-32C, the checksum of record batches, producer snapshots and logfs's own files.

The function is that of the package ``crc32c``, taken out of its extension module alone: the package
reads its own metadata when it is imported, which takes a fifth of the time of a short command.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_PACKAGE = "crc32c"


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec(_PACKAGE)
    places = None if package is None else package.submodule_search_locations
    spec = None if places is None else PathFinder.find_spec(f"_{_PACKAGE}", places)
    if spec is None or spec.loader is None:
        raise ImportError(f"the package {_PACKAGE} is not installed, or another one than 2.x")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


native_crc32c = _load()
"""Takes any buffer; for the loops of native code."""


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes as an unsigned 32-bit number.

    Args:
        data: The bytes.
        before: The CRC-32C of the bytes before them.
    """
    return int(native_crc32c(data, before))
