"""The guards of ``conftest.py``, seen to fail."""

from pathlib import Path

import pytest
import trio

from tests.conftest import limited, mounts_below

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]

LOGS = '''
import logging, pytest
from hypothesis import given, strategies

def warn():
    logging.getLogger("logfs.log.loading.recovery").warning("dropped %d bytes", 7)

class Lost:
    """What only the collector of garbage finds."""

    def __init__(self):
        self.myself = self

    def __del__(self):
        warn()

'''

DIES_MOUNTED = """
import pytest, subprocess, sys

DAEMON = '''
import pyfuse3, sys, trio
pyfuse3.init(pyfuse3.Operations(), sys.argv[1], {"fsname=dies"})
print("mounted", flush=True)
trio.run(pyfuse3.main)
'''

@pytest.mark.fuse
def test_it(tmp_path):
    arguments = [sys.executable, "-c", DAEMON, tmp_path]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout.readline() == b"mounted\\n"
        daemon.kill()
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with this project's pytest configuration and conftest."""
    pytester.makepyprojecttoml((ROOT / "pyproject.toml").read_text())
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    return pytester


# These run in this process, so this session's guard sees what they log as well.
@pytest.mark.allow_log("dropped 7 bytes")
@pytest.mark.parametrize(
    "test",
    [
        "def test_it(): logging.getLogger('logfs').info('hello')",
        "def test_it(): logging.getLogger('other').warning('hello')",
        "@pytest.mark.expect_log('dropped 7')\ndef test_it(): warn()",
        "@pytest.mark.allow_log('dropped')\ndef test_it(): warn()",
        "@pytest.mark.allow_log('dropped')\ndef test_it(): pass",
        "@given(strategies.none())\ndef test_it(x): pass",
        "async def test_it(): pass",
    ],
)
def test_a_test_that_logs_what_it_declares_passes(project: pytest.Pytester, test: str) -> None:
    path = project.makepyfile(test_it=LOGS + test)
    project.runpytest_inprocess(path).assert_outcomes(passed=1)


@pytest.mark.allow_log("dropped 7 bytes")
@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            "def test_it(): warn()",
            "*not declared: WARNING logfs.log.loading.recovery: dropped 7 bytes",
        ),
        ("async def test_it(): warn()", "*not declared: *dropped 7 bytes"),
        ("@pytest.mark.expect_log('cut')\ndef test_it(): pass", "*expected, not logged: cut"),
        ("@pytest.mark.allow_log('cut')\ndef test_it(): warn()", "*not declared: *dropped 7*"),
        (
            "@pytest.fixture\ndef late():\n    yield\n    warn()\ndef test_it(late): pass",
            "*not declared: *dropped 7 bytes",
        ),
        ("@pytest.mark.fuse\ndef test_it(): Lost()", "*not declared: *dropped 7 bytes"),
    ],
)
def test_an_undeclared_or_missing_warning_fails(
    project: pytest.Pytester, test: str, message: str
) -> None:
    path = project.makepyfile(test_it=LOGS + test)
    result = project.runpytest_inprocess(path)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([message])


def test_a_fuse_test_fails_without_the_device(pytester: pytest.Pytester) -> None:
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    pytester.makeconftest(conftest.replace("/dev/fuse", "/dev/no-such-device"))
    pytester.makepyprojecttoml((ROOT / "pyproject.toml").read_text())
    path = pytester.makepyfile("import pytest\n@pytest.mark.fuse\ndef test_it(): pass\n")
    result = pytester.runpytest_inprocess(path)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["this test mounts, and *"])


def test_mounts_are_found_by_their_path() -> None:
    mountinfo = (
        "20 1 0:5 / / rw - ext4 /dev/vda rw\n"
        "21 20 0:6 / /tmp/a rw shared:3 - tmpfs none rw\n"
        "22 20 0:7 / /tmp/a/x\\040y rw - fuse.logfs logfs rw\n"
        "23 20 0:8 / /tmp/ab rw - tmpfs none rw\n"
    )
    assert mounts_below(mountinfo, Path("/tmp/a")) == [Path("/tmp/a"), Path("/tmp/a/x y")]


@pytest.mark.fuse
@pytest.mark.slow
def test_a_remaining_mount_fails_the_session(project: pytest.Pytester) -> None:
    path = project.makepyfile(DIES_MOUNTED)
    result = project.runpytest_subprocess(path)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["still mounted after *", "*test_it0 (unmounted now)"])
    assert not mounts_below(Path("/proc/self/mountinfo").read_text(), project.path)


@pytest.mark.slow
def test_one_process_has_all_tests_of_a_file(project: pytest.Pytester) -> None:
    """Else what they share, such as a broker, is started in each process."""
    test = (
        "import os, pathlib, pytest\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_it(number):\n"
        "    pathlib.Path(f'{pathlib.Path(__file__).stem}-{os.getpid()}').touch()\n"
    )
    for name in "abcd":
        project.makepyfile(**{f"test_{name}": test})
    project.runpytest_subprocess("-n2", project.path).assert_outcomes(passed=24)
    found = sorted(path.name for path in project.path.glob("test_?-*"))
    assert [name[:6] for name in found] == ["test_a", "test_b", "test_c", "test_d"]
    assert len({name[6:] for name in found}) == 2


async def test_an_asynchronous_test_that_hangs_is_cancelled_and_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="it did not end within"):
        await limited(trio.sleep_forever, 0.01)()


async def test_the_limit_is_of_the_real_clock(autojump_clock: trio.testing.MockClock) -> None:
    async def sleep_long() -> None:
        await trio.sleep(10_000)

    await limited(sleep_long, 60)()
