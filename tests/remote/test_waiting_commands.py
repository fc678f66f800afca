"""Commands that wait for a store: what they say meanwhile, and that Ctrl-C ends them."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logfs.cli.commands import cat as cat_module
from logfs.disk.remote.foreground import interruptibly
from logfs.log.remote.parallel import for_each
from tests.cli.conftest import Call, environment
from tests.cli.conftest import logfs as logfs
from tests.remote.servers import CREDENTIALS, free_port

LIMIT_S = 60
_PATIENT = (
    "import sys, logfs.disk.remote.s3 as s3, logfs.cli.main as cli; "
    "s3._STALLED_S = 1000; sys.exit(cli.main(sys.argv[1:]))"
)
"""The command in a process in which a request without an answer does not end by itself."""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        yield listener


@pytest.mark.parametrize(
    "wait",
    [interruptibly, lambda request: for_each(lambda _: request(), range(2))],
    ids=["one", "several"],
)
def test_a_signal_that_another_thread_takes_ends_the_wait(
    wait: Callable[[Callable[[], None]], object],
) -> None:
    release, ended = threading.Event(), threading.Event()

    def request() -> None:
        release.wait(0.3)  # by then the main thread waits
        signal.raise_signal(signal.SIGINT)
        release.wait(5)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        wait(request)
    assert not ended.is_set()
    release.set()


def start(endpoint: str, *arguments: str | Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", _PATIENT, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(), **CREDENTIALS, "AWS_ENDPOINT_URL": endpoint},
    )


@pytest.mark.parametrize(
    "command",
    [
        ("cat", "s3://logs/web/orders/0"),
        ("tail", "-f", "s3://logs/web/orders/0"),
        ("offsets", "s3://logs/web"),
        ("verify", "s3://logs/web"),
        ("du", "s3://logs/web"),
        ("export", "s3://logs/web/orders", "TARGET"),
        ("remote", "init", "DATA", "s3://logs/web"),
        ("remote", "status", "s3://logs/web"),
        ("remote", "verify", "s3://logs/web"),
        ("remote", "gc", "s3://logs/web"),
        ("remote", "fetch", "s3://logs/web", "TARGET"),
        ("mount", "s3://logs/web", "DATA", "-o", "ro"),
    ],
    ids=lambda command: "-".join(command[:2]).partition("-s3")[0],
)
def test_ctrl_c_ends_a_command_that_waits(
    command: tuple[str, ...], silent: socket.socket, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    places = {"DATA": tmp_path / "data", "TARGET": tmp_path / "target"}
    endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
    with start(endpoint, *(places.get(word, word) for word in command)) as process:
        try:
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(4) in {b"GET ", b"PUT ", b"HEAD"}
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors


def test_a_command_says_what_it_waits_for(tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    with start(endpoint, "cat", "s3://logs/web/orders/0") as process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert f"no connection to the store {endpoint}; asking again for" in line
    assert process.returncode == 130


def test_a_store_that_does_not_answer_is_waited_for_once(
    logfs: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def locate(path: str) -> None:
        calls.append(path)
        raise TimeoutError(110, "no answer from the store", path)

    monkeypatch.setattr(cat_module, "locate", locate)
    outcome = logfs("cat", "s3://logs/web/orders/0")
    assert outcome.status == 1
    assert "no answer from the store" in outcome.errors[0]
    assert len(calls) == 1
