"""Every case that is kept, with the native code under sanitizers; these see defects."""

import subprocess
import sys

import pytest

from tests.fuzz import runner, sanitizing, targets

NEED_FUSE = ("control", "directories")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    sanitizing.build()


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


def test_a_byte_after_a_buffer_is_seen() -> None:
    """The function reads what its caller says there is: here one byte more."""
    done = python(
        "import ctypes; p = ctypes.create_string_buffer(40); "
        "from logfs.records._native import java_text; "
        "java_text((ctypes.c_char * 41).from_address(ctypes.addressof(p)))"
    )
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stderr


def test_the_ends_of_buffers_in_the_headers(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = tmp_path_factory.mktemp("plain") / "plain"
    flags = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    warnings = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
    source = sanitizing.ROOT / "tests/fuzz/plain.c"
    include = f"-I{sanitizing.ROOT / 'logfs/records'}"
    subprocess.run(["cc", *flags, *warnings, include, str(source), "-o", str(program)], check=True)
    done = subprocess.run([program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def replay(name: str) -> None:
    assert targets.corpus(name), f"no case of {name} is kept"
    assert runner.main([name, "--replay"]) == 0
