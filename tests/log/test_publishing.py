"""Staged records are published exactly once, however often it is tried and wherever it stops."""

import contextlib
import errno
import json
import logging
from collections.abc import Sequence
from functools import partial

import pytest

from logfs.errors import CorruptCheckpointError, DataLossError, UnsupportedFormatError
from logfs.log.names import format_ledger_file
from logfs.log.publishing.ledger import read_ledger
from logfs.log.publishing.publish import publish
from logfs.log.publishing.staging import PublishOptions, StagedFile, StagingWriter, query_key
from logfs.records.batch import decode_records
from logfs.records.record import Record
from logfs.services.retention.trimming import trim
from tests.fakes import START_MS, FakeDisk
from tests.fakestate import Stopped
from tests.log.publishing import (
    QUERY,
    SMALL,
    UP,
    half_published,
    lines_in,
    publish_up_to,
    stage,
    staged_names,
    two_topics,
    values_of,
)
from tests.log.support import DIRECTORY, TP, Bench, batches_in


def test_staged_records_are_read_once() -> None:
    bench = two_topics()
    bench.write(b"before")
    first, second = values_of("a", 7), values_of("b", 4)
    staged = [stage(bench.disk, first), stage(bench.disk, second, to=UP)]
    assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == [b"before", *first]
    assert lines_in(bench.store, "u") == second
    assert staged_names(bench.disk) == []
    bench.crash()
    assert lines_in(bench.store) == [b"before", *first]


def test_a_published_batch_is_not_published_again() -> None:
    bench = two_topics()
    for batch in range(3):
        staged = stage(bench.disk, values_of(f"batch{batch}", 4), batch=batch)
        assert publish(bench.store, QUERY, batch, [staged], bench.now_ms)
        bench.write(b"another")
    again = [stage(bench.disk, values_of("again", 2), batch=batch) for batch in (1, 2)]
    assert not publish(bench.store, QUERY, 2, again, bench.now_ms)
    assert not publish(bench.store, QUERY, 1, [], bench.now_ms)
    assert staged_names(bench.disk) == []
    expected = [[*values_of(f"batch{batch}", 4), b"another"] for batch in range(3)]
    assert lines_in(bench.store) == [line for lines in expected for line in lines]


@pytest.mark.parametrize("is_begun", [False, True], ids=["published", "begun"])
def test_a_batch_that_comes_again_with_more_records_is_a_loss(*, is_begun: bool) -> None:
    bench = two_topics()
    for batch in range(3):
        staged = stage(bench.disk, values_of(f"batch{batch}", 4), batch=batch)
        if is_begun and batch == 2:
            half_published(bench, [staged], batch)
        else:
            publish(bench.store, QUERY, batch, [staged], bench.now_ms)
    before = lines_in(bench.store)
    more = [
        stage(bench.disk, values_of("more", 4), batch=2),
        stage(bench.disk, values_of("up", 1), batch=2, to=UP),
    ]
    with pytest.raises(DataLossError, match="5 records, but was published with 4"):
        publish(bench.store, QUERY, 2, more, bench.now_ms)
    if not is_begun:
        assert lines_in(bench.store) == before
    assert lines_in(bench.store, "u") == []
    again = stage(bench.disk, values_of("again", 4), batch=2)
    assert not publish(bench.store, QUERY, 2, [again], bench.now_ms)
    next_one = stage(bench.disk, values_of("next", 9), batch=3)
    assert publish(bench.store, QUERY, 3, [next_one], bench.now_ms)


@pytest.mark.expect_log("2 records are left out")
def test_more_records_of_a_batch_are_left_out_if_that_is_asked_for() -> None:
    bench = two_topics()
    publish(bench.store, QUERY, 0, [stage(bench.disk, values_of("old", 4))], bench.now_ms)
    more = stage(bench.disk, values_of("new", 6))
    assert not publish(
        bench.store, QUERY, 0, [more], bench.now_ms, PublishOptions(fails_on_loss=False)
    )
    assert lines_in(bench.store) == values_of("old", 4)
    assert staged_names(bench.disk) == []


