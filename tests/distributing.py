"""Which process runs which tests: a file at a time, and what takes longest begins.

The tests of a file share a broker, a server or a mount, so one process has them all. All that
starts Spark is one group: a session is started once. The last groups are quick ones, so that no
process waits long for another one.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

_TOGETHER = ("tests/spark/",)
_FIRST = (
    *_TOGETHER,
    "tests/fuzz/",
    "tests/kafka/",
    "tests/packages/",
    "tests/restarts/",
    "tests/remote/",
    "tests/semantics/",
    "tests/systemd/",
    "tests/programs/",
    "tests/test_",
    "tests/cli/",
    "tests/fs/",
)


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process a group when it has nearly done the one before, in the order of collection.

    The mark ``xdist_group`` does the same, but has no effect with pytest 9.2 and xdist 3.8.
    """

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False  # not by the number of tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in _TOGETHER if file.startswith(folder)), file)


def place_of(item: pytest.Item) -> int:
    """Return the key by which tests are sorted before they are distributed."""
    found = (n for n, start in enumerate(_FIRST) if item.nodeid.startswith(start))
    return next(found, len(_FIRST))
