"""Leftovers of jobs: batches are completed; files are removed unless a job may need them."""

import logging

import pytest

from logfs.errors import DataLossError
from logfs.log.names import format_ledger_file
from logfs.log.publishing.ledger import read_ledger
from logfs.log.publishing.leftovers import EXPIRATION_MS, LOOK_INTERVAL_MS
from logfs.log.publishing.publish import forget, publish
from logfs.log.publishing.staging import PublishOptions, query_key
from tests.fakes import FakeDisk
from tests.log.publishing import (
    QUERY,
    UP,
    lines_in,
    publish_up_to,
    stage,
    staged_names,
    two_topics,
    values_of,
)
from tests.log.support import DIRECTORY, Bench

LEDGER = format_ledger_file(query_key(QUERY))


def own_files(disk: FakeDisk) -> list[str]:
    return [name for name, _ in disk.list("") if name.endswith((".ledger", ".tmp"))]


def age(bench: Bench, path: str, ms: int) -> None:
    bench.disk.touch_times(path, bench.now_ms - ms)


def test_a_query_of_one_batch_leaves_nothing() -> None:
    bench = two_topics()
    staged = stage(bench.disk, values_of("v", 4))
    assert publish(bench.store, QUERY, 0, [staged], bench.now_ms, PublishOptions(is_single=True))
    assert not publish(
        bench.store, QUERY, 0, [staged], bench.now_ms, PublishOptions(is_single=True)
    )
    forget(bench.store, QUERY)
    forget(bench.store, QUERY)
    assert own_files(bench.disk) == staged_names(bench.disk) == []
    assert lines_in(bench.store) == values_of("v", 4)


def test_a_half_published_batch_is_not_forgotten() -> None:
    bench = two_topics()
    publish_up_to(bench, [stage(bench.disk, values_of("v", 9))], 2)
    forget(bench.store, QUERY)
    assert own_files(bench.disk) == [LEDGER]


def test_an_old_ledger_of_a_query_of_one_batch_is_removed() -> None:
    bench = two_topics()
    for query, is_single in (("single", True), ("stream", False)):
        staged = stage(bench.disk, [b"v"], query=query)
        publish(bench.store, query, 0, [staged], bench.now_ms, PublishOptions(is_single))
    single, stream = (format_ledger_file(query_key(query)) for query in ("single", "stream"))
    for name in (single, stream):
        age(bench, name, EXPIRATION_MS)
    bench.restart()
    assert own_files(bench.disk) == sorted([single, stream])
    for name in (single, stream):
        age(bench, name, EXPIRATION_MS + 1)
    bench.restart()
    assert own_files(bench.disk) == [stream]
    assert read_ledger(bench.disk, "stream").done == 0


def test_staged_files_of_published_batches_are_removed_at_the_next_start() -> None:
    bench = two_topics()
    publish(bench.store, QUERY, 3, [stage(bench.disk, [b"v"], batch=3)], bench.now_ms)
    slow = stage(bench.disk, [b"slow"], batch=3, to=UP)
    later = stage(bench.disk, [b"later"], batch=4, to=UP)
    theirs = stage(bench.disk, [b"theirs"], query="another")
    bench.restart()
    assert staged_names(bench.disk) == sorted([theirs.name, later.name])
    assert slow.name not in staged_names(bench.disk)
    assert publish(bench.store, QUERY, 4, [later], bench.now_ms)
    assert lines_in(bench.store, "u") == [b"later"]


def test_files_of_an_abandoned_job_stay_for_a_week() -> None:
    bench = two_topics()
    old, young = stage(bench.disk, [b"old"]), stage(bench.disk, [b"young"])
    age(bench, old.path, EXPIRATION_MS + 1)
    age(bench, young.path, EXPIRATION_MS)
    bench.store.tidy(bench.now_ms)
    assert len(staged_names(bench.disk)) == 2, "it looks once in an hour"
    bench.store.tidy(bench.now_ms + LOOK_INTERVAL_MS)
    assert staged_names(bench.disk) == []
    with pytest.raises(DataLossError, match="staged records are gone before"):
        publish(bench.store, QUERY, 0, [young], bench.now_ms)
    assert publish(bench.store, QUERY, 0, [stage(bench.disk, [b"anew"])], bench.now_ms)
    assert lines_in(bench.store) == [b"anew"]


@pytest.mark.allow_log("half published and waits", "t/0 is offline")
def test_files_of_an_intent_are_kept_at_any_age(caplog: pytest.LogCaptureFixture) -> None:
    bench = two_topics()
    values = values_of("v", 9)
    staged = stage(bench.disk, values)
    publish_up_to(bench, [staged], 2)
    age(bench, staged.path, EXPIRATION_MS + 1)
    bench.disk.kill()
    bench.disk.fail_next_write("*.log")
    with caplog.at_level(logging.WARNING):
        bench.store = bench.open()
    assert f"batch 0 of {QUERY} is half published and waits for the next start" in caplog.text
    assert staged_names(bench.disk) == [staged.name]
    bench.kill()
    assert staged_names(bench.disk) == []
    assert lines_in(bench.store) == values


@pytest.mark.allow_log("it does not parse")
def test_files_of_an_unreadable_ledger_are_kept() -> None:
    bench = two_topics()
    staged = stage(bench.disk, [b"v"])
    age(bench, staged.path, EXPIRATION_MS + 1)
    bench.disk.replace(LEDGER, b"{")
    bench.restart()
    assert staged_names(bench.disk) == [staged.name]
    bench.disk.remove(LEDGER)
    bench.restart()
    assert staged_names(bench.disk) == []


def test_an_interrupted_write_of_a_ledger_leaves_nothing() -> None:
    bench = two_topics()
    bench.disk.replace(f"{LEDGER}.tmp", b'{"ver')
    bench.disk.replace("other.tmp", b"")
    bench.restart()
    assert own_files(bench.disk) == ["other.tmp"]


def test_a_store_that_is_read_only_leaves_everything() -> None:
    bench = two_topics()
    publish_up_to(bench, [stage(bench.disk, values_of("v", 9))], 2)
    age(bench, stage(bench.disk, [b"old"], query="old").path, EXPIRATION_MS + 1)
    bench.disk.kill()
    before = {name: bench.file(name) for name, _ in bench.disk.list(DIRECTORY)}
    bench.open(read_only=True)
    assert {name: bench.file(name) for name, _ in bench.disk.list(DIRECTORY)} == before