def test_a_ledger_keeps_the_numbers_of_the_last_batches_and_the_topics() -> None:
    bench = two_topics()
    for batch in range(103):
        staged = [stage(bench.disk, values_of("x", batch % 3 + 1), batch=batch)]
        publish(bench.store, QUERY, batch, staged if batch else [], bench.now_ms)
    ledger = read_ledger(bench.disk, QUERY)
    assert ledger.batch_records == {batch: batch % 3 + 1 for batch in range(3, 103)}
    assert (ledger.done, sorted(ledger.topics)) == (102, ["t"])


def test_a_ledger_of_an_older_version_has_no_numbers() -> None:
    bench = two_topics()
    publish(bench.store, QUERY, 0, [stage(bench.disk, values_of("old", 4))], bench.now_ms)
    name = format_ledger_file(query_key(QUERY))
    fields = json.loads(bench.disk.read(name))
    del fields["batch_records"], fields["topics"]
    bench.disk.replace(name, json.dumps(fields).encode())
    again = stage(bench.disk, values_of("again", 9))
    assert not publish(bench.store, QUERY, 0, [again], bench.now_ms)


def test_queries_are_independent() -> None:
    bench = two_topics()
    for query in ("one", "two"):
        staged = stage(bench.disk, values_of(query, 2), query=query)
        assert publish(bench.store, query, 0, [staged], bench.now_ms)
    assert lines_in(bench.store) == [*values_of("one", 2), *values_of("two", 2)]


def test_staged_files_of_other_attempts_are_removed() -> None:
    bench = two_topics()
    stage(bench.disk, values_of("lost", 2))
    stage(bench.disk, values_of("newer", 2), batch=1)
    stage(bench.disk, values_of("theirs", 2), query="another")
    winner = stage(bench.disk, values_of("won", 2))
    assert publish(bench.store, QUERY, 0, [winner], bench.now_ms)
    assert lines_in(bench.store) == values_of("won", 2)
    assert len(staged_names(bench.disk)) == 2


def test_a_batch_without_records_is_published() -> None:
    bench = two_topics()
    assert publish(bench.store, QUERY, 0, [], bench.now_ms)
    assert not publish(bench.store, QUERY, 0, [], bench.now_ms)
    assert lines_in(bench.store) == []


def test_sequence_numbers_continue_and_the_log_is_a_producers() -> None:
    bench = two_topics()
    for batch in range(2):
        staged = stage(bench.disk, values_of("v", 7), batch=batch)
        publish(bench.store, QUERY, batch, [staged], bench.now_ms)
    headers = [header for name in bench.names(".log") for _, header in batches_in(bench.file(name))]
    assert [header.base_sequence for header in headers] == [0, 3, 6, 7, 10, 13]
    assert len({header.producer_id for header in headers}) == 1


MUTATIONS = {"open", "pwrite", "truncate", "rename", "remove", "sync", "sync_directory"}


def states_while_publishing(
    bench: Bench, staged: Sequence[StagedFile], power: bool
) -> list[FakeDisk]:
    """The disk as it is found after a stop before each operation, and after the last."""
    disk = bench.disk
    states: list[FakeDisk] = []

    def look(operation: str, _name: str, _size: int) -> None:
        if operation in MUTATIONS:
            disk.before = None
            seed = len(states) if len(states) % 3 else None
            states.append(disk.after_crash(seed) if power else disk.after_kill())
            disk.before = look

    disk.before = look
    publish(bench.store, QUERY, 4, staged, bench.now_ms)
    disk.before = None
    return [*states, disk.after_crash(None) if power else disk.after_kill()]


