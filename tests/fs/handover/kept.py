"""A file system without a mount whose daemon is killed, and its successor."""

from dataclasses import dataclass, field
from typing import cast

from logfs.fs.handover.journal import Journal
from logfs.fs.handover.settling import Settling
from logfs.fs.handover.state import SLOTS, slot_index
from logfs.fs.kernel.hooks import Hooks
from tests.fs.test_backing_files import FakeKernel
from tests.fs.world import World

SEALED = ".segments/orders-0/00000000000000000000.log"
_HALF_BYTES = 1 << 20
_NO_SLOTS = [0] * slot_index(SLOTS)


class NumberingKernel(FakeKernel):
    """A kernel that numbers its requests.

    Attributes:
        next: The number of the next request.
    """

    ahead_reads = 0

    def __init__(self) -> None:
        super().__init__()
        self.next = 100

    def request(self) -> int:
        self.next += 2
        return self.next

    def request_thread(self) -> int:
        return 0

    def drop_buffer(self) -> None:
        pass

    def send_again(self, number: int) -> None:
        """Give the next request the number that an earlier one had."""
        self.next = (number | 1 << 63) - 2


@dataclass
class KeptWorld(World):
    """A world whose nodes and open files outlive the daemon."""

    kernel: NumberingKernel = field(default_factory=NumberingKernel)

    def __post_init__(self) -> None:
        self.hooks = cast("Hooks", self.kernel)
        self._words = [0, 0, 0]
        self._area = memoryview(bytearray(2 * _HALF_BYTES))
        super().__post_init__()
        self.take_over()

    @property
    def journal(self) -> Journal:
        return self.operations.journal

    def take_over(self) -> None:
        self.operations.take_over(Journal(self._words, self._area))

    def kill(self) -> None:
        """Kill the daemon; the next one continues."""
        self.disk = self.disk.after_kill()
        self._go_on()

    def hand_over(self) -> None:
        """Stop the daemon for the next one."""
        self.store.close(self.clock.now_ms)
        self._go_on()

    def _go_on(self) -> None:
        self.resumed = Settling(_NO_SLOTS, Journal(self._words, self._area))
        self.open_store()
        self.take_over()


async def orders() -> KeptWorld:
    """Return a world with four records of ``orders``, two of them in a sealed segment."""
    world = KeptWorld()
    await world.mkdir("orders")
    await world.append("orders/0", b"zero\none\n")
    world.store.partition("orders", 0).roll(world.clock.now_ms)
    await world.append("orders/0", b"two\nthree\n")
    return world
