"""What a store promises: the one in memory of the tests, and a real server through obstore."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logfs.disk.remote.objects import ChangedError, NoBucketError, ObjectStore
from logfs.disk.remote.s3 import StoreSettings, open_store
from logfs.disk.remote.urls import parse_store_url
from logfs.errors import InvalidConfigError
from tests.mounting import ROOT
from tests.remote.fakestore import FakeStore
from tests.remote.servers import Bucket, ObjectServer

MIB = 1 << 20


SMALL_PUTS = """
import os, resource, sys, threading, time
from logfs.disk.remote.s3 import StoreSettings, open_store

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

store = open_store(sys.argv[1], StoreSettings(os.environ, time.monotonic))
store.create("first", b"1")
before = peak()
threads = [threading.Thread(target=store.put, args=(str(n), [b"x"])) for n in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(peak() - before)
"""
"""Prints by how many MiB its memory has grown."""


@pytest.fixture(params=["fake", pytest.param("s3", marks=pytest.mark.programs)])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    if request.param == "fake":
        return FakeStore()
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket.open()


def test_an_object_has_the_bytes_that_were_put(store: ObjectStore) -> None:
    store.put("a/b", [b"one ", bytearray(b"two "), memoryview(b"three")])
    data, stat = store.get("a/b", 100)
    assert data == b"one two three"
    assert (stat.key, stat.size) == ("a/b", 13)
    assert store.stat("a/b") == stat
    assert bytes(store.get_range("a/b", 4, 5)) == b"two t"


def test_an_object_may_be_empty(store: ObjectStore) -> None:
    store.put("a", [])
    assert store.get("a", 0)[0] == b""


def test_a_missing_object_is_told_by_its_address(store: ObjectStore) -> None:
    requests: list[Callable[[], object]] = [
        lambda: store.get("a/none", 100),
        lambda: store.get_range("a/none", 0, 1),
        lambda: store.stat("a/none"),
    ]
    for request in requests:
        with pytest.raises(FileNotFoundError) as caught:
            request()
        assert caught.value.filename == f"{store.url}/a/none"


def test_an_object_that_is_too_large_is_not_read(store: ObjectStore) -> None:
    store.put("a", [b"12345"])
    with pytest.raises(OSError, match="5 bytes") as caught:
        store.get("a", 4)
    assert caught.value.errno == errno.EFBIG


def test_a_range_after_the_end_is_an_error(store: ObjectStore) -> None:
    store.put("a", [b"12345"])
    for start in (3, 10):
        with pytest.raises(OSError, match=r"Range|bytes") as caught:
            store.get_range("a", start, 5)
        assert caught.value.errno == errno.EIO


def test_one_of_several_creates_an_object(store: ObjectStore) -> None:
    first = store.create("head", b"first")
    with pytest.raises(FileExistsError):
        store.create("head", b"second")
    data, stat = store.get("head", 100)
    assert (data, stat.etag) == (b"first", first)


def test_a_swap_needs_the_version_that_was_read(store: ObjectStore) -> None:
    first = store.create("head", b"first")
    second = store.swap("head", b"second", first)
    with pytest.raises(ChangedError) as caught:
        store.swap("head", b"third", first)
    assert caught.value.filename == f"{store.url}/head"
    data, stat = store.get("head", 100)
    assert (data, stat.etag) == (b"second", second)
    with pytest.raises(ChangedError):
        store.swap("none", b"third", second)


def test_exactly_one_writer_wins_a_race(store: ObjectStore) -> None:
    etag = store.create("head", b"0")
    for turn in range(5):
        won = winners(store, etag, turn)
        assert len(won) == 1
        etag = won[0]


def winners(store: ObjectStore, etag: str, turn: int) -> list[str]:
    """Return what six swaps of one version at once have returned."""
    won: list[str] = []
    together = threading.Barrier(6)

    def swap(number: int) -> None:
        together.wait()
        with contextlib.suppress(ChangedError):
            won.append(store.swap("head", f"{turn} {number}".encode(), etag))

    threads = [threading.Thread(target=swap, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_deleted_object_is_gone_and_may_be_deleted_again(store: ObjectStore) -> None:
    store.put("a", [b"1"])
    store.delete("a")
    store.delete("a")
    with pytest.raises(FileNotFoundError):
        store.stat("a")


def test_a_level_lists_directories_and_objects(store: ObjectStore) -> None:
    for key in ("a/1/x", "a/2/x", "a/2/y", "a/z", "ab/1", "top"):
        store.put(key, [key.encode()])
    top = store.list_level("")
    assert top.directories == ["a", "ab"]
    assert [stat.key for stat in top.objects] == ["top"]
    below = store.list_level("a/")
    assert below.directories == ["1", "2"]
    assert below.objects == [store.stat("a/z")]
    assert store.list_level("none/") == ([], [])


def test_all_objects_with_a_prefix_are_listed(store: ObjectStore) -> None:
    keys = {"a/1/x", "a/2/x", "a/22", "ab"}
    for key in keys:
        store.put(key, [key.encode()])
    assert {stat.key for stat in store.list_all("")} == keys
    assert {stat.key for stat in store.list_all("a/")} == {"a/1/x", "a/2/x", "a/22"}
    assert {stat.key for stat in store.list_all("a/2")} == {"a/2/x", "a/22"}
    assert list(store.list_all("none/")) == []


def test_an_error_of_the_contents_ends_an_upload(store: ObjectStore) -> None:
    problem = OSError(errno.EIO, "the disk fails", "local")

    def parts() -> Iterator[bytes]:
        yield b"one"
        raise problem

    with pytest.raises(OSError, match="the disk fails") as caught:
        store.put("a", parts())
    assert caught.value is problem
    with pytest.raises(FileNotFoundError):
        store.stat("a")


@pytest.mark.programs
def test_a_large_object_is_stored_in_parts(bucket: Bucket) -> None:
    store = bucket.open()
    parts = [bytes([number]) * (15 * MIB) for number in range(5)]
    store.put("large", parts)
    assert store.stat("large").size == 75 * MIB
    for start in (0, 15 * MIB - 2, 60 * MIB - 2, 75 * MIB - 4):
        expected = b"".join(bytes([byte // (15 * MIB)]) for byte in range(start, start + 4))
        assert bytes(store.get_range("large", start, 4)) == expected

    problem = OSError(errno.EIO, "the disk fails", "local")

    def broken() -> Iterator[bytes]:
        yield from parts
        raise problem

    with pytest.raises(OSError, match="the disk fails") as caught:
        store.put("other", broken())
    assert caught.value is problem
    with pytest.raises(FileNotFoundError):
        store.stat("other")


@pytest.mark.programs
def test_small_objects_that_are_put_at_once_take_little_memory(bucket: Bucket) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SMALL_PUTS, bucket.url],
        env={**os.environ, **bucket.environment, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) < 48


@pytest.mark.programs
def test_objects_that_are_put_one_after_the_other_have_their_own_bytes(bucket: Bucket) -> None:
    store = bucket.open()
    contents = {f"o{n}": bytes([n]) * size for n, size in enumerate((70_000, 3 * MIB, 5, 0, MIB))}
    for key, data in contents.items():
        store.put(key, [data[:50_000], data[50_000:]])
        assert bytes(store.get(key, 10 * MIB)[0]) == data
    rest = {f"t{key}": data for key, data in contents.items()}
    threads = [threading.Thread(target=store.put, args=(key, [rest[key]])) for key in rest]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key: store.get(key, 10 * MIB)[0] for key in rest} == rest


@pytest.mark.programs
def test_a_list_has_more_than_one_answer_of_the_server(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logfs.disk.remote.s3._PAGE", 10)
    store = bucket.open()
    keys = [f"a/{number:02}" for number in range(25)]
    for key in keys:
        store.put(key, [b"x"])
    assert sorted(stat.key for stat in store.list_all("a/")) == keys


@pytest.mark.programs
def test_a_missing_bucket_is_told(object_server: ObjectServer) -> None:
    missing = Bucket(object_server, "no-such-bucket", "logs", object_server.endpoint)
    store = missing.open()
    for request in (lambda: store.get("a", 10), lambda: store.list_level("")):
        with pytest.raises(NoBucketError, match="there is no such bucket") as caught:
            request()
        assert caught.value.errno == errno.ENOENT


@pytest.mark.programs
def test_a_forked_process_gets_an_error(bucket: Bucket) -> None:
    store = bucket.open()
    store.put("a", [b"1"])
    child = os.fork()
    if child == 0:
        try:
            store.get("a", 10)
        except OSError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store.get("a", 10)[0] == b"1"


@pytest.mark.programs
def test_an_unknown_user_is_refused(bucket: Bucket) -> None:
    environment = {"AWS_ACCESS_KEY_ID": "stranger", "AWS_SECRET_ACCESS_KEY": "wrong"}
    settings = StoreSettings(environment, time.monotonic, bucket.endpoint)
    store = open_store(bucket.url, settings)
    requests: list[Callable[[], object]] = [
        lambda: store.put("a", [b"1"]),
        lambda: store.get("a", 10),
        lambda: store.list_level(""),
    ]
    for request in requests:
        with pytest.raises(PermissionError, match="refused the credentials"):
            request()


@pytest.mark.parametrize(
    "url", ["", "data", "s3:/bucket", "s3://", "http://bucket/x", "s3://b/c//x", "s3://b/../x"]
)
def test_what_is_no_address_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"address of an object store|a prefix has"):
        open_store(url, StoreSettings({}, time.monotonic))


def test_an_address_has_a_bucket_and_a_prefix() -> None:
    assert parse_store_url("s3://logs/a/b/") == ("s3", "logs", "a/b")
    assert str(parse_store_url("gs://logs/")) == "gs://logs"


def test_settings_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    profile = {"AWS_PROFILE": "none", "HOME": str(tmp_path)}
    for settings, problem in (
        (StoreSettings({}, time.monotonic, "localhost:9000"), "begin with http"),
        (StoreSettings({"AWS_CA_BUNDLE": "/none"}, time.monotonic), "AWS_CA_BUNDLE=/none"),
        (StoreSettings(profile, time.monotonic), "the profile none"),
    ):
        with pytest.raises(InvalidConfigError, match=problem):
            open_store("s3://logs/a", settings)
