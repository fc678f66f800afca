"""What unfinished lines take of the daemon's memory."""

import os

import pytest

from tests.fs.mounting import Mounted, resident_bytes

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

MIB = 1024 * 1024
PIECE = b"x" * MIB
WRITERS, PIECES = 6, 20


def test_unfinished_lines_are_not_in_memory(mounted: Mounted) -> None:
    mounted.shell("mkdir orders; setfattr -n user.logfs.max.message.bytes -v 30000000 orders")
    mounted.shell("echo other >> orders/0")
    before = resident_bytes(mounted.pid)
    path = mounted.point / "orders/0"
    files = [os.open(path, os.O_WRONLY | os.O_APPEND) for _ in range(WRITERS)]
    for _ in range(PIECES):
        for file in files:
            assert os.write(file, PIECE) == MIB
    assert resident_bytes(mounted.pid) - before < WRITERS * PIECES * MIB // 3
    assert mounted.shell("cat orders/0") == "other\n"
    for file in files:
        assert os.write(file, b"end\n") == 4
        os.close(file)
    assert path.stat().st_size == len("other\n") + WRITERS * (PIECES * MIB + len("end\n"))
    assert mounted.shell("tail -c 10 orders/0") == "xxxxxxend\n"
