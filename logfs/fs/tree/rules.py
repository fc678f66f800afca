"""What may be opened and created: files only take appends, as after ``chattr +a``.

open for reading                 everything except 0.in, 0.tsv.in, 0.jsonl.in
>>  (O_APPEND)                   plain names only: 0, 0.tsv, 0.jsonl, and the three above
>   cp  rsync  sed -i  truncate  EPERM
touch of a missing partition     creates it, and all with lower numbers
>>  of a missing partition       ENOENT; with the mount option create as touch
touch of an existing partition   open is refused; touch then sets the times and succeeds
"""

import os

from logfs.errors import (
    LogfsError,
    NoSuchPartitionError,
    ReadOnlyError,
    UnknownNameError,
)
from logfs.fs.kernel.errnos import RefusedError
from logfs.fs.tree.nodes import FileNode, InNode, Node, TopicNode
from logfs.fs.tree.tree import APPEND_VIEWS, Tree


def check_open(node: FileNode, flags: int, *, read_only: bool) -> None:
    """Check whether a file may be opened with the flags of open(2).

    Raises:
        ReadOnlyError: Nothing may be written on this mount, or to this partition.
        MirrorError: The partition is a mirror.
        RefusedError: The file takes no appends, takes nothing but appends, or the flags ask for
            more than appending.
    """
    if isinstance(node, InNode) and flags & os.O_ACCMODE != os.O_WRONLY:
        raise RefusedError("the file only takes appends (>>); read the name without .in")
    writes = flags & os.O_ACCMODE != os.O_RDONLY
    if not (writes or flags & os.O_TRUNC):
        return
    if read_only:
        raise ReadOnlyError("the mount is read-only")
    if not node.takes_appends:
        raise RefusedError("the file cannot be written to")
    if flags & os.O_TRUNC or not flags & os.O_APPEND:
        raise RefusedError("the file only takes appends (>>)")
    if node.partition.log.refuses_records:
        node.partition.log.writable.check_appendable()


def partition_to_make(
    tree: Tree, parent: Node, name: bytes, flags: int, *, create: bool
) -> tuple[TopicNode, int]:
    """Check whether CREATE of a missing name creates a partition.

    Args:
        tree: The names.
        parent: The directory.
        name: The name in it.
        flags: Those of open(2).
        create: Appending may create a partition.

    Returns:
        The topic and the number of the partition.

    Raises:
        RefusedError: No file of this name, or with these flags, can be created.
        BadSelectorError: The part after ``@`` does not parse.
        NoSuchPartitionError: Appending does not create partitions.
    """
    if not isinstance(parent, TopicNode) or parent is tree.root:
        raise RefusedError("files cannot be made here; mkdir makes a topic")
    try:
        address = tree.parse(name.decode())
    except (UnknownNameError, UnicodeDecodeError):
        raise RefusedError(f"{name!r}: only partitions can be made, by their numbers") from None
    if address.has_selector or address.view not in APPEND_VIEWS:
        raise RefusedError(f"{name!r} cannot be written to")
    if flags & (os.O_EXCL | os.O_TRUNC):
        raise RefusedError(f"{name!r}: touch makes a partition, >> appends to one")
    if flags & os.O_APPEND and not create:
        raise NoSuchPartitionError(
            f"topic {parent.name} has no partition {address.partition}; touch makes it"
        )
    return parent, address.partition


def refusal(*, read_only: bool) -> LogfsError:
    """Return the error for a request that would remove, rename or link a name."""
    if read_only:
        return ReadOnlyError("the mount is read-only")
    return RefusedError(
        "partitions cannot be removed, renamed or linked; 'logfs topic delete' deletes a topic"
    )
