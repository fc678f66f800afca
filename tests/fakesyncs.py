"""Syncs that run by themselves until the test says so: what ``disk._syncs`` is to a real disk.

The sync itself happens on the fake disk when it is released, with the fault that is set there.
"""

import os
import threading


class BeginsSyncs:
    """What files of a fake disk have of this."""

    def sync(self) -> None:
        """See ``vfs.File``."""
        raise NotImplementedError

    def begin_sync(self, syncs: object) -> "FakeSync | None":
        """See ``vfs.File``."""
        return syncs.begin(self) if isinstance(syncs, FakeSyncs) else None


class FakeSync:
    """One sync; see ``vfs.Sync``."""

    def __init__(self, file: BeginsSyncs) -> None:
        self._file = file
        self._is_done = threading.Event()
        self._error: OSError | None = None

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def wait(self) -> None:
        assert self._is_done.wait(10), "waited for a sync that was not let go"
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            self._error = error
        self._is_done.set()


class FakeSyncs:
    """See ``_syncs.ThreadSyncs``.

    Attributes:
        begun: The syncs that were begun and not let go.
    """

    threads = 0

    def __init__(self) -> None:
        self.begun: list[FakeSync] = []
        self._done: list[FakeSync] = []
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def begin(self, file: BeginsSyncs) -> FakeSync | None:
        """Begin the sync of a file of a fake disk."""
        sync = FakeSync(file)
        self.begun.append(sync)
        return sync

    def start(self, descriptor: int, file: object, path: str) -> FakeSync:
        """Refuse files that are real."""
        raise OSError(f"{path}: no file of a fake disk")

    def let_go(self) -> None:
        """Let the oldest one be done."""
        sync = self.begun.pop(0)
        sync.finish()
        self._done.append(sync)
        os.write(self._write, b"x")

    def fileno(self) -> int:
        return self._read

    def take(self) -> list[FakeSync]:
        if self._done:
            os.read(self._read, 1000)
        done, self._done = self._done, []
        return done
