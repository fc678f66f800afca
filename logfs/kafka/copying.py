"""The common part of mirrors and forwards: threads that tell an owner, and the owner's ticks."""

import threading
import time
from collections.abc import Callable

from logfs.errors import ClusterRefusedError
from logfs.kafka.cluster import Cluster

_SHOW_EVERY_S = 2.0


class Owner:
    """What threads tell the mirror or the forward that started them. Any thread.

    Attributes:
        stopping: Set when all threads are to end.
        refusal: The refusal of the cluster; taken, and said, at the next tick.
    """

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._look = threading.Event()
        self.refusal: ClusterRefusedError | None = None

    def want_look(self) -> None:
        """Have the leaders looked up soon."""
        self._look.set()

    def wait(self, seconds: float) -> bool:
        """Wait until a look is wanted or the time has passed; returns whether it is wanted."""
        is_wanted = self._look.wait(seconds)
        self._look.clear()
        return is_wanted


class ClusterCopy:
    """Copies between local topics and a cluster; see ``Mirror`` and ``Forward``.

    Args:
        cluster: The cluster.
        say: Called with a line for people when something changes.

    Attributes:
        owner: Its ``stopping`` ends ``run``.
        when_ready: Called once, when the first answers were dealt with.
        when_alive: Called with the state in a sentence, from time to time.
    """

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.owner = Owner()
        self.when_ready: Callable[[], None] = lambda: None
        self.when_alive: Callable[[str], None] = lambda _text: None
        self._cluster = cluster
        self._say = say
        self._is_ready = False
        self._shown_s = 0.0

    def summary(self) -> str:
        """Return the state in a sentence."""
        raise NotImplementedError

    # What a tick does

    def _tick(self) -> None:
        """Do what is due between looks.

        Raises:
            ClusterRefusedError: The cluster refuses the client before anything worked.
        """
        refusal, self.owner.refusal = self.owner.refusal, None
        if refusal is not None:
            if not self._is_ready:
                raise refusal
            self._say(str(refusal))
        self._keep_up()
        if not self._is_ready and self._has_begun():
            self._is_ready = True
            self.when_ready()
        now_s = time.monotonic()
        if now_s - self._shown_s >= _SHOW_EVERY_S:
            self._shown_s = now_s
            self.when_alive(self.summary())
            self._show()
        if self._has_ended():
            self.owner.stopping.set()

    def _keep_up(self) -> None:
        """Do what each tick does."""

    def _has_begun(self) -> bool:
        """Whether every partition has an answer of the cluster."""
        raise NotImplementedError

    def _has_ended(self) -> bool:
        """Whether all work is done."""
        raise NotImplementedError

    def _show(self) -> None:
        """Let ``.meta`` and the metrics show the state."""
        raise NotImplementedError