@pytest.mark.allow_log("are no whole batch")
@pytest.mark.parametrize("power", [False, True])
def test_a_stop_at_any_step_loses_nothing_and_repeats_nothing(power: bool) -> None:
    bench = two_topics()
    bench.write(b"before")
    publish(bench.store, QUERY, 3, [stage(bench.disk, values_of("old", 5), batch=3)], bench.now_ms)
    bench.log.flush()
    old = [b"before", *values_of("old", 5)]
    first, second, third = values_of("a", 8), values_of("b", 7), values_of("c", 5)
    staged = [
        stage(bench.disk, first, batch=4),
        stage(bench.disk, second, batch=4),
        stage(bench.disk, third, batch=4, to=UP),
    ]
    states = states_while_publishing(bench, staged, power)
    assert len(states) > 25
    if power:
        bench.new_boot()
    outcomes = set()
    for number, disk in enumerate(states):
        half = lines_in(bench.open(disk, read_only=True))
        assert half == [*old, *first, *second][: len(half)]
        ledger = read_ledger(disk, QUERY)
        was_begun = ledger.intent is not None or ledger.done == 4
        outcomes.add((was_begun, len(half)))
        store = bench.open(disk)
        found = lines_in(store)
        assert was_begun == (read_ledger(disk, QUERY).done == 4)
        assert found == [*old, *(first + second if was_begun else [])], "completed, or not begun"
        # Another writer appends before the job is restarted and stages all again.
        store.partition("t", 0).append_records([Record(0, START_MS, None, b"other")], START_MS)
        anew = [
            stage(disk, [b"anew-" + value for value in first + second], batch=4),
            stage(disk, [b"anew-" + value for value in third], batch=4, to=UP),
        ]
        for _ in range(2 if number % 2 else 1):
            publish(store, QUERY, 4, anew, bench.now_ms)
        prefix = b"" if was_begun else b"anew-"
        mine = [line for line in lines_in(store) if line not in [*old, b"other"]]
        if was_begun:
            assert mine == first + second
        else:
            assert mine == [prefix + value for value in first + second]
        assert lines_in(store, "u") == [prefix + value for value in third]
        assert lines_in(store).count(b"other") == 1
        assert staged_names(disk) == []
        store.close(bench.now_ms)
    assert {begun for begun, _ in outcomes} == {False, True}
    assert len({count for begun, count in outcomes if begun}) > 3, "stops between the batches"


@pytest.mark.allow_log("is offline:")
def test_a_failing_disk_is_an_error_and_another_try_completes_it() -> None:
    for operation in sorted(MUTATIONS):
        for pattern in ("*.ledger*", "*.log", DIRECTORY, "*.staged", "*logfs.segments"):
            bench = two_topics()
            values = values_of("v", 30)
            staged = [stage(bench.disk, values)]
            bench.disk.fail_next(operation, pattern)
            try:
                publish(bench.store, QUERY, 0, staged, bench.now_ms)
            except OSError:
                if bench.log.offline is not None:
                    bench.reload()
                bench.disk.heal()
                publish(bench.store, QUERY, 0, staged, bench.now_ms)
            bench.disk.heal()
            assert lines_in(bench.store) == values, (operation, pattern)


def fill_after(bench: Bench, staged: Sequence[StagedFile], writes: int) -> None:
    """Publish on a disk that is full after so many writes to a log."""
    stops = []

    def stop(operation: str, name: str, _size: int) -> None:
        if operation == "pwrite" and name.endswith(".log"):
            stops.append(name)
            if len(stops) > writes:
                raise OSError(errno.ENOSPC, "No space left on device", name)

    bench.disk.before = stop
    with pytest.raises(OSError, match="No space"):
        publish(bench.store, QUERY, 0, staged, bench.now_ms)
    bench.disk.before = None


ROLLS: dict[str, tuple[dict[str, str], bool]] = {
    "size": (SMALL, False),
    "segment.ms": ({"segment.ms": "1000"}, False),
    "a full index": ({"segment.index.bytes": "32", "index.interval.bytes": "0"}, False),
    "another writer": ({}, True),
}


