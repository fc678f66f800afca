"""On PYTHONPATH: a Python in which pandas, and what only a mount needs, are not installed."""

import sys
from collections.abc import Sequence
from types import ModuleType

ABSENT = {"pandas", "pyfuse3", "trio"}


class _Absent:
    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> None:
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Absent())
