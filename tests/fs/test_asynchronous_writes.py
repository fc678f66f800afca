"""Writes by libaio and io_uring, larger than a request of the kernel, through real mounts."""

import subprocess
from pathlib import Path

import pytest

from tests.compiling import compiled
from tests.fs.mounting import Mounted

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "programs" / "aio.c"
NOT_OFFERED = 77
SIZES = (1_049_000, 2_100_000, 3_000_000)
TIMES = 5


@pytest.fixture(scope="module")
def aio() -> Path:
    return compiled("aio", "-O1", PROGRAM)


@pytest.mark.parametrize("option", ["native", "no_native"])
def test_an_asynchronous_write_arrives_whole_and_in_order(
    aio: Path, tmp_path: Path, option: str
) -> None:
    """The kernel sends it in several requests; a small one must not pass a large one."""
    with Mounted(tmp_path, *[option] * (option != "native")) as mounted:
        topic = mounted.point / "t"
        topic.mkdir()
        for how in ("aio", "aiO", "uring", "urinG"):
            file = topic / "0"
            with file.open("ab") as lines:  # so many that the native thread reads requests
                for number in range(60):
                    lines.write(b"%d\n" % number)
                    lines.flush()
            for size in SIZES:
                before = file.stat().st_size
                done = subprocess.run(
                    [aio, file, how, str(size), str(TIMES)], check=False, capture_output=True
                )
                if done.returncode == NOT_OFFERED:
                    break
                assert done.returncode == 0, done.stderr
                with file.open("rb") as lines:
                    lines.seek(before)
                    assert lines.read() == done.stdout, (how, size)
