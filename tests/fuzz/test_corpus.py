"""Every case that is kept, with the native code under sanitizers; these see defects."""

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from logfs.cli.command_index import COMMANDS
from logfs.cli.status_notes import Verdict
from logfs.control import frames, requests
from logfs.errors import LogfsError
from logfs.records.compression import decompressed_limit, limit_decompressed
from tests.compiling import compiled
from tests.fuzz import control, directories, runner, sanitizing, targets
from tests.mounting import Mount

NEED_FUSE = ("control", "directories")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    sanitizing.build()


@pytest.fixture(autouse=True)
def _limit_as_before() -> Iterator[None]:
    """A case sets the limit of what is decompressed."""
    before = decompressed_limit()
    yield
    limit_decompressed(before)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=sanitizing.environment(),
        cwd=sanitizing.ROOT,
    )


@pytest.mark.parametrize("name", [name for name in targets.NAMES if name not in NEED_FUSE])
def test_the_corpus_shows_no_defect(name: str) -> None:
    replay(name)


@pytest.mark.fuse
@pytest.mark.parametrize("name", NEED_FUSE)
def test_the_corpus_shows_no_defect_in_a_mount(name: str) -> None:
    replay(name)


def test_processes_use_the_modules_with_sanitizers() -> None:
    done = python("from tests.fuzz.sanitizing import is_sanitized; print(is_sanitized())")
    assert done.stdout == "True\n", done.stderr


@pytest.mark.fuse
def test_daemons_use_the_library_with_sanitizers(tmp_path: Path) -> None:
    if not sanitizing.HOOKS.exists():
        pytest.skip("built without the headers of libfuse")
    mount = Mount(tmp_path / "data", tmp_path / "mnt", variables=sanitizing.environment())
    with mount:
        maps = Path(f"/proc/{mount.pid}/maps").read_text()
        libraries = {line.split()[-1] for line in maps.splitlines() if ".so" in line}
        ours = {name for name in libraries if str(sanitizing.ROOT / "logfs/") in name}
        sanitized = {name for name in libraries if str(sanitizing.BUILT) in name}
        assert not ours
        used = ("records/_encoding", "records/_rendering", "disk/_syncs", "log/writing/_end")
        wanted = [sanitizing.HOOKS, *(sanitizing.BUILT / f"{name}.so" for name in used)]
        assert {str(library) for library in wanted} <= sanitized
        (mount.point / "orders").mkdir()
        with (mount.point / "orders/0").open("ab") as file:
            file.write(b"a line\n" * 1000)
        assert (mount.point / "orders/0").read_bytes() == b"a line\n" * 1000


def test_a_byte_after_a_buffer_is_seen() -> None:
    """The function reads what its caller says there is: here one byte more."""
    done = python(
        "import ctypes; p = ctypes.create_string_buffer(40); "
        "from logfs.records._dumping import java_text; "
        "java_text((ctypes.c_char * 41).from_address(ctypes.addressof(p)))"
    )
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr


def test_the_ends_of_buffers_in_the_headers() -> None:
    flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    source = sanitizing.ROOT / "tests/fuzz/plain.c"
    include = f"-I{sanitizing.ROOT / 'logfs/records'}"
    program = compiled("plain", *flags, *warnings, include, source)
    done = subprocess.run([program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sanitizing.THREADS)
@pytest.mark.parametrize("sanitizer", sanitizing.OF_THREADS)
def test_the_native_thread_has_no_races_and_loses_no_line(
    name: str, sanitizer: str, tmp_path: Path
) -> None:
    done = sanitizing.run_threads(name, sanitizer, tmp_path, seconds=1, seed=1)
    assert done.returncode == 0, done.stdout + done.stderr


NEVER_LOADED = {"kafka", "legacy"}
"""Nothing is known of the records of these."""
FAILS_UNDAMAGED = {
    ("logfs", "compact"): "the topic is not compacted",
    ("kafka", "compact"): "the topic is not compacted",
    ("killed", "compact"): "the topic is not compacted",
    ("legacy", "compact"): "the topic is not compacted",
    ("compacted", "pack"): "the topic is compacted",
    ("compacted", "trim"): "the topic is compacted",
    ("legacy", "verify"): "the log ends in garbage",
    ("legacy", "dump"): "the log ends in garbage",
    ("legacy", "salvage"): "the log ends in garbage",
}


@pytest.mark.allow_log("orders")
@pytest.mark.parametrize("name", directories.SEEDS)
def test_the_commands_of_the_target_do_their_work_on_an_undamaged_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong command line would end before it reads a byte, for every case."""
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path))
    data = tmp_path / "data"
    shutil.copytree(directories.seed(name), data)
    directories.make_room(data)
    for command in (*directories.COMMANDS, directories.LAST_COMMAND):
        status = directories.call(data, command)
        is_expected = status == 1 and (name, command[0]) in FAILS_UNDAMAGED
        is_unknown = command[0] == "status" and name in NEVER_LOADED
        assert is_expected or status == (Verdict.UNKNOWN if is_unknown else 0), command


def test_the_target_has_every_command_that_reads_a_directory() -> None:
    """The others need a daemon, a cluster, a store or pyarrow, are the mount, or read logs."""
    used = {command[0] for command in directories.COMMANDS}
    others = {"mount", "umount", "reload", "metrics", "export", "spark-job", "mirror"}
    others |= {"forward", "remote", "promote", "standby", "doctor", "top"}
    assert used | others == set(COMMANDS)
    assert not used & others


def test_most_requests_of_the_target_reach_a_handler() -> None:
    """Requests with a missing or a wrong field are refused before."""
    chance, reached = Random(1), set[str]()
    count = 2000
    for _ in range(count):
        case = control.make(chance, [])
        with suppress(LogfsError, struct.error):
            head = frames.decode_head(case[: frames.HEAD_BYTES])
            header = frames.decode_header(case[frames.HEAD_BYTES :][: head.header_bytes])
            reached.add(requests.parse_request(header, b"", print).name)
            count -= 1
    assert count < 1000
    assert reached == set(control.NAMES)


@pytest.mark.fuse
def test_a_daemon_that_ends_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = json.dumps({"seed": "logfs", "edits": [], "mount": "rw"}).encode()
    starting = Mount.start

    def start_and_kill(mount: Mount) -> None:
        starting(mount)
        mount.kill()

    monkeypatch.setattr(Mount, "start", start_and_kill)
    with pytest.raises(AssertionError, match="the daemon has ended"):
        directories.check(case)


def replay(name: str) -> None:
    assert targets.corpus(name), f"no case of {name} is kept"
    assert runner.main([name, "--replay"]) == 0
