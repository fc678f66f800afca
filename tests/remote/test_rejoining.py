"""A machine returns whose logs another one continues: what it alone has, and a copy of it again."""

import itertools
import random
from collections.abc import Callable

import pytest

from logfs.errors import FencedError, RemoteStorageError
from logfs.log.checkpoints import EpochEntry
from logfs.log.lines.writer import LineWriter
from logfs.services.journaling.diverging import fork_of
from logfs.types import TopicPartition, View
from tests.fakestate import Stopped
from tests.log.support import text_of
from tests.remote.journals import JournalBench
from tests.remote.tiering import TIERED, no_throttle

LONG = {**TIERED, "internal.segment.bytes": "100000"}
"""Segments that are never full here."""
KEPT = {**TIERED, "local.retention.bytes": "-2"}
"""Segments whose local files stay."""


def pair(
    properties: dict[str, str], lost: int = 4, more: int = 5
) -> tuple[JournalBench, JournalBench, bytes]:
    """Return an old owner, the new one, and the text of the latter.

    So many lines are on the old one alone. The new owner has appended more lines, sealed segments,
    copied and sent them.
    """
    bench = JournalBench(properties)
    text = bench.fill(30)
    bench.tiering.copy(no_throttle)
    text += bench.fill(7, first=30)
    bench.send()
    bench.fill(lost, first=900)
    other, _ = bench.promoted()
    text += other.fill(more, first=100)
    other.log.flush()
    other.tiering.copy(no_throttle)
    other.send()
    return bench, other, text


@pytest.mark.parametrize("properties", [TIERED, LONG, KEPT], ids=["tiered", "long", "kept"])
@pytest.mark.parametrize("more", [0, 3, 30])
@pytest.mark.parametrize("lost", [0, 4, 40])
def test_the_records_of_one_machine_alone_are_named(
    properties: dict[str, str], lost: int, more: int
) -> None:
    bench, other, _ = pair(properties, lost, more)
    found = bench.diverged()
    if not lost:
        assert not found
        return
    (one,) = found
    assert (one.topic_partition, one.is_unknown) == (TopicPartition("t", 0), False)
    assert (one.first_offset, one.end_offset) == (37, 37 + lost)
    assert one.first_ms == one.last_ms == bench.now_ms
    assert not other.diverged()


def test_a_topic_that_the_store_does_not_have_is_named_as_a_whole() -> None:
    bench = JournalBench(LONG)
    bench.fill(3)
    bench.send()
    bench.store.create_topic("late", 1, LONG, bench.now_ms)
    LineWriter(bench.store.partition("late", 0), View.TEXT).write(b"a\nb\n", bench.now_ms)
    bench.promoted()
    (one,) = bench.diverged()
    assert (str(one.topic_partition), one.first_offset, one.end_offset) == ("late/0", 0, 2)
    assert one.is_unknown


def test_machines_that_were_owners_one_after_the_other_know_what_they_alone_have() -> None:
    benches, text = [JournalBench(LONG)], b""
    for number, machine in enumerate("bcd"):
        bench = benches[-1]
        text += bench.fill(5, first=10 * number)
        bench.send()
        bench.fill(number + 1, first=10 * number + 5)
        benches.append(bench.promoted(machine)[0])
        assert text_of(benches[-1].log) == text
    benches[-1].fill(9)
    benches[-1].send()
    for number, bench in enumerate(benches[:-1]):
        (one,) = bench.diverged()
        assert (one.first_offset, one.end_offset) == (5 * (number + 1), 6 * (number + 1))


def test_a_copy_that_wrote_other_records_in_the_same_epoch_is_compared_by_its_bytes() -> None:
    for properties in (TIERED, LONG, KEPT):
        bench = JournalBench(properties)
        bench.fill(12)
        clone = JournalBench(properties, disk=bench.disk.after_kill(), objects=bench.objects)
        bench.fill(12, first=100)
        bench.tiering.copy(no_throttle)
        bench.send()
        clone.fill(5, first=500)
        (one,) = clone.diverged()
        assert (one.first_offset, one.end_offset) == (12, 17)


@pytest.mark.parametrize(
    ("local", "local_end", "stored", "stored_end", "fork"),
    [
        ([(0, 0)], 9, [(0, 0), (2, 5)], 20, 5),
        ([(0, 0)], 4, [(0, 0), (2, 5)], 20, 4),
        ([(0, 0), (3, 6)], 9, [(0, 0), (2, 5), (5, 7)], 20, 5),
        ([(0, 0), (2, 5)], 9, [(0, 0)], 5, 5),
        ([(2, 5)], 9, [(0, 0), (2, 5), (4, 8)], 20, 8),
        ([(0, 0), (2, 5)], 9, [(2, 5)], 20, 9),
        ([], 9, [(0, 0)], 20, 0),
        ([(0, 0)], 9, [], 7, 0),
    ],
)
def test_the_first_epoch_that_only_one_log_has_tells_where_they_differ(
    local: list[tuple[int, int]],
    local_end: int,
    stored: list[tuple[int, int]],
    stored_end: int,
    fork: int,
) -> None:
    mine, theirs = ([EpochEntry(*one) for one in entries] for entries in (local, stored))
    assert fork_of(mine, local_end, theirs, stored_end) == fork


