"""Listings without a mount: what the kernel is told, by the hooks or by pyfuse3, against a model.

The kernel is played here: it has small buffers, reads the bytes of replies, and adds up look-ups.
"""

import stat
import struct
from collections import Counter
from contextlib import suppress
from random import Random
from typing import NamedTuple, cast

import pyfuse3
import pytest
import trio
from pyfuse3 import EntryAttributes, FUSEError, ReaddirToken

from logfs.fs.files.listings import Listings
from tests.fs.world import APPEND, World, fields

_PARTS = [struct.Struct(f"<{one}") for one in ("QQQQII", "QQQ", "QQQIII", "IIIIIII", "QQII")]
"""All before the name in struct fuse_direntplus of include/uapi/linux/fuse.h."""
_HEAD_BYTES = sum(one.size for one in _PARTS)


class Entry(NamedTuple):
    """What the kernel was told of a name."""

    name: str
    next: int
    ino: int
    timeouts_s: tuple[float, float]
    mode: int
    links: int
    owner: tuple[int, int]
    size: int
    blocks: int
    block_bytes: int
    times_ns: tuple[int, int, int]


class Kernel:
    """Lists directories, with a buffer of any size, and takes look-ups back.

    Attributes:
        has_hooks: The hooks are there.
        room: The bytes of its buffer.
        lookups: Those that it knows of, by inode.
        native, others: The replies of the hooks, and of pyfuse3, that had a name.
    """

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_hooks = True
        self.refuses = False
        self.room = 4096
        self.lookups: Counter[int] = Counter()
        self.native = self.others = 0
        self._replies: list[list[Entry]] = []
        self._world = world
        operations = world.operations
        operations.listings = Listings(
            *(self, operations.lookups, operations.inodes, operations.native_names),
            is_followed=False,
        )
        monkeypatch.setattr(pyfuse3, "readdir_reply", self._take)

    # What the hooks do

    @property
    def is_active(self) -> bool:
        return self.has_hooks

    def request(self) -> int:
        return 77

    def listing_room(self) -> int:
        return self.room

    def reply(self, request: int, data: memoryview) -> bool:
        assert request == 77
        assert 0 < len(data) <= self.room
        if self.refuses:
            return False
        self._replies.append(_parsed(bytes(data)))
        self.native += 1
        return True

    # What pyfuse3 does

    def _take(self, token: object, name: bytes, entry: EntryAttributes, following: int) -> bool:
        found = cast("list[Entry]", token)
        used = sum(_bytes_of(one.name) for one in found)
        if used + _bytes_of(name.decode()) > self.room:
            return False
        found.append(_described(name.decode(), entry, following))
        return True

    # What programs do

    async def open(self, path: str) -> int:
        ino = (await self._world.find(path)).st_ino
        directory = await self._world.operations.opendir(ino, self._world.user)
        if path:
            await self._world.operations.forget([(ino, 1)])  # as find has looked it up
        return directory

    async def read(self, directory: int, start: int) -> list[Entry]:
        """Read some names, as getdents(2)."""
        token: list[Entry] = []
        await self._world.operations.readdir(directory, start, cast("ReaddirToken", token))
        self.others += bool(token)
        if self._replies:
            assert not token
            token = self._replies.pop()
        self.lookups.update(one.ino for one in token if one.name not in {".", ".."})
        return token

    async def list(self, path: str) -> list[Entry]:
        """List a directory to its end."""
        directory = await self.open(path)
        found: list[Entry] = []
        while part := await self.read(directory, found[-1].next if found else 0):
            found += part
        await self._world.operations.releasedir(directory)
        return found

    async def forget(self, share: float = 1.0) -> None:
        """Take back look-ups: all of some inodes, in parts."""
        for ino, count in list(self.lookups.items()):
            if share == 1.0 or hash((ino, count)) % 10 < share * 10:
                await self._world.operations.forget([(ino, count - 1), (ino, 1)])
                del self.lookups[ino]


def _bytes_of(name: str) -> int:
    return (_HEAD_BYTES + len(name) + 7) // 8 * 8


def _parsed(data: bytes) -> list[Entry]:
    found = []
    while data:
        parts, at = [], 0
        for one in _PARTS:
            parts.append(one.unpack_from(data, at))
            at += one.size
        node, generation, kept_s, attributes_s, kept_ns, attributes_ns = parts[0]
        ino, size, blocks = parts[1]
        mode, links, uid, gid, device, block_bytes, flags = parts[3]
        shown, following, length, kind = parts[4]
        name = data[_HEAD_BYTES : _HEAD_BYTES + length]
        assert data[_HEAD_BYTES + length : _bytes_of(name.decode())].strip(b"\0") == b""
        assert (generation, device, flags) == (0, 0, 0)
        assert node == ino == shown
        assert kind == stat.S_IFMT(mode) >> 12
        times_ns = [parts[2][one] * 10**9 + parts[2][one + 3] for one in range(3)]
        timeouts_s = kept_s + kept_ns / 1e9, attributes_s + attributes_ns / 1e9
        found.append(
            Entry(
                *(name.decode(), following, ino, timeouts_s, mode, links, (uid, gid)),
                *(size, blocks, block_bytes, (times_ns[0], times_ns[1], times_ns[2])),
            )
        )
        data = data[_bytes_of(name.decode()) :]
    return found


