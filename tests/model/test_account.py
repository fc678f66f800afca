"""The account of a partition finds what must not be: the model is only as good as it is."""

import pytest

from logfs.types import View
from tests.model.account import Account, Defect, Line, StopKind

WHOLE = b"00000001|whole"
PIECE = WHOLE[:10]
END = len(WHOLE) + 1


def account_of(line: Line) -> Account:
    account = Account("t/0", View.TEXT)
    account.add(line)
    return account


def whole(*, is_durable: bool = False) -> tuple[Account, Line]:
    """A line that was written in two pieces, and that a reader has seen."""
    line = Line(WHOLE[:8], WHOLE)
    account = account_of(line)
    line.accept(len(PIECE))
    line.accept(line.full)
    account.learn([(0, WHOLE)], END)
    if is_durable:
        account.flushed()
    return account, line


def piece(*, synced: int = 0) -> Account:
    """A line of which a piece was written."""
    line = Line(WHOLE[:8], WHOLE, synced=synced)
    line.accept(len(PIECE))
    return account_of(line)


@pytest.mark.parametrize("kind", StopKind)
def test_what_was_there_may_be_there(kind: StopKind) -> None:
    account, _ = whole(is_durable=True)
    account.settle([(0, WHOLE)], END, kind)
    account.settle([(0, WHOLE)], END, kind)


def test_a_kill_makes_a_line_of_a_piece() -> None:
    account = piece()
    account.settle([(0, PIECE)], len(PIECE) + 1, StopKind.KILL)
    account.settle([(0, PIECE)], len(PIECE) + 1, StopKind.KILL)


def test_a_power_cut_takes_what_was_not_synced_for_good() -> None:
    account, _ = whole()
    account.settle([], END, StopKind.POWER)
    with pytest.raises(Defect, match="was lost, and is back"):
        account.settle([(END, WHOLE)], 2 * END, StopKind.KILL)


def test_lost() -> None:
    for account in (whole()[0], piece()):
        with pytest.raises(Defect, match="lost"):
            account.settle([], END, StopKind.KILL)
    for account in (whole(is_durable=True)[0], piece(synced=9)):
        with pytest.raises(Defect, match="lost"):
            account.settle([], END, StopKind.POWER)


@pytest.mark.parametrize("again", [WHOLE, PIECE])
def test_twice(again: bytes) -> None:
    account, _ = whole(is_durable=True)
    with pytest.raises(Defect, match="2 times"):
        account.settle([(0, WHOLE), (END, again)], 2 * END, StopKind.POWER)


def test_a_power_cut_may_leave_a_piece_beside_a_line_that_was_not_synced() -> None:
    found = [(0, WHOLE), (END, PIECE)]
    account, _ = whole()
    account.settle(found, 2 * END, StopKind.POWER)
    account.settle(found, 2 * END, StopKind.KILL)
    account, _ = whole()
    with pytest.raises(Defect, match="2 times"):
        account.settle(found, 2 * END, StopKind.KILL)


def test_a_piece_in_place_of_the_line() -> None:
    account, _ = whole()
    with pytest.raises(Defect, match="more was accepted"):
        account.settle([(END, PIECE)], 2 * END, StopKind.KILL)
    account, _ = whole(is_durable=True)
    with pytest.raises(Defect, match="more was synced"):
        account.settle([(END, PIECE)], 2 * END, StopKind.POWER)
    with pytest.raises(Defect, match="a piece that was never written"):
        piece().settle([(0, PIECE[:9])], END, StopKind.POWER)


@pytest.mark.parametrize("found", [b"garbage", WHOLE + b"00000001|whole", WHOLE[:-1] + b"!"])
def test_a_line_that_no_program_wrote(found: bytes) -> None:
    account, _ = whole()
    with pytest.raises(Defect, match="no program wrote"):
        account.settle([(0, found)], END, StopKind.POWER)
    with pytest.raises(Defect, match="no program wrote"):
        account.learn([(END, found)], 2 * END)


def test_positions_that_change() -> None:
    account, _ = whole(is_durable=True)
    with pytest.raises(Defect, match="was at 0 and is at"):
        account.settle([(END, WHOLE)], 2 * END, StopKind.POWER)
    account, _ = whole()
    with pytest.raises(Defect, match="it ends at 0"):
        account.settle([], 0, StopKind.POWER)
    account, _ = whole()
    account.add(other := Line(b"00000002", b"00000002"))
    other.accept(other.full)
    with pytest.raises(Defect, match="position 0 was"):
        account.settle([(0, other.data)], END, StopKind.POWER)


def test_what_was_given_up_is_back() -> None:
    account, _ = whole(is_durable=True)
    account.gives_up(END)
    account.settle([], END, StopKind.KILL)
    account.gave_up(END)
    with pytest.raises(Defect, match="is back"):
        account.settle([(0, WHOLE)], END, StopKind.KILL)


def test_a_power_cut_may_undo_a_removal_that_a_kill_interrupted() -> None:
    account, _ = whole(is_durable=True)
    account.gives_up(END)
    account.settle([], END, StopKind.KILL)
    account.settle([(0, WHOLE)], END, StopKind.POWER)
    account.settle([], END, StopKind.KILL)
    with pytest.raises(Defect, match="was lost, and is back"):
        account.settle([(0, WHOLE)], END, StopKind.KILL)


def test_compaction_leaves_the_newest_value() -> None:
    lines = [Line(b"0000000%d" % n, b"k\t0000000%d" % n, b"k") for n in (1, 2)]
    account = Account("c/0", View.TSV)
    for line in lines:
        account.add(line)
        line.accept(line.full)
    places = [(0, lines[0].data), (11, lines[1].data)]
    account.learn(places, 22)
    account.flushed()
    account.settle(places[1:], 22, StopKind.POWER)
    with pytest.raises(Defect, match="lost"):
        account.settle(places[:1], 22, StopKind.POWER)
