"""The shape of the code: imports, use of the outside world, and how long a file may be.

The picture is in ``logfs/__init__.py``. Imports inside functions and under ``TYPE_CHECKING`` count:
that is where wrong ones hide.
"""

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CORE = {"errors", "types", "config", "records", "disk", "log", "services"}

MAY_IMPORT = {
    "errors": set[str](),
    "types": set[str](),
    "config": {"errors", "types"},
    "records": {"errors", "types", "config"},
    "disk": {"errors", "types", "config"},
    "log": {"errors", "types", "config", "records", "disk"},
    "services": {"errors", "types", "config", "records", "disk", "log"},
    "control": {"errors", "types", "records", "log"},
    "client": CORE | {"control"},
    "machine": CORE,
    "arrow": CORE,
    "library": CORE | {"client", "machine", "arrow"},
    "aio": {"errors", "types", "records", "library"},
    "fsspec": CORE | {"machine", "library"},
    "fs": CORE | {"__init__", "control", "machine"},
    "spark": CORE | {"client", "machine", "arrow", "library"},
    "kafka": CORE | {"__init__", "client", "machine", "library"},
    "cli": CORE | {"__init__", "client", "machine", "library", "fs", "spark", "kafka"},
    "__init__": CORE | {"library"},
    "__main__": {"cli"},
}
"""Layer -> the others it may import from; ``logfs`` itself is ``__init__``."""

SHELL = frozenset({"client", "machine", "library", "aio", "fsspec", "fs", "spark", "kafka", "cli"})
"""The layers that may see the clock, chance and the world outside; below they are arguments."""
DISK = frozenset({"disk"})
NOWHERE = frozenset[str]()

ONLY_IN: dict[str, frozenset[str]] = {
    # Every package from outside.
    **dict.fromkeys(["pyfuse3", "prometheus_client"], frozenset({"fs"})),
    "trio": frozenset({"fs", "aio"}),
    "fsspec": frozenset({"fsspec"}),
    **dict.fromkeys(["asyncio", "sniffio"], frozenset({"aio"})),
    **dict.fromkeys(["pyspark", "numpy", "pyiceberg"], frozenset({"spark"})),
    # An extra: the library imports logfs.arrow in functions only.
    "pyarrow": frozenset({"arrow", "spark"}),
    # The library names its type only, for type checkers.
    "polars": frozenset({"arrow", "library"}),
    **dict.fromkeys(["crc32c", "cramjam"], frozenset({"records"})),
    # ``records.jsontext`` reads JSON for all.
    **dict.fromkeys(["json.load", "json.loads"], frozenset({"records"})),
    # Extras, imported when a store is opened.
    **dict.fromkeys(["obstore", "botocore"], DISK),
    **dict.fromkeys(["click", "rich"], frozenset({"cli"})),
    **dict.fromkeys(["kafka", "ssl"], frozenset({"kafka"})),
    # Of the standard library.
    "unittest": NOWHERE,
    **dict.fromkeys(["random", "secrets", "socket", "subprocess", "time"], SHELL),
    **dict.fromkeys(["os.environ", "os.getenv", "os.urandom"], SHELL),
    **dict.fromkeys(["pathlib", "shutil", "tempfile"], SHELL | DISK),
    **dict.fromkeys(["fcntl", "mmap"], DISK),
    **dict.fromkeys(["os.open", "os.pread", "os.preadv", "os.pwrite", "os.pwritev"], DISK),
    **dict.fromkeys(["os.fsync", "os.fdatasync", "os.sync", "os.posix_fallocate"], DISK),
    **dict.fromkeys(["os.truncate", "os.ftruncate", "os.copy_file_range"], DISK),
    **dict.fromkeys(["os.rename", "os.replace", "os.link", "os.symlink"], DISK),
    **dict.fromkeys(["os.unlink", "os.remove", "os.rmdir", "os.removedirs"], DISK),
}
"""Package, or name in one -> the layers that know it."""

