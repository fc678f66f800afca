"""The native modules built with sanitizers, beside the ordinary ones, and processes that use them.

Cython's C is compiled again, as the ordinary build has left it, with ``-fno-wrapv``: CPython's own
flags would hide signed overflow. A process of Python with ``site`` on its path takes these modules,
and the C library of mounts where the headers of libfuse are installed.
"""

import filecmp
import functools
import os
import shlex
import shutil
import subprocess
import sysconfig
from importlib import import_module
from pathlib import Path

from tests.compiling import compiled

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "sanitized"
_SOURCES = sorted((ROOT / "logfs").glob("**/_*.pyx"))
MODULES = [str(path.relative_to(ROOT / "logfs").with_suffix("")) for path in _SOURCES]
HOOKS = BUILT / "fs/_hooks.so"
"""The C library of ``logfs.fs.kernel.hooks``."""
CURSOR = BUILT / "cursor"
"""The program of the target ``cursor``."""
OF_THREADS = ("thread", "address,undefined")
"""The sanitizers with which the native thread runs, beside threads that play kernel and Python."""
THREADS = ("serving", "reading")
"""The programs in which it does so: ``serving.c``, ``reading.c``."""
_PATIENCE_S = 300
_WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-tsan")
_LIBRARY = ("-shared", "-fPIC")
_FLAGS = (
    *("-pthread", "-O1", "-g1", "-fno-omit-frame-pointer", "-fno-wrapv"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
)


@functools.cache
def build() -> None:
    """Put the modules into ``BUILT``; about a minute if they were not compiled before."""
    include = sysconfig.get_path("include")
    for module in MODULES:
        source = ROOT / "logfs" / f"{module}.c"
        if not source.exists():
            raise FileNotFoundError(f"{source}: build logfs first: make test-fast")
        places = (include, source.parent, ROOT / "logfs/records")
        _put(BUILT / f"{module}.so", *_LIBRARY, *(f"-I{place}" for place in places), source)
    _put(CURSOR, Path(__file__).with_name("cursor.c"))
    flags = subprocess.run(
        ["pkg-config", "--cflags", "fuse3"], check=False, capture_output=True, text=True
    )
    if flags.returncode == 0:
        library = sorted((ROOT / "logfs/fs/kernel/native").glob("*.c"))
        _put(HOOKS, *_LIBRARY, *shlex.split(flags.stdout), *library, "-ldl")


def _put(target: Path, *arguments: str | Path) -> None:
    """Compile what is loaded under this path."""
    made = compiled(target.name, *_FLAGS, *arguments)
    if target.exists() and filecmp.cmp(made, target, shallow=False):
        return  # a process may have it loaded
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    shutil.copy2(made, unfinished)
    unfinished.replace(target)


_OF_THREADS = (
    "ahead",
    "answered",
    "answering",
    "applying",
    "attributes",
    "calls",
    "handover",
    "lanes",
    "naming",
    "openfiles",
    "opening",
    "queue",
    "reading",
    "serving",
    "session",
    "suspects",
    "syncing",
    "watching",
)


def run_threads(
    name: str, sanitizer: str, directory: Path, *, seconds: int, seed: int
) -> "subprocess.CompletedProcess[str]":
    """Build a program of ``THREADS``, and what it is about, with a sanitizer, and run it."""
    native, own = ROOT / "logfs/fs/kernel/native", Path(__file__).with_name(f"{name}.c")
    flags = ["-O1", "-g", "-pthread", f"-fsanitize={sanitizer}", *_WARNINGS]
    sources = [own, *(native / f"{one}.c" for one in _OF_THREADS)]
    program = compiled(name, *flags, f"-I{ROOT / 'logfs/records'}", *sources)
    return subprocess.run(
        [program, str(seconds), str(seed)],
        check=False,
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=seconds + _PATIENCE_S,
    )


def environment() -> dict[str, str]:
    """Return an environment in which Python takes the modules that ``build`` has made."""
    library = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return os.environ | {
        "LD_PRELOAD": library,
        "PYTHONPATH": f"{Path(__file__).parent / 'site'}:{ROOT}",
        # Python's own allocator would hide what lies after an object.
        "PYTHONMALLOC": "malloc",
        "LOGFS_SANITIZED": str(BUILT),
        # Where memory was allocated is told by its last callers alone: Python allocates very often.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1"
        ":malloc_context_size=4",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def is_sanitized() -> bool:
    """Tell whether this process uses them."""
    return str(import_module("logfs.records._reading").__file__).startswith(str(BUILT))
