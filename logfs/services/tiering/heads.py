"""Changing the head of a partition: fencing, lost replies, entries that leave it for tables.

A ``HeadWriter`` owns a partition of the store for one run of the daemon. Its first request fences
all earlier writers: it swaps the head with the next epoch. A head that this data directory did not
write, then or later, raises ``FencedError``; see ``ownership``.

A swap that fails may have taken effect, now or later. So the head is read again: it has the nonce
of this change, or it does not. A change must therefore be one that can be made twice.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from logfs.disk.remote.objects import ChangedError, ObjectStore
from logfs.errors import FencedError, RemoteStorageError, moment_of
from logfs.log.remote.head import (
    MOST_ENTRIES,
    Head,
    SpilledTable,
    WritingDirectory,
    encode_head,
    encode_table,
)
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.reading import read_head
from logfs.log.segments.snapshot import LogPoint
from logfs.records.checksum import crc32c
from logfs.services.tiering.ownership import OwnedVersions

logger = logging.getLogger(__name__)

_TRIES = 16
"""Swaps that other writers may win against this one before it gives up for now."""


class FirstFacts(NamedTuple):
    """The facts of a partition that has no head yet.

    Attributes:
        topic_id: The id of the topic.
        generation: The generation of the positions, as in the segment table.
        start: The log start.
        config: Settings of the topic; None: a broker made it.
    """

    topic_id: UUID
    generation: bytes
    start: LogPoint
    config: Mapping[str, str] | None


class HeadWriter:
    """The head of one partition, changed by this process alone. One thread at a time.

    Attributes:
        store: The store.
        place: The place of the objects of the partition.
        writer: This data directory.
        owned: The versions that it wrote.
    """

    def __init__(
        self,
        store: ObjectStore,
        place: PartitionPlace,
        writer: WritingDirectory,
        new_id: Callable[[], bytes],
        owned: OwnedVersions,
    ) -> None:
        self.store = store
        self.place = place
        self.writer = writer
        self.owned = owned
        self._new_id = new_id
        self._head: Head | None = None
        self._etag = ""
        self._epoch = 0
        self._lost_epoch = 0

    def head(self) -> Head:
        """Return the head; only after ``fence``. It is read again after a change that failed.

        Raises:
            FencedError: Another writer has fenced this one.
            OSError: The store failed.
        """
        if not self._epoch:
            raise ValueError(f"{self._url}: not fenced yet")
        return self._head or self._read_again()

    def confirm(self) -> Head:
        """Read the head again and return it, if this writer owns it; only after ``fence``.

        Raises:
            FencedError: Another writer has fenced this one.
            OSError: The store failed.
        """
        self._head = None
        return self.head()

    @property
    def epoch(self) -> int:
        """The epoch of this writer; 0 before ``fence``."""
        return self._epoch

    def fence(
        self,
        first: Callable[[Head | None], FirstFacts | None],
        *,
        check: Callable[[Head], object] | None = None,
        takes_over: bool = False,
    ) -> Head:
        """Own the partition: swap its head with the next epoch, or create the first one.

        Args:
            first: Called with the head that is there. Returns the facts of one that is to be made;
                their settings replace those of a head. None: there is a head, and they stay.
            check: Called with the head before it is written; if it raises, no writer is fenced.
            takes_over: Fence another data directory as well; see ``logfs remote take-over``.

        Returns:
            The head, in this writer's epoch.

        Raises:
            FencedError: A copy of this data directory writes this partition.
            RemoteStorageError: Another data directory writes it.
            OSError: The store failed; the partition is not owned.
        """
        for _ in range(_TRIES):
            found = read_head(self.store, self.place)
            if not takes_over:
                self._check_owner(None if found is None else found[0])
            facts = first(None if found is None else found[0])
            if found is None:
                if facts is None:
                    raise RemoteStorageError(f"{self._url}: the head is gone")
                head = Head(
                    nonce=self._new_id(),
                    counter=self.owned.counter + 1,
                    epoch=self._lost_epoch + 1,
                    writer=self.writer,
                    topic_id=facts.topic_id,
                    generation=facts.generation,
                    start=facts.start,
                    config=facts.config,
                )
            else:
                old, self._etag = found
                head = replace(
                    old,
                    nonce=self._new_id(),
                    counter=old.counter + 1,
                    epoch=max(old.epoch, self._lost_epoch) + 1,
                    writer=self.writer,
                    config=old.config if facts is None else facts.config,
                )
            if check is not None:
                check(head)
            if self._put(head, is_new=found is None):
                self._epoch = head.epoch
                return self.head()
        raise RemoteStorageError(f"{self._url}: other writers change it all the time")

    def change(self, change: Callable[[Head], Head]) -> Head:
        """Change the head, durably when this returns.

        Args:
            change: Returns the new head; called again if the head was changed in between. Nothing
                is written if it returns an equal one.

        Raises:
            FencedError: Another writer has fenced this one.
            OSError: The store failed; the change may have been made.
        """
        for _ in range(_TRIES):
            head = self._head or self._read_again()
            wanted = change(head)
            if wanted == head:
                return head
            wanted = self._spilled(wanted)
            wanted = replace(wanted, nonce=self._new_id(), counter=head.counter + 1)
            if self._put(wanted, is_new=False):
                return self.head()
        raise RemoteStorageError(f"{self._url}: other writers change it all the time")

    def remove(self) -> None:
        """Delete the head, after everything that it names."""
        self.store.delete(self.place.head)
        self._head = None

    @property
    def _url(self) -> str:
        return f"{self.store.url}/{self.place.head}"

    def _check_owner(self, head: Head | None) -> None:
        """See that no other data directory owns the partition."""
        owned = self.owned
        if head is not None and head.writer.directory_id != self.writer.directory_id:
            text = (
                f"{self._url}: another data directory writes this partition ({_described(head)}). "
                "Nothing is copied. If that one is gone for good: 'logfs remote take-over'"
            )
            if owned.is_new:
                raise RemoteStorageError(text)
            owned.lose()
            raise FencedError(text)
        if not owned.is_lost and (head is None or owned.has_written(head)):
            return
        if not owned.is_lost:
            owned.lose()
        by = "the head is gone since" if head is None else _described(head)
        raise FencedError(
            f"{self._url}: fenced: a copy of this data directory has written this partition ({by})."
            " Nothing is copied to the store or deleted from it. If this directory is to write it: "
            "stop the daemons of both, then 'logfs remote take-over' with this one"
        )

    def _read_again(self) -> Head:
        """Read the head that this writer owns; FencedError: it does not own it any more."""
        found = read_head(self.store, self.place)
        if found is None:
            self._lost_epoch, self._epoch = self._epoch, 0  # to be fenced again
            raise RemoteStorageError(f"{self._url}: the head is gone; another program deleted it")
        head, self._etag = found
        is_own = self.owned.has_written(head)
        if is_own and head.epoch < self._epoch:
            self._lost_epoch, self._epoch = self._epoch, 0  # to be fenced and compared again
            raise RemoteStorageError(
                f"{self._url}: it is of epoch {head.epoch}, this daemon has written epoch "
                f"{self._lost_epoch}: the store went back in time. What it has lost is stored "
                "again, where the local files are there"
            )
        if not is_own or head.epoch != self._epoch or head.writer != self.writer:
            if not is_own:
                self.owned.lose()  # the next start knows it as well
            raise FencedError(
                f"{self._url}: fenced by epoch {head.epoch} of host {head.writer.host}, this "
                f"daemon has epoch {self._epoch}: nothing is copied to the store or deleted from "
                "it. If this directory is to write it: stop the daemons of both, then "
                "'logfs remote take-over' with this one"
            )
        self.owned.note_stored(head)
        self._head = head
        return head

    def _put(self, head: Head, *, is_new: bool) -> bool:
        """Write a head; returns whether it is there; False: another process was faster.

        Raises:
            OSError: The store failed, and it is not known whether it took effect.
        """
        self._head = None  # until it is known
        head = replace(head, is_noted=self.owned.begin_change(head.nonce))
        data = encode_head(head)
        try:
            if is_new:
                self._etag = self.store.create(self.place.head, data)
            else:
                self._etag = self.store.swap(self.place.head, data, self._etag)
        except (ChangedError, FileExistsError):
            return self._is_there(head)
        except OSError as error:
            logger.info("%s: %s; it is read again", self._url, error)
            if self._is_there(head):
                return True
            raise
        self.owned.confirm(head)
        self._head = head
        return True

    def _is_there(self, head: Head) -> bool:
        found = read_head(self.store, self.place)
        if found is None or found[0].nonce != head.nonce:
            return False
        self._head, self._etag = found
        self.owned.confirm(head)
        return True

    def _spilled(self, head: Head) -> Head:
        """Move the oldest entries to a table if the head has too many."""
        while len(head.entries) > MOST_ENTRIES:
            spilled, kept = head.entries[:MOST_ENTRIES], head.entries[MOST_ENTRIES:]
            data = encode_table(spilled)
            key = self.place.table(spilled[0].base_offset, self._new_id())
            self.store.put(key, [data])
            table = SpilledTable(
                key=key,
                entry_count=len(spilled),
                first_offset=spilled[0].base_offset,
                next_offset=spilled[-1].next_offset,
                max_timestamp=max(entry.entry.max_timestamp for entry in spilled),
                size_bytes=sum(entry.size_bytes for entry in spilled),
                crc=crc32c(data),
            )
            head = replace(head, tables=(*head.tables, table), entries=kept)
        return head


def _described(head: Head) -> str:
    writer = head.writer
    return f"on host {writer.host}, epoch {head.epoch}, since {moment_of(writer.since_ms)}"
