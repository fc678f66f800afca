"""An index file against a plain list of entries: any changes, failures and restarts."""

import errno

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logfs.log.indexes.indexfile import IndexFile
from logfs.log.indexes.textindex import TEXT_INDEX
from tests.fakes import FakeDisk

NAME = "orders-0/00000000000000000000.textindex"


class IndexMachine(RuleBasedStateMachine):
    """The index is a list of entries, after any failure of its file."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FakeDisk()
        self.disk.make_directory("orders-0")
        self.model: list[bytes] = []
        self.index = self.opened(count=0)
        self.number = 0

    def opened(self, count: int | None) -> IndexFile:
        return IndexFile(self.disk, NAME, TEXT_INDEX, capacity_bytes=2000, count=count)

    @rule(count=st.integers(0, 12))
    def append(self, count: int) -> None:
        new = []
        for _ in range(count):
            self.number += 1
            new.append(self.number.to_bytes(32, "big"))
        if self.index.is_full(count - 1):
            return
        self.index.append(b"".join(new))
        self.model += new

    @rule(after=st.integers(0, 40))
    def fail_to_append(self, after: int) -> None:
        if self.index.is_full():
            return
        self.disk.fail_next_write("*", errno.ENOSPC, after)
        with pytest.raises(OSError, match="No space left"):
            self.index.append(b"?" * 32)

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(0, len(self.model)))
        self.index.truncate_entries(count)
        del self.model[count:]

    @rule()
    def sync(self) -> None:
        self.index.sync()

    @rule()
    def let_go(self) -> None:
        self.index.release()

    @rule()
    def stop_cleanly(self) -> None:
        self.index.trim()
        self.index.sync()
        self.index.close()
        self.index = self.opened(count=None)

    @rule()
    def be_killed_and_recover_the_count(self) -> None:
        self.disk = self.disk.after_kill()
        self.index = self.opened(count=len(self.model))

    @precondition(lambda self: self.model)
    @rule()
    def seal_and_go_on_behind_it(self) -> None:
        self.index.seal()
        assert bytes(self.index.entries()) == b"".join(self.model)
        self.index = self.opened(count=None)

    @invariant()
    def holds_the_entries(self) -> None:
        assert bytes(self.index.entries()) == b"".join(self.model)
        assert self.index.count == len(self.model)


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=20)
