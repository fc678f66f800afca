"""Power cuts: of what was not synced, any beginning stays of each file and of each directory.

The promise of a disk is in ``logfs.disk.vfs``. ``preload.c`` notes each change before it is made,
with what it takes away. Here the last ones are undone, from the newest to the oldest. The first
bytes of a lost write may stay, and a file may keep its length with zeros at its end.
"""

import os
import random
import stat
import struct
from collections import Counter, defaultdict
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_HEADER = struct.Struct("<10q")


class Kind(IntEnum):
    """The kinds of changes; the same in ``preload.c``."""

    WROTE = 1
    CUT = 2
    SYNCED = 3
    CREATED = 4
    REMOVED = 5
    RENAMED = 6


class Change(NamedTuple):
    """A change that was noted.

    Attributes:
        file: The inode.
        directory: The inode of the directory; for a write how many bytes it has.
        other: The inode of the directory to which it was renamed.
        at: The position in the file, or its mode.
        size: The length of the file before.
        target: The inode of the file that a rename has replaced; 0: none.
    """

    kind: Kind
    file: int
    directory: int
    other: int
    at: int
    size: int
    target: int
    name: str
    new_name: str
    data: bytes


def read_changes(path: Path) -> list[Change]:
    """Read what ``preload.c`` has noted."""
    text, position, found = path.read_bytes(), 0, []
    while position < len(text):
        kind, file, directory, other, at, size, *sizes, target = _HEADER.unpack_from(text, position)
        data_size, name_size, new_size = sizes
        begin = position + _HEADER.size
        names_end = begin + name_size + new_size
        position = names_end + data_size
        found.append(
            Change(
                Kind(kind), file, directory, other, at, size, target,
                text[begin : begin + name_size].decode(),
                text[begin + name_size : names_end].decode(),
                text[names_end:position],
            )
        )  # fmt: skip
    return found


class PowerCut:
    """One power cut.

    Args:
        root: The data directory.
        choice: Decides what stays.

    Attributes:
        undone: How many changes of each kind were undone.
    """

    def __init__(self, root: Path, choice: random.Random) -> None:
        self._root = root
        self._choice = choice
        self._aliases: dict[int, Path] = {}
        self.undone: Counter[str] = Counter()

    def apply(self, changes: list[Change]) -> None:
        """Undo a choice of the changes that were not synced."""
        lost = self._choose(changes)
        lengths: dict[int, int] = {}
        torn = {self._owner(changes[i]): i for i in sorted(lost, reverse=True)}
        for number in sorted(lost, reverse=True):
            change = changes[number]
            self.undone[change.kind.name.lower()] += 1
            is_first = torn[self._owner(change)] == number
            if change.kind in {Kind.WROTE, Kind.CUT}:
                self._undo_data(change, lengths, is_first=is_first)
            else:
                self._undo_name(change)

    def _owner(self, change: Change) -> tuple[bool, int]:
        is_name = change.kind in {Kind.CREATED, Kind.REMOVED, Kind.RENAMED}
        directory = change.other if change.kind is Kind.RENAMED else change.directory
        return is_name, directory if is_name else change.file

    def _choose(self, changes: list[Change]) -> set[int]:
        waiting: defaultdict[tuple[bool, int], list[int]] = defaultdict(list)
        for number, change in enumerate(changes):
            if change.kind is Kind.SYNCED:
                waiting.pop((False, change.file), None)
                waiting.pop((True, change.file), None)
            else:
                waiting[self._owner(change)].append(number)
        lost = set[int]()
        for numbers in waiting.values():
            kept = self._choice.choice([0, len(numbers), self._choice.randint(0, len(numbers))])
            lost.update(numbers[kept:])
        return lost

    def _paths(self) -> dict[int, Path]:
        found = {self._root.stat().st_ino: self._root}
        for path in self._root.rglob("*"):
            found[path.lstat().st_ino] = path
        found.update({ino: path for ino, path in self._aliases.items() if path.exists()})
        return found

    def _undo_data(self, change: Change, lengths: dict[int, int], *, is_first: bool) -> None:
        path = self._paths().get(change.file)
        if path is None:
            return
        kept = 0
        if change.kind is Kind.WROTE and is_first and self._choice.random() < 0.5:
            kept = self._choice.randint(0, change.directory)
        with open(path, "r+b", buffering=0) as file:
            longest = lengths.setdefault(change.file, file.seek(0, os.SEEK_END))
            now = longest if change.file not in lengths else file.seek(0, os.SEEK_END)
            if change.kind is Kind.WROTE:
                kept = min(kept, max(now - change.at, 0))
                os.pwrite(file.fileno(), change.data[kept:], change.at + kept)
                file.truncate(max(change.size, change.at + kept) if kept else change.size)
            else:
                os.pwrite(file.fileno(), change.data, change.at)
            if is_first and self._choice.random() < 0.2:
                length = file.seek(0, os.SEEK_END)
                file.truncate(max(length, longest))

    def _undo_name(self, change: Change) -> None:
        paths = self._paths()
        directory = paths.get(change.directory)
        if directory is None:
            return
        path = directory / change.name
        if change.kind is Kind.CREATED:
            self._remove(path)
        elif change.kind is Kind.REMOVED:
            self._restore(path, change.file, change)
        else:
            other = paths.get(change.other)
            new = None if other is None else other / change.new_name
            if new is not None and new.exists() and not path.exists():
                new.rename(path)
                if change.target:
                    self._restore(new, change.target, change)

    def _remove(self, path: Path) -> None:
        if path.is_dir():
            for inner in path.iterdir():
                self._remove(inner)
            path.rmdir()
        else:
            path.unlink(missing_ok=True)

    def _restore(self, path: Path, inode: int, change: Change) -> None:
        if path.exists():
            return
        if stat.S_ISDIR(change.at):
            path.mkdir()
        else:
            path.write_bytes(change.data)
        self._aliases[inode] = path
