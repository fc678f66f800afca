"""Files of a store: the right bytes, few requests, bounded memory, errors that pass."""

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from logfs.disk.remote.blocks import BLOCK_BYTES, MissingObjectError
from logfs.disk.remote.remotefile import RemoteFile
from logfs.disk.waiting import (
    CURRENT,
    InterruptedReadError,
    Interruption,
    WouldWaitError,
    forbid_waiting,
)
from tests.processes import wait_until
from tests.remote.fakestore import FakeStore
from tests.remote.files import MIB, StoredLog, files_of, opened, some_bytes

DATA = some_bytes(40 * MIB + 12_345)


def read_all(file: RemoteFile, size: int = 128 << 10) -> Iterator[bytes]:
    position = 0
    while piece := file.pread(size, position):
        yield piece
        position += len(piece)


class Requests:
    """The ranges that a store is asked for, and a gate that holds them back."""

    def __init__(self, store: FakeStore) -> None:
        self.spans: list[tuple[str, int, int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.in_flight = 0
        self.most_in_flight = 0
        self._guard = threading.Lock()
        self._get_range = store.get_range
        store.get_range = self._watched  # type: ignore[method-assign]

    def _watched(self, key: str, start: int, length: int) -> memoryview:
        with self._guard:
            self.spans.append((key, start // MIB, -(-length // MIB)))
            self.in_flight += 1
            self.most_in_flight = max(self.in_flight, self.most_in_flight)
        try:
            self.gate.wait()
            return self._get_range(key, start, length)
        finally:
            with self._guard:
                self.in_flight -= 1

    def of(self, key: str) -> list[tuple[int, int]]:
        """Return (first block, blocks) of the requests for an object."""
        return [span[1:] for span in self.spans if span[0] == key]


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def requests(store: FakeStore) -> Iterator[Requests]:
    watched = Requests(store)
    yield watched
    watched.gate.set()


def test_reads_return_the_bytes_of_the_object(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store, 12 * MIB), log.part())
    chance = random.Random(1)
    for _ in range(100):
        position = chance.choice([chance.randrange(len(DATA) + MIB), len(DATA) - 5, 3 * MIB - 7])
        size = chance.choice([0, 1, 4096, MIB, 3 * MIB, 9 * MIB])
        assert file.pread(size, position) == DATA[position : position + size]
        found = memoryview(bytearray(size))
        got = file.pread_nowait_into(found, position)
        if got is not None:
            assert found[:got] == DATA[position : position + got]
    assert file.size() == len(DATA)


def test_a_part_is_a_window_of_its_object(store: FakeStore) -> None:
    store.objects["a"] = b"before" + DATA[: 3 * MIB] + b"after"
    part = StoredLog(store, "x", b"").part()._replace(key="a", start=6, size=3 * MIB)
    part = part._replace(object_size=3 * MIB + 11, checks=type(part.checks)())
    file = opened(files_of(store), part)
    assert b"".join(read_all(file)) == DATA[: 3 * MIB]
    assert file.pread(10, 3 * MIB) == b""


def test_the_first_touch_fetches_one_block(store: FakeStore, requests: Requests) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    assert file.pread(100, 5 * MIB + 17) == DATA[5 * MIB + 17 :][:100]
    assert file.pread(100, 20 * MIB + 17) == DATA[20 * MIB + 17 :][:100]
    assert file.pread(4096, 5 * MIB + 90_000) == DATA[5 * MIB + 90_000 :][:4096]
    assert requests.of(log.key) == [(5, 1), (20, 1)]


def test_sequential_reading_has_several_requests_in_flight(
    store: FakeStore, requests: Requests
) -> None:
    log = StoredLog(store, "a", DATA * 4)
    files = files_of(store)
    file = opened(files, log.part())
    assert b"".join(read_all(file)) == log.data
    spans = requests.of(log.key)
    assert sum(count for _, count in spans) == -(-len(log.data) // MIB)  # each block once
    assert max(count for _, count in spans) == 8
    assert len(spans) <= 30
    # The store answers at once here, so how many are in flight is seen with a store that does not.
    other = StoredLog(store, "b", DATA * 4)
    file = opened(files, other.part())
    position = 0
    for piece in read_all(file):
        position += len(piece)
        if position >= 20 * MIB:
            break
    requests.most_in_flight = 0
    requests.gate.clear()
    reading = threading.Thread(target=lambda: file.pread(64 * MIB, position))
    reading.start()
    wait_until(lambda: requests.in_flight >= 8, "eight requests are in flight")
    requests.gate.set()
    reading.join()


def test_reading_continues_into_the_following_object(store: FakeStore, requests: Requests) -> None:
    first, second = StoredLog(store, "a", DATA), StoredLog(store, "b", DATA[::-1])
    files = files_of(store)
    file = opened(files, first.part(second))
    assert b"".join(read_all(file)) == first.data
    wait_until(lambda: requests.of(second.key), "the next object is read ahead")
    before = len(requests.of(second.key))
    file = opened(files, second.part())
    assert file.pread(100, 0) == second.data[:100]
    assert len(requests.of(second.key)) >= before
    assert b"".join(read_all(file)) == second.data
    spans = requests.of(second.key)
    assert sum(count for _, count in spans) == -(-len(second.data) // MIB)
    # It continues as fast as it was: no small requests in between.
    assert min(count for first_block, count in spans if first_block + count < 40) >= 4


def test_blocks_that_were_read_ahead_are_checked_too(store: FakeStore) -> None:
    first, second = StoredLog(store, "a", DATA), StoredLog(store, "b", DATA[::-1])
    store.damage(second.key, 100)
    files = files_of(store)
    assert b"".join(read_all(opened(files, first.part(second)))) == first.data
    wait_until(lambda: files.blocks.memory_used > 50 * MIB, "it is read ahead")
    with pytest.raises(OSError, match="another checksum"):
        opened(files, second.part()).pread(10, 0)


def test_memory_is_bounded_for_all_files_together(store: FakeStore) -> None:
    logs = [StoredLog(store, f"{number}", some_bytes(12 * MIB, number)) for number in range(3)]
    files = files_of(store, 8 * MIB)
    opened_files = [opened(files, log.part()) for log in logs]
    for position in range(0, 12 * MIB, 512 << 10):
        for file, log in zip(opened_files, logs, strict=True):
            assert file.pread(512 << 10, position) == log.data[position : position + (512 << 10)]
            assert files.blocks.memory_used <= 8 * MIB + 2 * MIB
    requests = store.counts["get_range"]
    assert requests <= 3 * 13 + 3  # no block twice


def test_a_second_read_sends_no_request(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    files = files_of(store)
    file = opened(files, log.part())
    assert b"".join(read_all(file)) == DATA
    before = store.counts["get_range"]
    assert b"".join(read_all(opened(files, log.part()))) == DATA
    assert store.counts["get_range"] == before


def test_several_readers_of_one_file_read_ahead_each(store: FakeStore, requests: Requests) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    for step in range(0, 8 * MIB, 256 << 10):
        for start in (0, 10 * MIB, 25 * MIB):
            position = start + step
            assert file.pread(256 << 10, position) == DATA[position : position + (256 << 10)]
    assert len(requests.of(log.key)) <= 18


def test_an_index_is_fetched_once_and_as_a_whole(store: FakeStore, requests: Requests) -> None:
    log = StoredLog(store, "a", DATA)
    files = files_of(store)
    assert opened(files, log.index_part).pread(100, 0) == b"some index"
    assert opened(files, log.part()).pread(10, 0) == DATA[:10]
    assert len(requests.of(log.indexes)) == 1


def test_a_read_from_memory_never_waits(store: FakeStore, requests: Requests) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    out = memoryview(bytearray(2 * MIB))
    assert file.pread_nowait_into(out, 0) is None
    assert not requests.of(log.key)
    file.pread(10, 0)
    assert file.pread_nowait_into(out, 10) == MIB - 10  # as far as the block goes
    assert out[: MIB - 10] == DATA[10:MIB]
    assert file.pread_nowait_into(out, len(DATA)) == 0


def test_a_thread_that_must_not_wait_gets_an_error_and_the_block_comes(
    store: FakeStore, requests: Requests
) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    requests.gate.clear()
    forbid_waiting()
    try:
        with pytest.raises(WouldWaitError):
            file.pread(10, 0)
        requests.gate.set()
        out = memoryview(bytearray(10))
        wait_until(lambda: file.pread_nowait_into(out, 0), "the block is there")
        assert out == DATA[:10]
    finally:
        forbid_waiting(is_forbidden=False)


def test_a_reader_that_is_interrupted_ends_and_the_request_continues(
    store: FakeStore, requests: Requests
) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    requests.gate.clear()
    interruption = Interruption()
    ended: list[BaseException] = []

    def read() -> None:
        CURRENT.set(interruption)
        try:
            file.pread(10, 0)
        except InterruptedReadError as error:
            ended.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: requests.in_flight, "the reader waits")
    interruption.interrupt()
    reader.join(30)
    assert len(ended) == 1
    assert ended[0].errno == errno.EINTR  # type: ignore[attr-defined]
    requests.gate.set()
    out = memoryview(bytearray(10))
    wait_until(lambda: file.pread_nowait_into(out, 0), "the block is there")
    assert len(requests.of(log.key)) == 1


def test_an_interruption_before_the_wait_ends_it(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    interruption = Interruption()
    interruption.interrupt()
    token = CURRENT.set(interruption)
    try:
        with pytest.raises(InterruptedReadError):
            file.pread(10, 0)
    finally:
        CURRENT.reset(token)
    assert file.pread(10, 0) == DATA[:10]


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.ETIMEDOUT])
def test_an_error_is_of_one_read_and_passes(store: FakeStore, code: int) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    store.fail("get_range", error=code)
    for position in (0, 0, 9 * MIB):
        with pytest.raises(OSError, match="injected") as caught:
            file.pread(10, position)
        assert caught.value.errno == code
        assert caught.value.filename.startswith("s3://fake/logs/a.")
    store.heal()
    assert file.pread(10, 0) == DATA[:10]
    assert b"".join(read_all(file)) == DATA


def test_errors_while_reading_ahead_leave_no_hole(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store), log.part())
    failing = iter([False, False, True, False, True, True])

    def fail(operation: str, key: str) -> None:
        if key == log.key and next(failing, False):
            raise OSError(errno.EIO, "injected", key)

    store.before = fail
    position = errors = 0
    while position < len(DATA):
        try:
            piece = file.pread(512 << 10, position)
        except OSError:
            errors += 1
            continue
        assert piece == DATA[position : position + len(piece)]
        position += len(piece)
    assert errors <= 3


def test_an_object_that_is_gone_is_an_error_of_its_own(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    del store.objects[log.key]
    file = opened(files_of(store), log.part())
    with pytest.raises(MissingObjectError) as caught:
        file.pread(10, 0)
    assert caught.value.errno == errno.EIO  # never FileNotFoundError: the file is there


def test_wrong_bytes_are_fetched_again(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    store.damage(log.key, 2 * MIB + 5)
    times = 0

    def mend(operation: str, key: str) -> None:
        nonlocal times
        times += key == log.key
        if times == 2:
            store.objects[log.key] = DATA

    store.before = mend
    files = files_of(store)
    assert opened(files, log.part()).pread(10, 2 * MIB) == DATA[2 * MIB :][:10]
    assert files.blocks.counters.corrupt == 1


def test_bytes_that_stay_wrong_are_an_error_that_tells_where(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    store.damage(log.key, 2 * MIB + 5)
    file = opened(files_of(store), log.part())
    with pytest.raises(OSError, match=r"the MiB from byte 2097152 on has another checksum, twice"):
        file.pread(10, 2 * MIB)
    assert file.pread(10, 3 * MIB) == DATA[3 * MIB :][:10]
    store.damage(log.key, 2 * MIB + 5)
    assert file.pread(10, 2 * MIB) == DATA[2 * MIB :][:10]


def test_a_damaged_index_is_an_error_and_nothing_unchecked_is_read(store: FakeStore) -> None:
    log = StoredLog(store, "a", DATA)
    store.damage(log.indexes, 12)
    files = files_of(store)
    with pytest.raises(OSError, match="the object has another checksum"):
        opened(files, log.index_part).pread(10, 0)
    with pytest.raises(OSError, match="the object has another checksum"):
        opened(files, log.part()).pread(10, 0)


def test_many_threads_read_one_file(store: FakeStore, requests: Requests) -> None:
    log = StoredLog(store, "a", DATA)
    file = opened(files_of(store, 24 * MIB), log.part())
    wrong: list[int] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(60):
            position = chance.randrange(len(DATA))
            if file.pread(300_000, position) != DATA[position : position + 300_000]:
                wrong.append(position)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_file_is_read_only(store: FakeStore) -> None:
    file = opened(files_of(store), StoredLog(store, "a", DATA).part())
    changes: list[Callable[[], None]] = [lambda: file.pwrite(b"x", 0), lambda: file.truncate(0)]
    for change in changes:
        with pytest.raises(OSError, match="read-only") as caught:
            change()
        assert caught.value.errno == errno.EROFS
    file.sync()
    assert (file.fileno(), file.make_room(0, 1), file.next_data(5)) == (-1, False, 5)


def test_a_forked_process_gets_an_error(store: FakeStore) -> None:
    file = opened(files_of(store), StoredLog(store, "a", DATA).part())
    file.pread(10, 0)
    child = os.fork()
    if child == 0:
        try:
            file.pread(10, 9 * MIB)
        except OSError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert BLOCK_BYTES == MIB