LOG_FLOORS = (
    {"names", "counters", "quotas"},
    # Small files.
    {
        "attributes",
        "checkpoints",
        "epochs",
        "listing",
        "losses",
        "manifest",
        "mirrorfile",
        "forwardfile",
    },
    {"topics", "cleanercheckpoint"},
    {"indexes"},
    {"segments", "host"},
    {"remote"},
    {"reading"},
    {"producers"},
    # The log and its writing.
    {"writing"},
    {"partition"},
    {"lines"},
    {"checkpointing"},
    {"loading"},
    {"groups"},
    {"catalog"},
    {"publishing", "closing"},
    {"topiclocks", "topiccreation", "topicdeletion", "topicchanges", "store"},
)

SERVICES_FLOORS = (
    {"views", "meta"},
    {"retention", "compaction"},
    {"packing"},
    {"tiering", "following", "backup", "verifying", "dumping", "planning", "clusters"},
    {"overview", "administration", "salvage", "scanning", "reindexing", "journaling"},
)

FS_FLOORS = (
    {"threads"},
    {"options", "kernel"},
    {"partitions"},
    {"tree"},
    {"upkeep", "handover"},
    {"files"},
    {"operations"},
    {"metrics"},
    {"service"},
    {"session"},
)

FLOORS = {"log": LOG_FLOORS, "services": SERVICES_FLOORS, "fs": FS_FLOORS}
"""Layer -> its packages and top-level modules, lowest first.

Each imports from its own floor and those below it; on one floor no two import each other.
"""

PUBLIC_IN_LOG = {
    *("attributes", "checkpointing", "checkpoints", "counters", "forwardfile"),
    *("host", "listing", "losses", "manifest", "mirrorfile"),
    *("names", "partition", "quotas", "store", "topics"),
    *("groups.coding", "groups.table"),
    *("indexes.txnindex",),
    *("lines.append", "lines.form", "lines.pipelined", "lines.writer"),
    *("loading.preloading",),
    *("publishing.ledger", "publishing.publish", "publishing.staging"),
    *("reading.address", "reading.lookup", "reading.places", "reading.readable", "reading.records"),
    *("remote.bucket", "remote.catalog", "remote.directory", "remote.head", "remote.keys"),
    *("remote.of_disk", "remote.status"),
    *("segments.segment", "segments.snapshot"),
    *("writing._end", "writing.flusher", "writing.producerbatches"),
    *("writing.replication", "writing.segmentremoval"),
}
"""The modules of ``log`` that layers above ``services`` may import; a new one is a decision."""

PUBLIC_FOR_CLI = {
    *("forwardfile", "lines.form", "names", "reading.address", "reading.readable"),
    *("store",),
}
"""Those of them that ``cli`` may import; for all else it asks the library."""

CYTHON = {"cython", "libc", "cpython"}
CYTHON_FILES = {".pyx", ".pxd"}
MAX_LINES = {".py": 600, ".pyx": 600, ".pxd": 600, ".pxi": 1000}

SOURCES = sorted(p for s in ("py", "pyi", "pyx", "pxd") for p in ROOT.glob(f"logfs/**/*.{s}"))

PYX_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?c?import[ \t]+(.+)$", re.MULTILINE)


