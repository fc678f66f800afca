"""Syncs of real files that run by themselves."""

import errno
import gc
import os
import select
import threading
import weakref
from pathlib import Path

import pytest

from logfs.disk._syncs import ThreadSync, ThreadSyncs
from logfs.disk.posix import PosixDisk

MOST_THREADS = 64


class Owner:
    """An object that closes a descriptor."""


def is_ready(syncs: ThreadSyncs) -> bool:
    return bool(select.select([syncs.fileno()], [], [], 0)[0])


def take(syncs: ThreadSyncs, count: int) -> list[ThreadSync]:
    """Wait for the descriptor as a loop does until so many syncs have come out."""
    done: list[ThreadSync] = []
    while len(done) < count:
        assert select.select([syncs.fileno()], [], [], 10)[0], "nothing tells that they are done"
        done += syncs.take()
    return done


def test_every_sync_comes_out_once(tmp_path: Path) -> None:
    syncs = ThreadSyncs()
    with (tmp_path / "f").open("wb") as file:
        assert not is_ready(syncs)
        begun = [syncs.start(file.fileno(), file, "f") for _ in range(500)]
        done = take(syncs, len(begun))
    assert sorted(map(id, done)) == sorted(map(id, begun))
    assert (syncs.take(), is_ready(syncs)) == ([], False)
    assert 1 <= syncs.threads <= MOST_THREADS
    for sync in done:
        sync.wait()
        assert not sync.has_failed


def test_one_that_is_waited_for_comes_out_as_well(tmp_path: Path) -> None:
    syncs = ThreadSyncs()
    with (tmp_path / "f").open("wb") as file:
        sync = syncs.start(file.fileno(), file, "f")
        threads = [threading.Thread(target=sync.wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert take(syncs, 1) == [sync]


def test_an_error_is_told_as_often_as_it_is_asked() -> None:
    syncs = ThreadSyncs()
    read, write = os.pipe()  # which cannot be synced
    sync = syncs.start(write, None, "the/name")
    os.close(read)
    assert take(syncs, 1) == [sync]
    assert sync.has_failed
    for _ in range(2):
        with pytest.raises(OSError, match="the/name") as caught:
            sync.wait()
        assert caught.value.errno == errno.EINVAL
    os.close(write)


def test_the_owner_of_the_descriptor_is_kept_until_the_sync_is_taken(tmp_path: Path) -> None:
    syncs, owner = ThreadSyncs(), Owner()
    watched = weakref.ref(owner)
    with (tmp_path / "f").open("wb") as file:
        syncs.start(file.fileno(), owner, "f")
        del owner
        gc.collect()
        assert watched() is not None
        assert len(take(syncs, 1)) == 1
    assert watched() is None


def test_a_file_is_synced_though_the_last_reference_to_it_is_gone(tmp_path: Path) -> None:
    disk, syncs = PosixDisk(str(tmp_path)), ThreadSyncs()
    for number in range(20):
        file = disk.open(str(number), write=True, create=True)
        file.pwrite(b"x", 0)
        assert file.begin_sync(syncs) is not None
        del file
    assert not any(sync.has_failed for sync in take(syncs, 20))


def test_a_file_that_is_closed_begins_nothing(tmp_path: Path) -> None:
    syncs = ThreadSyncs()
    file = PosixDisk(str(tmp_path)).open("f", write=True, create=True)
    file.close()
    assert file.begin_sync(syncs) is None
    assert syncs.threads == 0


def test_the_threads_end_with_what_they_belong_to(tmp_path: Path) -> None:
    before, syncs = len(os.listdir("/proc/self/task")), ThreadSyncs()
    with (tmp_path / "f").open("wb") as file:
        begun = [syncs.start(file.fileno(), file, "f") for _ in range(50)]
        assert len(os.listdir("/proc/self/task")) == before + syncs.threads
        assert len(take(syncs, 50)) == 50
    descriptor = syncs.fileno()
    del begun, syncs
    assert len(os.listdir("/proc/self/task")) == before
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
