"""Parts of objects in memory: fetched once, checked, given up when memory is full.

An object is a row of blocks of 1 MiB. A request to the store fetches a *span*: some blocks that
follow each other. A reader that needs a block waits for the span that has it. Spans that are
*wanted* by a reader are fetched before those that are read ahead.

The memory of all spans is bounded, in the order of their last use. Reading ahead takes the place
of spans that were read to their end only, so that readers do not evict what others are about to
read. If there is none, reading ahead pauses.

A block is checked before its first use, if its CRC-32C is known. If it differs, the span is
fetched once more; then it is an error. An error is that of the readers that wait for it: the next
reader sends a new request.

Requests are sent by threads of this module, which end with the process.
"""

import errno
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakValueDictionary

from logfs.disk.remote.counters import BlockCounters
from logfs.disk.remote.objects import ObjectStore
from logfs.disk.remote.overlay import UNCHECKED, Checks
from logfs.disk.vfs import File, ReadableBuffer
from logfs.disk.waiting import StoreReadError, wait

BLOCK_BYTES = 1 << 20
LONGEST_SPAN = 8
"""Blocks of one request."""
WHOLE_BYTES = 64 << 20
"""Objects with several parts are fetched as a whole up to this size."""
MOST_THREADS = 32
_CRC_BYTES = 4


class MissingObjectError(StoreReadError):
    """An object that a file consists of is gone; the catalog may know a newer state."""

    def __init__(self, address: str) -> None:
        super().__init__(errno.EIO, "the object is gone", address)


class BlockCache(Protocol):
    """Keeps blocks between runs; see ``cache``. Any thread. Raises nothing.

    Attributes:
        counters: Its errors are counted there.
    """

    counters: BlockCounters

    def load(self, key: str, size: int, first: int, count: int) -> ReadableBuffer | None:
        """Return blocks of an object, unchecked; None if the first one is not there.

        There may be fewer blocks than ``count``.
        """
        ...

    def whole(self, key: str, size: int, inode: int, instead: Callable[[], File]) -> File | None:
        """Return an object as a local file with an inode, if all of it is there and was checked.

        Args:
            key, size: The object.
            inode: That of the file.
            instead: Opens what is read when the local file cannot be read any more.
        """
        ...

    def note_checked(self, key: str, size: int, first: int, count: int) -> None:
        """Note that blocks that were loaded are what they should be."""
        ...

    def keep(self, key: str, size: int, first: int, data: ReadableBuffer) -> None:
        """Keep blocks of an object that were checked."""
        ...

    def forget(self, key: str, size: int, first: int) -> None:
        """Give up a block that is not what it should be."""
        ...


class Span:
    """Some blocks of an object that were fetched, or are being fetched, with one request."""

    __slots__ = ("data", "error", "first", "is_done", "is_read", "source", "stop", "waiters")

    def __init__(self, source: "ObjectBlocks", first: int, stop: int) -> None:
        self.source = source
        self.first = first
        self.stop = stop
        self.data = memoryview(b"")
        self.is_done = False
        self.is_read = False
        self.waiters: list[threading.Event] = []
        self.error: OSError | None = None

    @property
    def size(self) -> int:
        """Bytes, also before it is done."""
        end = min(self.stop * BLOCK_BYTES, self.source.size)
        return end - self.first * BLOCK_BYTES

    def bytes_from(self, position: int) -> memoryview:
        """Return the bytes from a position in the object up to the end of the span.

        Raises:
            StoreReadError: The request failed; MissingObjectError: the object is gone.
        """
        error = self.error
        if isinstance(error, MissingObjectError):
            raise MissingObjectError(error.filename)
        if error is not None:
            raise StoreReadError(error.errno, error.strerror, error.filename)
        return self.data[position - self.first * BLOCK_BYTES :]


