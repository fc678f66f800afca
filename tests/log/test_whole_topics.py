"""A topic of several partitions is created, deleted and altered as a whole, or not at all."""

from collections.abc import Callable, Mapping
from uuid import UUID

import pytest

from logfs.errors import NoSuchTopicError
from logfs.log.lines.writer import LineWriter
from logfs.log.names import SEGMENT_TABLE, format_delete_directory
from logfs.log.store import LogStore
from logfs.types import TopicPartition, View
from tests.fakes import FakeDisk
from tests.log.support import DIRECTORY, Bench, lines_of

NUMBERS = [0, 1, 2]
PREALLOCATED = {"preallocate": "true", "internal.segment.bytes": "2000"}
CHANGES = {"pwrite", "sync", "rename", "remove", "sync_directory", "open", "make_directory"}


def three_partitions() -> Bench:
    bench = Bench()
    bench.store.create_topic("u", len(NUMBERS), {}, bench.now_ms)
    for number in NUMBERS:
        append(bench, bench.store, number, b"line of %d" % number)
    bench.store.checkpoint()
    return bench


def append(bench: Bench, store: LogStore, number: int, line: bytes) -> None:
    LineWriter(store.partition("u", number), View.TEXT).write(line + b"\n", bench.now_ms)
    store.partition("u", number).flush()


def stops_during(bench: Bench, change: Callable[[], object]) -> list[FakeDisk]:
    """The disk as it is found after a stop before each operation: killed, or without power."""
    found: list[FakeDisk] = []

    def look(operation: str, _name: str, _size: int) -> None:
        if operation in CHANGES:
            bench.disk.before = None
            found.append(bench.disk.after_kill())
            found.extend(bench.disk.after_crash(seed) for seed in (None, *range(4)))
            bench.disk.before = look

    bench.disk.before = look
    change()
    bench.disk.before = None
    return found


def is_whole(store: LogStore) -> bool:
    """Whether the topic is there, with all its partitions and records; False if it is gone."""
    try:
        assert store.partitions("u") == NUMBERS
    except NoSuchTopicError:
        return False
    lines = [lines_of(store.partition("u", number)) for number in NUMBERS]
    assert lines == [[b"line of %d" % number] for number in NUMBERS]
    return True


@pytest.mark.allow_log("was interrupted; the partition is kept")
def test_an_interrupted_deletion_leaves_a_whole_topic_or_none() -> None:
    bench = three_partitions()
    stops = stops_during(bench, lambda: bench.store.delete_topic("u", bench.now_ms))
    found = set()
    for disk in stops:
        store = bench.open(disk)
        found.add(is_whole(store))
        for name in store.topics():
            store.delete_topic(name, bench.now_ms)
        assert bench.open(disk.after_kill()).topics() == []
    assert found == {True, False}


@pytest.mark.allow_log("was interrupted; the partition is kept")
def test_an_interrupted_creation_leaves_a_whole_topic_or_none() -> None:
    bench = Bench()
    settings = {"retention.ms": "5"}
    bench.store.create_topic("u", 1, settings, bench.now_ms)
    bench.store.delete_topic("u", bench.now_ms)
    stops = stops_during(bench, lambda: bench.store.create_topic("u", 3, settings, bench.now_ms))
    topic_id = bench.store.topic_id("u")
    found = set()
    for disk in stops:
        store = bench.open(disk)
        found.add("u" in store.topics())
        if "u" in store.topics():
            assert store.partitions("u") == NUMBERS
            assert {store.partition("u", n).topic_id for n in NUMBERS} == {topic_id}
            assert store.topic_properties("u") == settings
        else:
            store.undelete_topic("u", bench.now_ms)
            assert store.partitions("u") == [0]
    assert found == {True, False}


def test_a_deletion_that_fails_leaves_the_topic_as_it_was() -> None:
    bench = three_partitions()
    bench.disk.fail_next("rename", "u-1")
    with pytest.raises(OSError, match="Input/output"):
        bench.store.delete_topic("u", bench.now_ms)
    assert is_whole(bench.store)
    for number in NUMBERS:
        append(bench, bench.store, number, b"more")
    assert bench.store.partition("u", 0).losses == []
    bench.restart()
    assert lines_of(bench.store.partition("u", 1)) == [b"line of 1", b"more"]


