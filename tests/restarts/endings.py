"""Ways in which the daemon of a mount ends while programs use it, chosen by a seed."""

import re
import shutil
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.mounting import ROOT
from tests.processes import wait_until
from tests.restarts.held import HeldMount

_PAUSE_S = 0.6
"""The longest pause before a signal; a daemon starts in about as long."""
_WAYS = {
    "kill": 8,
    "abort": 1,
    "restart": 3,
    "reload": 3,
    "upgrade": 2,
    "killed while it adopts": 3,
    "killed twice in a row": 3,
    "killed while it stops": 2,
    "killed while it reloads": 2,
}
"""How often each of them comes, in parts of the whole."""


class Endings:
    """Ends daemons.

    Args:
        held: The mount.
        directory: For other versions of the package.
        seed: The seed of the choices.

    Attributes:
        counts: How often each way was taken.
    """

    def __init__(self, held: HeldMount, directory: Path, seed: int) -> None:
        self._held = held
        self._directory = directory
        self._chance = Random(seed)
        self._version = 0
        self.counts: Counter[str] = Counter()

    def end(self, times: int) -> None:
        """End daemons, and wait after each time until another one serves."""
        ways = list(_WAYS) * (times // len(_WAYS))
        rest = times - len(ways)
        ways += self._chance.choices(list(_WAYS), weights=list(_WAYS.values()), k=rest)
        self._chance.shuffle(ways)
        for way in ways:
            self.counts[way] += 1
            self._pause()
            self._held.note(f"{sum(self.counts.values())}: {way}")
            self._end(way)
            self._held.wait_for_next()

    def _pause(self) -> None:
        time.sleep(self._chance.random() * _PAUSE_S)

    def _end(self, way: str) -> None:
        held = self._held
        match way:
            case "kill":
                held.signal_daemon(signal.SIGKILL)
            case "abort":
                held.signal_daemon(signal.SIGABRT)
            case "restart":
                held.signal_daemon(signal.SIGUSR2)
            case "reload":
                self._reload()
            case "upgrade":
                self._install_next()
                self._reload()
            case "killed while it adopts":
                before = held.log.count("continuing the mount")
                held.signal_daemon(self._chance.choice((signal.SIGKILL, signal.SIGUSR2)))
                wait_until(lambda: held.log.count("continuing the mount") > before, "it adopts")
                held.signal_daemon(signal.SIGKILL)
            case "killed twice in a row":
                held.signal_daemon(signal.SIGKILL)
                self._pause()
                held.signal_daemon(signal.SIGKILL)
            case "killed while it stops" | "killed while it reloads":
                number = signal.SIGUSR2 if way == "killed while it stops" else signal.SIGUSR1
                stopping = held.signal_daemon(number)
                time.sleep(self._chance.random() * _PAUSE_S / 2)
                # It may serve still, with a successor that is not warm yet.
                if stopping == held.signal_daemon(signal.SIGKILL):
                    return

    def _reload(self) -> None:
        """Reload; the daemon is another one then."""
        before = self._held.signal_daemon(signal.SIGUSR1)
        self._held.wait_for_next()
        wait_until(lambda: self._held.pid not in (0, before), "the old daemon has ended")

    def _install_next(self) -> None:
        """Install another version, as ``make install`` does."""
        self._version += 1
        tree = self._directory / f"version-{self._version}"
        shutil.copytree(ROOT / "logfs", tree / "logfs", ignore=shutil.ignore_patterns("*.c", "*.h"))
        init = tree / "logfs/__init__.py"
        line = f'__version__ = "99.{self._version}"'
        text, found = re.subn(r"(?m)^__version__ = .*$", line, init.read_text())
        assert found == 1, "the package has a version"
        init.write_text(text)
        self._held.install(tree=tree)
        for old in self._directory.glob("version-*"):
            if old not in (tree, self._directory / f"version-{self._version - 1}"):
                with suppress(OSError):
                    shutil.rmtree(old)
