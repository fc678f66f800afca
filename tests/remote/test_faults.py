"""A real store that is slow, hangs, refuses, cuts answers short, or returns other bytes."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logfs.disk.remote import s3
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import UNCHECKED
from logfs.disk.remote.probing import PROBE, probe
from logfs.disk.remote.remotefile import RemoteFiles
from logfs.disk.vfs import ReadableBuffer
from logfs.errors import InvalidConfigError
from logfs.records.checksum import crc32c
from tests.processes import Process, wait_until
from tests.remote import programs
from tests.remote.answers import Answers, refusal
from tests.remote.fakestore import FakeStore
from tests.remote.files import MIB, StoredLog, opened, some_bytes
from tests.remote.servers import ACCESS_KEY, SECRET_KEY, Bucket, FaultProxy, free_port

pytestmark = pytest.mark.programs

DATA = some_bytes(20 * MIB + 777)


@pytest.fixture
def answers(bucket: Bucket) -> Iterator[Answers]:
    with Answers(bucket.endpoint) as proxy:
        yield proxy


@pytest.fixture
def log(bucket: Bucket) -> StoredLog:
    """A log of which both objects are in the bucket."""
    memory = FakeStore()
    log = StoredLog(memory, "orders-0/a", DATA)
    store = bucket.open()
    for key, data in memory.objects.items():
        store.put(key, [data])
    return log


def files_of(store: ObjectStore) -> RemoteFiles:
    return RemoteFiles(store, crc32c, time.monotonic)


def read_all(store: ObjectStore, log: StoredLog) -> bytes:
    file = opened(files_of(store), log.part())
    pieces, position = [], 0
    while piece := file.pread(MIB // 2, position):
        pieces.append(piece)
        position += len(piece)
    return b"".join(pieces)


def test_a_distant_store_returns_the_same_bytes(
    bucket: Bucket, faults: FaultProxy, log: StoredLog
) -> None:
    store = bucket.through(faults).open()
    with faults.latency(20, jitter_ms=10), faults.bandwidth(40_000):
        assert read_all(store, log) == DATA


def test_reading_outlives_refused_connections(
    bucket: Bucket, faults: FaultProxy, log: StoredLog
) -> None:
    store = bucket.through(faults).open()
    file = opened(files_of(store), log.part())
    assert file.pread(10, 0) == DATA[:10]
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(file.pread(MIB, 9 * MIB)))
    with faults.refusing():
        reader.start()
        wait_until(lambda: store.retries > 1, "requests are repeated")  # type: ignore[attr-defined]
    reader.join()
    assert found == [DATA[9 * MIB : 10 * MIB]]


def test_a_store_that_stays_away_is_an_error_and_reads_continue_when_it_is_back(
    bucket: Bucket, faults: FaultProxy, log: StoredLog
) -> None:
    store = bucket.through(faults).open(timeout_s=0.5)
    file = opened(files_of(store), log.part())
    with faults.refusing():
        for _ in range(2):
            with pytest.raises(OSError, match="no connection to the store") as caught:
                file.pread(10, 0)
            assert caught.value.errno == errno.EIO
            assert str(caught.value.filename).startswith(bucket.url)
    assert file.pread(10, 0) == DATA[:10]


def test_a_store_that_does_not_answer_is_an_error(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_STALLED_S", 1)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        store = replace(bucket, endpoint=endpoint).open(timeout_s=0.5)
        with pytest.raises(TimeoutError, match=f"no answer from the store {endpoint}"):
            store.get("orders-0/a.log", 1 << 30)
        with pytest.raises(TimeoutError):
            store.list_level("")


def test_reading_outlives_a_store_that_hangs_for_a_while(
    bucket: Bucket, faults: FaultProxy, log: StoredLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "_STALLED_S", 1)
    store = bucket.through(faults).open()
    file = opened(files_of(store), log.part())
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(file.pread(MIB, 9 * MIB)))
    with faults.hanging():
        reader.start()
        wait_until(lambda: store.retries, "a request is repeated")  # type: ignore[attr-defined]
        assert not found
    reader.join()
    assert found == [DATA[9 * MIB : 10 * MIB]]


def test_answers_that_are_cut_short_are_repeated(
    bucket: Bucket, faults: FaultProxy, log: StoredLog
) -> None:
    store = bucket.through(faults).open()
    with faults.cutting(2 * MIB + 100):
        file = opened(files_of(store), log.part())
        # One request is longer than what a connection returns: it can never be answered.
        assert file.pread(MIB, 3 * MIB) == DATA[3 * MIB : 4 * MIB]
        assert file.pread(MIB, 9 * MIB) == DATA[9 * MIB : 10 * MIB]
        assert file.pread(MIB, 17 * MIB) == DATA[17 * MIB : 18 * MIB]
        short = bucket.through(faults).open(timeout_s=1)
        with pytest.raises(OSError, match="was lost") as caught:
            short.get_range(log.key, 0, 8 * MIB)
        assert caught.value.errno == errno.EIO
    assert store.retries > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_store_is_asked_again(
    bucket: Bucket, answers: Answers, log: StoredLog, status: int
) -> None:
    store = replace(bucket, endpoint=answers.endpoint).open()
    for request in (
        lambda: store.get(log.key, 1 << 30),
        lambda: store.get_range(log.key, 5, 5),
        lambda: store.stat(log.key),
        lambda: store.list_level("orders-0/"),
        lambda: list(store.list_all("orders-0/")),
        lambda: store.put("new/object", [b"1"]),
        lambda: store.delete("new/object"),
    ):
        answers.next = [status, status]
        request()
        assert not answers.next
    answers.always = status
    short = replace(bucket, endpoint=answers.endpoint).open(timeout_s=0.3)
    with pytest.raises(OSError, match=str(status)) as caught:
        short.get_range(log.key, 5, 5)
    assert caught.value.errno == errno.EIO


def test_refused_credentials_are_an_error_at_once(
    bucket: Bucket, answers: Answers, log: StoredLog
) -> None:
    store = replace(bucket, endpoint=answers.endpoint).open()
    answers.always = 403
    for request in (
        lambda: store.get(log.key, 1 << 30),
        lambda: store.get_range(log.key, 5, 5),
        lambda: store.list_level(""),
        lambda: store.put("new/object", [b"1"]),
        lambda: store.create("new/object", b"1"),
    ):
        answers.count = 0
        with pytest.raises(PermissionError, match=r"refused the credentials: 403.*AccessDenied"):
            request()
        assert answers.count == 1
    answers.always = None
    assert bytes(store.get_range(log.key, 5, 5)) == DATA[5:10]


def test_a_wrong_clock_is_told(bucket: Bucket, answers: Answers, log: StoredLog) -> None:
    store = replace(bucket, endpoint=answers.endpoint).open()
    answers.rule = lambda _: refusal(403, "RequestTimeTooSkewed")
    with pytest.raises(OSError, match="the clocks of this machine and of the store") as caught:
        store.get_range(log.key, 5, 5)
    assert caught.value.errno == errno.EIO
    assert "credentials" not in str(caught.value)
    answers.rule = None
    assert bytes(store.get_range(log.key, 5, 5)) == DATA[5:10]


def test_wrong_bytes_are_never_returned(bucket: Bucket, log: StoredLog) -> None:
    bucket.damage(log.key, 5 * MIB + 9)
    file = opened(files_of(bucket.open()), log.part())
    assert file.pread(MIB, 4 * MIB) == DATA[4 * MIB : 5 * MIB]
    with pytest.raises(OSError, match="from byte 5242880 on has another checksum") as caught:
        file.pread(10, 5 * MIB)
    assert caught.value.errno == errno.EIO
    # This is what the checksum is for.
    unchecked = opened(files_of(bucket.open()), log.part()._replace(checks=UNCHECKED))
    assert unchecked.pread(10, 5 * MIB) != DATA[5 * MIB : 5 * MIB + 10]


def test_an_upload_to_a_busy_store_is_repeated(bucket: Bucket, answers: Answers) -> None:
    store = replace(bucket, endpoint=answers.endpoint).open()
    answers.next = [503, 500]
    store.put("a", [DATA])
    assert store.get("a", 1 << 30)[0] == DATA
    answers.next = [503] * 2
    etag = store.create("head", b"1")
    answers.next = [503] * 2
    store.swap("head", b"2", etag)
    assert store.get("head", 10)[0] == b"2"


def test_a_store_with_conditions_passes_the_probe(bucket: Bucket) -> None:
    store = bucket.open()
    probe(store, b"0" * 16)
    assert not list(store.list_all(""))


@pytest.mark.allow_log("asking again")  # until the server has started
def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "objects" / "logs").mkdir(parents=True)
    process = Process("rclone", tmp_path / "log")
    command: list[str | Path] = [
        programs.found(programs.RCLONE),
        "serve",
        "s3",
        tmp_path / "objects",
    ]
    options = ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}"]
    process.start([*command, *options, "--vfs-cache-mode", "off", "--config", "/dev/null"])
    try:
        environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        settings = s3.StoreSettings(environment, time.monotonic, f"http://127.0.0.1:{port}")
        store = s3.open_store("s3://logs/some/prefix", settings)
        with pytest.raises(InvalidConfigError, match=r"s3://logs/some/prefix: it stored a new"):
            probe(store, b"1" * 16)
        assert not list(store.list_all(""))
    finally:
        process.kill()


class Deaf(FakeStore):
    """A store that compares versions and then writes, not at once."""

    def swap(self, key: str, data: ReadableBuffer, etag: str) -> str:
        if self.stat(key).etag == etag:
            time.sleep(0.01)
            return super().swap(key, data, self.stat(key).etag)
        return super().swap(key, data, etag)


def test_a_store_that_loses_races_is_refused() -> None:
    store = Deaf()
    with pytest.raises(InvalidConfigError, match="writers replaced the same version"):
        probe(store, b"2" * 16)
    assert not [key for key in store.objects if key.startswith(PROBE)]
