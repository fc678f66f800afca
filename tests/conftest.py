"""What holds for every test.

* A ``fuse`` test fails where nothing can be mounted. It is not skipped: a green run would hide that
  the file system was not tested at all. Nor is a ``kafka`` test where Java or the jars are missing.
* A warning or error that logfs logs fails the test, unless the test declares a part of its text:
  ``@pytest.mark.expect_log("part")``, then it has to come, or ``allow_log``, then it may.
* Garbage is collected after a ``fuse`` test, so that what a lost reference breaks (a file closed
  late, an exception in ``__del__``) is seen in the test that lost it. What is there between two
  modules, thousands of tests and what they import, is not looked through again each time.
* What a read-only mount remembers goes below the session's temporary folder, not to the user's.
* An asynchronous test that hangs is cancelled and fails, so that the tests after it run.
* When the session ends, no mount is left below its temporary folder.
* Tests marked ``long`` run only if the marker expression names them, as ``make test-long`` does.
  They have no time limit. Their numbers (``counts``) are printed at the end.
"""

import functools
import gc
import inspect
import itertools
import logging
import os
import re
import shutil
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
import trio

from tests.distributing import Groups, place_of
from tests.long import Limits
from tests.remote.servers import Bucket, FaultProxy, FaultServer, ObjectServer

FUSE_DEVICE = Path("/dev/fuse")
_NUMBERS = itertools.count(1)

# How long an example takes depends on what else runs; the blob repeats a failure elsewhere.
# The same examples in each run: no verdict depends on chance. ``make test-long`` has new ones.
hypothesis.settings.register_profile(
    "logfs",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
    derandomize="LOGFS_LONG_SEED" not in os.environ,
)
hypothesis.settings.load_profile("logfs")


def why_no_mount() -> str | None:
    """Return what keeps this machine from mounting, and what to do; None if nothing does."""
    if shutil.which("fusermount3") is None:
        return "fusermount3 is missing: run .ci/system-packages"
    try:
        os.close(os.open(FUSE_DEVICE, os.O_RDWR))
    except OSError as error:
        return (
            f"{FUSE_DEVICE} cannot be opened ({error.strerror}): run modprobe fuse; "
            "in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN"
        )
    return None


def mounts_below(mountinfo: str, directory: Path) -> list[Path]:
    """Return the mount points in or at a directory, in the order in which they were mounted.

    Args:
        mountinfo: Contents of ``/proc/self/mountinfo``.
        directory: An absolute path without symbolic links.
    """
    fields = [line.split()[4] for line in mountinfo.splitlines()]
    # The kernel writes white space and backslashes as three octal digits.
    points = [Path(re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), field)) for field in fields]
    return [point for point in points if point.is_relative_to(directory)]


HANGS_AFTER_S = 400
"""Less than the ``timeout`` of ``pyproject.toml``, which cannot end a run of trio cleanly."""


def limited(test: Callable[..., Awaitable[None]], limit_s: float) -> Callable[..., Awaitable[None]]:
    """Return an asynchronous test that is cancelled, and fails, after a time on the real clock."""

    @functools.wraps(test)
    async def run(**arguments: object) -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:
            timer = threading.Timer(limit_s, token.run_sync_soon, [scope.cancel])
            timer.daemon = True
            timer.start()
            try:
                await test(**arguments)
            finally:
                timer.cancel()
        if scope.cancelled_caught:
            pytest.fail(f"the test hangs: it did not end within {limit_s} s")

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a ``fuse`` test before any of its fixtures tries to mount; limit asynchronous ones."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.obj = limited(item.obj, HANGS_AFTER_S)
    if item.get_closest_marker("fuse") is not None:
        problem = why_no_mount()
        if problem is not None:
            pytest.fail(f"this test mounts, and {problem}", pytrace=False)


