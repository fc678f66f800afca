"""The journal of a mount: what a successor reads after a kill at any moment."""

import os
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logfs.fs.handover.journal import (
    ANSWERS,
    CLIENTS,
    Journal,
    KeptFile,
    KeptLine,
    NoJournal,
    journal_of,
)
from logfs.fs.handover.state import HandoverState, StateError, Word
from logfs.services.views.files import Passage
from logfs.types import View

HALF = 16 * 1024


class Memory:
    """The words and the area of a journal; ``stored`` runs after every store, whole or torn."""

    def __init__(self) -> None:
        self.words = Words(self)
        self.area = Area(self)
        self.punched: list[tuple[int, int]] = []
        self.stored: Callable[[], None] = lambda: None

    def punch(self, start: int, length: int) -> None:
        self.punched.append((start, length))
        self.area.data[start : start + length] = bytes(length)
        self.stored()

    def journal(self, spare_bytes: int = 1000) -> Journal:
        return Journal(self.words, self.area, self.punch, spare_bytes)

    def successor(self) -> Journal:
        """Read a copy, as the next daemon does after a kill now."""
        return Journal(list(self.words), memoryview(bytearray(self.area.data)))


class Words(list[int]):
    """The words of the header."""

    def __init__(self, memory: Memory) -> None:
        super().__init__([0, 0, 0])
        self.memory = memory

    def __setitem__(self, index: int, value: int) -> None:  # type: ignore[override]
        super().__setitem__(index, value)
        self.memory.stored()


class Area:
    """The two halves; a kill may come in the middle of a store."""

    def __init__(self, memory: Memory) -> None:
        self.data = bytearray(2 * HALF)
        self.memory = memory

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, part: slice) -> bytes:
        return bytes(self.data[part])

    def __setitem__(self, part: slice, data: bytes) -> None:
        assert part.stop - part.start == len(data)
        middle = len(data) // 2
        self.data[part.start : part.start + middle] = data[:middle]
        self.memory.stored()
        self.data[part] = data
        self.memory.stored()


def state_of(journal: Journal) -> tuple[object, ...]:
    """Return all that a successor has to know, except for the nodes."""
    answers = {(client, n): journal.answer(client, n) for client in range(3) for n in range(10)}
    return (
        *(journal.identity, dict(journal.files), dict(journal.directories), dict(journal.lines)),
        *(dict(journal.poll_handles), dict(journal.backings), journal.all_begun(), answers),
        dict(journal.passages),
    )


def do_something(journal: Journal, chance: random.Random) -> None:
    """Note one entry, of any kind, about one of a few handles and inodes."""
    number, other = chance.randrange(1, 60), chance.randrange(1, 60)
    calls: list[Callable[[], None]] = [
        lambda: journal.node(number, f"plain orders {number}"),
        lambda: journal.forgotten(number),
        lambda: journal.opened(number, other, 1025, 1000),
        lambda: journal.opened(number, other, 0, 0),
        lambda: journal.opened_directory(number + 100, other, 7),
        lambda: journal.released(number),
        lambda: journal.released(number + 100),
        lambda: journal.unfinished(number, View.TSV, f"logfs.{other}.unfinished"),
        lambda: journal.unfinished(number, View.TEXT, ""),
        lambda: journal.polls(number, 2**63 + other),
        lambda: journal.passed(number, Passage(other, 5, other + 7, 2**40)),
        lambda: journal.backing(number, other),
        lambda: journal.backing(number, 0),
        lambda: journal.begin(number, 2, "orders"),
        lambda: journal.end(number),
        lambda: journal.answered(number % 3, other % 10, b"answer"),
    ]
    chance.choice(calls)()


@settings(max_examples=20, deadline=None)
@given(st.integers(min_value=0), st.integers(min_value=120, max_value=250))
def test_a_kill_between_any_two_stores_leaves_the_entries_before_or_after(
    seed: int, count: int
) -> None:
    memory, chance = Memory(), random.Random(seed)
    journal = memory.journal()
    journal.identify("data at /srv/logs")
    before = state_of(journal)
    found: list[tuple[object, ...]] = []

    def look() -> None:
        successor = memory.successor()
        found.append(state_of(successor))
        assert successor.nodes.items() >= known.items()

    memory.stored = look
    for _ in range(count):
        known = dict(journal.nodes)
        do_something(journal, chance)
        after = state_of(journal)
        # The entry becomes valid with one store, and stays.
        steps = [state == after for state in found]
        assert all(state in (before, after) for state in found)
        assert before == after or steps == sorted(steps)
        found.clear()
        before = after
    assert state_of(memory.successor()) == state_of(journal)
    assert memory.punched, "the other half was never used"


