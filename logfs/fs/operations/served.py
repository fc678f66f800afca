"""The requests of the kernel: decode, call, translate, reply. Only this module has their types.

Every handler takes its turn before its first await: pyfuse3 starts handlers in the order in which
it reads requests, and runs each up to its first await before it reads the next. ``request_handler``
turns every exception of a handler into an errno.

pyfuse3 copies the result of ``read`` before anything else runs on the loop.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar, TypeVarTuple, cast

import pyfuse3
import trio
from pyfuse3 import (
    EntryAttributes,
    FileInfo,
    FUSEError,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    StatvfsData,
)

from logfs.errors import LogfsError, NoSuchTopicError, ReadOnlyError
from logfs.fs.files.followreads import FollowReads, PollHandle
from logfs.fs.files.handles import DirectoryHandle, HandleTable, position_after
from logfs.fs.files.listings import NOT_COUNTED, Listings
from logfs.fs.files.openfiles import OpenFiles
from logfs.fs.handover.journal import Journal, Words
from logfs.fs.handover.notes import Note, RequestNotes
from logfs.fs.handover.pruning import Pruning
from logfs.fs.handover.restoring import KeptNodes
from logfs.fs.handover.slots import Slots
from logfs.fs.kernel.cache import KernelCache
from logfs.fs.kernel.cpulatency import CpuLatency
from logfs.fs.kernel.errnos import (
    IsADirectoryNodeError,
    NoSuchAttributeError,
    NotADirectoryNodeError,
    RefusedError,
    StaleError,
    Translator,
)
from logfs.fs.kernel.hooks import Answered, Hooks
from logfs.fs.kernel.interrupts import InterruptWatch
from logfs.fs.kernel.passthrough import Passthrough
from logfs.fs.kernel.permissions import Caller, check_search
from logfs.fs.kernel.suspects import SuspectRequests
from logfs.fs.operations.refused import RefusedOperations
from logfs.fs.operations.topics import Creator, TopicChangeQueue, TopicChanges, owner_key
from logfs.fs.options import MountOptions
from logfs.fs.partitions.quotas import Quotas
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.accesslog import AccessLog, name_of_node
from logfs.fs.tree.indexwait import IndexWait
from logfs.fs.tree.inodes import InodeTable
from logfs.fs.tree.lookups import Lookups, wait_for_releases
from logfs.fs.tree.nativenames import NativeNames
from logfs.fs.tree.nodes import DirectoryNode, FileNode, InNode, Node, PlainNode, TopicNode
from logfs.fs.tree.replies import RequestCounts, make_entry, make_statvfs, request_handler
from logfs.fs.tree.rules import check_open, partition_to_make, refusal
from logfs.fs.tree.storewaits import StoreWaits, interruptible
from logfs.fs.tree.tree import Tree
from logfs.fs.tree.xattrs import PREFIX, change_attribute, get_attribute, list_attributes
from logfs.fs.upkeep.tasks import BackgroundTasks
from logfs.log.lines.writer import LineWriter
from logfs.machine.host import Clock
from logfs.services.following.store import AnyStore

RESENT = 1 << 63
"""The bit of a request's number that says that the kernel sends it again."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_OWN_ATTRIBUTES = PREFIX.encode()