def path_id(path: Path) -> str:
    """Return the path as a test's name shows it."""
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """Return the module a source file defines; a ``.pyx`` and its stub are one."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


LISTED_ELSEWHERE = {"logfs/__init__.py", "logfs/cli/commands/__init__.py"}
"""The picture of the layers has no ``__main__``, and ``command_index`` has each command."""
PACKAGES = [
    path for path in SOURCES if path.name == "__init__.py" and path_id(path) not in LISTED_ELSEWHERE
]

MODULES = {module_of(path) for path in SOURCES if path.suffix != ".pxd"}


def layer_of(module: str) -> str:
    """Return the layer a module of logfs belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def uses(text: str, suffix: str) -> set[str]:
    """Return the full names of all that a source imports, and of what it uses of ``os``.

    ``from a import b`` is ``a.b``, which may be a module or a name in one; relative names begin
    with a dot.
    """
    if suffix in CYTHON_FILES:
        return {
            f"{source}.{name}" if source else name
            for source, names in PYX_IMPORT.findall(text)
            for name in re.findall(r"([\w.]+)(?:[ \t]+as[ \t]+\w+)?", names) or ["*"]
        }
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                found |= {alias.name for alias in node.names}
            case ast.ImportFrom():
                source = "." * node.level + (node.module or "")
                found |= {f"{source}.{alias.name}" for alias in node.names}
            case ast.Attribute(value=ast.Name(id="os")):
                found.add(f"os.{node.attr}")
            case _:
                pass
    return found


def is_wrong(layer: str, name: str, suffix: str = ".py") -> bool:
    """Return whether a layer may not use a name."""
    package, _, rest = name.partition(".")
    if package == "logfs":
        # What is no module below logfs is one of logfs/__init__.py's own names.
        target = rest.split(".")[0] if rest.split(".")[0] in MAY_IMPORT else "__init__"
        return target != layer and target not in MAY_IMPORT[layer]
    for known in (package, name):
        if known in ONLY_IN:
            return layer not in ONLY_IN[known]
    is_known = package in sys.stdlib_module_names or (suffix in CYTHON_FILES and package in CYTHON)
    return not is_known  # a relative import has no package


def module_used(name: str) -> str | None:
    """Return the module of logfs that a full name is or is in."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


def blocking_mistakes(text: str) -> list[str]:
    """Return what a source below ``fs`` does that only the layers around it do."""
    return [
        ast.unparse(node).splitlines()[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AsyncFunctionDef | ast.Await)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "open")
    ]


def project_files() -> list[Path]:
    """Return the files that are, or with the next ``git add`` would be, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in output.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.parametrize("path", SOURCES, ids=path_id)
def test_a_layer_uses_only_what_is_below_it_or_its_own(path: Path) -> None:
    layer = layer_of(module_of(path))
    assert layer in MAY_IMPORT, f"{layer} is no layer"
    names = uses(path.read_text(), path.suffix)
    assert not [name for name in names if is_wrong(layer, name, path.suffix)]


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix == ".py"], ids=path_id)
def test_below_fs_nothing_is_async_and_only_disk_opens_files(path: Path) -> None:
    if layer_of(module_of(path)) not in SHELL:
        assert not blocking_mistakes(path.read_text())


def thread_starts(text: str) -> list[str]:
    """Return the uses of trio's and asyncio's threads in a source."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Attribute) and node.attr == "to_thread")
        or (isinstance(node, ast.alias) and "to_thread" in node.name)
        or (isinstance(node, ast.ImportFrom) and "to_thread" in (node.module or ""))
    ]


def test_calls_of_the_event_loop_of_fs_come_to_threads_through_one_module() -> None:
    used = {
        path_id(path)
        for path in SOURCES
        if path.suffix == ".py" and thread_starts(path.read_text())
    }
    assert {path for path in used if path.startswith("logfs/fs/")} == {"logfs/fs/threads.py"}


def test_no_modules_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for path in SOURCES:
        module = module_of(path)
        used = {
            found for name in uses(path.read_text(), path.suffix) if (found := module_used(name))
        }
        graph.setdefault(module, set()).update(used - {module})
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which shows the cycle


def unit_of(layer: str, name: str) -> str | None:
    """Return the package or top-level module of a layer that a full name is in."""
    parts = name.split(".")
    return parts[2] if parts[:2] == ["logfs", layer] and len(parts) > 2 else None


def units_of(layer: str) -> dict[str, set[str]]:
    """Return the packages and top-level modules of a layer, each with those it imports from."""
    graph: dict[str, set[str]] = {}
    for path in SOURCES:
        unit = unit_of(layer, module_of(path))
        if unit is not None:
            modules = filter(None, map(module_used, uses(path.read_text(), path.suffix)))
            graph.setdefault(unit, set()).update(filter(None, (unit_of(layer, m) for m in modules)))
    return {unit: used - {unit} for unit, used in graph.items()}


def units_below(package: Path) -> set[str]:
    """Return the packages and modules of one package, by its ``__init__.py``."""
    name = module_of(package)
    return {m.removeprefix(f"{name}.").split(".")[0] for m in MODULES if m.startswith(f"{name}.")}


def climbs(floors: Sequence[set[str]], graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports that lead to a higher floor: (importer, imported)."""
    floor_of = {unit: number for number, units in enumerate(floors) for unit in units}
    return {(a, b) for a, used in graph.items() for b in used if floor_of[b] > floor_of[a]}


