"""What a second machine gets beside records: groups, owners and modes, forwards and mirrors."""

import itertools
from collections.abc import Callable

import pytest

from logfs.log.attributes import Ownership
from logfs.log.forwardfile import ForwardFile, ForwardIdentity, ForwardPosition
from logfs.log.groups.coding import OFFSETS_CONFIG, OFFSETS_TOPIC, Position
from logfs.log.groups.table import commit_records, removal_records
from logfs.log.mirrorfile import MirrorSource
from logfs.log.names import format_forward_file
from logfs.services.journaling.kept import MOST_KEPT
from logfs.services.journaling.objects import list_objects, read_object
from logfs.types import TopicPartition
from tests.fakes import FakeDisk
from tests.fakestate import Stopped
from tests.log.support import text_of
from tests.remote.fakestore import FakeStore
from tests.remote.journals import JournalBench
from tests.remote.tiering import TIERED, no_throttle

LONG = {**TIERED, "internal.segment.bytes": "100000"}
"""Segments that are never full here."""
TP = TopicPartition("t", 0)
NOTE = f"t-0/{format_forward_file(7)}"
IDENTITY = ForwardIdentity("cluster", "b:9092", "orders", "", "same", 1, 42, 3, 0, home="m/1")


def commit(bench: JournalBench, group: str, offset: int, metadata: str = "") -> None:
    if OFFSETS_TOPIC not in bench.store.topics():
        bench.store.create_topic(OFFSETS_TOPIC, 50, OFFSETS_CONFIG, bench.now_ms)
    records = commit_records(group, {TP: Position(offset, metadata, bench.now_ms)})
    number = bench.store.groups.partition_of(group)
    bench.store.partition(OFFSETS_TOPIC, number).append_records(records, bench.now_ms)


def remove(bench: JournalBench, group: str) -> None:
    number = bench.store.groups.partition_of(group)
    log = bench.store.partition(OFFSETS_TOPIC, number)
    log.append_records(removal_records(group, [TP], bench.now_ms), bench.now_ms)


def positions(bench: JournalBench) -> dict[str, dict[TopicPartition, Position]]:
    return {name: group.positions for name, group in bench.store.groups.groups().items()}


def puts(bench: JournalBench) -> int:
    return bench.objects.counts["create"]


def test_the_positions_of_groups_are_the_same_on_another_machine() -> None:
    bench = JournalBench(LONG)
    bench.fill(10)
    for number in range(60):
        commit(bench, f"group {number}", number % 10, "ä" * number)
    bench.send()
    known = positions(bench)
    other, done = bench.promoted()
    assert positions(other) == known
    assert [str(one) for one in done.partitions] == ["t/0"]
    assert other.store.topic_config(OFFSETS_TOPIC).is_compacted
    commit(other, "group 7", 9)
    remove(other, "group 8")
    other.send()
    third, _ = other.promoted("c")
    changed = {TP: Position(9, "", bench.now_ms)}
    assert positions(third) == {
        name: changed if name == "group 7" else found
        for name, found in known.items()
        if name != "group 8"
    }


def test_positions_of_a_machine_whose_clock_is_ahead_are_there() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    bench.now_ms += 86_400_000
    commit(bench, "g", 2)
    bench.now_ms -= 86_400_000
    bench.send()
    assert positions(bench.promoted()[0]) == positions(bench)


def test_a_position_beyond_what_was_sent_is_the_end_there() -> None:
    bench = JournalBench(LONG)
    bench.fill(10)
    bench.send()
    bench.log.state.offline = "not sent"
    commit(bench, "fast", 25)
    commit(bench, "slow", 4)
    bench.send()
    bench.log.state.offline = None
    other, _ = bench.promoted()
    assert {name: found[TP].offset for name, found in positions(other).items()} == {
        "fast": 10,
        "slow": 4,
    }
    assert other.store.groups.position_in(other.log, "fast") == 10


