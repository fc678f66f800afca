"""Listings in the form in which the kernel gets them, kept until topics change.

The kernel asks for names together with their attributes (READDIRPLUS), and adds up look-ups of each
name but ``.`` and ``..``. pyfuse3 takes an object for every name. For the root and for topics the
bytes of all names are kept here, one after the other. Before a reply the lengths and times of files
that grow are renewed, if their logs have changed. The hooks send as much as there is room for.

What could make the kept bytes untrue:

* A topic is created, deleted or changed, also in its mode and owner, or a partition is reloaded.
  All of that runs in ``TopicChangeQueue``. Everything is forgotten before and after each change,
  and nothing is kept during one. A listing that is under way continues with the names that it began
  with. If one of them is gone, pyfuse3 gets the others, one by one.
* An inode is forgotten by the kernel, and the next look-up makes it another node. ``count_all``
  finds that.
* A file is being closed: its last bytes are not in the log yet, and the listing has to wait.

A directory whose logs another process writes is left to pyfuse3, and so are the raw files.

Source: include/uapi/linux/fuse.h, struct fuse_direntplus; lib/fuse_lowlevel.c of libfuse 3.14,
fuse_add_direntry_plus.
"""

import stat
import struct
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import NamedTuple, Protocol

from logfs.errors import LogfsError
from logfs.fs.files.handles import DirectoryHandle, position_after
from logfs.fs.partitions.executor import PartitionExecutor
from logfs.fs.tree.inodes import InodeTable
from logfs.fs.tree.lookups import Lookups
from logfs.fs.tree.nativenames import NativeNames
from logfs.fs.tree.nodes import DirectoryNode, Node, PlainNode, TopicNode
from logfs.fs.tree.replies import MAX_REQUEST_BYTES, NS_PER_MS, blocks_of
from logfs.log.reading.readable import ReadableState
from logfs.log.segments.snapshot import Snapshot

NOT_COUNTED = frozenset({b".", b".."})
"""Names in a listing that are no look-ups for the kernel; they are its first ones."""

_ENTRY = struct.Struct("<QQQQII")
"""struct fuse_entry_out without attributes: inode, generation, seconds and nanoseconds to keep."""
_INODE = struct.Struct("<Q")
"""struct fuse_attr begins with this, ``_CHANGING`` and ``_FIXED``."""
_CHANGING = struct.Struct("<QQQQQIII")
"""Length, blocks, and three times: their seconds, their nanoseconds."""
_FIXED = struct.Struct("<IIIIIII")
"""Mode, links, user, group, device, block size, flags."""
_NAME = struct.Struct("<QQII")
"""struct fuse_dirent: inode, position of the next name, bytes of the name, type."""
_CHANGING_AT = _ENTRY.size + _INODE.size
_ALIGNED_BYTES = 8
_MS_PER_S = 1000
_MOST_NAMES = 100_000
"""The names that are kept in all, about 30 MB."""


class ListingRequest(NamedTuple):
    """A request for names.

    Attributes:
        number: The number of the request; 0: pyfuse3 has to answer it.
        room: The most bytes of the reply.
    """

    number: int
    room: int


class ListingHooks(Protocol):
    """The functions of ``hooks.Hooks`` that are needed here."""

    @property
    def is_active(self) -> bool:
        """Whether the mount goes through the hooks."""

    def request(self) -> int:
        """Return the number of the request whose handler has just begun."""

    def listing_room(self) -> int:
        """Return the most bytes of its reply."""

    def reply(self, request: int, data: memoryview) -> bool:
        """Answer a request; returns False if pyfuse3 has to."""


class NameListing:
    """The bytes of the names of a directory, for nodes that are topics or grow.

    Args:
        names: All of them, from ``.`` and ``..`` on.
        nodes: Their nodes.

    Attributes:
        names, nodes: See above.
        ends: Where each name ends in the bytes.
    """

    def __init__(self, names: list[str], nodes: Sequence[Node]) -> None:
        self.names = names
        self.nodes = nodes
        self.ends: list[int] = []
        self._growing = [_growing(node) for node in nodes]
        self._snapshots: list[Snapshot | None] = [None] * len(nodes)
        self._times_ms = [0] * len(nodes)
        data = bytearray()
        for number, (name, node) in enumerate(zip(names, nodes, strict=True)):
            data += _encoded(name.encode(), node, position_after(number + 1, name))
            self.ends.append(len(data))
        self._view = memoryview(data)

    def begin(self, number: int) -> int:
        """Return where a name begins in the bytes."""
        return self.ends[number - 1] if number else 0

    def bytes_of(self, start: int, stop: int) -> memoryview | None:
        """Return the bytes of some names, with their present attributes.

        Returns:
            None: a file is being closed, so that its attributes have to wait.
        """
        snapshots, times_ms = self._snapshots, self._times_ms
        for number in range(start, stop):
            growing = self._growing[number]
            if growing is None:
                continue
            executor, state = growing
            if executor.releasing is not None:
                return None
            snapshot, modified_ms = state.snapshot, state.last_modified_ms
            if snapshot is not snapshots[number] or modified_ms != times_ms[number]:
                snapshots[number], times_ms[number] = snapshot, modified_ms
                self._renew(number)
        return self._view[self.begin(start) : self.begin(stop)]

    def _renew(self, number: int) -> None:
        attributes = self.nodes[number].attributes()
        changing = _changing(attributes.size, attributes.mtime_ms)
        _CHANGING.pack_into(self._view, self.begin(number) + _CHANGING_AT, *changing)


