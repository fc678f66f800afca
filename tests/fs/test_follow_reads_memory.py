"""What a read that waits takes of the daemon's memory."""

import os
import threading

import pytest

from tests.fs.mounting import Mounted, resident_bytes
from tests.mounting import PATIENCE_S

pytestmark = pytest.mark.fuse

FOLLOWERS = 48
BULK = b"x" * 999_999 + b"\n"


def test_a_read_that_waits_keeps_no_buffer_of_an_append_before_it(mounted: Mounted) -> None:
    """pyfuse3 has one of a MiB for each request, and the one before may have filled it."""
    mounted.shell("mkdir orders; touch orders/1; setfattr -n user.logfs.max.message.bytes "
                  "-v 2000000 orders")  # fmt: skip
    bulk = os.open(mounted.point / "orders/1", os.O_WRONLY | os.O_APPEND)
    for _ in range(8):
        os.write(bulk, BULK)
    before = resident_bytes(mounted.pid)
    files = [os.open(mounted.point / "orders/0.follow", os.O_RDONLY) for _ in range(FOLLOWERS)]
    seen: list[bytes] = []
    threads = [
        threading.Thread(target=lambda file: seen.append(os.read(file, 100)), args=(file,))
        for file in files
    ]
    for thread in threads:
        os.write(bulk, BULK)
        thread.start()
    os.write(bulk, BULK)
    assert resident_bytes(mounted.pid) - before < FOLLOWERS * len(BULK) // 3
    mounted.shell("echo come >> orders/0")
    for thread, file in zip(threads, files, strict=True):
        thread.join(PATIENCE_S)
        os.close(file)
    os.close(bulk)
    assert seen == [b"come\n"] * FOLLOWERS