@pytest.mark.slow
@pytest.mark.allow_log("[loss: cut,", "are no whole batch")
@pytest.mark.parametrize("roll", ROLLS)
def test_a_power_cut_after_any_roll_in_a_batch_loses_none_of_its_records(roll: str) -> None:
    properties, by_another = ROLLS[roll]
    values = values_of("v", 18)
    for changes in range(14, 60):
        bench = Bench(properties)
        staged = [
            stage(bench.disk, values[n : n + 3], timestamp=START_MS + 300 * n)
            for n in range(0, 18, 3)
        ]
        if by_another:
            bench.disk.before = partial(roll_before_staged, bench, staged[4].path)
        bench.disk.stop_before(changes)
        with contextlib.suppress(Stopped):
            publish(bench.store, QUERY, 0, staged, bench.now_ms)
        bench.disk.before = None
        bench.crash(1000 * changes + 2)
        publish(bench.store, QUERY, 0, staged, bench.now_ms)
        assert sorted(lines_in(bench.store)) == sorted(values), changes


def roll_before_staged(bench: Bench, path: str, operation: str, name: str, _size: int) -> None:
    """Have another writer roll the log when a staged file is opened to be published."""
    if operation == "open" and name == path and bench.log.log_end_offset:
        bench.log.roll(bench.now_ms)


def test_a_started_batch_is_completed_although_the_producer_expired() -> None:
    """Old timestamps let a producer expire at once; a batch half-way in must not come twice."""
    bench = two_topics()
    values = values_of("v", 9)
    staged = [stage(bench.disk, values, timestamp=1)]
    publish_up_to(bench, staged, 3)
    bench.reload()
    assert lines_in(bench.store) == values[:6]
    bench.log.expire_producers(bench.now_ms)
    assert bench.log.appender.last_records_of_producers() == {}
    assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == values


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_started_batch_is_completed_although_its_records_were_deleted(
    is_restarted: bool,
) -> None:
    bench = two_topics()
    values = values_of("v", 9)
    staged = [stage(bench.disk, values, timestamp=1)]
    publish_up_to(bench, staged, 3)
    bench.reload()
    bench.log.roll(bench.now_ms)
    trim(bench.log, bench.log.log_end_offset, bench.now_ms, at_once=True)
    assert lines_in(bench.store) == []
    if is_restarted:
        bench.kill()
    else:
        bench.store.expire_producers(bench.now_ms)
        assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == values[6:]
    bench.now_ms += bench.store.config.producer_id_expiration_check_interval_ms
    bench.store.expire_producers(bench.now_ms)
    assert bench.log.appender.last_records_of_producers() == {}


def test_a_power_cut_leaves_the_log_at_least_where_the_intent_says_it_ended() -> None:
    bench = two_topics()
    before, values = values_of("before", 5), values_of("v", 9)
    bench.write(*before)
    staged = [stage(bench.disk, values, timestamp=1)]
    publish_up_to(bench, staged, 1)
    bench.crash(None)
    assert lines_in(bench.store) == [*before, *values]
    assert not publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == [*before, *values]


def test_a_limit_that_was_made_smaller_only_makes_more_batches() -> None:
    bench = Bench()
    values = values_of("v" * 50, 40)
    staged = [stage(bench.disk, values, per_batch=40)]
    bench.store.alter_topic("t", {"max.message.bytes": "500"})
    assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == values
    (name,) = bench.names(".log")
    sequences = [header.base_sequence for _, header in batches_in(bench.file(name))]
    assert sequences == [0, *sorted(set(sequences))[1:]]
    assert len(sequences) > 4


def test_half_of_a_batch_that_was_recreated_is_not_repeated() -> None:
    bench = Bench()
    values = values_of("v" * 50, 40)
    staged = [stage(bench.disk, values, per_batch=40)]
    bench.store.alter_topic("t", {"max.message.bytes": "500"})
    publish_up_to(bench, staged, 3)
    bench.reload()
    assert 0 < len(lines_in(bench.store)) < 40
    assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == values


