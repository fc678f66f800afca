"""Has Python take native modules that were built with sanitizers, see ``tests.fuzz.sanitizing``."""

import ctypes
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

_BUILT = Path(os.environ["LOGFS_SANITIZED"])


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = _BUILT / f"{fullname.removeprefix('logfs.').replace('.', '/')}.so"
        if not fullname.startswith("logfs.") or not file.exists():
            return None
        return spec_from_file_location(
            fullname, file, loader=ExtensionFileLoader(fullname, str(file))
        )


class _Library(ctypes.PyDLL):
    """A library; the one of the mounts is that with sanitizers."""

    def __init__(self, name: str | None, *arguments: object, **more: object) -> None:
        is_hooks = name is not None and Path(name).name.startswith("_hooks.")
        if is_hooks and (_BUILT / "fs/_hooks.so").exists():
            name = str(_BUILT / "fs/_hooks.so")
        super().__init__(name, *arguments, **more)  # type: ignore[arg-type]


ctypes.PyDLL = _Library  # type: ignore[misc]
sys.meta_path.insert(0, _Finder())