def test_a_round_without_a_change_sends_nothing() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    commit(bench, "g", 2)
    bench.store.attributes.set("t", None, mode=0o750)
    with_forward(bench)
    bench.send()
    before = puts(bench)
    for _ in range(5):
        bench.now_ms += 1000
        bench.send()
    assert puts(bench) == before
    for change in (
        lambda: commit(bench, "g", 3),
        lambda: bench.store.attributes.set("t", 0, uid=33),
        lambda: with_forward(bench, 2),
    ):
        change()
        bench.send()
        before += 1
        assert puts(bench) == before
    bench.kill()
    bench.send()
    assert not read_object(bench.objects, list_objects(bench.objects)[-1].name).notes


def with_forward(bench: JournalBench, acknowledged: int = 1) -> ForwardPosition:
    """Note that so many records were acknowledged; returns the position."""
    disk = bench.disk
    file = ForwardFile.open(disk, NOTE) if disk.exists(NOTE) else ForwardFile.create(
        disk, NOTE, IDENTITY
    )  # fmt: skip
    position = ForwardPosition(acknowledged, acknowledged, 70, 1_700_000_000_000)
    file.put(0, position)
    file.hold(position)
    file.report({"state": "forwarding", "reported": bench.now_ms})
    file.close()
    return position


def test_a_forward_is_known_with_what_was_acknowledged_and_its_report_costs_nothing() -> None:
    bench = JournalBench(LONG)
    bench.fill(9)
    with_forward(bench, 4)
    bench.send()
    before = puts(bench)
    bench.now_ms += 5000
    position = with_forward(bench, 4)  # it reports again
    bench.send()
    assert puts(bench) == before
    other, _ = bench.promoted()
    file = ForwardFile.open(other.disk, NOTE)
    assert (file.identity, file.held(), file.position(0)) == (IDENTITY, position, position)
    file.close()
    (note,) = other.log.forward_meta
    assert (note["to"], note["held_offset"], note["lag_records"]) == ("kafka://b:9092/orders", 4, 5)


def test_a_mirror_is_one_on_another_machine_and_an_ordinary_topic_again_after_its_promotion() -> (
    None
):
    bench = JournalBench(LONG)
    bench.fill(3)
    source = MirrorSource("cluster", "b:9092", "orders")
    bench.log.set_mirror(source)
    bench.send()
    other, _ = bench.promoted()
    assert other.log.mirror == source
    other.log.set_mirror(None)
    other.send()
    third, _ = other.promoted("c")
    assert third.log.mirror is None


def test_owners_and_modes_are_the_same_on_another_machine() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    bench.store.attributes.set("t", None, mode=0o750, uid=33)
    bench.store.attributes.set("t", 0, mode=0o640, gid=44)
    bench.send()
    other, _ = bench.promoted()
    found = other.store.attributes
    assert found.get("t", None) == Ownership(0o750, 33)
    assert found.get("t", 0) == Ownership(0o640, None, 44)


def test_a_directory_that_returns_gets_them_and_keeps_those_of_topics_that_are_here_alone() -> None:
    bench = JournalBench(LONG)
    bench.store.create_topic("local", 1, {}, bench.now_ms)
    bench.fill(10)
    bench.store.attributes.set("t", None, mode=0o700)
    bench.store.attributes.set("local", None, mode=0o711)
    commit(bench, "g", 3)
    with_forward(bench)
    bench.log.set_mirror(MirrorSource("cluster", "b:9092", "orders"))
    bench.send()
    other, _ = bench.promoted()
    other.store.attributes.set("t", None, mode=0o755)
    other.log.set_mirror(None)
    commit(other, "g", 7)
    other.disk.remove(NOTE)
    other.send()
    bench.rejoin()
    assert bench.store.attributes.get("t", None).mode == 0o755
    assert bench.store.attributes.get("local", None).mode == 0o711
    assert positions(bench) == positions(other)
    assert bench.log.mirror is None
    assert not bench.disk.exists(NOTE)


