"""The account of a partition finds what must not be: the model is only as good as it is."""

import pytest

from logfs.log.losses import Loss
from logfs.types import View
from tests.model.account import Account, Defect, Line, Look, StopKind

WHOLE = b"00000001|whole"
PIECE = WHOLE[:10]
END = len(WHOLE) + 1
CUT = Loss(0, "cut", "0.log", 0, 1, None, "kept")


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
    account.settle(Look([(0, WHOLE)], END), kind)
    account.settle(Look([(0, WHOLE)], END), kind)


def test_a_kill_makes_a_line_of_a_piece() -> None:
    account = piece()
    account.settle(Look([(0, PIECE)], len(PIECE) + 1), StopKind.KILL)
    account.settle(Look([(0, PIECE)], len(PIECE) + 1), StopKind.KILL)


def test_a_power_cut_takes_what_was_not_synced_for_good() -> None:
    account, _ = whole()
    account.settle(Look([], END), StopKind.POWER)
    with pytest.raises(Defect, match="was lost, and is back"):
        account.settle(Look([(END, WHOLE)], 2 * END), StopKind.KILL)


def test_lost() -> None:
    for account in (whole()[0], piece()):
        with pytest.raises(Defect, match="lost"):
            account.settle(Look([], END), StopKind.KILL)
    for account in (whole(is_durable=True)[0], piece(synced=9)):
        with pytest.raises(Defect, match="lost"):
            account.settle(Look([], END), StopKind.POWER)


@pytest.mark.parametrize("again", [WHOLE, PIECE])
def test_twice(again: bytes) -> None:
    account, _ = whole(is_durable=True)
    with pytest.raises(Defect, match="2 times"):
        account.settle(Look([(0, WHOLE), (END, again)], 2 * END), StopKind.POWER)


def test_a_power_cut_may_leave_a_piece_beside_a_line_that_was_not_synced() -> None:
    found = [(0, WHOLE), (END, PIECE)]
    account, _ = whole()
    account.settle(Look(found, 2 * END), StopKind.POWER)
    account.settle(Look(found, 2 * END), StopKind.KILL)
    account, _ = whole()
    with pytest.raises(Defect, match="2 times"):
        account.settle(Look(found, 2 * END), StopKind.KILL)


def test_a_piece_in_place_of_the_line() -> None:
    account, _ = whole()
    with pytest.raises(Defect, match="more was accepted"):
        account.settle(Look([(END, PIECE)], 2 * END), StopKind.KILL)
    account, _ = whole(is_durable=True)
    with pytest.raises(Defect, match="more was synced"):
        account.settle(Look([(END, PIECE)], 2 * END), StopKind.POWER)
    with pytest.raises(Defect, match="a piece that was never written"):
        piece().settle(Look([(0, PIECE[:9])], END), StopKind.POWER)


@pytest.mark.parametrize("found", [b"garbage", WHOLE + b"00000001|whole", WHOLE[:-1] + b"!"])
def test_a_line_that_no_program_wrote(found: bytes) -> None:
    account, _ = whole()
    with pytest.raises(Defect, match="no program wrote"):
        account.settle(Look([(0, found)], END), StopKind.POWER)
    with pytest.raises(Defect, match="no program wrote"):
        account.learn([(END, found)], 2 * END)


def test_positions_that_change() -> None:
    account, _ = whole(is_durable=True)
    with pytest.raises(Defect, match="was at 0 and is at"):
        account.settle(Look([(END, WHOLE)], 2 * END), StopKind.POWER)
    account, _ = whole()
    with pytest.raises(Defect, match="it ends at 0"):
        account.settle(Look([], 0), StopKind.POWER)
    account, _ = whole()
    account.add(other := Line(b"00000002", b"00000002"))
    other.accept(other.full)
    with pytest.raises(Defect, match="position 0 was"):
        account.settle(Look([(0, other.data)], END), StopKind.POWER)


