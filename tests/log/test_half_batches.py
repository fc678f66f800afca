"""A batch whose append was cut short by a kill is no loss; what was acknowledged and is gone is."""

from collections.abc import Mapping

import pytest

from logfs.log.loading import recovery
from logfs.log.loading.recovery import PAGE_BYTES
from logfs.log.writing.reservation import RESERVED_BYTES
from logfs.records.batch import BatchHeader
from tests.log.support import TP, Bench, batches_in, lines_of, log_name

LINES = [b"first", b"second", b"third"]


PREALLOCATED = {"preallocate": "true", "internal.segment.bytes": "2000"}


def written(*lines: bytes, properties: Mapping[str, str] | None = None) -> Bench:
    bench = Bench(properties)
    bench.write(*lines)
    return bench


def batches_of(bench: Bench) -> list[tuple[int, BatchHeader]]:
    return batches_in(bench.file(log_name(0))[: bench.log.snapshot.end.file_size])


def cut_last(bench: Bench, kept: int) -> bytes:
    """Leave so many bytes of the last batch, as a kill within its pwrite does; returns them.

    In a preallocated file zeros follow.
    """
    data = bench.file(log_name(0))
    stop = batches_of(bench)[-1][0] + kept
    preallocated = len(data) - bench.log.snapshot.end.file_size
    bench.put(log_name(0), data[:stop] + bytes(preallocated and len(data) - stop))
    return data[stop - kept : stop]


def size_of_last(bench: Bench) -> int:
    return batches_of(bench)[-1][1].size_bytes


@pytest.mark.parametrize("kept", [1, 8, 16, 17, 18, 26, 27, 60, 61, 62, -1])
def test_half_a_batch_at_the_end_is_no_loss_after_a_kill(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "PAGE_BYTES", 1)
    bench = written(*LINES)
    offset = bench.log.log_end_offset - 1
    half = cut_last(bench, kept % size_of_last(bench))
    shown = bench.open(bench.disk.after_kill(), read_only=True).partition(*TP)
    assert (shown.losses, lines_of(shown)) == ([], LINES[:2])
    log = bench.kill()
    assert log.losses == []
    assert lines_of(log) == LINES[:2]
    assert log.log_end_offset == offset
    assert log.snapshot.end.positions.text == len(b"first\nsecond\n"), "no position is passed over"
    assert len(log.snapshot.segments) == 1
    assert [bench.file(copy) for copy in bench.names(".cut")] == ([half] if any(half) else [])
    bench.write(b"next")
    assert lines_of(bench.kill()) == [*LINES[:2], b"next"]


@pytest.mark.parametrize("kept", range(PAGE_BYTES - 2, PAGE_BYTES + 3))
def test_positions_continue_after_half_a_batch_only_where_a_kill_can_end_a_write(kept: int) -> None:
    bench = written(b"x" * 2 * PAGE_BYTES)
    cut_last(bench, kept)
    log = bench.kill()
    assert (log.losses, log.snapshot.end.offset) == ([], 0)
    end = log.snapshot.end.positions.text
    assert end == (0 if kept == PAGE_BYTES else RESERVED_BYTES + 2 * PAGE_BYTES + 1)


@pytest.mark.parametrize("kept", [1, 8, 11, 12, 17, 26, 27, 60, 61, 62, 68])
def test_half_a_batch_in_a_preallocated_file_is_no_loss_after_a_kill(kept: int) -> None:
    bench = written(*LINES, properties=PREALLOCATED)
    half = cut_last(bench, kept).rstrip(b"\0")
    shown = bench.open(bench.disk.after_kill(), read_only=True).partition(*TP)
    assert (shown.losses, lines_of(shown)) == ([], LINES[:2])
    log = bench.kill()
    assert log.losses == []
    assert lines_of(log) == LINES[:2]
    assert [bench.file(copy) for copy in bench.names(".cut")] == ([half] if half else [])
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
@pytest.mark.parametrize("properties", [{}, PREALLOCATED])
def test_half_a_batch_that_was_flushed_is_a_loss(properties: Mapping[str, str]) -> None:
    bench = written(*LINES, properties=properties)
    bench.log.flush()
    bench.store.checkpoint()
    cut_last(bench, 70)
    (loss,) = bench.kill().losses
    assert loss.kind == "cut"


@pytest.mark.expect_log("no whole batch")
@pytest.mark.parametrize("properties", [{}, PREALLOCATED])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("length", [90, 250, 100_000])
def test_a_batch_whose_length_is_damaged_is_a_loss(
    length: int, number: int, properties: Mapping[str, str]
) -> None:
    bench = written(*LINES, properties=properties)
    data = bytearray(bench.file(log_name(0)))
    position = batches_of(bench)[number][0]
    data[position + 8 : position + 12] = length.to_bytes(4, "big")
    bench.put(log_name(0), bytes(data))
    stop = len(data.rstrip(b"\0")) if properties else len(data)
    (loss,) = bench.kill().losses
    assert (loss.kind, loss.bytes) == ("cut", stop - position)


@pytest.mark.expect_log("no whole batch")
@pytest.mark.parametrize("tail", [b"\xff" * 5, b"junk" * 30, bytes(7) + b"\x03" + bytes(60)])
def test_a_tail_that_no_append_has_begun_is_a_loss(tail: bytes) -> None:
    bench = written(*LINES)
    bench.put(log_name(0), bench.file(log_name(0)) + tail)
    (loss,) = bench.kill().losses
    assert (loss.kind, loss.bytes) == ("cut", len(tail))
