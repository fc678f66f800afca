"""The owner of a journal: one object that is swapped, and a fence at the end of each epoch.

    {"version": 1, "epoch": 7, "nonce": "…", "noted": true,
     "writer": ["directory id", "host", since_ms], "ends": {"5": 120, "6": 33},
     "freshness_ms": 5000}

Each start of a daemon begins an epoch. First it creates the next object of the epoch before: the
*fence*. A writer that is still alive finds its name taken, and creates nothing more. Objects of an
epoch at or after its end are void.

A data directory knows by ``logfs.owned`` in its root which versions of the root it wrote; see
``logfs.services.tiering.ownership``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from logfs.disk.remote.objects import ChangedError, ObjectStore
from logfs.errors import (
    CorruptIndexError,
    FencedError,
    RemoteStorageError,
    UnsupportedFormatError,
    moment_of,
)
from logfs.log.remote.head import WritingDirectory
from logfs.records.jsontext import decode_json
from logfs.services.journaling.objects import (
    ROOT,
    JournalObject,
    ListedObject,
    ObjectName,
    encode_object,
    list_objects,
)
from logfs.services.tiering.ownership import OwnedVersions

_VERSION = 1
_MOST_BYTES = 1 << 20
_TRIES = 16


class JournalRoot(NamedTuple):
    """One version of the root.

    Attributes:
        epoch: One more with each writer.
        nonce: 16 random bytes.
        ends: Epoch -> the sequence number of its fence.
        freshness_ms: The setting of the writer, which a promoted directory gets as well.
        is_noted: The writer had noted this version before it was sent.
    """

    epoch: int
    nonce: bytes
    writer: WritingDirectory
    ends: Mapping[int, int]
    freshness_ms: int
    is_noted: bool

    @property
    def counter(self) -> int:
        """The number of this version."""
        return self.epoch

    def is_valid(self, name: ObjectName) -> bool:
        """Whether an object was written by the owner of its time, and is no fence."""
        if name.epoch == self.epoch:
            return True
        return name.epoch < self.epoch and name.sequence < self.ends.get(name.epoch, 0)


def read_root(store: ObjectStore) -> tuple[JournalRoot, str] | None:
    """Return the root of a journal and its ETag; None if the store has no journal.

    Raises:
        CorruptIndexError, UnsupportedFormatError: It does not decode.
        OSError: The store failed.
    """
    try:
        data, stat = store.get(ROOT, _MOST_BYTES)
    except FileNotFoundError:
        return None
    source = f"{store.url}/{ROOT}"
    try:
        version = decode_json(data, lambda facts: int(facts["version"]))
        if version != _VERSION:
            raise UnsupportedFormatError(
                f"{source}: version {version}, this logfs reads version {_VERSION}: use a newer "
                "logfs"
            )
        return decode_json(data, _root_of), stat.etag
    except ValueError as error:
        raise CorruptIndexError(f"{source}: {error}") from None


def begin_epoch(
    store: ObjectStore,
    writer: WritingDirectory,
    owned: OwnedVersions,
    new_id: Callable[[], bytes],
    *,
    freshness_ms: int | None = None,
    takes_over: bool = False,
) -> JournalRoot:
    """Own the journal: fence the writer before, then swap the root.

    Args:
        store: The store.
        writer: This data directory.
        owned: The versions of the root that it wrote.
        new_id: Gives 16 random bytes.
        freshness_ms: The setting of this directory; None: that of the writer before.
        takes_over: Fence another data directory as well.

    Returns:
        The root, in this writer's epoch.

    Raises:
        FencedError: A copy of this data directory writes the journal, or another directory that has
            fenced it.
        RemoteStorageError: Another data directory writes it, and this one never did.
        OSError: The store failed; the journal is not owned.
    """
    for _ in range(_TRIES):
        found = read_root(store)
        if not takes_over:
            _check_owner(store, None if found is None else found[0], writer, owned)
        before = {} if found is None else found[0].ends
        epoch, ends = 0 if found is None else found[0].epoch, {}
        listed = list_objects(store)
        for one in sorted({name.epoch for name, _ in listed} | ({epoch} - {0})):
            known = before.get(one)
            ends[one] = _fence(store, one, listed, new_id) if known is None else known
        nonce = new_id()
        is_noted = owned.begin_change(nonce)
        known_ms = 0 if found is None else found[0].freshness_ms
        told_ms = known_ms if freshness_ms is None else freshness_ms
        root = JournalRoot(max([epoch, *ends]) + 1, nonce, writer, ends, told_ms, is_noted)
        if _put(store, root, None if found is None else found[1]):
            owned.confirm(root)
            return root
    raise RemoteStorageError(f"{store.url}/{ROOT}: other writers change it all the time")


def confirm_root(store: ObjectStore, root: JournalRoot) -> None:
    """See that a root is still the one of the store.

    Raises:
        FencedError: Another writer has begun an epoch.
        OSError: The store failed.
    """
    found = read_root(store)
    if found is None or found[0].nonce != root.nonce:
        raise fenced(store, None if found is None else found[0])


def lost_to(store: ObjectStore, directory_id: bytes, owned: OwnedVersions) -> FencedError | None:
    """Return the error of a directory that owned the journal and does not any more; None: it does.

    That is noted durably: then the store is not asked again.

    Args:
        store: The store.
        directory_id: That of this data directory.
        owned: The versions of the root that it wrote.

    Raises:
        OSError: The store or the disk failed.
    """
    if owned.is_lost:
        return fenced(store, None, "as is noted in this directory")
    found = None if owned.is_new else read_root(store)
    if found is None or _is_own(found[0], directory_id, owned):
        return None
    owned.lose()
    return fenced(store, found[0])


def fenced(
    store: ObjectStore, root: JournalRoot | None, by: str = "the root is gone"
) -> FencedError:
    """Return the error of a writer that does not own the journal any more."""
    by = by if root is None else _described(root)
    return FencedError(
        f"{store.url}/{ROOT}: fenced: another data directory or a copy of this one writes the "
        f"journal ({by}). Nothing is copied to the store or deleted from it; records that are "
        "appended here are not there. See 'logfs remote diverged' and 'logfs remote rejoin'"
    )


def _check_owner(
    store: ObjectStore, root: JournalRoot | None, writer: WritingDirectory, owned: OwnedVersions
) -> None:
    if root is None:
        return
    if root.writer.directory_id != writer.directory_id and owned.is_new:
        raise RemoteStorageError(
            f"{store.url}/{ROOT}: another data directory writes the journal ({_described(root)}). "
            "Nothing is sent. To continue its logs here: 'logfs promote'"
        )
    if owned.is_lost or not _is_own(root, writer.directory_id, owned):
        owned.lose()
        raise fenced(store, root)


def _is_own(root: JournalRoot, directory_id: bytes, owned: OwnedVersions) -> bool:
    return root.writer.directory_id == directory_id and owned.has_written(root)


def _fence(
    store: ObjectStore,
    epoch: int,
    listed: Sequence[ListedObject],
    new_id: Callable[[], bytes],
) -> int:
    """Create the last object of an epoch; returns its sequence number.

    A writer may have been past that number, and have deleted it. Its last object is always there,
    so a list after the creation shows it.
    """
    sequence = _next_sequence(listed, epoch)
    while True:
        fence = JournalObject(new_id().hex(), 0, fence=epoch + 1)
        try:
            store.create(ObjectName(epoch, sequence).key, encode_object(fence))
        except FileExistsError:
            sequence += 1
            continue
        after = _next_sequence(list_objects(store), epoch)
        if after == sequence + 1:
            return sequence
        sequence = after


def _next_sequence(listed: Sequence[ListedObject], epoch: int) -> int:
    return max((name.sequence for name, _ in listed if name.epoch == epoch), default=-1) + 1


def _put(store: ObjectStore, root: JournalRoot, etag: str | None) -> bool:
    """Write the root; returns whether it is there; False: another process was faster."""
    data = json.dumps(
        {
            "version": _VERSION,
            "epoch": root.epoch,
            "nonce": root.nonce.hex(),
            "noted": root.is_noted,
            "writer": [root.writer.directory_id.hex(), root.writer.host, root.writer.since_ms],
            "ends": {str(epoch): end for epoch, end in root.ends.items()},
            "freshness_ms": root.freshness_ms,
        }
    ).encode()
    try:
        if etag is None:
            store.create(ROOT, data)
        else:
            store.swap(ROOT, data, etag)
    except (ChangedError, FileExistsError):
        return _is_there(store, root)
    except OSError:
        if _is_there(store, root):
            return True
        raise
    return True


def _is_there(store: ObjectStore, root: JournalRoot) -> bool:
    found = read_root(store)
    return found is not None and found[0].nonce == root.nonce


def _root_of(facts: Mapping[str, Any]) -> JournalRoot:
    directory_id, host, since_ms = facts["writer"]
    return JournalRoot(
        epoch=facts["epoch"],
        nonce=bytes.fromhex(facts["nonce"]),
        writer=WritingDirectory(bytes.fromhex(directory_id), host, since_ms),
        ends={int(epoch): int(end) for epoch, end in facts["ends"].items()},
        freshness_ms=int(facts["freshness_ms"]),
        is_noted=facts["noted"] is True,
    )


def _described(root: JournalRoot) -> str:
    writer = root.writer
    return f"on host {writer.host}, epoch {root.epoch}, since {moment_of(writer.since_ms)}"
