"""A batch whose append was cut short by a kill is no loss; what was acknowledged and is gone is."""

import pytest

from tests.log.support import TP, Bench, batches_in, lines_of, log_name

LINES = [b"first", b"second", b"third"]


def written(*lines: bytes) -> Bench:
    bench = Bench()
    bench.write(*lines)
    return bench


def cut_last(bench: Bench, kept: int) -> bytes:
    """Leave so many bytes of the last batch, as a kill within its pwrite does; returns them."""
    data = bench.file(log_name(0))
    position = batches_in(data)[-1][0]
    bench.put(log_name(0), data[: position + kept])
    return data[position : position + kept]


def size_of_last(bench: Bench) -> int:
    return batches_in(bench.file(log_name(0)))[-1][1].size_bytes


@pytest.mark.parametrize("kept", [1, 8, 16, 17, 18, 26, 27, 60, 61, 62, -1])
def test_half_a_batch_at_the_end_is_no_loss_after_a_kill(kept: int) -> None:
    bench = written(*LINES)
    offset = bench.log.log_end_offset - 1
    half = cut_last(bench, kept % size_of_last(bench))
    shown = bench.open(bench.disk.after_kill(), read_only=True).partition(*TP)
    assert (shown.losses, lines_of(shown)) == ([], LINES[:2])
    log = bench.kill()
    assert log.losses == []
    assert lines_of(log) == LINES[:2]
    assert log.log_end_offset == offset
    assert [bench.file(copy) for copy in bench.names(".cut")] == ([half] if any(half) else [])
    bench.write(b"next")
    assert lines_of(bench.kill()) == [*LINES[:2], b"next"]


@pytest.mark.expect_log("no whole batch")
def test_half_a_batch_after_a_power_cut_is_a_loss_for_it_may_have_been_shown() -> None:
    bench = written(*LINES)
    half = cut_last(bench, 70)
    bench.new_boot()
    (loss,) = bench.kill().losses
    assert (loss.kind, loss.bytes) == ("cut", len(half))


@pytest.mark.expect_log("no whole batch")
def test_half_a_batch_that_was_flushed_is_a_loss() -> None:
    bench = written(*LINES)
    bench.log.flush()
    bench.store.checkpoint()
    cut_last(bench, 70)
    (loss,) = bench.kill().losses
    assert loss.kind == "cut"


@pytest.mark.expect_log("no whole batch")
@pytest.mark.parametrize("number", range(3))
def test_a_batch_whose_length_is_damaged_is_a_loss(number: int) -> None:
    bench = written(*LINES)
    data = bytearray(bench.file(log_name(0)))
    position = batches_in(bytes(data))[number][0]
    data[position + 8 : position + 12] = (100_000).to_bytes(4, "big")
    bench.put(log_name(0), bytes(data))
    (loss,) = bench.kill().losses
    assert (loss.kind, loss.bytes) == ("cut", len(data) - position)


@pytest.mark.expect_log("no whole batch")
@pytest.mark.parametrize("tail", [b"\xff" * 5, b"junk" * 30, bytes(7) + b"\x03" + bytes(60)])
def test_a_tail_that_no_append_has_begun_is_a_loss(tail: bytes) -> None:
    bench = written(*LINES)
    bench.put(log_name(0), bench.file(log_name(0)) + tail)
    (loss,) = bench.kill().losses
    assert (loss.kind, loss.bytes) == ("cut", len(tail))