def _described(name: str, entry: EntryAttributes, following: int) -> Entry:
    return Entry(
        *(name, following, entry.st_ino, (entry.entry_timeout, entry.attr_timeout)),
        *(entry.st_mode, entry.st_nlink, (entry.st_uid, entry.st_gid), entry.st_size),
        *(entry.st_blocks, entry.st_blksize),
        times_ns=(entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns),
    )


@pytest.fixture
def kernel(world: World, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(world, monkeypatch)


async def both(kernel: Kernel, path: str) -> list[Entry]:
    """List a directory by the hooks and by pyfuse3, which have to say the same."""
    native, found = kernel.native, await kernel.list(path)
    assert kernel.native > native
    kernel.has_hooks = False
    others = kernel.others
    assert await kernel.list(path) == found
    assert kernel.others > others
    kernel.has_hooks = True
    return found


async def test_the_hooks_say_what_pyfuse3_says(world: World, kernel: Kernel) -> None:
    for topic in ("a", "long" * 20, "__hidden"):
        await world.mkdir(topic)
    await world.create("a/12")
    await world.append("a/3", b"a line\n")
    await world.append("a/3", b"half")
    names = [entry.name for entry in await both(kernel, "a")]
    assert names == [".", "..", *map(str, range(13))]
    assert [entry.name for entry in await both(kernel, "")] == [".", "..", "a", "long" * 20]
    world.clock.advance(5)
    await world.append("a/3", b" and more\n")
    sizes = {entry.name: entry.size for entry in await both(kernel, "a")}
    assert sizes["3"] == len(b"a line\nhalf\n and more\n")
    assert sizes["4"] == 0


@pytest.mark.parametrize("has_hooks", [True, False])
async def test_the_next_daemon_continues_a_listing_after_its_last_name(
    world: World, kernel: Kernel, *, has_hooks: bool
) -> None:
    kernel.has_hooks = has_hooks
    for topic in ("b", "c", "d"):
        await world.mkdir(topic)
    kernel.room = 2 * _bytes_of("b")
    directory = await kernel.open("")
    found = await kernel.read(directory, 0)
    found += await kernel.read(directory, found[-1].next)
    await world.mkdir("a")
    await world.delete_topic("b")
    await world.mkdir("aa")
    world.operations.directories[directory].names = []  # like in the next daemon
    while part := await kernel.read(directory, found[-1].next):
        found += part
    assert [entry.name for entry in found] == [".", "..", "b", "c", "d"]


@pytest.mark.parametrize("room", [160, 177, 352, 1000, 1 << 20])
async def test_a_name_that_does_not_fit_is_in_the_next_reply(
    world: World, kernel: Kernel, room: int
) -> None:
    await world.mkdir("a")
    await world.create("a/120")
    kernel.room = max(room, _bytes_of("120"))
    found = await both(kernel, "a")
    assert [entry.name for entry in found] == [".", "..", *map(str, range(121))]
    assert [entry.next & 0xFFFFFFFF for entry in found] == list(range(1, 124))
    assert len(kernel.lookups) == 121
    assert set(kernel.lookups.values()) == {2}


async def test_the_kernel_takes_back_as_many_look_ups_as_it_was_told_of(
    world: World, kernel: Kernel
) -> None:
    await world.mkdir("a")
    await world.create("a/9")
    inodes = world.operations.inodes
    await world.operations.forget([(node.ino, 1000) for node in inodes.nodes()])
    assert len(inodes) == 1
    kernel.room = 800
    for _ in range(3):
        await kernel.list("a")
        await kernel.list("")
    known, ino = len(inodes), next(iter(kernel.lookups))
    await world.operations.forget([(number, count - 1) for number, count in kernel.lookups.items()])
    assert len(inodes) == known == 12
    await world.operations.forget([(ino, 1)])
    assert len(inodes) == known - 1
    del kernel.lookups[ino]
    await world.operations.forget([(number, 1) for number in kernel.lookups])
    assert len(inodes) == 1
    assert (await kernel.list("a"))[2].name == "0"  # once more, with nodes that were forgotten
    assert len(inodes) == 11


async def test_pyfuse3_answers_what_the_hooks_cannot_send(world: World, kernel: Kernel) -> None:
    await world.mkdir("a")
    await world.create("a/9")
    inodes = world.operations.inodes
    await world.operations.forget([(node.ino, 1000) for node in inodes.nodes()])
    kernel.refuses = True
    assert len(await kernel.list("a")) == 12
    assert (kernel.native, kernel.others) == (0, 1)
    assert len(inodes) == 11
    await kernel.forget()
    assert len(inodes) == 1


async def test_a_listing_continues_with_its_names_while_topics_change(
    world: World, kernel: Kernel
) -> None:
    for topic in ("a", "b", "c", "d"):
        await world.mkdir(topic)
    kernel.room = 2 * _bytes_of("a")
    directory = await kernel.open("")
    found = await kernel.read(directory, 0)
    found += await kernel.read(directory, 2)
    await world.delete_topic("c")
    await world.mkdir("aa")
    found += await kernel.read(directory, 4)
    assert [entry.name for entry in found] == [".", "..", "a", "b", "d"]
    assert await kernel.read(directory, found[-1].next) == []
    again = await kernel.read(directory, 2)  # seekdir(3)
    assert [entry.name for entry in again] == ["a", "b"]
    again = await kernel.read(directory, 0)  # rewinddir(3)
    again += await kernel.read(directory, 2)
    assert [entry.name for entry in again] == [".", "..", "a", "aa"]


async def test_a_listing_waits_for_files_that_are_being_closed(
    world: World, kernel: Kernel
) -> None:
    await world.mkdir("a")
    await world.append("a/0", b"one\n")
    await kernel.list("a")
    handle = await world.open("a/0", APPEND)
    executor = world.operations.tree.partition("a", 0).executor
    executor.releasing = trio.Event()
    found: list[Entry] = []

    async def list_them() -> None:
        found.extend(await kernel.list("a"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(list_them)
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        await world.write(handle, b"two\n")
        executor.releasing.set()
        executor.releasing = None
    assert [entry.size for entry in found] == [0, 0, 8]


class Model:
    """A mount that changes by chance, and what its directories have to show."""

    def __init__(self, world: World, kernel: Kernel, seed: int) -> None:
        self._world, self._kernel, self._chance = world, kernel, Random(seed)
        self.topics: dict[str, list[int]] = {}
        self.modes: dict[str, int] = {}

    def names(self, path: str) -> set[str]:
        """Return what a directory has now."""
        return set(self.topics) if not path else {str(n) for n in range(len(self.topics[path]))}

    async def step(self) -> None:
        """Change something."""
        topic, chance, world = self._chance.choice("abcdef"), self._chance, self._world
        kind = chance.choice(("make", "grow", "grow", "append", "append", "delete", "mode"))
        if kind == "make" and topic not in self.topics:
            await world.mkdir(topic)
            self.topics[topic] = [0]
        elif topic not in self.topics:
            return
        elif kind == "grow":
            await world.create(f"{topic}/{len(self.topics[topic])}")
            self.topics[topic].append(0)
        elif kind == "append":
            number, line = chance.randrange(len(self.topics[topic])), b"line" * chance.randrange(9)
            world.clock.advance(chance.randrange(3))
            await world.append(f"{topic}/{number}", line + b"\n")
            self.topics[topic][number] += len(line) + 1
        elif kind == "delete":
            await world.delete_topic(topic)
            del self.topics[topic]
        elif kind == "mode":
            ino, wanted = (await world.find(topic)).st_ino, pyfuse3.EntryAttributes()
            wanted.st_mode = pyfuse3.ModeT(chance.choice((0o700, 0o755, 0o711)))
            which = fields(update_mode=True)
            await world.operations.setattr(ino, wanted, which, None, world.user)

    async def list(self) -> None:
        """List a directory, with changes meanwhile."""
        kernel, chance = self._kernel, self._chance
        path = chance.choice(["", *self.topics])
        kernel.room = chance.choice((_bytes_of("10"), 500, 1000, 1 << 16))
        directory = await kernel.open(path)
        always = ever = self.names(path)
        found: list[Entry] = []
        while part := await kernel.read(directory, found[-1].next if found else 0):
            found += part
            for entry in part:
                await self._check(path, entry)
            if chance.random() < 0.3:
                await self.step()
                now = self.names(path) if not path or path in self.topics else set()
                always, ever = always & now, ever | now
        with suppress(FUSEError):
            await self._world.operations.releasedir(directory)
        names = [entry.name for entry in found if entry.name not in {".", ".."}]
        assert always <= set(names) <= ever
        assert len(set(names)) == len(names)

    async def _check(self, path: str, entry: Entry) -> None:
        """See that a name has the attributes that stat(2) tells."""
        if entry.name in {".", ".."}:
            return
        seen = await self._world.operations.getattr(entry.ino, self._world.user)
        expected = _described(entry.name, seen, entry.next)
        assert entry._replace(timeouts_s=(0, 0)) == expected._replace(timeouts_s=(0, 0))
        if path:
            assert entry.size == self.topics[path][int(entry.name)]


@pytest.mark.parametrize("seed", range(12))
async def test_listings_are_those_of_a_model(world: World, kernel: Kernel, seed: int) -> None:
    model = Model(world, kernel, seed)
    for _ in range(150):
        await model.step()
        await model.list()
        if seed % 3 == 0:
            await kernel.forget(0.5)
    assert kernel.native > 100
    await kernel.forget()
    known = {node.ino for node in world.operations.inodes.nodes()}
    for ino in list(known - {1}):  # what look-ups of other requests have left
        await world.operations.forget([(ino, 10_000)])
    assert len(world.operations.inodes) == 1
