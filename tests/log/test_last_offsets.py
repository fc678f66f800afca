"""A log whose offsets come to an end: the largest is 2**63 - 1."""

import pytest

from logfs.errors import NoOffsetsLeftError
from logfs.log.writing.state import LAST_APPEND_OFFSET
from logfs.records.record import Record
from logfs.types import MAX_OFFSET
from tests.fakes import START_MS
from tests.log.support import Bench, lines_of


def ending_at(offset: int) -> Bench:
    bench = Bench()
    bench.log.replication.continue_at(offset, bench.now_ms)
    return bench


def test_a_log_takes_records_up_to_a_last_offset_and_no_record_is_lost_there() -> None:
    bench = ending_at(LAST_APPEND_OFFSET - 1)
    bench.write(b"one")
    bench.write(b"two")
    refused = bench.writer()
    with pytest.raises(NoOffsetsLeftError, match="Write to a new topic"):
        refused.write(b"three\n", bench.now_ms)
    with pytest.raises(NoOffsetsLeftError):
        refused.write(b"half a line", bench.now_ms)
    refused.close(bench.now_ms)
    with pytest.raises(NoOffsetsLeftError):
        bench.append([Record(0, START_MS, None, b"four")])
    assert bench.log.offline is None
    for log in (bench.kill(), bench.restart()):
        assert (lines_of(log), log.losses) == ([b"one", b"two"], [])


@pytest.mark.allow_log("waits: t/0 ends at offset")
def test_a_line_that_was_begun_before_the_last_offset_waits_in_its_file() -> None:
    bench = ending_at(LAST_APPEND_OFFSET)
    first, second = bench.writer(), bench.writer()
    second.write(b"begun", bench.now_ms)
    first.write(b"one\n", bench.now_ms)
    with pytest.raises(NoOffsetsLeftError):
        second.write(b" and ended\n", bench.now_ms)
    second.close(bench.now_ms)
    for log in (bench.kill(), bench.kill()):
        assert (lines_of(log), log.losses, log.offline) == ([b"one"], [], None)


@pytest.mark.parametrize("offset", [MAX_OFFSET - 1, MAX_OFFSET])
def test_a_log_that_begins_at_the_largest_offsets_is_served_and_takes_nothing(offset: int) -> None:
    bench = ending_at(offset)
    for log in (bench.kill(), bench.restart()):
        assert (lines_of(log), log.log_end_offset, log.offline) == ([], offset, None)
        with pytest.raises(NoOffsetsLeftError):
            bench.write(b"one")
    assert bench.log.losses == []
