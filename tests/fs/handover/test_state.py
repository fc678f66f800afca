"""The memory file that outlives a daemon."""

import ast
import os
import re
from pathlib import Path

import pytest

from logfs.fs.handover import state
from logfs.fs.handover.journal import KeptFile, journal_of
from logfs.fs.handover.state import HandoverState, OpenedWord, SlotWord, Stage, StateError, Word
from logfs.fs.kernel import hooks

HEADER = Path(hooks.__file__).parent / "native/handover.h"


def _number(text: str, names: dict[str, int]) -> int:
    """Compute a constant of C, which is written with ``<<``, ``+`` and ``*`` only."""
    text = re.sub(r"(?<=[0-9a-f])ull\b", "", text)
    for name, value in names.items():
        text = re.sub(rf"\b{name}\b", str(value), text)
    return int(eval(compile(ast.parse(text, mode="eval"), "<header>", "eval")))


def _constants() -> dict[str, int]:
    names: dict[str, int] = {}
    for name, text in re.findall(
        r"^#define (STATE_\w+|SLOT_\w+|OPENED_\w+) (\S.*)$", HEADER.read_text(), re.MULTILINE
    ):
        names[name] = _number(text, names)
    return names


def _members(name: str) -> list[str]:
    found = re.search(rf"^enum {name} {{(.*?)}};", HEADER.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    text = re.sub(r"/\*.*?\*/", "", found[1], flags=re.DOTALL)
    return [member.strip() for member in text.split(",") if member.strip()]


def test_the_library_and_python_have_the_same_layout() -> None:
    constants = _constants()

    assert constants["STATE_MAGIC"] == state.MAGIC
    assert constants["STATE_VERSION"] == state.VERSION
    assert constants["STATE_SLOTS_AT"] == state.SLOTS_AT
    assert constants["STATE_SLOTS"] == state.SLOTS
    assert constants["SLOT_WORDS"] == state.SLOT_WORDS
    assert constants["STATE_OPENED_AT"] == state.OPENED_AT
    assert constants["STATE_OPENED"] == state.OPENED
    assert constants["OPENED_WORDS"] == state.OPENED_WORDS
    assert constants["STATE_JOURNAL_AT"] == state.JOURNAL_AT
    assert constants["STATE_JOURNAL_BYTES"] == state.JOURNAL_BYTES
    assert constants["STATE_KEPT_AT"] == state.KEPT_AT
    assert constants["STATE_BYTES"] == state.STATE_BYTES


def test_the_library_and_python_have_the_same_words() -> None:
    assert _members("state_word") == [f"STATE_WORD_{word.name}" for word in Word] + ["STATE_WORDS"]
    assert _members("slot_word") == [f"SLOT_{word.name}" for word in SlotWord]
    assert _members("opened_word") == [f"OPENED_{word.name}" for word in OpenedWord]
    assert _members("slot_stage") == [f"SLOT_{stage.name}" for stage in Stage]


def test_a_state_is_read_again_by_another_mapping() -> None:
    first = HandoverState.create()
    first.words[Word.ADOPTIONS] = 3
    first.journal[:5] = b"bytes"

    second = HandoverState(os.dup(first.fileno()))

    assert second.words[Word.ADOPTIONS] == 3
    assert bytes(second.journal[:5]) == b"bytes"


def test_a_state_of_another_version_is_refused() -> None:
    first = HandoverState.create()
    first.words[Word.VERSION] += 1

    with pytest.raises(StateError, match=f"version {state.VERSION + 1}; expected {state.VERSION}"):
        HandoverState(os.dup(first.fileno()))


def test_a_state_of_version_1_is_read_and_is_of_this_version_then() -> None:
    first = HandoverState.create()
    first.words[Word.VERSION] = 1

    second = HandoverState(os.dup(first.fileno()))

    assert second.words[Word.VERSION] == state.VERSION


def test_files_that_were_opened_natively_get_entries_in_the_journal() -> None:
    first = HandoverState.create()
    places = [state.OPENED_AT // 8 + place * state.OPENED_WORDS for place in range(3)]
    for place, fh in zip(places, (7, 0, 9), strict=True):  # 0: it was closed
        for word, value in zip(OpenedWord, (fh, 100, os.O_APPEND, 5), strict=True):
            first.words[place + word] = value
    first.words[Word.OPENED] = 3

    for _ in range(2):
        files = journal_of(HandoverState(os.dup(first.fileno()))).files
        assert files == dict.fromkeys((7, 9), KeptFile(100, os.O_APPEND, 5))
        assert [first.words[place] for place in places] == [0, 0, 0]


def test_a_damaged_note_of_such_a_file_is_refused() -> None:
    damaged = HandoverState.create()
    damaged.words[Word.OPENED] = 1
    for word in OpenedWord:
        damaged.words[state.OPENED_AT // 8 + word] = 2**63

    with pytest.raises(StateError, match="does not decode"):
        journal_of(damaged)


def test_a_file_that_is_no_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"no state")

    with pytest.raises(StateError, match="has 8 bytes"):
        HandoverState(os.open(path, os.O_RDWR))