@pytest.mark.parametrize("layer", FLOORS)
def test_a_layer_is_built_in_floors(layer: str) -> None:
    graph = units_of(layer)
    assert sorted(graph) == sorted(unit for floor in FLOORS[layer] for unit in floor)
    assert not climbs(FLOORS[layer], graph)


def used_of_log(*, only: str | None = None) -> set[str]:
    """Return the modules of ``log`` that layers above ``services`` import, or only one of them."""
    used = set[str]()
    for path in SOURCES:
        layer = layer_of(module_of(path))
        if layer in {"log", "services"} or (only is not None and layer != only):
            continue
        modules = filter(None, map(module_used, uses(path.read_text(), path.suffix)))
        used |= {m.removeprefix("logfs.log.") for m in modules if m.startswith("logfs.log.")}
    return used


def test_only_public_modules_of_log_are_used_from_above() -> None:
    assert used_of_log() == PUBLIC_IN_LOG
    assert used_of_log(only="cli") == PUBLIC_FOR_CLI
    assert len(PUBLIC_IN_LOG) <= 45
    assert len(PUBLIC_FOR_CLI) <= 8


@pytest.mark.parametrize("path", PACKAGES, ids=path_id)
def test_the_docstring_of_a_package_lists_its_packages_and_modules(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert not [unit for unit in units_below(path) if not re.search(rf"\b{unit}\b", docstring)]


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_no_packages_of_a_layer_import_each_other(layer: str) -> None:
    graphlib.TopologicalSorter(units_of(layer)).prepare()


def test_no_two_parts_of_the_hooks_include_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for path in sorted((ROOT / "logfs/fs/kernel/native").glob("*.[ch]")):
        included = re.findall(r'^#include "(\w+)\.h"', path.read_text(), re.MULTILINE)
        graph.setdefault(path.stem, set()).update(set(included) - {path.stem})
    assert graph["hooks"]
    assert not graph["requests"]
    graphlib.TopologicalSorter(graph).prepare()


def test_everything_below_fs_imports_without_what_only_fs_spark_and_cli_know() -> None:
    below = MAY_IMPORT["__init__"]
    blocked = [name for name, layers in ONLY_IN.items() if layers and not layers & below]
    modules = [name for name in sorted(MODULES) if layer_of(name) in MAY_IMPORT["__init__"]]
    assert {"pyfuse3", "trio", "pyarrow"} <= set(blocked)
    assert "logfs.errors" in modules
    program = f"""
import importlib, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ImportError(name + " is blocked")
sys.meta_path.insert(0, Blocker())
for module in {modules}:
    importlib.import_module(module)
import trio
"""
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.stderr.splitlines()[-1] == "ImportError: trio is blocked", result.stderr


def test_no_class_name_means_two_things() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "logfs").rglob("*.p*")):
        if path.suffix in {".py", ".pyx", ".pxi"}:
            for name in re.findall(r"^(?:cdef )?class ([A-Z]\w*)", path.read_text(), re.MULTILINE):
                places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_files_can_be_read_in_one_go() -> None:
    lengths = {path: len(path.read_bytes().splitlines()) for path in project_files()}
    assert not {
        path_id(path): length
        for path, length in lengths.items()
        if length > MAX_LINES.get(path.suffix, sys.maxsize)
    }


