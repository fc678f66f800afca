"""Promise 4 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import hashlib
import mmap
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, Mount, environment, output
from tests.semantics.programs import append, append_all, configure, errno_of, numbered

pytestmark = pytest.mark.fuse


def _fill(topic: Path) -> bytes:
    """Write enough for several segments; returns the text."""
    configure(topic, internal_segment_bytes=300_000)
    text = b"".join(numbered(0, 20_000))
    append_all(topic / "0", text)
    return text


@pytest.mark.parametrize(
    ("selector", "part"),
    [
        ("@earliest..latest", slice(None)),
        ("@offset=100..latest", slice(10_000, None)),
        ("@offset=100..offset=15000", slice(10_000, 1_500_000)),
        ("@byte=5..byte=-5", slice(5, -5)),
        ("@1970-01-01..now", slice(None)),
        ("@-1d..-0s", slice(None)),
    ],
)
def test_a_fixed_name_never_changes(topic: Path, selector: str, part: slice) -> None:
    """A name whose end is reached when it is looked up is fixed. An open file keeps its bytes and
    its length while the log grows."""
    text = _fill(topic)[part]
    if "now" in selector or "-0s" in selector:
        # A record of the same millisecond is not before the end.
        output("bash", "-c", f"until cmp -s <(cat 0) <(cat 0{selector}); do sleep 0.01; done",
               cwd=topic)  # fmt: skip
    with (topic / f"0{selector}").open("rb") as file:
        status = os.fstat(file.fileno())
        assert status.st_size == len(text)
        assert file.read() == text
        for number in range(20):
            append_all(topic / "0", b"%d more\n" % number * 1000)
            file.seek(0)
            assert hashlib.md5(file.read()).digest() == hashlib.md5(text).digest()
            now = os.fstat(file.fileno())
            assert (now.st_ino, now.st_size, now.st_mtime_ns) == (
                status.st_ino,
                status.st_size,
                status.st_mtime_ns,
            )


def test_equal_answers_are_one_file(topic: Path) -> None:
    """Names of the same bytes are one inode."""
    _fill(topic)
    names = ["0@earliest..offset=500", "0@offset=0..offset=500", "0@byte=0..byte=50000"]
    inodes = {os.stat(topic / name).st_ino for name in names}
    assert len(inodes) == 1
    assert os.stat(topic / "0@earliest..offset=501").st_ino not in inodes
    assert os.stat(topic / "0").st_ino not in inodes


@pytest.mark.parametrize("name", ["0@earliest..latest", "0@offset=7..offset=12000.jsonl"])
def test_fixed_names_can_be_mapped_and_sent(topic: Path, tmp_path: Path, name: str) -> None:
    """mmap(2), sendfile(2) and splice(2) work on fixed names and on the files of sealed
    segments.
    """
    _fill(topic)
    _check_mapping(topic / name, tmp_path)


def test_sealed_files_can_be_mapped_and_sent(topic: Path, tmp_path: Path) -> None:
    """mmap(2), sendfile(2) and splice(2) work on fixed names and on the files of sealed
    segments.
    """
    _fill(topic)
    raw = topic.parent / ".segments" / f"{topic.name}-0"
    logs = sorted(raw.glob("*.log"))
    assert len(logs) > 3
    for path in logs[:-1]:
        _check_mapping(path, tmp_path)
        _check_mapping(path.with_suffix(".txt"), tmp_path)


def _check_mapping(path: Path, tmp_path: Path) -> None:
    text = path.read_bytes()
    assert text
    with path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
            assert mapping[:] == text
            assert mapping.find(text[-50:]) >= 0
        copy = tmp_path / "copy"
        with copy.open("wb") as target:
            position = 0
            while sent := os.sendfile(target.fileno(), file.fileno(), position, 1 << 20):
                position += sent
        assert copy.read_bytes() == text
    spliced = output("bash", "-c", 'cat "$0" | cat', path)
    assert spliced == text


def test_reading_again_needs_no_daemon(mount: Mount) -> None:
    """Bytes of a fixed name, or of a sealed segment's files, that were read once are read again
    from the kernel's memory, without the daemon."""
    orders = mount.point / "orders"
    _fill(orders)
    sealed = min((mount.point / ".segments" / "orders-0").glob("*.log"))
    program = (
        "import os, sys\n"
        "files = [open(name, 'rb', buffering=0) for name in sys.argv[1:]]\n"
        "first = [file.readall() for file in files]\n"
        "print('read', flush=True)\n"
        "sys.stdin.readline()\n"
        "for file, text in zip(files, first):\n"
        "    file.seek(0)\n"
        "    assert file.read(len(text)) == text\n"
        "    assert os.pread(file.fileno(), 1000, 777) == text[777:1777]\n"
        "print('again', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, orders / "0@earliest..latest", sealed],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"read\n"
        os.kill(mount.pid, signal.SIGSTOP)
        try:
            reader.stdin.write(b"continue\n")
            reader.stdin.flush()
            answered = select.select([reader.stdout], [], [], PATIENCE_S)[0]
        finally:
            os.kill(
                mount.pid, signal.SIGCONT
            )  # the end of the reader closes files: asks the daemon
        assert answered, "the read waits for the daemon"
        assert reader.stdout.readline() == b"again\n"
    assert reader.returncode == 0


def test_growing_names_are_never_stale(topic: Path) -> None:
    """A name that grows is never cached: the next read(2) and stat(2) see every append, on open
    files as well."""
    path = topic / "0"
    names = [path, topic / "0.tsv", topic / "0.jsonl", topic / "0@offset=0", topic / "0@-1h"]
    append(path, b"0\n")
    files = [name.open("rb", buffering=0) for name in names]
    for file in files:
        file.readall()
    for number in range(1, 100):
        append(path, b"%d\n" % number)
        for name, file in zip(names, files, strict=True):
            got = file.read(1000)
            assert b"%d" % number in got
            assert got.count(b"\n") == 1
            size = file.tell()
            assert os.fstat(file.fileno()).st_size == os.stat(name).st_size == size
            assert len(os.pread(file.fileno(), 100_000, 0)) == size
            file.seek(size)
    for file in files:
        file.close()


def test_growing_names_cannot_be_mapped_shared(topic: Path) -> None:
    """For the same reason it cannot be mapped with MAP_SHARED (ENODEV)."""
    append(topic / "0", b"line\n")
    with (topic / "0").open("rb") as file:
        shared = (file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
        assert errno_of(mmap.mmap, *shared) == errno.ENODEV