@pytest.mark.expect_log("t/0 is offline", "was deleted, so its records of batch 0 of a query")
def test_a_topic_that_was_deleted_meanwhile_does_not_stop_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = two_topics()
    staged = [stage(bench.disk, values_of("v", 4)), stage(bench.disk, values_of("u", 4), to=UP)]
    bench.disk.fail_next_write("*.log")
    with pytest.raises(OSError, match="Input/output"):
        publish(bench.store, QUERY, 0, staged, bench.now_ms)
    bench.reload()
    bench.store.delete_topic("u", bench.now_ms)
    with caplog.at_level(logging.WARNING):
        assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert "u/0 was deleted, so its records of batch 0 of a query are dropped" in caplog.text
    assert lines_in(bench.store) == values_of("v", 4)


@pytest.mark.expect_log("was deleted, so its records of batch 0")
def test_a_topic_that_was_recreated_meanwhile_does_not_stop_the_query() -> None:
    bench = two_topics()
    staged = [stage(bench.disk, values_of("a", 3)), stage(bench.disk, values_of("b", 3), to=UP)]
    half_published(bench, staged)
    bench.store.delete_topic("t", bench.now_ms)
    bench.store.create_topic("t", 1, {}, bench.now_ms)
    assert publish(bench.store, QUERY, 0, staged, bench.now_ms)
    later = [stage(bench.disk, values_of("c", 2), batch=1)]
    assert publish(bench.store, QUERY, 1, later, bench.now_ms)
    assert lines_in(bench.store) == values_of("c", 2)
    assert lines_in(bench.store, "u") == values_of("b", 3)


def test_a_ledger_of_an_older_logfs_is_carried_out() -> None:
    bench = two_topics()
    staged = [stage(bench.disk, values_of("a", 3)), stage(bench.disk, values_of("b", 3), to=UP)]
    half_published(bench, staged)
    name = format_ledger_file(query_key(QUERY))
    fields = json.loads(bench.disk.read(name)) | {"version": 1}
    for share in fields["intent"]["partitions"]:
        del share["topic_id"]
    bench.disk.replace(name, json.dumps(fields).encode())
    bench.restart()
    assert lines_in(bench.store) == values_of("a", 3)
    assert lines_in(bench.store, "u") == values_of("b", 3)
    assert not publish(bench.store, QUERY, 0, staged, bench.now_ms)


@pytest.mark.expect_log("could not be loaded", "is half published and waits")
def test_a_partition_that_could_not_be_loaded_keeps_its_share() -> None:
    bench = two_topics()
    staged = [stage(bench.disk, values_of("a", 3)), stage(bench.disk, values_of("b", 3), to=UP)]
    half_published(bench, staged)
    config = bench.file("logfs.config")
    bench.put("logfs.config", b"cleanup.policy=nonsense")
    bench.restart()
    bench.put("logfs.config", config)
    bench.restart()
    assert lines_in(bench.store) == values_of("a", 3)


def test_missing_staged_records_are_an_error_before_anything_is_appended() -> None:
    bench = two_topics()
    staged = stage(bench.disk, values_of("v", 4))
    bench.disk.remove(staged.path)
    with pytest.raises(DataLossError, match="staged records are gone"):
        publish(bench.store, QUERY, 0, [staged], bench.now_ms)
    # Nothing was begun: the job may stage them again.
    anew = stage(bench.disk, values_of("v", 4))
    assert publish(bench.store, QUERY, 0, [anew], bench.now_ms)
    short = stage(bench.disk, values_of("v", 4), query="two")
    file = bench.disk.open(short.path, write=True)
    file.truncate(40)
    with pytest.raises(DataLossError, match=r"40 bytes, \d+ expected"):
        publish(bench.store, "two", 0, [short], bench.now_ms)
    newer = stage(bench.disk, values_of("v", 4), query="three")
    bench.disk.open(newer.path, write=True).pwrite(b"\0\0\0\2", 8)
    with pytest.raises(UnsupportedFormatError, match="version 2: this logfs reads"):
        publish(bench.store, "three", 0, [newer], bench.now_ms)
    assert lines_in(bench.store) == values_of("v", 4)


