"""rsyslog writes to a partition (omfile), and reads one and remembers its place (imfile)."""

import os
import signal
from itertools import count
from pathlib import Path

import pytest

from tests.mounting import logfs, wait_until
from tests.programs.conftest import Logs
from tests.programs.documents import line_for
from tests.programs.running import Child, printed
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


class Rsyslog:
    """A daemon with a configuration of its own, on Unix sockets alone."""

    def __init__(self, configuration: str, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._conf = directory / "rsyslog.conf"
        self._socket = directory / "log"
        self._conf.write_text(f"""\
global(workDirectory="{directory}")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{self._socket}" CreatePath="on")
{configuration}
""")

    def start(self) -> Child:
        """Start it, and return when it takes messages."""
        self._socket.unlink(missing_ok=True)
        pid = self._directory / "pid"
        command = ["rsyslogd", "-n", "-f", str(self._conf), "-i", str(pid)]
        child = Child(command, self._directory)
        child.wait_until(self._socket.exists, "rsyslogd listens")
        return child

    def log(self, message: str) -> None:
        """Log a message as a script does."""
        printed(f"logger -u {self._socket} -t deploy '{message}'", self._directory)


def messages_in(log: Path) -> list[str]:
    """Return the messages that a log holds."""
    return [line.partition("deploy: ")[2] for line in log.read_text().splitlines()]


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
                held.end_daemon(number)
                sent += [f"after {number}", f"again {number}"]
                for message in sent[-2:]:
                    rsyslog.log(message)
            child.wait_until(lambda: messages_in(log) == sent, "every message is stored once")
            assert "not connected" not in child.said


class Shipper:
    """rsyslog that ships what is appended to ``web/0``, and what has arrived."""

    def __init__(self, logs: Logs, directory: Path) -> None:
        self._web = logs.point / "web" / "0"
        self._arrived = directory / "arrived"
        line = line_for("rsyslog's imfile", logs.point)
        self._rsyslog = Rsyslog(
            f"""\
module(load="imfile")
{line.replace(")", ' ruleset="ship")')}
template(name="line" type="string" string="%msg%\\n")
ruleset(name="ship") {{ action(type="omfile" file="{self._arrived}" template="line") }}
""",
            directory,
        )

    @property
    def arrived(self) -> list[str]:
        """The lines that were shipped, in their order."""
        return self._arrived.read_text().splitlines() if self._arrived.exists() else []

    def start(self) -> Child:
        """Start it."""
        return self._rsyslog.start()

    def append(self, line: str) -> None:
        """Append a line to the partition."""
        with self._web.open("a") as file:
            file.write(f"{line}\n")

    def ship(self, line: str) -> None:
        """Append a line and wait until it has arrived."""
        self.append(line)
        wait_until(lambda: line in self.arrived, f"{line} arrived")

    def settle(self) -> None:
        """Append lines until the first arrives, and the last: what follows has to, too."""
        ticks = count()

        def tick() -> bool:
            self.append(f"tick {next(ticks)}")
            return bool(self.arrived)

        wait_until(tick, "rsyslogd reads")
        self.ship("settled")


def test_it_goes_on_where_it_was(own: Logs, tmp_path: Path) -> None:
    shipper = Shipper(own, tmp_path / "rsyslog")
    web = f"{own.point}/web/0"
    with shipper.start():
        shipper.settle()
        begun = len(shipper.arrived)
        # Retention while it does not look.
        logfs("trim", f"{web}@latest", "--now")
        shipper.ship("kept")
        # A crash of logfs under it: it goes on once it is started again.
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
