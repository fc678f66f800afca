"""Topics that are deleted and restored while programs have their files open, through the kernel."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from tests.fs.mounting import Mounted
from tests.mounting import logfs

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

NAMES = (
    *("t/0", "t/0.tsv", "t/0.meta", "t/0.follow", "t/0@offset=0", "t/0@earliest..latest"),
    *("t@-1h.jsonl", ".segments/t-0/00000000000000000000.log"),
    ".segments/t-0/00000000000000000000.txt",
)


def start(path: Path) -> bytes:
    """Return the start of a file; a read of a name with .follow would wait for more."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 8)
    finally:
        os.close(file)


def close(files: list[int]) -> None:
    """Close files, which may say once more that their topic was deleted."""
    while files:
        with contextlib.suppress(OSError):
            os.close(files.pop())


@pytest.mark.parametrize("options", [(), ("no_native",)])
def test_a_restored_topic_has_its_names_while_old_files_are_open(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    mounted = Mounted(tmp_path, *options)
    mounted.start()
    topic = mounted.point / "t"
    files: list[int] = []
    try:
        topic.mkdir()
        with (topic / "0").open("ab") as file:
            file.write(b"a line that is long\n")
        paths = [mounted.point / name for name in NAMES]
        before = [start(path) for path in paths]
        files = [os.open(path, os.O_RDONLY) for path in (*paths, topic)]
        writer = os.open(topic / "0", os.O_WRONLY | os.O_APPEND)
        files.append(writer)
        os.write(writer, b"one\n")

        for number in range(2):
            logfs("topic", "delete", mounted.data / "t")
            assert not topic.exists()
            logfs("topic", "undelete", mounted.data / "t")

            assert os.listdir(topic) == ["0"]
            assert [start(path) for path in paths] == before
            with (topic / "0").open("ab") as file:
                file.write(b"line %d\n" % number)
        assert (topic / "0").read_bytes() == b"a line that is long\none\nline 0\nline 1\n"
        with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
            os.write(writer, b"late\n")
        close(files)
        assert (topic / "0").read_bytes().count(b"\n") == 4
        mounted.stop()
        mounted.check()
    finally:
        close(files)
        mounted.clear()