class ObjectBlocks:
    """The blocks of one object. Only ``Blocks`` changes it.

    Attributes:
        key: The object.
        size: In bytes.
        checks: How they are checked.
        spans: Block -> the span that has it.
        arriving_bytes: How far readers of the object before it have read ahead.
        keeps: Whether new blocks go to the cache.
    """

    __slots__ = (
        "__weakref__", "arriving_bytes", "checks", "crcs", "crcs_lock",
        "is_whole", "keeps", "key", "size", "spans",
    )  # fmt: skip

    def __init__(self, key: str, size: int, checks: Checks = UNCHECKED) -> None:
        self.key = key
        self.size = size
        self.checks = checks
        self.crcs: memoryview | None = None
        self.crcs_lock = threading.Lock()
        self.is_whole = False
        self.spans: dict[int, Span] = {}
        self.arriving_bytes = 0
        self.keeps = False

    @property
    def block_count(self) -> int:
        """Its blocks; the last one may be short."""
        return -(-self.size // BLOCK_BYTES)


class Blocks:
    """The blocks in memory of all objects of a store. Any thread.

    Args:
        store: The store.
        checksum: CRC-32C.
        clock: Seconds, monotonic.
        memory_bytes: The most that all blocks together take.
        cache: Keeps blocks between runs.

    Attributes:
        counters: The counters of reads.
        throttle: Called with the length of each request before it is sent; it may wait.
        store: See above.
    """

    def __init__(
        self,
        store: ObjectStore,
        checksum: Callable[[memoryview], int],
        clock: Callable[[], float],
        memory_bytes: int,
        cache: BlockCache | None = None,
    ) -> None:
        self.counters = BlockCounters()
        self.throttle: Callable[[int], object] | None = None
        self.store = store
        self._checksum = checksum
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._cache = cache
        if cache is not None:
            cache.counters = self.counters
        self._guard = threading.Condition()
        self._objects: WeakValueDictionary[str, ObjectBlocks] = WeakValueDictionary()
        self._fresh: OrderedDict[Span, None] = OrderedDict()
        self._read: OrderedDict[Span, None] = OrderedDict()
        self._bytes = 0
        self._wanted: deque[Span] = deque()
        self._ahead: deque[Span] = deque()
        self._threads = 0
        self._idle = 0
        self._process = os.getpid()

    @property
    def memory_used(self) -> int:
        """Bytes of all spans, those included that are being fetched."""
        return self._bytes

    def address(self, key: str) -> str:
        """Return the address of an object."""
        return f"{self.store.url}/{key}"

    def object(self, key: str, size: int, checks: Checks = UNCHECKED) -> ObjectBlocks:
        """Return the blocks of an object; the same for the same key while any is in memory.

        An object with its own checksum is fetched as a whole.
        """
        with self._guard:
            found = self._objects.get(key)
            if found is None:
                found = self._objects[key] = ObjectBlocks(key, size, checks)
            elif checks not in (UNCHECKED, found.checks):
                # A reader of the object before it has read ahead; it did not know the checks.
                found.checks = checks
                for span in set(found.spans.values()):
                    if span.is_done:
                        span.is_done = False
                        self._start(self._wanted, span)
            if checks.whole is not None and size <= WHOLE_BYTES:
                found.is_whole = found.keeps = True
            return found

    def find(self, source: ObjectBlocks, block: int) -> Span | None:
        """Return the span with a block, if it is in memory."""
        with self._guard:
            span = source.spans.get(block)
            if span is None or not span.is_done:
                return None
            self._touch(span)
        self.counters.hits += 1
        return span

    def read(self, source: ObjectBlocks, block: int, count: int = 1) -> Span:
        """Return the span with a block; fetch it, and some blocks after it, if it is not there.

        Raises:
            StoreReadError: See ``waiting.wait``. ``Span.bytes_from`` raises what the store did.
        """
        with self._guard:
            span = source.spans.get(block)
            if span is not None and span.is_done:
                self._touch(span)
                self.counters.hits += 1
                return span
            if span is None:
                span = self._begin(source, block, count, is_wanted=True)
            elif span in self._ahead:
                self._ahead.remove(span)
                self._wanted.append(span)
            done = threading.Event()
            span.waiters.append(done)
        started_s = self._clock()
        self.counters.misses += 1
        try:
            wait(done, self.address(source.key))
        finally:
            self.counters.wait_s += self._clock() - started_s
        return span

    def read_ahead(self, source: ObjectBlocks, block: int, count: int) -> bool:
        """Begin to fetch blocks, if there is memory; those that are there are left alone.

        Returns:
            Whether there was memory.
        """
        stop = min(block + count, source.block_count)
        with self._guard:
            while block < stop:
                if block in source.spans:
                    block += 1
                    continue
                if not self._make_room(min(stop - block, LONGEST_SPAN) * BLOCK_BYTES):
                    return False
                block = self._begin(source, block, stop - block, is_wanted=False).stop
        return True

    def note_read(self, span: Span) -> None:
        """Note that a reader has read a span to its end: it makes room first."""
        if not span.is_read:
            with self._guard:
                span.is_read = True
                if span in self._fresh:
                    del self._fresh[span]
                    self._read[span] = None

    def forget(self, source: ObjectBlocks) -> None:
        """Drop what is in memory of an object."""
        with self._guard:
            for span in set(source.spans.values()):
                if span.is_done:
                    self._drop(span)

    def _touch(self, span: Span) -> None:
        spans = self._read if span.is_read else self._fresh
        if span in spans:
            spans.move_to_end(span)

    def _begin(self, source: ObjectBlocks, block: int, count: int, *, is_wanted: bool) -> Span:
        """Have a thread fetch a block and the missing ones after it. Under the guard."""
        span = self._add(source, block, count)
        self._start(self._wanted if is_wanted else self._ahead, span)
        if is_wanted:
            self._make_room(0)
        return span

    def _start(self, queue: deque[Span], span: Span) -> None:
        """Have a thread take a span. Under the guard."""
        queue.append(span)
        self._guard.notify()
        # Threads that were notified before may not run yet.
        waiting = len(self._wanted) + len(self._ahead)
        if waiting > self._idle and self._threads < MOST_THREADS:
            self._threads += 1
            name = f"logfs-store-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _add(self, source: ObjectBlocks, block: int, count: int) -> Span:
        """Return a new span with a block and the missing ones after it. Under the guard."""
        if os.getpid() != self._process:
            text = "a forked process cannot read files of a store that its parent has opened"
            raise OSError(errno.EIO, text, self.address(source.key))
        stop = block + 1
        if source.is_whole:
            block, stop = 0, source.block_count
        else:
            last = min(block + min(count, LONGEST_SPAN), source.block_count)
            while stop < last and stop not in source.spans:
                stop += 1
        span = Span(source, block, stop)
        for number in range(block, stop):
            source.spans[number] = span
        self._fresh[span] = None
        self._bytes += span.size
        return span

    def _make_room(self, byte_count: int) -> bool:
        """Drop spans until there is memory for more; returns whether there is.

        With 0, for what a reader waits for, also spans that were not read to their end are dropped.
        """
        while self._bytes + byte_count > self._memory_bytes:
            span = next((span for span in self._read if span.is_done), None)
            if span is None and not byte_count:
                span = next((span for span in self._fresh if span.is_done), None)
            if span is None:
                return False
            self._drop(span)
        return True

    def _drop(self, span: Span) -> None:
        (self._read if span.is_read else self._fresh).pop(span, None)
        self._bytes -= span.size
        source = span.source
        for number in range(span.first, span.stop):
            if source.spans.get(number) is span:
                del source.spans[number]

    def _work(self) -> None:
        """Fetch spans, one at a time, for ever."""
        while True:
            with self._guard:
                while not (self._wanted or self._ahead):
                    self._idle += 1
                    self._guard.wait()
                    self._idle -= 1
                span = (self._wanted or self._ahead).popleft()
            self._complete(span)

    def _complete(self, span: Span) -> None:
        """Fetch a span, check it and wake its readers."""
        source = span.source
        while True:
            checks = source.checks
            try:
                span.data = self._fetch(span)
            except OSError as error:
                span.error = error
                self.counters.errors += 1
            with self._guard:
                if checks is not source.checks and span.error is None:
                    continue
                span.is_done = True
                if span.error is not None:
                    self._drop(span)  # the next reader sends a new request
                waiters, span.waiters = span.waiters, []
            break
        for waiter in waiters:
            waiter.set()

    def _fetch(self, span: Span) -> memoryview:
        """Return the checked bytes of a span."""
        source = span.source
        start = span.first * BLOCK_BYTES
        try:
            loaded = None if span.data else self._load(span)
            if loaded is not None:
                return loaded
            data = span.data or self._get(source.key, start, span.size)
            if self._bad_block(span, data) is not None:
                self.counters.corrupt += 1
                data = self._get(source.key, start, span.size)
                bad = self._bad_block(span, data)
                if bad is not None:
                    raise self._corrupt(source, bad)
        except FileNotFoundError:
            raise MissingObjectError(self.address(source.key)) from None
        if self._cache is not None and source.keeps and self._is_checked(source):
            self._cache.keep(source.key, source.size, span.first, data)
        return data

    def _load(self, span: Span) -> memoryview | None:
        """Return the bytes of a span from the cache; None unless it has all of them."""
        source = span.source
        if self._cache is None or not self._is_checked(source):
            return None
        found = self._cache.load(source.key, source.size, span.first, span.stop - span.first)
        if found is None or len(found) < span.size:
            return None
        data = memoryview(found)
        bad = self._bad_block(span, data)
        if bad is not None:
            self._cache.forget(source.key, source.size, bad)
            return None
        self._cache.note_checked(source.key, source.size, span.first, span.stop - span.first)
        self.counters.loaded_bytes += len(data)
        return data

    def _get(self, key: str, start: int, length: int) -> memoryview:
        if self.throttle is not None:
            self.throttle(length)
        self.counters.requests += 1
        data = self.store.get_range(key, start, length)
        self.counters.bytes += length
        return data

    def _is_checked(self, source: ObjectBlocks) -> bool:
        return (source.checks.whole if source.is_whole else source.checks.blocks) is not None

    def _bad_block(self, span: Span, data: memoryview) -> int | None:
        """Return the first block of a span whose checksum differs; None if all are right."""
        source = span.source
        if source.is_whole:
            whole = source.checks.whole
            return None if whole is None or self._checksum(data) == whole else 0
        crcs = self._crcs(source)
        if crcs is None:
            return None
        for block in range(span.first, span.stop):
            start = (block - span.first) * BLOCK_BYTES
            expected = int.from_bytes(crcs[block * _CRC_BYTES : (block + 1) * _CRC_BYTES], "big")
            if self._checksum(data[start : start + BLOCK_BYTES]) != expected:
                return block
        return None

    def _crcs(self, source: ObjectBlocks) -> memoryview | None:
        """Return the checksums of the blocks of an object; fetches them the first time."""
        if source.crcs is not None or source.checks.blocks is None:
            return source.crcs
        key, size, crc, start = source.checks.blocks
        with source.crcs_lock:
            if source.crcs is None:
                listed = self._whole(key, size, crc)[start:]
                source.crcs = listed[: source.block_count * _CRC_BYTES]
        if len(source.crcs) != source.block_count * _CRC_BYTES:
            text = f"{len(source.crcs)} bytes of checksums for {source.block_count} blocks"
            raise OSError(errno.EIO, text, self.address(key))
        return source.crcs

    def _whole(self, key: str, size: int, crc: int | None) -> memoryview:
        """Return a whole object, for a thread that fetches: it must not wait for the queue."""
        source = self.object(key, size, Checks(whole=crc))
        done = threading.Event()
        with self._guard:
            span = source.spans.get(0)
            is_mine = span is None or span in self._wanted or span in self._ahead
            if span is None:
                span = self._add(source, 0, source.block_count)
            elif span in self._wanted:
                self._wanted.remove(span)
            elif span in self._ahead:
                self._ahead.remove(span)
            elif not span.is_done:
                span.waiters.append(done)
            else:
                done.set()
        if is_mine:
            self._complete(span)
        else:
            done.wait()
        return span.bytes_from(0)

    def _corrupt(self, source: ObjectBlocks, block: int) -> OSError:
        what = "the object" if source.is_whole else f"the MiB from byte {block * BLOCK_BYTES} on"
        text = f"{what} has another checksum, twice: the store returned other bytes than were put"
        return OSError(errno.EIO, text, self.address(source.key))
