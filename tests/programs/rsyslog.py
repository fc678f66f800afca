"""rsyslog on a Unix socket: it writes to a partition (omfile), and ships one (imfile)."""

from itertools import count
from pathlib import Path

from tests.mounting import wait_until
from tests.programs.documents import line_for
from tests.programs.running import Child, printed


class Rsyslog:
    """A daemon with its own configuration, on Unix sockets alone."""

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


class Shipper:
    """rsyslog that ships what is appended to ``web/0``, and what has arrived."""

    def __init__(self, point: Path, directory: Path) -> None:
        self._web = point / "web" / "0"
        self._arrived = directory / "arrived"
        line = line_for("rsyslog's imfile", point)
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
