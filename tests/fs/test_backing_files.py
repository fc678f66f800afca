"""Which sealed files are passed through, over a kernel that keeps what it is told."""

import errno
import os
from typing import cast

import pytest

from logfs.fs.kernel.hooks import Answered, Hooks
from logfs.fs.kernel.passthrough import ON, Passthrough
from tests.fs.world import World

_LINE = b"x" * 99 + b"\n"


class NoSuspects:
    """No request was under way when a daemon ended."""

    def __len__(self) -> int:
        return 0

    def note_waiting(self, number: int) -> None:
        pass


class NoServing:
    """Hooks that answer nothing themselves."""

    is_running = False
    waiting_reads = 0

    def allow(self, uid: int) -> None:
        pass


class FakeKernel:
    """The hooks over a kernel that keeps backing files, or refuses to.

    Attributes:
        open: The backing files it has.
        attached: The handles that were tied to one, and to which.
        refuses: The errno with which it refuses; None if it does not.
    """

    suspects = NoSuspects()
    serving = NoServing()

    def __init__(self) -> None:
        self.is_active = True
        self.has_passthrough: bool | None = True
        self.open: set[int] = set()
        self.attached: dict[int, int] = {}
        self.refuses: int | None = None
        self._last = 0

    def backing_open(self, descriptor: int) -> int:
        if self.refuses is not None:
            raise OSError(self.refuses, os.strerror(self.refuses))
        self._last += 1
        self.open.add(self._last)
        return self._last

    def backing_close(self, number: int) -> None:
        self.open.remove(number)

    def pass_through(self, handle: int, number: int) -> None:
        self.attached[handle] = number

    def answered(self, kind: Answered) -> int:
        return 0

    def request(self) -> int:
        return 0

    def on_interrupt(self, called: object) -> None:
        pass


def test_all_open_files_of_an_inode_share_its_backing_file() -> None:
    kernel = FakeKernel()
    passthrough = Passthrough(kernel)
    for handle in (10, 11):
        assert passthrough.hold(7, 3)
        passthrough.attach(7, handle)
    assert passthrough.hold(8, 4)
    passthrough.attach(8, 12)
    assert kernel.attached == {10: 1, 11: 1, 12: 2}
    passthrough.release(7)
    assert kernel.open == {1, 2}
    passthrough.release(7)
    assert kernel.open == {2}
    assert passthrough.hold(7, 3)
    passthrough.attach(7, 13)
    assert kernel.attached[13] == 3


@pytest.mark.parametrize(
    ("refuses", "says"), [(errno.EPERM, "CAP_SYS_ADMIN"), (errno.ELOOP, "overlayfs")]
)
def test_a_refusal_of_all_files_is_remembered(refuses: int, says: str) -> None:
    kernel = FakeKernel()
    passthrough = Passthrough(kernel)
    assert passthrough.describe() == ON
    kernel.refuses = refuses
    passthrough.probe(3)
    assert says in passthrough.describe()
    kernel.refuses = None
    assert not passthrough.hold(7, 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"has_passthrough": False}, "6.9"),
        ({"is_active": False}, "libfuse"),
    ],
)
def test_what_is_missing_is_named(change: dict[str, bool], says: str) -> None:
    kernel = FakeKernel()
    vars(kernel).update(change)
    assert says in Passthrough(kernel).describe()
    assert not Passthrough(kernel).hold(7, 3)
    assert "no_passthrough" in Passthrough(FakeKernel(), wanted=False).describe()
    assert "headers" in Passthrough(None).describe()


@pytest.mark.expect_log("is cached instead of passed through")
async def test_an_inode_that_was_cached_is_not_passed_through_while_it_is_known() -> None:
    kernel = FakeKernel()
    world = World(hooks=cast("Hooks", kernel))
    await world.mkdir("orders")
    await world.append("orders/0", _LINE)
    world.store.partition("orders", 0).roll(world.clock.now_ms)
    sealed = ".segments/orders-0/00000000000000000000.log"
    kernel.refuses = errno.ENOMEM
    first = await world.open(sealed)
    kernel.refuses = None
    second = await world.open(sealed)
    assert not kernel.attached
    for handle in (first, second):
        assert not handle.is_direct
        assert await world.read(handle, 0, 8) == bytes(8)
        await world.close(handle)
    await world.operations.forget([(first.inode, 2)])
    third = await world.open(sealed)
    assert kernel.attached == {third.number: 1}
    await world.close(third)
    assert not kernel.open
    world.store.close(world.clock.now_ms)
