"""Retention and trim keep what was not forwarded."""

from datetime import UTC

import pytest

from logfs.errors import HeldError, InvalidConfigError
from logfs.log.forwardfile import (
    NO_HOLD,
    NO_LIMIT,
    ForwardFile,
    ForwardIdentity,
    ForwardPosition,
    read_note,
)
from logfs.log.reading.address import parse_partition_name
from logfs.services.retention.logs import apply_retention
from logfs.services.retention.trimming import offset_to_keep, trim
from tests.log.support import DIRECTORY, Bench

NAME = "logfs.forward-0000002a"
PATH = f"{DIRECTORY}/{NAME}"
CONFIG = {"internal.segment.bytes": "300", "retention.bytes": "0", "retention.ms": "-1"}
WHERE = ForwardIdentity("cluster", "b1:9092", "there", "id", "same", 1, 7, 0, 0)


def a_log() -> Bench:
    bench = Bench(CONFIG)
    bench.write(*(b"line %02d " % number + b"x" * 50 for number in range(20)))
    return bench


def forward_to(bench: Bench, hold_bytes: int = NO_LIMIT) -> ForwardFile:
    return ForwardFile.create(bench.disk, PATH, WHERE._replace(hold_bytes=hold_bytes))


def test_retention_deletes_what_was_forwarded_and_no_more() -> None:
    bench = a_log()
    file = forward_to(bench)
    assert apply_retention(bench.log, bench.now_ms).segments == 0
    file.hold(ForwardPosition(11))
    assert apply_retention(bench.log, bench.now_ms).segments > 0
    assert 5 < bench.log.log_start_offset <= 11
    assert not bench.log.losses
    file.hold(ForwardPosition(20))
    apply_retention(bench.log, bench.now_ms)
    assert bench.log.log_start_offset == 20


@pytest.mark.allow_log("not forwarded")
def test_beyond_its_limit_retention_wins_and_it_is_a_loss() -> None:
    bench = a_log()
    forward_to(bench, 700).hold(ForwardPosition(3))
    apply_retention(bench.log, bench.now_ms)
    start = bench.log.log_start_offset
    assert 3 < start < 20
    (loss,) = bench.log.losses
    assert loss.kind == "not forwarded"
    assert f"offsets 3 to {start - 1} were deleted before they were forwarded" in loss.detail


def test_a_forward_without_a_hold_keeps_nothing() -> None:
    bench = a_log()
    forward_to(bench, NO_HOLD)
    apply_retention(bench.log, bench.now_ms)
    assert bench.log.log_start_offset == 20
    assert not bench.log.losses


def test_trim_refuses_to_delete_what_was_not_forwarded() -> None:
    bench = a_log()
    forward_to(bench).hold(ForwardPosition(8))
    keep = parse_partition_name("0@offset=9", UTC)
    offset = offset_to_keep(bench.log, keep, bench.now_ms)
    with pytest.raises(HeldError, match=r"offsets from 8 on were not forwarded to kafka://b1"):
        trim(bench.log, offset, bench.now_ms)
    trim(bench.log, 8, bench.now_ms)
    assert bench.log.log_start_offset == 8
    trim(bench.log, 9, bench.now_ms, even_if_held=True)
    assert bench.log.log_start_offset == 9


def test_a_power_cut_leaves_positions_that_fit_each_other() -> None:
    for seed in range(60):
        bench = a_log()
        file = forward_to(bench)
        for number in range(1, 12):
            file.put(0, ForwardPosition(number, number, 100 + number, number))
            if number % 3 == 0:
                file.hold(ForwardPosition(number))
        bench.disk.crash(seed)
        again = ForwardFile.open(bench.disk, PATH)
        position, held = again.position(0), again.held()
        assert position is not None
        assert held.next_offset <= position.next_offset <= 11
        assert position.next_offset >= 9  # which a sync made durable
        assert position.records == position.next_offset
        assert again.position(5) is None


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version": 1}', b'{"version": 9}'])
def test_a_file_that_does_not_parse_holds_everything(data: bytes) -> None:
    bench = a_log()
    bench.put(NAME, data)
    assert read_note(bench.disk, DIRECTORY, NAME).held_offset == 0
    apply_retention(bench.log, bench.now_ms)
    assert bench.log.log_start_offset == 0


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"{", " does not parse: expected JSON with a version. Restore it, or remove it"),
        (b'{"version": 1}', " does not parse: expected the fields of a forward. Restore it, or"),
        (b'{"version": 9}', ": a version after 2, the last that this logfs reads: use a newer"),
    ],
)
def test_trim_names_the_file_that_does_not_parse(data: bytes, what: str) -> None:
    bench = a_log()
    bench.put(NAME, data)
    with pytest.raises(HeldError, match="or use --even-if-not-forwarded") as caught:
        trim(bench.log, 9, bench.now_ms)
    assert PATH + what in str(caught.value)
    assert "kafka://" not in str(caught.value)
    trim(bench.log, 9, bench.now_ms, even_if_held=True)
    assert bench.log.log_start_offset == 9


def test_a_report_that_is_torn_is_left_out() -> None:
    bench = a_log()
    file = forward_to(bench)
    file.report({"state": "forwarding", "error": ""})
    assert read_note(bench.disk, DIRECTORY, NAME).report["state"] == "forwarding"
    bench.disk.open(PATH, write=True).pwrite(b"\xff{", 4096)
    assert read_note(bench.disk, DIRECTORY, NAME).report == {}


def test_of_a_report_that_was_changed_only_known_facts_are_read() -> None:
    bench = a_log()
    file = forward_to(bench)
    known = {"state": "forwarding", "records": 3, "produce_seconds": 0.5}
    changed: dict[str, object] = {
        "acknowledged": None,
        "error": 5,
        "bytes": "many",
        "to": [],
        "held_offset": "x",
    }
    file.report({**known, **changed})
    note = read_note(bench.disk, DIRECTORY, NAME)
    assert note.report == known
    assert note.as_json(20, None)["acknowledged"] is None
    assert note.as_json(20, None)["held_offset"] == 0


def test_a_report_with_a_long_error_is_read() -> None:
    bench = a_log()
    file = forward_to(bench)
    file.report({"state": "failed", "error": "\N{SNOWMAN}" * 1000, "records": 3})
    report = read_note(bench.disk, DIRECTORY, NAME).report
    assert report["records"] == 3
    assert report["error"] == "\N{SNOWMAN}" * 500


def test_too_many_brokers_are_refused_and_the_note_stays() -> None:
    bench = a_log()
    file = forward_to(bench)
    names = ",".join(f"broker-{number}.example:9092" for number in range(200))
    with pytest.raises(InvalidConfigError, match=r"\d+ too many: name fewer"):
        file.change(file.identity._replace(bootstrap=names))
    assert read_note(bench.disk, DIRECTORY, NAME).identity == WHERE


def test_a_position_that_was_held_after_a_failed_sync_survives_a_power_cut() -> None:
    bench = a_log()
    file = forward_to(bench)
    file.put(0, ForwardPosition(5))
    bench.disk.fail_next_sync(f"*{NAME}")
    file.hold(ForwardPosition(5))
    file.sync()
    bench.disk.crash(None)
    file = ForwardFile.open(bench.disk, PATH)
    assert (file.held().next_offset, file.position(0)) == (5, ForwardPosition(5))
