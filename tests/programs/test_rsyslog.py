"""rsyslog writes to a partition (omfile), and reads one and remembers its place (imfile)."""

import os
import signal
from pathlib import Path

import pytest

from tests.mounting import logfs
from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.rsyslog import Rsyslog, Shipper, messages_in
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


def test_messages_outlast_a_restart_of_logfs(own: Logs, tmp_path: Path) -> None:
    log = own.point / "syslog" / "0"
    rsyslog = Rsyslog(line_for("rsyslog, logger", own.point), tmp_path / "rsyslog")
    with rsyslog.start() as child:
        rsyslog.log("one")
        child.wait_until(lambda: messages_in(log) == ["one"], "the message is stored")
        child.signal(signal.SIGHUP)
        rsyslog.log("two")
        child.wait_until(lambda: messages_in(log) == ["one", "two"], "the message is stored")
        own.mount.kill()
        for message in ("three", "four"):
            rsyslog.log(message)
        child.wait_until(lambda: "not connected" in child.said, "rsyslogd met the dead mount")
        own.mount.start()
        rsyslog.log("five")
        expected = ["one", "two", "three", "four", "five"]
        child.wait_until(lambda: messages_in(log) == expected, "the messages are stored")


def test_it_does_not_notice_restarts(tmp_path: Path) -> None:
    with HeldMount(tmp_path) as held:
        (held.point / "syslog").mkdir()
        log, sent = held.point / "syslog" / "0", ["first"]
        line = line_for("rsyslog, logger", held.point)
        rsyslog = Rsyslog(line, tmp_path / "rsyslog")
        with rsyslog.start() as child:
            rsyslog.log("first")
            for number in (signal.SIGKILL, signal.SIGUSR2, signal.SIGKILL):
                held.signal_daemon(number)
                sent += [f"after {number}", f"again {number}"]
                for message in sent[-2:]:
                    rsyslog.log(message)
            child.wait_until(lambda: messages_in(log) == sent, "every message is stored once")
            assert "not connected" not in child.said


def test_it_continues_where_it_was(own: Logs, tmp_path: Path) -> None:
    shipper = Shipper(own.point, tmp_path / "rsyslog")
    web = f"{own.point}/web/0"
    with shipper.start():
        shipper.settle()
        begun = len(shipper.arrived)
        # Retention while it does not look.
        logfs("trim", f"{web}@latest", "--now")
        shipper.ship("kept")
        # A crash of logfs under it: it continues once it is started again.
        own.mount.crash()
    shipper.append("while it was off")
    # Retention up to where it is, while it is off.
    offset = int(os.getxattr(web, "user.logfs.log_end_offset"))
    logfs("trim", f"{web}@offset={offset - 1}", "--now")
    with shipper.start():
        shipper.ship("on again")
    assert shipper.arrived[begun:] == ["kept", "while it was off", "on again"]
    ticks = shipper.arrived[:begun]
    assert len(ticks) == len(set(ticks))
    assert not set(own.web) & set(ticks)  # it began at the end