def test_a_ledger_that_does_not_parse_is_an_error() -> None:
    bench = two_topics()
    name = format_ledger_file(query_key(QUERY))
    for data in (b"", b"{}", b'{"version": 1, "query": "q", "done": 0}', b"[" * 100_000):
        bench.disk.replace(name, data)
        with pytest.raises(CorruptCheckpointError, match="it does not parse"):
            publish(bench.store, QUERY, 0, [], bench.now_ms)
    bench.disk.replace(name, b'{"version": 3}')
    with pytest.raises(UnsupportedFormatError, match="version 3, this logfs reads version 2"):
        publish(bench.store, QUERY, 0, [], bench.now_ms)


def test_a_discarded_staged_file_leaves_nothing() -> None:
    bench = two_topics()
    writer = StagingWriter(bench.disk, TP, QUERY, 0, bytes(16))
    assert len(staged_names(bench.disk)) == 1
    writer.discard()
    assert staged_names(bench.disk) == []


def test_staged_batches_are_whole() -> None:
    bench = two_topics()
    staged = stage(bench.disk, values_of("v", 5))
    data = bench.disk.read(staged.path)
    assert (data[:8], len(data), staged.records) == (b"LFSTAGED", staged.size_bytes, 5)
    assert [r.value for _, h in batches_in(data[16:]) for r in decode_records(data[16:])][:3] == (
        values_of("v", 3)
    )


@pytest.mark.parametrize("stop", ["none", "restart", "kill", "power"])
@pytest.mark.parametrize(("is_flushed", "removed"), [(True, 21), (True, 15), (False, 21)])
@pytest.mark.parametrize("others", [[], [b"other"]])
def test_deleted_records_of_a_half_published_batch_are_not_published_again(
    others: list[bytes], is_flushed: bool, removed: int, stop: str
) -> None:
    bench, values = Bench(SMALL), values_of("v", 30)
    staged = [stage(bench.disk, values)]
    fill_after(bench, staged, 7)
    assert lines_in(bench.store) == values[:21]
    bench.log.roll(bench.now_ms)
    bench.write(*others)
    if is_flushed:
        bench.log.flush()
    trim(bench.log, removed, bench.now_ms, at_once=True)
    if stop == "restart":
        bench.restart()
    elif stop == "kill":
        bench.kill()
    elif stop == "power":
        bench.crash()
    publish(bench.store, QUERY, 0, staged, bench.now_ms)
    lines = lines_in(bench.store)
    assert [line for line in lines if line not in others] == values[removed:]
    assert staged_names(bench.disk) == []


@pytest.mark.parametrize("seed", [None, 37, 38])
def test_a_trim_inside_a_half_published_batch_outlives_a_power_cut(seed: int | None) -> None:
    bench, values = Bench(SMALL), values_of("v", 30)
    bench.write(*values_of("before", 5))
    staged = [stage(bench.disk, values)]
    fill_after(bench, staged, 7)
    trim(bench.log, 8, bench.now_ms)
    assert lines_in(bench.store) == values[3:21]
    bench.crash(seed)
    publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == values[3:]


@pytest.mark.parametrize("seed", [None, 11, 16, 28, 45, 55])
def test_a_power_cut_in_a_batch_of_many_segments_loses_none_of_its_records(
    seed: int | None,
) -> None:
    """A power cut may keep the later one of two files that are not synced, and lose the other."""
    bench, values = Bench(SMALL), values_of("v", 30)
    staged = [stage(bench.disk, values)]
    fill_after(bench, staged, 9)
    bench.crash(seed)
    publish(bench.store, QUERY, 0, staged, bench.now_ms)
    assert lines_in(bench.store) == values
