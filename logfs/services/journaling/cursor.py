"""The objects of a journal for a reader, one after the other, by their names.

The name of the next object is known: one request asks whether it is there. The last object of an
epoch is a fence; then the root says in which epoch the journal continues. If an object was deleted
before it was read, nothing follows under the expected name. So after a silence the journal is
listed.
"""

import contextlib
from collections.abc import Callable, Iterator

from logfs.disk.remote.objects import ObjectStore
from logfs.errors import CorruptIndexError, RemoteStorageError
from logfs.services.journaling.assembly import ReadJournal, read_journal
from logfs.services.journaling.objects import (
    JournalObject,
    ListedObject,
    ObjectName,
    list_objects,
    read_object,
)
from logfs.services.journaling.root import JournalRoot, read_root

LIST_S = 60.0
"""The time between two lists while nothing comes."""


class JournalCursor:
    """The place of a reader in a journal. One thread at a time.

    Args:
        store: The store.
        clock_s: Seconds that only go forward.

    Attributes:
        root: The root, as it was read last.
        problems: What could not be read.
    """

    root: JournalRoot

    def __init__(self, store: ObjectStore, clock_s: Callable[[], float]) -> None:
        self._store = store
        self._clock_s = clock_s
        self._next = ObjectName(0, 0)
        self._list_s = 0.0
        self.problems: list[str] = []

    @property
    def freshness_s(self) -> float:
        """How often the owner creates an object, in seconds."""
        return self.root.freshness_ms / 1000

    def begin(self) -> ReadJournal:
        """Read all objects that are there.

        Raises:
            RemoteStorageError: The store has no journal.
            OSError: The store failed.
        """
        self.root = journal_root(self._store)
        journal = read_journal(self._store, self.root)
        self.problems += journal.problems
        self._continue_after(
            [one for one in journal.listed if one.name in journal.objects or journal.problems]
        )
        return journal

    def new_objects(self) -> Iterator[JournalObject]:
        """Yield what was created since the last call; one request if that is nothing.

        Raises:
            OSError: The store failed; the next call continues.
        """
        while True:
            name = self._next
            try:
                one = self._read(name)
            except FileNotFoundError:
                if self._clock_s() < self._list_s or not self._find_next():
                    return
                continue
            if one is not None and one.fence:
                if not self._pass_fence():
                    return
                continue
            self._next = ObjectName(name.epoch, name.sequence + 1)
            self._list_s = self._soon()
            if one is not None:
                yield one

    def rest(self, root: JournalRoot) -> Iterator[JournalObject]:
        """Yield all objects that are left of earlier epochs than that of a root.

        Raises:
            OSError: The store failed; the next call continues.
        """
        self.root = root
        for name in [one.name for one in list_objects(self._store)]:
            if name < self._next or not root.is_valid(name):
                continue
            with contextlib.suppress(FileNotFoundError):  # deleted: nothing needs it
                one = self._read(name)
                self._next = ObjectName(name.epoch, name.sequence + 1)
                if one is not None:
                    yield one

    def _read(self, name: ObjectName) -> JournalObject | None:
        """Read an object; None: it is damaged, and what it has is missing."""
        try:
            return read_object(self._store, name)
        except CorruptIndexError as error:
            self.problems.append(str(error))
            return None

    def _pass_fence(self) -> bool:
        """Continue after a fence; returns whether the root says by now where."""
        epoch, sequence = self._next
        self.root = journal_root(self._store)
        end = self.root.ends.get(epoch)
        if end is None:
            return False  # the next owner is just beginning
        if sequence < end:  # the writer had passed it: another fence is the last object
            self._next = ObjectName(epoch, sequence + 1)
            return True
        return self._find_next()

    def _find_next(self) -> bool:
        """List the journal; returns whether there is an object to continue with."""
        self.root = journal_root(self._store)
        before = self._next
        later = [one for one in list_objects(self._store) if one.name >= before]
        valid = [one.name for one in later if self.root.is_valid(one.name)]
        if valid:
            self._next = valid[0]
        elif before.epoch < self.root.epoch:
            self._next = ObjectName(self.root.epoch, 0)
        has_moved = self._next != before
        self._list_s = self._soon() if has_moved else self._clock_s() + LIST_S
        return has_moved

    def _soon(self) -> float:
        return self._clock_s() + 2 * self.freshness_s + 1

    def _continue_after(self, read: list[ListedObject]) -> None:
        sequences = [one.name.sequence for one in read if one.name.epoch == self.root.epoch]
        self._next = ObjectName(self.root.epoch, max(sequences, default=-1) + 1)
        self._list_s = self._soon()


def journal_root(store: ObjectStore) -> JournalRoot:
    """Return the root of the journal of a store.

    Raises:
        RemoteStorageError: The store has no journal.
        OSError: The store failed.
    """
    found = read_root(store)
    if found is None:
        raise RemoteStorageError(
            f"{store.url}: it has no journal to follow. Check bucket and prefix, and set "
            "freshness.ms in the logfs.remote of its owner"
        )
    return found[0]