_COUNTS = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Have a place for what long tests count; let programs that tests start take Ctrl-C."""
    config.stash[_COUNTS] = Counter()
    if "PYTEST_XDIST_WORKER" in os.environ:  # it ignores SIGINT, which programs inherit
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    """Say which process gets which tests."""
    return Groups(config, log)


@pytest.hookimpl(tryfirst=True)  # before the marker expression leaves tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests out that were not asked for; sort what is distributed to processes."""
    if "long" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("long") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.timeout(0))
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.random)
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=place_of)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what long tests have counted."""
    counts = config.stash[_COUNTS]
    if counts:
        terminalreporter.section("counted")
        for name, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:12,} {name}")


@pytest.fixture
def counts(request: pytest.FixtureRequest) -> Counter[str]:
    """The numbers that a long test reports."""
    return request.config.stash[_COUNTS]


@pytest.fixture(scope="session")
def limits() -> Limits:
    """How long long tests run."""
    return Limits.from_environment()


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """An S3 server for tests that have their own buckets and do not stop it."""
    with ObjectServer(tmp_path_factory.mktemp("object-server")) as server:
        yield server


@pytest.fixture(scope="session")
def fault_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    """Makes proxies that disturb connections."""
    with FaultServer(tmp_path_factory.mktemp("fault-server")) as server:
        yield server


@pytest.fixture
def bucket(object_server: ObjectServer) -> Bucket:
    """A prefix in a bucket for this test alone."""
    return object_server.bucket(f"bucket-{next(_NUMBERS)}")


@pytest.fixture
def bucket_environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands of this test find the server and the key of the bucket."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def faults(object_server: ObjectServer, fault_server: FaultServer) -> Iterator[FaultProxy]:
    """A way to the server that this test may disturb; see ``Bucket.through``."""
    proxy = fault_server.proxy(object_server.endpoint)
    yield proxy
    proxy.heal()


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of all collections of garbage; see the module."""
    _set_aside()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Do the same with the objects that a module leaves."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        _set_aside()
    return result


def _set_aside() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _caches_are_temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CACHE_DIRECTORY", str(tmp_path_factory.mktemp("caches")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_mount_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    directory = tmp_path_factory.getbasetemp().resolve()
    left = mounts_below(Path("/proc/self/mountinfo").read_text(), directory)
    command = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
    problems = []
    for point in reversed(left):
        result = subprocess.run([*command, point], check=False, capture_output=True, text=True)
        problems.append(f"{point} {result.stderr or '(unmounted now)'}")
    if problems:
        pytest.fail("still mounted after the last test:\n" + "\n".join(problems), pytrace=False)


class _Collector(logging.Handler):
    """Keeps the text of every warning and error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Undo what a test changes of the log's output."""
    root, own = logging.getLogger(), logging.getLogger("logfs")
    handlers, level, own_level = list(root.handlers), root.level, own.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    own.setLevel(own_level)


@pytest.fixture(autouse=True)
def _no_log_output_is_left() -> Iterator[None]:
    """A handler or a level that a test leaves would change what later tests log, and where."""
    root, own = logging.getLogger(), logging.getLogger("logfs")
    yield
    left: list[object] = [h for h in root.handlers if not type(h).__module__.startswith("_pytest")]
    root.handlers = [handler for handler in root.handlers if handler not in left]
    if own.level != logging.NOTSET:
        left.append(f"level {logging.getLevelName(own.level)}")
        own.setLevel(logging.NOTSET)
    assert not left, f"a test changed the log's output, see logging_as_before: {left}"


@pytest.fixture(autouse=True)
def _only_declared_warnings(request: pytest.FixtureRequest) -> Iterator[None]:
    # Automatic fixtures are set up first and so torn down last: what a test's own fixtures log
    # while they unmount or close is included.
    collector = _Collector()
    logger = logging.getLogger("logfs")
    logger.addHandler(collector)
    yield
    if request.node.get_closest_marker("fuse") is not None:
        gc.collect()
    logger.removeHandler(collector)

    expected = [part for mark in request.node.iter_markers("expect_log") for part in mark.args]
    allowed = [part for mark in request.node.iter_markers("allow_log") for part in mark.args]
    if not all([*expected, *allowed]):
        pytest.fail("a mark of the log names nothing: it would allow every warning", pytrace=False)
    problems = [
        f"not declared: {text}"
        for text in collector.texts
        if not any(part in text for part in [*expected, *allowed])
    ]
    problems += [
        f"expected, not logged: {part}"
        for part in expected
        if not any(part in text for text in collector.texts)
    ]
    if problems:
        pytest.fail("warnings in the log:\n" + "\n".join(problems), pytrace=False)