class Operations(RefusedOperations):
    """The handlers of the file system, for pyfuse3."""

    supports_dot_lookup = False

    def __init__(
        self,
        store: AnyStore,
        tree: Tree,
        options: MountOptions,
        clock: Clock,
        hooks: Hooks | None = None,
    ) -> None:
        super().__init__()
        self.is_initialized = trio.Event()
        self.translator = Translator()
        self.request_counts = RequestCounts()
        self.access_log: AccessLog | None = None
        self.suspects: SuspectRequests | None = None
        self._notes = RequestNotes()
        self._store = store
        self.tree = tree
        self.options = options
        self._clock = clock
        self.native_names = NativeNames(hooks)
        self.topic_changes = TopicChangeQueue(store, tree, clock, self.native_names)
        self.quotas = Quotas(store, tree.ownership, options)
        self._topics = TopicChanges(store, tree.ownership, options, clock, self.quotas)
        self._kept = KeptNodes(tree)
        self.state_words: Words | None = None
        self._inherited: tuple[list[int], list[int]] = [], []
        self.inodes: InodeTable[Node] = InodeTable(
            tree.root, keeper=self._kept, take_lookups=self.native_names.take
        )
        self.directories = HandleTable(self._restore_directory)
        self.interrupts = InterruptWatch(hooks)
        self.store_waits = StoreWaits(store.disk, self.interrupts)
        self.follow_reads = FollowReads(
            clock,
            self.interrupts,
            *(() if hooks is None else (hooks.suspects.note_waiting,)),
        )
        note_look = self.follow_reads.queues.note_directory_look
        self.tasks = BackgroundTasks(store, tree, clock, note_look)
        self.index_wait = IndexWait()
        self.lookups = Lookups(tree, self.inodes, self.index_wait, clock.now_ms)
        self.listings = Listings(
            hooks, self.lookups, self.inodes, self.native_names, is_followed=store.is_followed
        )
        self.passthrough = Passthrough(hooks, wanted=not options.no_passthrough)
        self.kept_by: Callable[[], str | None] = lambda: None
        tree.meta_of_mount = self.facts
        self.cpu_latency = CpuLatency(
            lambda: 0 if hooks is None else hooks.answered(Answered.READ), wanted=options.keep_awake
        )
        self.hooks = hooks
        self.kernel_cache: KernelCache | None = None
        self.files = OpenFiles(
            store,
            tree,
            self.tasks,
            self.follow_reads,
            self.passthrough,
            clock,
            inodes=self.inodes,
            kept=self._kept,
            quotas=self.quotas,
            names=self.native_names,
            syncs=options.sync,
            hooks=hooks,
            note_ahead=self.cpu_latency.note,
        )

    def init(self) -> None:
        """Note the first request of the kernel; its reply follows in the same step."""
        self.is_initialized.set()

    def facts(self) -> dict[str, object]:
        """Return what ``.meta`` and ``logfs status`` say of the mount. Any thread."""
        return {"sealed_files": self.passthrough.describe(), "kept_by": self.kept_by()}

    @property
    def journal(self) -> Journal:
        """The notes for the next daemon of this mount."""
        return self._kept.journal

    def take_over(
        self,
        journal: Journal,
        words: Words | None = None,
        writers: Mapping[int, LineWriter] = MappingProxyType({}),
    ) -> None:
        """Continue with what an earlier daemon of this mount has noted; once, before any request.

        Args:
            journal: That of the mount.
            words: The words of the state; None: nothing outlives this daemon.
            writers: The unfinished lines of open files, by their numbers.
        """
        self._kept.take_over(journal, self.passthrough, self.quotas)
        self._inherited = list(journal.nodes), self._kept.fixed_files()
        self._notes.journal = journal
        self.files.slots = Slots(words, journal)
        self.state_words = words
        self.files.writers.update(writers)
        if self.hooks is not None and len(self.hooks.suspects):
            self.suspects = SuspectRequests(
                self.hooks.suspects, self.hooks.request, self._name_of_inode, self._name_of_handle
            )

    async def care_for_inherited(self) -> None:
        """Do what is left to do for the nodes and open files of an earlier daemon; in pieces."""
        nodes, fixed = self._inherited
        await self.files.restore_all(fixed)
        if self.hooks is not None:
            await Pruning(self.inodes, nodes, self.hooks.knows_node).run()

    # Names and attributes

    @request_handler
    @interruptible
    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find a name."""
        parent, seen = self.inodes.node(parent_inode), self.native_names.seen
        topic = self.tree.passed_topic(parent, name)
        if topic is not None:
            check_search(topic, self.tree.ownership, _caller(ctx))
        node = await self.lookups.find(parent, name)
        entry = await self._entry(node)
        self.inodes.count(node)
        if self.access_log is not None:
            self.access_log.note_lookup(parent_inode, name, node.ino)
        elif not self.store_waits.has_store and (
            not isinstance(node, PlainNode) or self.files.native.serve_attributes(node)
        ):
            self.native_names.serve_name(parent, name, node, seen)
        return entry

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """Take look-ups back."""
        self.inodes.forget(inode_list)

    @request_handler
    @interruptible
    async def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        """Answer stat(2)."""
        node = await self.lookups.resolved(inode, ctx.pid)
        await wait_for_releases(node)
        entry = await self._entry(node)
        if self.store_waits.has_store or isinstance(node, InNode):
            entry.st_ino = self.inodes.shown_number(node)
        if self.store_waits.has_store:
            return entry
        if isinstance(node, PlainNode):
            self.files.native.serve_attributes(node)
        elif isinstance(node, TopicNode) and self.tree.is_live(node):
            self.native_names.know_directory(node)
        return entry

    @request_handler
    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        """Refuse a new size, store mode and owner, ignore times."""
        node = self.inodes.node(inode)
        self._check_writable()
        if fields.update_size:
            raise RefusedError("files only take appends; they cannot be truncated")
        if fields.update_mode or fields.update_uid or fields.update_gid:
            with self._notes.of(self._request()) as note:
                await self.topic_changes.run(
                    owner_key(node)[0],
                    note.apply,
                    self._topics.set_attributes,
                    node,
                    attr.st_mode if fields.update_mode else None,
                    attr.st_uid if fields.update_uid else None,
                    attr.st_gid if fields.update_gid else None,
                )
            if self.kernel_cache is not None:
                await self.kernel_cache.drop_attributes(self._sharers_of(node))
        return await self._entry(node)

    @request_handler
    async def access(self, inode: int, mode: int, ctx: RequestContext) -> bool:
        """Leave permissions to the kernel, which checks them (``default_permissions``)."""
        return True

    @request_handler
    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        """Describe the file system of the data directory."""
        return make_statvfs(await run_in_thread(self._store.disk.free))

    # Directories

    @request_handler
    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        """Open a directory."""
        node = self.inodes.node(inode)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryNodeError("a file is listed as a directory")
        request = self._request()
        if request in self.journal.directories:
            return request  # opened by an earlier daemon, which did not reply
        self.quotas.check_open(ctx.uid)
        number = self.directories.add(DirectoryHandle(node), request)
        self.quotas.note_opened(ctx.uid, "directory", number)
        self.journal.opened_directory(number, inode, ctx.uid)
        return number

    @request_handler
    @interruptible
    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        """List a directory from an entry on; from entry 0 with its present names."""
        request = self.listings.request()
        directory = self.directories[fh]
        if start_id == 0 or not directory.names:
            listing = self.tree.names(directory.node)
            if not isinstance(listing, list):
                executor = listing.partition.executor
                listing = await executor.query_locally(listing.ask, *listing.args)
            directory.names = [".", "..", *listing]
        if not self.listings.answer(request, directory, start := directory.number(start_id)):
            await self._list(directory, start, token)

    @request_handler
    async def releasedir(self, fh: int) -> None:
        """Close a directory."""
        with contextlib.suppress(LogfsError):  # closed by an earlier daemon, or gone
            self.directories.take(fh)
        self.quotas.note_released("directory", fh)
        self.journal.released(fh)

    @request_handler
    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Do nothing: names are durable when mkdir, touch and rmdir return."""

    @request_handler
    async def mkdir(
        self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext
    ) -> EntryAttributes:
        """Create a topic."""
        parent = self.inodes.node(parent_inode)
        self._check_writable()
        if parent is not self.tree.root:
            raise RefusedError("topics are made in the root of the mount only")
        with self._notes.of(self._request()) as note:
            make = partial(self._topics.make, name, mode, _creator(ctx), was_begun=note.was_begun)
            exists = partial(self._topics.exists, name)
            topic = name.decode(errors="surrogateescape")
            await self.topic_changes.run(topic, partial(note.apply, make, is_refused=exists))
            return await self._made(parent, name)

    @request_handler
    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Delete an empty topic; with the mount option rmdir=delete any topic."""
        parent = self.inodes.node(parent_inode)
        with self._notes.of(self._request()) as note:
            if note.is_done:
                return
            try:
                node = await self.lookups.find(parent, name)
            except NoSuchTopicError:
                if note.was_begun:
                    return
                raise
            self._check_writable()
            if not isinstance(node, TopicNode):
                raise refusal(read_only=False)
            if note.was_begun and note.text != (node.topic_id or ""):
                return
            only_empty = not self.options.rmdir_deletes
            await self.topic_changes.delete_topic(node, only_empty=only_empty, note=note)

    # Files

    @request_handler
    @interruptible
    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Open a file."""
        request = self._request()
        node = self.inodes.node(inode)
        if not isinstance(node, FileNode):
            raise IsADirectoryNodeError("a directory is opened as a file")
        check_open(node, flags, read_only=self._store.read_only)
        node = cast("FileNode", await self.lookups.resolved(inode, ctx.pid))
        await self.index_wait.for_positions(node, ctx.pid)
        return await self._open(node, flags, ctx.uid, request)

    @request_handler
    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        """Create a partition and open it."""
        request = self._request()
        parent = self.inodes.node(parent_inode)
        self._check_writable()
        self.quotas.check_open(ctx.uid)
        topic, number = partition_to_make(
            self.tree, parent, name, flags, create=self.options.create
        )
        creator = _creator(ctx)
        for last in self._topics.steps_of_growth(topic.name, number, creator):
            grow = partial(self._topics.grow, topic.name, last, mode, creator)
            await self.topic_changes.run(topic.name, grow)
        topic.mtime_ms = self._clock.now_ms()
        node = await self.lookups.find(parent, name)
        if not isinstance(node, FileNode):
            raise IsADirectoryNodeError("a directory was made in place of a file")
        info = await self._open(node, flags, ctx.uid, request)
        entry = await self._entry(node)
        self.inodes.count(node)
        return info, entry

    @request_handler
    async def read(self, fh: int, off: int, size: int) -> bytes:
        """Read; the result is valid until the next await."""
        if self.store_waits.has_store:
            if not self.files.follows(fh):
                return await self._read_interruptibly(fh, off, size)
            with self.store_waits.request():
                return await self.files.read(fh, off, size)  # type: ignore[return-value]
        return await self.files.read(fh, off, size)  # type: ignore[return-value]  # any buffer will do

    @request_handler
    async def poll(
        self, inode: int, fh: int, poll_handle: PollHandle | None, ctx: RequestContext
    ) -> int:
        """Return whether a read would wait; only that of a ``.follow`` name may."""
        events = self.files.poll(fh, poll_handle)
        if not events and self.hooks is not None:
            self.journal.polls(fh, self.hooks.poll_handle())
        return events

    @request_handler
    async def write(self, fh: int, off: int, buf: bytes) -> int:
        """Append; the offset is ignored: it is where the file ended for the kernel."""
        slot = self.files.slots.current()
        accepted = self.files.write_now(fh, buf, slot)
        return accepted if isinstance(accepted, int) else await accepted

    @request_handler
    async def flush(self, fh: int) -> None:
        """Report an earlier failure at close(2); the file stays open, others may share it."""
        self.files.report_failure(fh)

    @request_handler
    async def release(self, fh: int) -> None:
        """Close a file after its last close(2)."""
        self.quotas.note_released("file", fh)
        await self.files.release(fh)

    @request_handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        """Make a file durable."""
        await self.files.sync(fh)

    # Extended attributes

    @request_handler
    @interruptible
    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Return an extended attribute."""
        if not name.startswith(_OWN_ATTRIBUTES):
            raise FUSEError(pyfuse3.ENOATTR)
        return await self._query(ctx, inode, get_attribute, self._store, name)

    @request_handler
    @interruptible
    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        """List the extended attributes."""
        return await self._query(ctx, inode, list_attributes, self._store)

    @request_handler
    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        """Set a topic's configuration."""
        with self._notes.of(self._request()) as note:
            await self._change_attribute(note, inode, name, value, ctx.uid)

    @request_handler
    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        """Reset a topic's configuration."""
        with self._notes.of(self._request()) as note:
            await self._change_attribute(note, inode, name, None, ctx.uid)

    # Inside

    @interruptible
    async def _read_interruptibly(self, fh: int, off: int, size: int) -> bytes:
        return await self.files.read(fh, off, size)  # type: ignore[return-value]  # see ``read``

    async def _entry(self, node: Node) -> EntryAttributes:
        partition = node.partition
        if node.asks_disk and partition is not None:
            return make_entry(node, await partition.executor.query(node.attributes))
        return make_entry(node, node.attributes())

    async def _list(self, directory: DirectoryHandle, start: int, token: ReaddirToken) -> None:
        names = directory.names
        for number in range(start, len(names)):
            name = names[number].encode()
            try:
                node = self.lookups.find_now(directory.node, name)
                if node is None:
                    node = await self.lookups.find(directory.node, name)
                entry = await self._entry(node)
            except LogfsError:
                continue  # removed since the listing was begun
            following = position_after(number + 1, names[number])
            if not pyfuse3.readdir_reply(token, name, entry, following):
                return
            if name not in NOT_COUNTED:
                self.inodes.count(node)

    async def _made(self, parent: DirectoryNode, name: bytes) -> EntryAttributes:
        parent.mtime_ms = self._clock.now_ms()
        node = await self.lookups.find(parent, name)
        entry = await self._entry(node)
        self.inodes.count(node)
        return entry

    def _request(self) -> int:
        """Return the number of the request whose handler has just begun; 0 without hooks."""
        hooks = self.hooks
        return hooks.request() & ~RESENT if hooks is not None and hooks.is_active else 0

    def _name_of_inode(self, inode: int) -> str:
        try:
            return name_of_node(self.inodes.node(inode)) or f"inode {inode}"
        except LogfsError:
            return f"inode {inode}"

    def _name_of_handle(self, fh: int) -> str:
        kept = self.journal.files.get(fh) or self.journal.directories.get(fh)
        return f"open file {fh}" if kept is None else self._name_of_inode(kept.ino)

    def _restore_directory(self, number: int) -> DirectoryHandle:
        opened = self.journal.directories.get(number)
        node = None if opened is None else self.inodes.node(opened.ino)
        if not isinstance(node, DirectoryNode):
            raise StaleError(f"open directory {number} is not known")
        return DirectoryHandle(node)

    async def _open(self, node: FileNode, flags: int, caller: int, request: int) -> FileInfo:
        number, file = request, self.files.resumed(request)
        if file is None:
            self.quotas.check_open(caller)
            number, file = await self.files.open(node, flags, request, caller)
            self.quotas.note_opened(caller, "file", number)
            self._kept.note_open(node)  # it may be another sealed file now: one that stays cached
            self.journal.opened(number, node.ino, flags, caller)
        if file.is_passed:
            self.passthrough.attach(node.ino, number)
        # keep_cache always: an open without it would drop the pages that other readers use.
        return FileInfo(fh=number, direct_io=not file.is_cached, keep_cache=True)

    async def _query(
        self, ctx: RequestContext, inode: int, call: Callable[[Node, *Ts], T], *args: *Ts
    ) -> T:
        """Run a call about a node that may have to wait for the disk."""
        node = await self.lookups.resolved(inode, ctx.pid)
        partition = node.partition
        if partition is None:
            return call(node, *args)
        await wait_for_releases(node)
        return await partition.executor.query(call, node, *args)

    async def _change_attribute(
        self, note: Note, inode: int, name: bytes, value: bytes | None, caller: int
    ) -> None:
        node = self.inodes.node(inode)
        self._check_writable()
        change = partial(change_attribute, self._store, self.quotas, node, name, value, caller)
        with contextlib.ExitStack() as stack:
            if note.was_begun and value is None:
                stack.enter_context(contextlib.suppress(NoSuchAttributeError))
            topic = node.name if isinstance(node, TopicNode) else ""
            await self.topic_changes.run(topic, note.apply, change)
        if isinstance(node, TopicNode):
            self.tree.note_config(node)

    def _sharers_of(self, node: Node) -> list[int]:
        """Return the inodes whose modes and owners come from those of a topic or a partition."""
        if node is self.tree.root:
            return [self.tree.segments.ino] if self.tree.segments.ino else []
        partition = node.partition
        topic = partition.topic_partition.topic if partition is not None else None
        if isinstance(node, TopicNode):
            topic = node.name
        return [
            other.ino
            for other in self.inodes.nodes()
            if other.partition is not None and other.partition.topic_partition.topic == topic
        ]

    def _check_writable(self) -> None:
        if self._store.read_only:
            raise ReadOnlyError("the mount is read-only")


def _caller(ctx: RequestContext) -> Caller:
    def groups() -> set[int]:
        try:
            return pyfuse3.get_sup_groups(ctx.pid)
        except (OSError, RuntimeError):  # it has ended, or is of another PID namespace
            return set()

    return Caller(ctx.uid, ctx.gid, groups)


def _creator(ctx: RequestContext) -> Creator:
    return Creator(ctx.uid, ctx.gid, ctx.umask)
