"""The access log: which program opened, made, changed or removed what; mount option ``access_log``.

A line of JSON for each of these requests of the kernel, and for each command of the control socket
that changes something; none for reads and writes:

    {"time": "2026-11-24T10:00:00.123+00:00", "uid": 0, "pid": 4711, "program": "cat",
     "operation": "open", "name": "orders/0", "mode": "r", "bytes": null, "result": "ok"}

``mode`` is that of an open file (r, a). ``bytes`` is what came with a command. ``result`` is
``ok``, or the name of the errno or of the error. ``program`` is empty if the process has ended, or
is not visible to the daemon.

The cost has a bound. Lines wait in memory, and a thread writes them every ``FLUSH_S``. Beyond
``MOST_LINES`` in that time they are dropped, and a line says how many. A daemon that is killed
loses those that wait. The file is opened again after it was moved away. Lines that cannot be
written are lost, and the daemon's log says so once.
"""

import errno
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

import trio

from logfs.control.requests import CHANGING
from logfs.fs.threads import run_in_thread
from logfs.fs.tree.nodes import FileNode, InNode, MetaNode, Node, PlainNode, TopicNode
from logfs.fs.tree.rawnodes import RawNode
from logfs.log.reading.address import SEGMENTS_NAME
from logfs.types import View

logger = logging.getLogger(__name__)

FLUSH_S = 0.25
MOST_LINES = 1000
_MOST_NAMES = 10_000
_MODE = 0o640

_IN_DIRECTORY = frozenset({"create", "mkdir", "rmdir", "unlink", "rename", "symlink", "mknod"})
_OF_INODE = frozenset({"open", "setattr", "setxattr", "removexattr"})


class _File(WatchedFileHandler):
    """The file, for its owner and group."""

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        os.fchmod(stream.fileno(), _MODE)
        return stream

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - see logging
        raise


class AccessLog:
    """The access log of a mount. Event loop only.

    Args:
        path: The file.
        now_ms: The clock.
        directory_name: Returns the name of a directory or partition by its inode; None: unknown.
    """

    def __init__(
        self, path: str, now_ms: Callable[[], int], directory_name: Callable[[int], str | None]
    ) -> None:
        self._path = path
        self._has_failed = False
        self._file = _File(path, delay=True, encoding="utf-8")
        self._now_ms = now_ms
        self._directory_name = directory_name
        self._names: dict[int, str] = {}  # by inode, as they were looked up
        self._lines: list[str] = []
        self._dropped = 0

    def note_lookup(self, parent: int, name: bytes, inode: int) -> None:
        """Remember what an inode was looked up as."""
        self._names.pop(inode, None)
        self._names[inode] = self._below(parent, name)
        if len(self._names) > _MOST_NAMES:
            del self._names[next(iter(self._names))]

    def note_request(self, request: str, arguments: Sequence[object], number: int) -> None:
        """Note a request of the kernel that was answered.

        Args:
            request: The name of its handler.
            arguments: The arguments of the handler, the context last.
            number: The errno; 0: it was done.
        """
        first, second = (*arguments[:2], None, None)[:2]
        facts: dict[str, object] = {}
        if request == "link":
            first, second = arguments[1:3]
        if request in _IN_DIRECTORY or request == "link":
            name = self._below(first, second)
        elif request in _OF_INODE:
            name = self._name_of(first)
            if request == "open" and isinstance(second, int):
                facts = {"mode": "r" if second & os.O_ACCMODE == os.O_RDONLY else "a"}
            elif isinstance(second, bytes):
                facts = {"attribute": second.decode(errors="replace")}
        else:
            return
        caller = arguments[-1]
        peer = getattr(caller, "pid", 0), getattr(caller, "uid", -1)
        result = errno.errorcode.get(number, str(number)) if number else "ok"
        self._add(peer, request, name, facts, None, result)

    def note_command(
        self,
        peer: tuple[int, int] | None,
        command: str,
        fields: Mapping[str, object],
        size_bytes: int,
        error: BaseException | None,
    ) -> None:
        """Note a command of the control socket that was carried out, or refused."""
        if command not in CHANGING:
            return
        named = [fields.get("topic"), fields.get("partition")]
        name = "/".join(str(part) for part in named if part is not None)
        names = fields.get("names")
        if isinstance(names, list):
            name = "/".join(map(str, names))
        result = "ok" if error is None else type(error).__name__
        self._add(peer or (0, -1), command, name, {}, size_bytes, result)

    async def run(self) -> None:
        """Write the lines, until cancelled; then ``close``."""
        while True:
            await trio.sleep(FLUSH_S)
            if self._lines or self._dropped:
                await run_in_thread(self._write, self._take())

    def close(self) -> None:
        """Write what is left."""
        if self._lines or self._dropped:
            self._write(self._take())
        self._file.close()

    def _add(
        self,
        peer: tuple[int, int],
        operation: str,
        name: str,
        facts: Mapping[str, object],
        size_bytes: int | None,
        result: str,
    ) -> None:
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
            return
        pid, uid = peer
        line = {
            "time": self._time(),
            "uid": uid,
            "pid": pid,
            "program": _program(pid),
            "operation": operation,
            "name": name,
            **facts,
            "bytes": size_bytes,
            "result": result,
        }
        self._lines.append(json.dumps(line))

    def _take(self) -> str:
        lines, self._lines = self._lines, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(json.dumps({"time": self._time(), "dropped": dropped}))
        return "\n".join(lines)

    def _write(self, text: str) -> None:
        try:
            self._file.emit(logging.LogRecord(__name__, logging.INFO, "", 0, text, None, None))
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                logger.warning("%s: the access log cannot be written: %s", self._path, error)
            self._has_failed = True

    def _time(self) -> str:
        moment = datetime.fromtimestamp(self._now_ms() / 1000).astimezone()
        return moment.isoformat(timespec="milliseconds")

    def _name_of(self, inode: object) -> str:
        if not isinstance(inode, int):
            return ""
        found = self._names.get(inode)
        return found if found is not None else self._directory_name(inode) or f"inode {inode}"

    def _below(self, parent: object, name: object) -> str:
        folder = self._name_of(parent)
        text = name.decode(errors="replace") if isinstance(name, bytes) else ""
        return f"{folder}/{text}" if folder != "." else text


def name_of_node(node: Node) -> str | None:
    """Return the name of a node that was looked up in an earlier daemon; "." is the root.

    None: it has none. What the selector of a name was is not known any more.
    """
    if isinstance(node, TopicNode):
        return node.name or "."
    if isinstance(node, RawNode):
        return f"{SEGMENTS_NAME}/{node.path()}"
    if not isinstance(node, FileNode):
        return None
    suffix = "@?"
    if isinstance(node, MetaNode):
        suffix = ".meta"
    elif isinstance(node, PlainNode):
        suffix = "" if node.view is View.TEXT else f".{node.view.name.lower()}"
        suffix += ".in" if isinstance(node, InNode) else ""
    return f"{node.partition.topic_partition}{suffix}"


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n") if pid else ""
    except OSError:
        return ""