@pytest.mark.parametrize("properties", [TIERED, LONG, KEPT], ids=["tiered", "long", "kept"])
@pytest.mark.parametrize("more", [0, 3, 30])
def test_a_directory_that_returns_is_what_the_store_has(
    properties: dict[str, str], more: int
) -> None:
    bench, other, text = pair(properties, 4, more)
    local = set(bench.local_names(".log"))
    copied = {f"{base:020d}.log" for base in bench.tier.entries} if bench.log.tier else set()
    bench.objects.counts.clear()
    bench.objects.asked.clear()
    bench.rejoin()
    assert not any(bench.objects.counts[one] for one in ("put", "create", "swap", "delete"))
    assert not [key for _, key in bench.objects.asked if key.endswith(".log")]
    assert text_of(bench.log) == text
    assert bench.log.snapshot.end == other.log.snapshot.end
    mine, owners = bench.log.state.epochs.entries, other.log.state.epochs.entries
    assert mine == owners or (not more and mine == owners[:1])  # it begins with a record
    assert not bench.diverged()
    assert local & copied <= set(bench.local_names(".log"))
    bench.restart()
    assert text_of(bench.log) == text


def test_a_directory_that_returned_stores_nothing_until_it_is_promoted() -> None:
    bench, other, text = pair(KEPT)
    bench.rejoin()
    with pytest.raises(FencedError):
        bench.send()
    text += other.fill(3, first=200)
    other.send()
    done = bench.promoted_again()
    assert not done.problems
    assert text_of(bench.log) == text
    text += bench.fill(9, first=300)
    bench.send()
    bench.tiering.copy(no_throttle)
    assert bench.log.last_epoch > other.log.state.epochs.latest
    other.fill(1)
    with pytest.raises((FencedError, RemoteStorageError)):
        other.send()
    assert text_of(bench.promoted("c")[0].log) == text


def test_logs_that_grew_on_neither_machine_since_are_the_same() -> None:
    bench = JournalBench(KEPT)
    text = bench.fill(20)
    bench.tiering.copy(no_throttle)
    bench.send()
    bench.promoted()
    assert not bench.diverged()
    before = bench.local_names(".log")
    bench.rejoin()
    assert text_of(bench.log) == text
    assert bench.local_names(".log") == before


Steps = Callable[[JournalBench, int | None], object]


@pytest.mark.parametrize("steps", [JournalBench.rejoin, JournalBench.promoted_again])
def test_a_stop_at_any_change_of_the_disk_is_completed_by_the_same(steps: Steps) -> None:
    stopped = 0
    for number in itertools.count(0, 5):
        bench, _, text = pair(KEPT)
        if steps is JournalBench.promoted_again:
            bench.rejoin()
        copied = bench.local_names(".log")
        try:
            steps(bench, number)
            break
        except Stopped:
            stopped += 1
        bench.disk.live_on()
        steps(bench, None)
        assert text_of(bench.log) == text, number
        assert set(bench.local_names(".log")) <= set(copied), number
        kept = {f"{base:020d}.log" for base in bench.tier.entries} & set(bench.local_names(".log"))
        assert kept, number
    assert stopped > 5


def test_failures_and_lost_answers_of_a_second_promotion_are_repeated() -> None:
    for operation, is_lost in itertools.product(
        ("create", "swap", "get", "list_level"), (False, True)
    ):
        for key in ("logfs-journal/*", "*/logfs-head"):
            bench, _, text = pair(KEPT)
            bench.rejoin()
            (bench.objects.lose_reply_of if is_lost else bench.objects.fail_next)(operation, key)
            for _ in range(3):
                try:
                    bench.promoted_again()
                    break
                except OSError:
                    continue
            bench.objects.heal()
            text += bench.fill(3, first=700)
            bench.send()
            assert text_of(bench.promoted("c")[0].log) == text


@pytest.mark.parametrize("seed", range(20))
def test_machines_that_take_turns_lose_nothing_that_was_sent(seed: int) -> None:
    random_ = random.Random(seed)
    benches = {"a": JournalBench({**KEPT, "internal.segment.bytes": "400"})}
    owner, sent, number = "a", b"", 0
    for _ in range(40):
        bench = benches[owner]
        match random_.choice(["write", "write", "send", "copy", "drop", "roll", "switch"]):
            case "write":
                count = random_.randrange(1, 6)
                bench.fill(count, first=number)
                number += count
            case "send":
                bench.send()
                sent = text_of(bench.log)
            case "copy":
                bench.tiering.copy(no_throttle)
            case "drop":
                bench.tier_all()
            case "roll":
                bench.log.roll(bench.now_ms)
            case "switch" if sent:
                new = random_.choice([one for one in "abc" if one != owner])
                if new in benches:
                    returned = benches[new]
                    returned.rejoin()
                    assert not returned.diverged()
                    returned.promoted_again()
                else:
                    returned, _ = bench.promoted(new)
                there = text_of(returned.log)
                assert there.startswith(sent)
                assert text_of(bench.log).startswith(there)
                benches[new], owner, sent = returned, new, there