def test_what_a_broker_was_about_to_delete_stays_deleted() -> None:
    bench = three_partitions()
    bench.store.close(bench.now_ms)
    moved = format_delete_directory(TopicPartition("u", 2), UUID(int=7))
    bench.disk.rename("u-2", moved)
    bench.store = bench.open()
    assert bench.store.partitions("u") == [0, 1]


def test_a_topic_that_was_made_again_does_not_get_back_what_was_deleted() -> None:
    bench = three_partitions()
    bench.store.delete_topic("u", bench.now_ms)
    bench.store.create_topic("u", 1, {}, bench.now_ms)
    bench.kill()
    assert bench.store.partitions("u") == [0]
    assert lines_of(bench.store.partition("u", 0)) == []


@pytest.mark.parametrize("value", ["1234567", None])
def test_an_interrupted_change_of_the_configuration_is_one_configuration(value: str | None) -> None:
    bench = three_partitions()
    bench.store.alter_topic("u", {"retention.ms": "7654321"})
    stops = stops_during(bench, lambda: bench.store.alter_topic("u", {"retention.ms": value}))
    for disk in stops:
        for _ in range(2):
            store = bench.open(disk)
            found = {store.partition("u", n).config.get("retention.ms") for n in NUMBERS}
            assert len(found) == 1
            assert found <= {"7654321", value or "604800000"}
            disk.kill()


def test_a_change_of_the_configuration_that_fails_changes_nothing() -> None:
    bench = three_partitions()
    bench.store.alter_topic("u", {"retention.ms": "7654321"})
    before = [bench.disk.read(f"u-{n}/logfs.config") for n in NUMBERS]
    bench.disk.fail_next("rename", "u-1/logfs.config.tmp")
    with pytest.raises(OSError, match="Input/output"):
        bench.store.alter_topic("u", {"retention.ms": "1234567"})
    assert [bench.disk.read(f"u-{n}/logfs.config") for n in NUMBERS] == before
    found = {bench.store.partition("u", n).config.get("retention.ms") for n in NUMBERS}
    assert found == {"7654321"}


def test_the_segment_table_of_a_daemon_that_runs_for_long_stays_short() -> None:
    bench = Bench({"internal.segment.bytes": "300"})
    sizes = set()
    for round_ in range(60):
        for n in range(10):
            bench.write(b"round %d line %d" % (round_, n))
        bench.log.maintain()
        bench.log.advance_log_start_offset(bench.log.log_end_offset - 5, bench.now_ms)
        sizes.add(len(bench.file(SEGMENT_TABLE)))
    assert max(sizes) < 20_000
    before = bench.log.snapshot.end.positions, lines_of(bench.log)
    assert (bench.kill().snapshot.end.positions, lines_of(bench.log)) == before
    assert bench.disk.exists(DIRECTORY)


@pytest.mark.allow_log("was interrupted")
@pytest.mark.parametrize("settings", [{}, PREALLOCATED])
def test_an_interrupted_creation_is_no_loss(settings: Mapping[str, str]) -> None:
    bench = Bench()
    stops = stops_during(bench, lambda: bench.store.create_topic("u", 2, settings, bench.now_ms))
    found = set()
    for disk in stops:
        store = bench.open(disk)
        assert [log.losses for log in store.all_partitions()] == [[]] * len(store.all_partitions())
        found.add("u" in store.topics())
    assert found == {True, False}


@pytest.mark.parametrize("failing", ["pwrite", "rename", "sync"])
@pytest.mark.parametrize("pattern", ["*u-17*/partition.metadata*", "u-17/*"])
def test_a_topic_of_many_partitions_that_cannot_be_made_leaves_nothing(
    pattern: str, failing: str
) -> None:
    bench = Bench()
    before = bench.disk.list("")
    bench.disk.fail_next(failing, pattern)
    with pytest.raises(OSError, match="u-17"):
        bench.store.create_topic("u", 20, {}, bench.now_ms)
    assert (bench.store.topics(), bench.disk.list("")) == (["t"], before)
    bench.store.create_topic("u", 20, {}, bench.now_ms)
    bench.kill()
    assert bench.store.partitions("u") == list(range(20))
