"""Segment files that were removed while no daemon ran."""

import pytest

from tests.log.support import Bench, text_of

SETTINGS = {"internal.segment.bytes": "200"}


def lines(first: int, count: int) -> list[bytes]:
    return [b"line %d xxxxxxxxxxxxxxxx" % number for number in range(first, first + count)]


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
@pytest.mark.expect_log("the file is gone, with the records at offsets")
def test_a_segment_that_is_gone_after_a_clean_stop_is_a_loss(which: int) -> None:
    bench = Bench(SETTINGS)
    bench.write(*lines(0, 12))
    gone = bench.log.snapshot.segments[which]
    bench.store.close(bench.now_ms)
    bench.disk.remove(gone.name)
    bench.store = bench.open()
    log = bench.log
    (loss,) = log.losses
    assert (loss.kind, loss.file) == ("missing", gone.name)
    assert f"offsets {gone.base_offset} to " in loss.detail
    # It is told once.
    assert bench.restart().losses == [loss]


def test_segments_that_were_deleted_are_no_losses() -> None:
    bench = Bench(SETTINGS)
    bench.write(*lines(0, 12))
    bench.log.advance_log_start_offset(5, bench.now_ms)
    log = bench.restart()
    assert log.losses == []
    assert text_of(log)
