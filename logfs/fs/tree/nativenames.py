"""Which names are looked up natively: those of topics, and the plain names of partitions.

A program that opens ``orders/0`` by its path has the kernel ask for both names again once a second
(``NAMES_S``), and for the attributes of the directories. After Python has answered a look-up, the
native library (``native/naming.h``) answers the next ones of the same name, with the inode that
Python has found and the attributes that a stat(2) would get. What could make that untrue:

* A topic is created, deleted, renamed, restored or changed. All of that runs in
  ``TopicChangeQueue``: every name is forgotten before it begins, and none is noted until it has
  ended. A look-up that began before a change and ends after it is not noted: ``seen`` tells. A
  partition that went offline is reloaded in the same way: its topic may have had no id until then.
* A mode or an owner changes, or the time of a directory. These changes run there, too, and the
  attributes of everything are forgotten; a time is set in the step in which the change ends.
* Python changes the partition (a write, a roll, retention, a reload with other positions), or has
  to answer a request about it before. Then the library does not know the attributes of the file, as
  for stat(2), and leaves the look-up to Python.
* Permissions are checked by the kernel, with the modes and owners of the replies. They do not
  depend on the user that looks a name up. With an access log, which notes each look-up, none is
  noted here.
* The kernel adds up look-ups, and an inode is dropped when it has taken all of them back. The
  library adds before it replies. The inode table takes that count together with the name
  (``take``) before it drops an inode. Look-ups of another name or of one that was taken come to
  Python.
* A name that ends in ``.in`` means another inode for each open file. The library answers it once;
  then it is left to Python until the file that was opened by it is closed.
* The daemon ends. Its successor knows no names, and need not know how many look-ups there were: it
  keeps the inodes of the daemon before until the kernel says that it does not know them. A look-up
  that the kernel sends again is left to Python.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logfs.fs.kernel.hooks import Hooks
from logfs.fs.tree.nodes import InNode, Node, PlainNode, RootNode, TopicNode


class NativeNames:
    """The names that the library looks up. Event loop only.

    Args:
        hooks: Look names up; None where they were not built.

    Attributes:
        seen: A number that each change of topics changes.
        on_change: Called before a change of topics begins, and when it has ended.
    """

    def __init__(self, hooks: Hooks | None) -> None:
        self.seen = 0
        self.on_change: Callable[[], None] = lambda: None
        self._hooks = hooks
        self._changes = 0
        self._counted: dict[int, int] = {}  # inodes with such names, and what was counted of them

    @property
    def _serving(self) -> Hooks | None:
        return self._hooks if self._hooks is not None and self._hooks.serving.is_running else None

    def serve_name(self, parent: Node, name: bytes, node: Node, seen: int) -> None:
        """Have a name that Python has just looked up be looked up natively.

        Args:
            parent: The directory.
            name: The name in it.
            node: The node that the name means.
            seen: The value of ``seen`` when that look-up began.
        """
        hooks = self._serving
        if hooks is None or self._changes or seen != self.seen:
            return
        if isinstance(node, TopicNode) and isinstance(parent, RootNode) and node is not parent:
            self.know_directory(node)
        elif not (isinstance(node, PlainNode) and isinstance(parent, TopicNode)):
            return
        self._counted.setdefault(node.ino, 0)
        is_single = isinstance(node, InNode)
        for _ in range(2):
            other = hooks.serving.know_name(
                parent.ino, name, node.ino, node.entry_timeout_s, is_single=is_single
            )
            if not other:
                break
            self._counted[other] += hooks.serving.take_name(other)

    def know_directory(self, node: TopicNode) -> None:
        """Have stats of a topic that exists, or of the root, answered natively."""
        hooks = self._serving
        if hooks is not None and not self._changes:
            hooks.serving.know_directory(node.ino, node.attributes(), node.attr_timeout_s)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Leave all names to Python while topics change, and until it has looked them up again."""
        self._forget()
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1
            self._forget()

    @property
    def is_changing(self) -> bool:
        """Whether topics are being changed."""
        return self._changes > 0

    def _forget(self) -> None:
        self.seen += 1
        self.on_change()
        hooks = self._serving
        if hooks is None:
            return
        hooks.serving.forget()
        if self._counted:
            for number, lookups in hooks.serving.take_names():
                self._counted[number] += lookups

    def take(self, number: int) -> int:
        """Leave look-ups of an inode to Python; returns how many it has not been told of."""
        if number not in self._counted:
            return 0
        hooks, counted = self._serving, self._counted.pop(number)
        return counted if hooks is None else counted + hooks.serving.take_name(number)
