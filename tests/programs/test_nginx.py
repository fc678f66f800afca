"""nginx writes its access log: when logfs restarts, when it reopens, as which user."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mounting import wait_until
from tests.programs.conftest import Logs, mounted_logs
from tests.programs.documents import line_for
from tests.programs.nginx import Nginx, requests_in
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.fixture
def own() -> Iterator[Logs]:
    """A mount that the user of nginx's workers may use, and reach: no other folder here is so."""
    options = ("allow_other",) if os.geteuid() == 0 else ()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o711)
        with mounted_logs(directory, *options) as logs:
            yield logs


@pytest.fixture
def nginx(own: Logs, tmp_path: Path) -> Iterator[Nginx]:
    server = Nginx(line_for("nginx", own.point), tmp_path)
    with server.child:
        yield server


def test_every_request_is_in_the_log_once(own: Logs, nginx: Nginx) -> None:
    log = own.point / "web" / "0"
    nginx.get("/one")
    wait_until(lambda: requests_in(log) == ["/one"], "the request is in the log")
    nginx.reopen()
    nginx.get("/two")
    wait_until(lambda: requests_in(log) == ["/one", "/two"], "the request is in the log")
    if os.geteuid() == 0:  # it gives the log to the user of its workers, which open it again
        wait_until(lambda: os.stat(log).st_uid != 0, "the log has been given away")
    assert str(log) not in nginx.child.said  # what it cannot write it names


def test_it_writes_again_once_it_reopens_after_a_restart(own: Logs, nginx: Nginx) -> None:
    log = own.point / "web" / "0"
    own.mount.kill()
    nginx.get("/dead")
    nginx.child.wait_until(lambda: "not connected" in nginx.child.said, "nginx complained")
    own.mount.start()
    nginx.reopen()
    nginx.child.wait_until(lambda: nginx.child.said.count("close()") == 2, "it opened the log")
    nginx.get("/back")
    wait_until(lambda: requests_in(log) == ["/back"], "the request is in the log")


def test_it_does_not_notice_restarts(tmp_path: Path) -> None:
    with HeldMount(tmp_path, "-o", "allow_other") as held:
        (held.point / "web").mkdir()
        log, asked = held.point / "web" / "0", ["/one"]
        nginx = Nginx(line_for("nginx", held.point), tmp_path)
        with nginx.child:
            nginx.get("/one")
            for number in (signal.SIGKILL, signal.SIGUSR2, signal.SIGKILL):
                held.signal_daemon(number)
                asked += [f"/{number}", f"/again{number}"]
                for path in asked[-2:]:
                    nginx.get(path)
            wait_until(lambda: requests_in(log) == asked, "the requests are in the log, in order")
        assert str(log) not in nginx.child.said