def test_what_was_given_up_is_back() -> None:
    account, _ = whole(is_durable=True)
    account.gives_up(END)
    account.settle(Look([], END), StopKind.KILL)
    account.gave_up(END)
    with pytest.raises(Defect, match="is back"):
        account.settle(Look([(0, WHOLE)], END), StopKind.KILL)


def test_a_power_cut_may_undo_a_removal_that_a_kill_interrupted() -> None:
    account, _ = whole(is_durable=True)
    account.gives_up(END)
    account.settle(Look([], END), StopKind.KILL)
    account.settle(Look([(0, WHOLE)], END), StopKind.POWER)
    account.settle(Look([], END), StopKind.KILL)
    with pytest.raises(Defect, match="was lost, and is back"):
        account.settle(Look([(0, WHOLE)], END), StopKind.KILL)


def test_compaction_leaves_the_newest_value() -> None:
    lines = [Line(b"0000000%d" % n, b"k\t0000000%d" % n, b"k") for n in (1, 2)]
    account = Account("c/0", View.TSV)
    for line in lines:
        account.add(line)
        line.accept(line.full)
    places = [(0, lines[0].data), (11, lines[1].data)]
    account.learn(places, 22)
    account.flushed()
    account.settle(Look(places[1:], 22), StopKind.POWER)
    with pytest.raises(Defect, match="lost"):
        account.settle(Look(places[:1], 22), StopKind.POWER)


def two_unseen(owner: int) -> Account:
    """Two lines of an open file that no reader has seen."""
    account = Account("t/0", View.TEXT)
    for uid in (b"00000001", b"00000002"):
        account.add(line := Line(uid, uid, owner=owner))
        line.accept(line.full)
    return account


def test_lines_of_an_open_file_that_come_back_in_another_order() -> None:
    found = [(0, b"00000002"), (9, b"00000001")]
    two_unseen(owner=0).settle(Look(found, 18), StopKind.KILL)
    with pytest.raises(Defect, match="out of order"):
        two_unseen(owner=1).settle(Look(found, 18), StopKind.KILL)


def test_a_loss_that_is_none() -> None:
    account, _ = whole()
    account.settle(Look([(0, WHOLE)], END, [CUT]), StopKind.POWER)
    for kind, is_durable in ((StopKind.KILL, False), (StopKind.POWER, True)):
        account, _ = whole(is_durable=is_durable)
        with pytest.raises(Defect, match="a loss that is none"):
            account.settle(Look([(0, WHOLE)], END, [CUT]), kind)


def test_a_line_that_is_set_aside_and_not_told() -> None:
    account, _ = whole()
    account.settle(Look([], END, [CUT], copies={"0.cut": WHOLE}), StopKind.POWER)
    account, _ = whole()
    with pytest.raises(Defect, match="a loss that is not told"):
        account.settle(Look([], END, copies={"0.cut": WHOLE}), StopKind.POWER)


def test_a_partition_that_is_offline() -> None:
    account, _ = whole()
    with pytest.raises(Defect, match="offline: no room"):
        account.settle(Look([(0, WHOLE)], END, offline="no room"), StopKind.KILL)


def test_a_read_only_mount_that_shows_other_records_than_recovery_keeps() -> None:
    account = two_unseen(owner=1)
    rows = [(0, b"00000001"), (9, b"00000002")]
    account.check_read_only(rows, rows)
    for shown, kept in ((rows, rows[:1]), (rows[:1], rows), (rows[:1], [(9, rows[0][1])])):
        with pytest.raises(Defect, match="read-only"):
            account.check_read_only(shown, kept)
    unfinished = piece()
    unfinished.check_read_only([], [(0, PIECE)])


def test_offsets_that_lead_elsewhere() -> None:
    account, _ = whole()
    account.note_offsets([(0, WHOLE)], {7: 0, 8: END})
    with pytest.raises(Defect, match="had offset 7, and has 8"):
        account.note_offsets([(0, WHOLE)], {8: 0})
    with pytest.raises(Defect, match="no offset"):
        account.note_offsets([(0, WHOLE)], {7: END})
