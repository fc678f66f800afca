"""Acting on a data directory: through its daemon or under its lock, and retries."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.client import Daemon
from logfs.disk.posix import PosixDisk
from logfs.disk.vfs import Lock
from logfs.errors import ControlError, LockedError
from logfs.library import owner
from logfs.library.owner import act, act_patiently
from logfs.library.places import Place
from logfs.log import names
from logfs.log.store import LogStore


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path), (), is_mount=False)


@pytest.fixture
def lock(place: Place) -> Iterator[Lock]:
    """The lock of another process."""
    lock = PosixDisk(place.root).lock(names.LOCK_FILE)
    yield lock
    lock.close()


def never(_daemon: Daemon) -> str:
    raise AssertionError("there is no daemon")


def test_a_patient_act_waits_for_the_lock(
    place: Place, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited, real, me = [], time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != me:  # one that an earlier test has left
            real(seconds)
            return
        waited.append(seconds)
        if len(waited) == 3:
            lock.close()

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(LockedError):
        act(place, never, lambda _: "done")
    assert act_patiently(place, never, lambda _: "done", is_durable=True) == "done"
    assert len(waited) == 3


def test_a_patient_act_gives_up(place: Place, lock: Lock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "PATIENCE_S", 0.0)
    with pytest.raises(LockedError):
        act_patiently(place, never, lambda _: "done", is_durable=True)


def test_an_error_of_the_daemon_is_not_retried(place: Place) -> None:
    asked = []

    def refuse(store: LogStore) -> None:
        asked.append(store)
        raise ControlError("no such request")

    with pytest.raises(ControlError, match="no such request"):
        act_patiently(place, never, refuse, is_durable=True)
    assert len(asked) == 1


def test_a_request_without_an_answer_is_repeated(place: Place) -> None:
    asked = []

    def half(store: LogStore) -> str:
        asked.append(store)
        if len(asked) == 1:
            raise ControlError("the daemon ended before it answered") from ConnectionError()
        return "done"

    assert act_patiently(place, never, half, is_durable=True) == "done"
    assert len(asked) == 2