class Listings:
    """Listings of directories that are answered from kept bytes. Event loop only.

    Args:
        hooks: Send the replies; None where they were not built.
        lookups: Find the names.
        inodes: Count the look-ups.
        names: Tell when topics change.
        is_followed: Another process writes the store.
    """

    def __init__(
        self,
        hooks: ListingHooks | None,
        lookups: Lookups,
        inodes: InodeTable[Node],
        names: NativeNames,
        *,
        is_followed: bool,
    ) -> None:
        self._hooks = None if is_followed else hooks
        self._lookups = lookups
        self._inodes = inodes
        self._names = names
        self._kept: dict[DirectoryNode, NameListing] = {}
        names.on_change = self._kept.clear

    def request(self) -> ListingRequest:
        """Return the request whose handler has just begun."""
        hooks = self._hooks
        if hooks is None or not hooks.is_active:
            return ListingRequest(0, 0)
        return ListingRequest(hooks.request(), hooks.listing_room())

    def answer(self, request: ListingRequest, directory: DirectoryHandle, start: int) -> bool:
        """Answer a request for the names of a directory from a number on.

        Returns:
            False if nothing was done: pyfuse3 has to answer.
        """
        listing = self._listing(directory) if request.room and self._hooks is not None else None
        if listing is None or start >= len(listing.names):
            return False
        stop = bisect_right(listing.ends, listing.begin(start) + request.room)
        data = listing.bytes_of(start, stop)
        counted = listing.nodes[max(start, len(NOT_COUNTED)) : stop]
        # Counted before the reply: the next daemon of the mount has to know what the kernel knows.
        if not data or not self._inodes.count_all(counted):
            self._kept.pop(directory.node, None)
            return False
        if self._hooks is not None and self._hooks.reply(request.number, data):
            return True
        self._inodes.forget((node.ino, 1) for node in counted)
        return False

    def _listing(self, directory: DirectoryHandle) -> NameListing | None:
        kept = self._kept.get(directory.node)
        if kept is not None and kept.names == directory.names:
            directory.names = kept.names  # the next comparison finds the same object
            return kept
        if self._names.is_changing or not isinstance(directory.node, TopicNode):
            return None
        listing = None
        with suppress(LogfsError):  # a name has been removed since the listing was begun
            listing = self._made(directory)
        if listing is not None:
            self._keep(directory.node, listing)
        return listing

    def _made(self, directory: DirectoryHandle) -> NameListing | None:
        nodes = []
        for name in directory.names:
            node = self._lookups.find_now(directory.node, name.encode())
            if not isinstance(node, PlainNode | TopicNode):
                return None
            nodes.append(node)
        return NameListing(directory.names, nodes)

    def _keep(self, node: DirectoryNode, listing: NameListing) -> None:
        kept = self._kept
        kept.pop(node, None)
        while kept and sum(len(one.names) for one in kept.values()) > _MOST_NAMES:
            del kept[next(iter(kept))]
        kept[node] = listing


def _growing(node: Node) -> tuple[PartitionExecutor, ReadableState] | None:
    if not isinstance(node, PlainNode):
        return None
    return node.partition.executor, node.partition.log.state


def _changing(size: int, modified_ms: int) -> tuple[int, ...]:
    seconds, rest_ms = divmod(modified_ms, _MS_PER_S)
    return size, blocks_of(size), *repeat(seconds, 3), *repeat(rest_ms * NS_PER_MS, 3)


def _encoded(name: bytes, node: Node, following: int) -> bytes:
    mode, uid, gid, size, modified_ms = node.attributes()
    timeouts_s = node.entry_timeout_s, node.attr_timeout_s
    encoded = b"".join(
        (
            _ENTRY.pack(
                *(node.ino, 0),
                *(int(seconds) for seconds in timeouts_s),
                *(int(seconds % 1 * _MS_PER_S) * NS_PER_MS for seconds in timeouts_s),
            ),
            _INODE.pack(node.ino),
            _CHANGING.pack(*_changing(size, modified_ms)),
            _FIXED.pack(mode, 1, uid, gid, 0, MAX_REQUEST_BYTES, 0),
            _NAME.pack(node.ino, following, len(name), stat.S_IFMT(mode) >> 12),
            name,
        )
    )
    return encoded + bytes(-len(encoded) % _ALIGNED_BYTES)
