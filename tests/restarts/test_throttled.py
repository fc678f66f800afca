"""A write that waits for the rate of its topic while the daemon ends."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import run
from tests.processes import PATIENCE_S, wait_until
from tests.restarts.held import HeldMount
from tests.semantics.programs import configure

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.mark.parametrize("how", ["kill -9", "a reload"])
def test_a_write_that_waits_for_the_rate_is_there_once(tmp_path: Path, how: str) -> None:
    with HeldMount(tmp_path) as mount:
        topic = mount.point / "web"
        topic.mkdir()
        configure(topic, logfs_quota_producer_byte_rate=1)
        script = f"echo {'x' * 1000} >> {topic}/0; echo returned $?"
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as writer:
            try:
                wait_until(lambda: (topic / "0").stat().st_size == 1001, "the line is there")
                assert writer.poll() is None
                if how == "kill -9":
                    mount.end_daemon(signal.SIGKILL)
                else:
                    assert run("reload", mount.point).status == 0
                assert writer.communicate(timeout=PATIENCE_S)[0] == b"returned 0\n"
            finally:
                writer.kill()  # ends a wait
        assert (topic / "0").read_bytes() == b"x" * 1000 + b"\n"
