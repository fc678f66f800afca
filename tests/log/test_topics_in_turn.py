"""Changes of topics at the same time: one whose disk hangs keeps no other topic."""

import threading
from collections.abc import Callable

import pytest

from logfs.log.attributes import Ownership
from logfs.log.store import LogStore
from logfs.types import TopicPartition
from tests.fakes import START_MS
from tests.log.support import Bench

LATER_MS = START_MS + 10**9
PATIENCE_S = 20

CHANGES: dict[str, Callable[[LogStore, str], object]] = {
    "create": lambda store, name: store.create_topic(f"{name}-new", 2, {}, START_MS),
    "grow": lambda store, name: store.grow_topic(name, 3, START_MS),
    "alter": lambda store, name: store.alter_topic(name, {"retention.ms": "5000"}),
    "rename": lambda store, name: store.rename_topic(name, f"{name}-other", START_MS),
    "delete": lambda store, name: store.delete_topic(name, START_MS),
    "delete at once": lambda store, name: store.delete_topic(name, START_MS, at_once=True),
    "delete if empty": lambda store, name: store.delete_empty_topic(name, START_MS),
    "undelete": lambda store, name: store.undelete_topic(f"{name}-old", START_MS),
    "reload": lambda store, name: store.reload(TopicPartition(name, 0), START_MS),
    "remove": lambda store, name: store.remove_due_files(LATER_MS),
}


def a_store() -> Bench:
    bench = Bench()
    for name in ("bad", "good"):
        bench.store.create_topic(f"{name}-old", 1, {}, START_MS)
        bench.store.create_topic(name, 1, {}, START_MS)
        bench.store.delete_topic(f"{name}-old", START_MS)
    return bench


def both(name: str, other: str) -> None:
    """Have the disk hang under a change of one topic while another topic is changed."""
    bench, hangs, goes_on = a_store(), threading.Event(), threading.Event()

    def hang(_operation: str, file: str, _size: int) -> None:
        if file.startswith("bad"):
            hangs.set()
            goes_on.wait()

    bench.disk.before = hang
    bad = threading.Thread(target=CHANGES[name], args=(bench.store, "bad"), daemon=True)
    good = threading.Thread(target=CHANGES[other], args=(bench.store, "good"), daemon=True)
    bad.start()
    try:
        assert hangs.wait(PATIENCE_S)
        good.start()
        good.join(PATIENCE_S)
        assert not good.is_alive(), f"{other} waits for {name}"
    finally:
        goes_on.set()
    bad.join(PATIENCE_S)
    assert not bad.is_alive()
    bench.disk.before = None
    topics = {topic: bench.store.partitions(topic) for topic in bench.store.topics()}
    bench.restart()
    assert topics == {topic: bench.store.partitions(topic) for topic in bench.store.topics()}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_whose_disk_hangs_keeps_no_change_of_another_topic(name: str) -> None:
    for other in CHANGES:
        if other != "remove":  # that is of all topics
            both(name, other)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_changed_at_the_same_time_is_all_there(seed: int) -> None:
    bench = Bench()
    store = bench.store

    def change(number: int) -> None:
        for turn in range(6):
            topic = f"topic-{number}"
            store.create_topic(topic, 1 + turn % 3, {}, START_MS, {None: Ownership(uid=number)})
            store.attributes.set(topic, 0, mode=0o600 + turn)
            if turn < 5:
                store.delete_topic(topic, START_MS, at_once=(seed + turn) % 2 == 0)
            store.remove_due_files(LATER_MS)
            store.checkpoint()

    threads = [threading.Thread(target=change, args=(number,), daemon=True) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    bench.restart()
    for opened in (store, bench.store):
        for number in range(6):
            assert opened.partitions(f"topic-{number}") == [0, 1, 2]
            assert opened.attributes.get(f"topic-{number}", None) == Ownership(uid=number)
            assert opened.attributes.get(f"topic-{number}", 0) == Ownership(mode=0o605)
    assert not [name for name, _ in bench.disk.list("") if name.endswith("-delete")]