def test_notes_hold_few_objects_and_are_there_after_many_rounds() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    commit(bench, "quiet", 1)
    commit(bench, "gone", 2)
    bench.send()
    remove(bench, "gone")
    for number in range(3 * MOST_KEPT):
        commit(bench, "busy", number % 3)
        bench.send()
    assert len(list_objects(bench.objects)) <= MOST_KEPT + 2
    known = positions(bench)
    assert set(known) == {"quiet", "busy"}
    bench.kill()
    bench.send()
    assert positions(bench.promoted()[0]) == known


def schedule(bench: JournalBench, sent: list[int]) -> bytes:
    """Append, commit, send and copy; ``sent`` has the position of each complete round."""
    text = b""
    for number in range(4):
        text += bench.fill(6, first=6 * number)
        commit(bench, "g", number + 1)
        bench.send()
        sent.append(number + 1)
        bench.tiering.copy(no_throttle)
    return text


def copy_of(objects: FakeStore) -> FakeStore:
    copy = FakeStore()
    copy.objects.update(objects.objects)
    return copy


def stops() -> list[tuple[int, bool]]:
    bench = JournalBench()
    schedule(bench, [])
    changes = sum(bench.objects.counts[one] for one in ("create", "swap", "put", "delete"))
    return [(n, after) for n in range(0, changes, 2) for after in (False, True)]


@pytest.mark.parametrize(("change", "after"), stops())
def test_a_daemon_that_dies_at_a_request_loses_no_position_that_was_sent(
    change: int, after: bool
) -> None:
    bench, sent = JournalBench(), [0]
    (bench.objects.stop_after if after else bench.objects.stop_before)(change)
    with pytest.raises(Stopped):
        schedule(bench, sent)
    bench.objects.heal()
    if sent[-1]:
        copy = JournalBench(objects=copy_of(bench.objects))
        found = positions(copy.promoted()[0])["g"][TP].offset
        assert sent[-1] <= found <= sent[-1] + 1
    bench.kill()
    bench.send()
    assert positions(bench.promoted("c")[0]) == positions(bench)


def test_lost_answers_and_failures_lose_no_position() -> None:
    for operation, is_lost in itertools.product(
        ("create", "swap", "get", "delete", "list_level"), (False, True)
    ):
        bench = JournalBench()
        bench.fill(5)
        fail: Callable[[str, str], object] = (
            bench.objects.lose_reply_of if is_lost else bench.objects.fail_next
        )
        for number in range(4):
            commit(bench, "g", number)
            fail(operation, "logfs-journal/*")
            for _ in range(3):
                try:
                    bench.send()
                    break
                except OSError:
                    continue
        bench.objects.heal()
        bench.send()
        assert positions(bench.promoted()[0]) == positions(bench)


def test_a_promotion_on_a_full_disk_is_completed_with_all_positions() -> None:
    failed = 0
    for room in range(0, 12_000, 800):
        bench = JournalBench()
        bench.fill(5)
        commit(bench, "g", 4)
        bench.send()
        disk = FakeDisk()
        disk.space_bytes = room
        try:
            bench.promotion("b", disk).run()
        except OSError:
            failed += 1
        disk.space_bytes = 1 << 30
        assert not bench.promotion("b", disk).run().problems
        found = JournalBench(machine="b", disk=disk, objects=bench.objects)
        assert positions(found) == positions(bench)
        assert text_of(found.log) == text_of(bench.log)
    assert failed > 3


def test_a_position_that_was_removed_does_not_come_back() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    commit(bench, "gone", 1)
    bench.send()
    remove(bench, "gone")
    bench.send()
    for number in range(3):
        commit(bench, "other", number)
        bench.send()
    assert set(positions(bench.promoted()[0])) == {"other"}