def test_tests_use_no_mocks() -> None:
    tests = {path: uses(path.read_text(), ".py") for path in ROOT.glob("tests/**/*.py")}
    assert not [
        path_id(path)
        for path, names in tests.items()
        if any(name.startswith("unittest.mock") for name in names)
    ]


PRIVATE = re.compile(
    r"(?<![\w.}/-])/(?:home|root|workspace|Users)/\w|"
    r"https?://\S+/(?:simple|maven2|debian)\b"
)
"""Directories of a private machine, and package mirrors."""


def test_no_file_names_a_private_path() -> None:
    assert not [
        f"{path_id(path)}:{number}"
        for path in project_files()
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1)
        if PRIVATE.search(line)
    ]


# The checks above, seen to fail: each row plants a mistake.


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("log", "import trio"),
        ("log", "from trio import run"),
        ("log", "def f():\n    import pyfuse3"),
        ("fs", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark.sql"),
        ("records", "from logfs.log.segments.segment import Segment"),
        ("records", "from logfs import log"),
        ("records", "from logfs import __version__"),
        ("disk", "import logfs.records.batch"),
        ("fs", "from logfs.spark import source"),
        ("spark", "import logfs.fs.session.mount"),
        ("errors", "from logfs.types import Offset"),
        ("fs", "from . import views"),
        ("fs", "from .views import Node"),
        ("cli", "import requests"),
        ("log", "import time"),
        ("library", "def f():\n    import pyarrow"),
        ("fs", "import asyncio"),
        ("log", "from pathlib import Path"),
        ("log", "import os\nos.pread(3, 1, 0)"),
        ("fs", "import os\nsync = os.fsync"),
        ("cli", "from os import fsync"),
        ("disk", "import os\nos.environ['TZ']"),
    ],
)
def test_a_wrong_use_is_seen(layer: str, source: str) -> None:
    assert any(is_wrong(layer, name) for name in uses(source, ".py"))


@pytest.mark.parametrize(
    "source",
    [
        "from logfs.log.segments.segment cimport Segment",
        "cimport cython, trio",
        "    import pyfuse3 as fuse",
        "from logfs.fs.views import (\n    Node,\n)",
    ],
)
def test_a_wrong_use_in_cython_is_seen(source: str) -> None:
    assert any(is_wrong("records", name, ".pyx") for name in uses(source, ".pyx"))


def test_right_uses_in_cython_pass() -> None:
    source = "cimport cython\nfrom libc.string cimport memcpy\nimport crc32c\nimport json as j\n"
    assert uses(source, ".pyx") == {"cython", "libc.string.memcpy", "crc32c", "json"}
    assert not [name for name in uses(source, ".pyx") if is_wrong("records", name, ".pyx")]


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("segments", "from logfs.log.reading.lookup import offset_hint"),
        ("indexes", "import logfs.log.segments.segment"),
        ("writing", "from logfs.log import store"),
        ("catalog", "def f():\n    from logfs.log.store import LogStore"),
        (
            "names",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import logfs.log.losses",
        ),
    ],
)
def test_an_import_from_a_higher_floor_is_seen(importer: str, source: str) -> None:
    units = {unit_of("log", name) for name in uses(source, ".py")}
    assert climbs(LOG_FLOORS, {importer: {unit for unit in units if unit}})


@pytest.mark.parametrize("source", ["open('x')", "async def f(): ...", "def f():\n  open(1)"])
def test_what_does_not_belong_below_fs_is_seen(source: str) -> None:
    assert blocking_mistakes(source)


@pytest.mark.parametrize("line", ["{}x", "see {}x", '"{}x"', "a={}x"])
def test_a_private_path_is_seen(line: str) -> None:
    assert PRIVATE.search(line.format("/home/"))
    assert not PRIVATE.search(line.format("/srv/home/"))