def test_ten_thousand_opens_and_closes_need_no_more_room_than_the_files_that_are_open() -> None:
    memory = Memory()
    journal = memory.journal()
    journal.identify("a mount")
    for fh in range(50):
        journal.opened(fh, fh + 1, 1, 2)
    for fh in range(100, 10_000):
        journal.opened(fh, 5, 1, 2)
        journal.released(fh)
        assert memory.words[1 + memory.words[0]] < 12_000

    assert set(memory.successor().files) == set(range(50))


def test_a_node_that_was_forgotten_is_gone_after_the_next_compaction() -> None:
    memory = Memory()
    journal = memory.journal()
    journal.node(9, "plain orders 0")
    journal.forgotten(9)
    assert 9 in memory.successor().nodes
    while not memory.punched:
        journal.opened(1, 2, 3, 4)

    assert memory.successor().nodes == {}


@pytest.mark.expect_log("no room for 510 open files")
def test_a_journal_without_room_says_nothing_any_more() -> None:
    memory = Memory()
    journal = memory.journal()
    journal.identify("a mount")
    for fh in range(1000):
        journal.opened(fh, fh, 0, 0)

    assert memory.successor().identity == ""
    assert memory.successor().files == {}
    assert len(journal.files) == 1000


def test_the_answers_of_each_client_are_the_last_ones() -> None:
    journal = Memory().journal()
    for number in range(2 * ANSWERS):
        journal.answered(7, number, b"%d" % number)

    kept = [n for n in range(2 * ANSWERS) if journal.answer(7, n) == b"%d" % n]
    assert kept == list(range(ANSWERS, 2 * ANSWERS))


def test_the_clients_whose_answers_are_kept_are_those_answered_last() -> None:
    memory = Memory()
    journal = memory.journal()
    for client in range(CLIENTS):
        journal.answered(client, 1, b"first")
    journal.answered(0, 2, b"second")
    journal.answered(999, 1, b"of a new client")

    for read in (journal, memory.successor()):
        assert read.answer(0, 2) == b"second"
        assert read.answer(1, 1) is None
        assert read.answer(999, 1) == b"of a new client"


def test_a_closed_file_has_no_line_and_no_poll_handle() -> None:
    memory = Memory()
    journal = memory.journal()
    journal.opened(4, 5, 0x401, 1000)
    journal.unfinished(4, View.JSONL, "logfs.3.unfinished")
    journal.polls(4, 77)
    journal.passed(4, Passage(0, 0, 10, 50))
    successor = memory.successor()
    assert successor.files == {4: KeptFile(5, 0x401, 1000)}
    assert successor.lines == {4: KeptLine(View.JSONL, "logfs.3.unfinished")}
    assert successor.poll_handles == {4: 77}
    assert successor.passages == {4: (Passage(0, 0, 10, 50),)}

    journal.released(4)
    successor = memory.successor()
    assert (successor.files, successor.lines, successor.poll_handles) == ({}, {}, {})
    assert successor.passages == {}


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ([2, 0, 0], b""),
        ([0, 2 * HALF, 0], b""),
        ([0, 20, 0], b""),
        ([0, 32, 0], b"\x63" + bytes(31)),
        ([0, 33, 0], b"\x01\0\0\0\x01" + bytes(27) + b"\xff"),
    ],
    ids=["third half", "too long", "cut entry", "unknown kind", "no text"],
)
def test_a_damaged_journal_is_refused(words: list[int], data: bytes) -> None:
    area = bytearray(2 * HALF)
    area[: len(data)] = data

    with pytest.raises(StateError, match="does not decode"):
        Journal(words, memoryview(area))


def test_a_successor_reads_the_journal_of_the_state_and_its_old_half_takes_no_memory() -> None:
    state = HandoverState.create()
    journal = journal_of(state)
    journal.identify("a mount")
    journal.opened(1, 2, 3, 4)
    for fh in range(5, 20_000):
        journal.opened(fh, 2, 3, 4)
        journal.released(fh)

    assert state.words[Word.JOURNAL_HALF] == 1
    assert os.fstat(state.fileno()).st_blocks * 512 < 500_000
    successor = journal_of(HandoverState(os.dup(state.fileno())))
    assert (successor.identity, successor.files) == ("a mount", {1: KeptFile(2, 3, 4)})


def test_without_a_holder_nothing_is_kept() -> None:
    journal = NoJournal()
    journal.identify("a mount")
    journal.node(1, "root")
    journal.opened(1, 2, 3, 4)
    journal.begin(5, 1)

    assert not journal.is_kept
    assert (journal.nodes, journal.files, journal.begun(5)) == ({}, {}, None)
