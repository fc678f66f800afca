"""A data directory: its lock, its topics, their ids and configuration."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.errors import (
    IllegalTopicNameError,
    InvalidConfigError,
    LockedError,
    LogfsError,
    NoSuchPartitionError,
    NoSuchTopicError,
    ReadOnlyError,
    TopicExistsError,
)
from logfs.log import names
from logfs.log.host import Host
from logfs.log.store import LogStore
from tests.fakes import START_MS, FakeDisk
from tests.log.looking import directories
from tests.log.support import DIRECTORY, Bench, lines_of

CONFIG_TITLE = "# logfs topic configuration, version 1\n"


# The lock


def test_a_second_store_is_refused_until_the_first_is_closed() -> None:
    bench = Bench()
    with pytest.raises(LockedError, match=r"\.lock is locked by this process"):
        bench.open()
    bench.store.close(bench.now_ms)
    bench.open()


def test_a_store_that_cannot_be_opened_leaves_no_lock() -> None:
    bench = Bench()
    bench.store.close(bench.now_ms)
    bench.disk.fail_next("list", "")
    with pytest.raises(OSError, match=str(errno.EIO)):
        bench.open()
    bench.open()


def test_a_read_only_store_needs_no_lock_and_takes_none() -> None:
    bench = Bench()
    bench.write(b"a")
    for _ in range(2):
        other = bench.open(read_only=True)
        assert lines_of(other.partition("t", 0)) == [b"a"]
        other.close(bench.now_ms)


HOLDER = """
import sys
from logfs.config import StoreConfig
from logfs.disk.posix import PosixDisk
from logfs.log.host import Host
from logfs.log.store import LogStore
store = LogStore.open(PosixDisk(sys.argv[1]), StoreConfig(), Host("1", bytes), now_ms=0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_the_refusal_names_the_process_that_owns_the_directory(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(LockedError, match=rf"\.lock is locked by process {holder.pid}: stop"):
            LogStore.open(PosixDisk(str(tmp_path)), StoreConfig(), Host("1", bytes), now_ms=0)
        holder.stdin.close()


# Topics


def test_a_topic_has_its_partitions_at_once_and_after_a_power_cut() -> None:
    bench = Bench()
    bench.store.create_topic("orders", 3, {"retention.ms": "5"}, bench.now_ms)
    for _ in range(2):
        store = bench.store
        assert store.topics() == ["orders", "t"]
        assert store.partitions("orders") == [0, 1, 2]
        assert store.topic_properties("orders") == {"retention.ms": "5"}
        assert len(store.all_partitions()) == 4
        bench.crash(None)


def test_a_missing_topic_or_partition_is_named() -> None:
    store = Bench().store
    calls: list[Callable[[], object]] = [
        lambda: store.partitions("no"),
        lambda: store.partition("no", 0),
        lambda: store.grow_topic("no", 2, START_MS),
        lambda: store.delete_topic("no", START_MS),
        lambda: store.alter_topic("no", {}),
        lambda: store.topic_config("no"),
        lambda: store.topic_id("no"),
    ]
    for call in calls:
        with pytest.raises(NoSuchTopicError, match="no topic no"):
            call()
    with pytest.raises(NoSuchPartitionError, match="topic t has no partition 1"):
        store.partition("t", 1)


@pytest.mark.parametrize(
    ("name", "partitions", "properties", "error"),
    [
        ("a/b", 1, {}, IllegalTopicNameError),
        (".segments", 1, {}, IllegalTopicNameError),
        ("", 1, {}, IllegalTopicNameError),
        ("x" * 250, 1, {}, IllegalTopicNameError),
        ("t", 1, {}, TopicExistsError),
        ("new", 0, {}, InvalidConfigError),
        ("new", 1, {"retention.msec": "1"}, InvalidConfigError),
        ("new", 1, {"segment.bytes": "few"}, InvalidConfigError),
    ],
)
def test_a_refused_topic_leaves_nothing(
    name: str, partitions: int, properties: dict[str, str], error: type[LogfsError]
) -> None:
    bench = Bench()
    before = bench.disk.list("")
    with pytest.raises(error):
        bench.store.create_topic(name, partitions, properties, bench.now_ms)
    assert bench.disk.list("") == before
    assert bench.store.topics() == ["t"]


@pytest.mark.parametrize("operation", ["make_directory", "rename", "open", "pwrite", "sync"])
def test_a_topic_that_the_disk_refuses_leaves_nothing_and_can_be_made_later(operation: str) -> None:
    bench = Bench()
    bench.disk.fail_next(operation, "new-0*", errno.ENOSPC)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        bench.store.create_topic("new", 1, {}, bench.now_ms)
    assert bench.store.topics() == ["t"]
    assert directories(bench.disk) == [DIRECTORY]
    bench.store.create_topic("new", 1, {}, bench.now_ms)
    assert bench.crash(None) is bench.store.partition("t", 0)
    assert bench.store.partitions("new") == [0]


def test_a_topic_is_created_or_grown_completely_or_not_at_all() -> None:
    bench = Bench()
    before = bench.disk.list("")
    changes: list[Callable[[], None]] = [
        lambda: bench.store.create_topic("new", 3, {}, bench.now_ms),
        lambda: bench.store.grow_topic("t", 4, bench.now_ms),
    ]
    for change in changes:
        bench.disk.fail_next("pwrite", "*-2.*/*", errno.ENOSPC)
        with pytest.raises(OSError, match=str(errno.ENOSPC)):
            change()
        assert bench.disk.list("") == before
        assert bench.store.topics() == ["t"]
        assert bench.store.partitions("t") == [0]


def test_a_topic_grows_and_never_shrinks() -> None:
    bench = Bench({"retention.ms": "5"})
    bench.write(b"a")
    bench.store.grow_topic("t", 3, bench.now_ms)
    bench.store.grow_topic("t", 2, bench.now_ms)
    bench.crash(None)
    assert bench.store.partitions("t") == [0, 1, 2]
    logs = bench.store.all_partitions()
    assert len({log.topic_id for log in logs}) == 1
    assert {log.config.retention_ms for log in logs} == {5}


def test_a_missing_partition_between_others_is_created() -> None:
    bench = Bench()
    bench.store.grow_topic("t", 3, bench.now_ms)
    bench.disk.kill()
    bench.disk.remove_tree("t-1")
    bench.store = bench.open()
    assert bench.store.partitions("t") == [0, 2]
    bench.store.grow_topic("t", 3, bench.now_ms)
    assert bench.store.partitions("t") == [0, 1, 2]


def test_a_topic_keeps_its_id_and_no_other_topic_gets_it() -> None:
    bench = Bench()
    bench.store.create_topic("u", 2, {}, bench.now_ms)
    ids = [bench.store.topic_id(topic) for topic in ("t", "u")]
    assert len(set(ids)) == 2
    for topic_id in ids:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", topic_id or "")
    bench.restart()
    assert [bench.store.topic_id(topic) for topic in ("t", "u")] == ids
    metadata = bench.disk.read("u-1/partition.metadata")
    assert metadata == f"version: 0\ntopic_id: {ids[1]}".encode()
    bench.store.delete_topic("u", bench.now_ms)
    bench.store.create_topic("u", 1, {}, bench.now_ms)
    assert bench.store.topic_id("u") not in ids


def test_a_read_only_store_refuses_every_change() -> None:
    bench = Bench()
    store = bench.open(read_only=True)
    calls: list[Callable[[], object]] = [
        lambda: store.create_topic("new", 1, {}, START_MS),
        lambda: store.grow_topic("t", 2, START_MS),
        lambda: store.delete_topic("t", START_MS),
        lambda: store.alter_topic("t", {"retention.ms": "1"}),
        store.checkpoint,
        lambda: store.partition("t", 0).roll(START_MS),
    ]
    for call in calls:
        with pytest.raises(ReadOnlyError, match="read-only"):
            call()


# Configuration


def test_the_configuration_is_a_file_in_each_partition_with_its_version() -> None:
    bench = Bench()
    bench.store.create_topic("u", 2, {"retention.ms": "5", "cleanup.policy": "compact"}, START_MS)
    for number in range(2):
        text = bench.disk.read(f"u-{number}/{names.TOPIC_CONFIG}").decode()
        title, *rows = text.splitlines(keepends=True)
        assert title == CONFIG_TITLE
        assert sorted(rows) == ["cleanup.policy=compact\n", "retention.ms=5\n"]
    assert bench.file(names.TOPIC_CONFIG).decode() == CONFIG_TITLE


def test_an_alteration_takes_effect_at_once_everywhere_and_lasts() -> None:
    bench = Bench({"retention.ms": "5"})
    bench.store.grow_topic("t", 2, bench.now_ms)
    bench.store.alter_topic("t", {"internal.segment.bytes": "150", "retention.ms": None})
    for _ in range(2):
        configs = [log.config for log in bench.store.all_partitions()]
        assert [c.effective_segment_bytes for c in configs] == [150, 150]
        assert bench.store.topic_properties("t") == {"internal.segment.bytes": "150"}
        bench.crash(None)
    bench.write(b"a", b"b", b"c", b"d")
    assert len(bench.log.snapshot.segments) > 1


@pytest.mark.parametrize("changes", [{"retention": "1"}, {"retention.ms": "x"}, {"no": None}])
def test_an_alteration_that_is_wrong_changes_nothing(changes: dict[str, str | None]) -> None:
    bench = Bench({"retention.ms": "5"})
    before = bench.file(names.TOPIC_CONFIG)
    with pytest.raises(InvalidConfigError):
        bench.store.alter_topic("t", {"segment.ms": "7", **changes})
    assert bench.file(names.TOPIC_CONFIG) == before
    assert bench.store.topic_properties("t") == {"retention.ms": "5"}


def test_the_store_gives_topics_their_defaults() -> None:
    config = StoreConfig.from_properties({"log.retention.ms": "77", "log.segment.bytes": "2000000"})
    ids = iter(range(1, 100))
    host = Host("boot", lambda: next(ids).to_bytes(16, "big"))
    store = LogStore.open(FakeDisk(), config, host, now_ms=START_MS)
    store.create_topic("t", 1, {"segment.bytes": "3000000"}, START_MS)
    found = store.topic_config("t")
    assert (found.retention_ms, found.segment_bytes) == (77, 3_000_000)
    assert store.topic_properties("t") == {"segment.bytes": "3000000"}


def test_a_topic_without_configuration_is_served_with_the_defaults() -> None:
    bench = Bench()
    bench.write(b"a")
    assert bench.store.has_config("t")
    bench.store.close(bench.now_ms)
    for name in (names.TOPIC_CONFIG, names.PARTITION_METADATA, names.LEADER_EPOCH_CHECKPOINT):
        bench.disk.remove(f"{DIRECTORY}/{name}")
    bench.store = bench.open()
    assert (bench.store.has_config("t"), bench.store.topic_properties("t")) == (False, {})
    assert bench.store.topic_id("t") is None
    bench.write(b"b")
    assert lines_of(bench.log) == [b"a", b"b"]
    bench.store.alter_topic("t", {"cleanup.policy": "delete"})
    assert bench.store.has_config("t")


def test_a_configuration_that_the_disk_cannot_tell_of_is_not_replaced() -> None:
    bench = Bench()
    config = f"{DIRECTORY}/{names.TOPIC_CONFIG}"
    before = bench.disk.read(config)
    bench.disk.fail("stat", f"{DIRECTORY}/*")
    assert bench.store.has_config("t") is None
    with pytest.raises(OSError, match="Input/output error"):
        bench.store.alter_topic("t", {"flush.ms": "5"})
    bench.disk.heal()
    assert bench.disk.read(config) == before
    assert bench.store.has_config("t")


@pytest.mark.parametrize("fails", [False, True])
def test_the_first_configuration_of_a_topic_never_deletes_by_the_defaults(fails: bool) -> None:
    """Between any two operations on the disk, retention may look at the topic."""
    bench = Bench()
    bench.store.grow_topic("t", 3, bench.now_ms)
    bench.store.close(bench.now_ms)
    for number in range(3):
        bench.disk.remove(f"t-{number}/{names.TOPIC_CONFIG}")
    bench.store = bench.open()
    looks = list[bool]()

    def look(*_: object) -> None:
        bench.disk.before = None
        if bench.store.has_config("t"):
            logs = [bench.store.partition("t", number) for number in range(3)]
            looks.append(any(log.config.cleanup_policy for log in logs))
        bench.disk.before = look

    bench.disk.before = look
    if fails:
        bench.disk.fail_next("rename", f"*t-2/{names.TOPIC_CONFIG}*")
        with pytest.raises(OSError, match=str(errno.EIO)):
            bench.store.alter_topic("t", {"flush.ms": "5"})
        bench.disk.before = None
        assert not bench.store.has_config("t")
        assert bench.store.topic_config("t").flush_ms != 5
    else:
        bench.store.alter_topic("t", {"flush.ms": "5"})
        bench.disk.before = None
        assert bench.store.has_config("t")
    assert looks
    assert not any(looks)
