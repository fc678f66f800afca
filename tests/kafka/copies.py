"""What the harnesses of mirrors and forwards share: one of them in a thread, and its end."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from logfs.cli.running import Copying
from logfs.kafka.cluster import Cluster
from logfs.kafka.settings import ClientSettings, parse_bootstrap
from tests.processes import wait_until

_QUICK = {
    "fetch.wait.max.ms": "50",
    "linger.ms": "0",
    "metadata.max.age.ms": "500",
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "500",
}


def quick_cluster(bootstrap: str, properties: Mapping[str, str]) -> Cluster:
    """Return a client that waits for nothing, unless properties say so."""
    settings = ClientSettings.from_properties(_QUICK | dict(properties))
    return Cluster(parse_bootstrap(f"kafka://{bootstrap}")[0], settings)


class RunningCopy:
    """A mirror or a forward in a thread, which the block around it starts and ends.

    Attributes:
        said: What it has told people.
        error: What ended it.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def make(self) -> Copying:
        """Return what is to run; called when the block begins."""
        raise NotImplementedError

    def release(self) -> None:
        """Let go of what ``make`` has opened."""

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        wait_until(lambda: holds() or not self._thread.is_alive(), what)
        assert holds(), (self.said, self.error, self._copying.failures)

    def wait_for_end(self) -> None:
        wait_until(lambda: not self._thread.is_alive(), "it ended")

    def __enter__(self) -> Self:
        self._copying = self.make()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._copying.owner.stopping.set()
        self._copying.owner.want_look()
        self._thread.join()
        self.release()

    def _run(self) -> None:
        try:
            self._copying.run()
        except Exception as error:  # noqa: BLE001 - the test sees it
            self.error = error
