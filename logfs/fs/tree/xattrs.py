"""Extended attributes ``user.logfs.*``: the facts of ``.meta``, and a topic's configuration.

    on a partition   every fact of .meta as text, lists as their length; start and end are the
                     positions, in the view, of the first kept and after the last byte of the name
    on a topic       topic_id, and its configuration under Kafka's keys; listed are those that were
                     set, any key answers; setfattr sets one, removexattr takes it back
    on a range of a topic   nothing
    on a raw file    inode, its number on the disk; object, the address of the object that has it in
                     the store; is_local, whether it is on the disk of the data directory as well
    on the mount     data, the data directory; pid, the process that serves it; isolation_level;
                     utc_offset.2026-11-20T10:00:00 and the like, which are not listed: the offset
                     of the daemon's time zone from UTC at that local time, in seconds

Other attributes cannot be stored. Reading them fails with ENODATA, which ``ls -l`` and ``cp -a``
accept; writing them fails with ENOTSUP.
"""

import json
import logging
from collections.abc import Mapping

from logfs.config import TOPIC_KEYS
from logfs.config.amounts import setting_in_units
from logfs.disk.remote.overlay import local_part
from logfs.errors import InvalidConfigError, LogfsError
from logfs.fs.kernel.errnos import ForeignAttributeError, NoSuchAttributeError, RefusedError
from logfs.fs.partitions.quotas import Quotas
from logfs.fs.tree.nodes import (
    FileNode,
    FixedNode,
    MergedNode,
    Node,
    PlainNode,
    RangeNode,
    RootNode,
    TopicNode,
)
from logfs.fs.tree.rawnodes import RawNode
from logfs.log.remote.of_disk import catalog_of
from logfs.machine.host import utc_offset_s
from logfs.services.following.store import AnyStore
from logfs.services.meta import object_of, partition_meta

logger = logging.getLogger(__name__)

PREFIX = "user.logfs."
_UTC_OFFSET = "utc_offset."


def get_attribute(node: Node, store: AnyStore, name: bytes) -> bytes:
    """Return the value of an extended attribute.

    Raises:
        NoSuchAttributeError: The node has none of this name.
    """
    key = _key(name)
    if isinstance(node, TopicNode) and node.name:
        value = _topic_value(store, node, key)
    elif isinstance(node, RootNode) and key.startswith(_UTC_OFFSET):
        value = _utc_offset(node, key.removeprefix(_UTC_OFFSET))
    else:
        value = _facts(node).get(key)
    if value is None:
        raise NoSuchAttributeError(f"no attribute {name!r}")
    return value.encode()


def list_attributes(node: Node, store: AnyStore) -> list[bytes]:
    """Return the names of the extended attributes of a node."""
    if isinstance(node, TopicNode) and node.name:
        identity = [] if node.topic_id is None else ["topic_id"]
        keys = [*identity, *store.topic_properties(node.name)]
    else:
        keys = list(_facts(node))
    return [f"{PREFIX}{key}".encode() for key in keys]


def change_attribute(
    store: AnyStore, quotas: Quotas, node: Node, name: bytes, value: bytes | None, caller: int
) -> None:
    """Set an extended attribute for a user; the value None removes it.

    A valid setting that is probably not meant is logged: there is no other way to report it.

    Raises:
        ForeignAttributeError: logfs does not keep attributes of this name.
        RefusedError: It can only be read.
        NoSuchAttributeError: There is nothing to remove.
        InvalidConfigError: The topic has no such setting, or the value is not valid.
        QuotaExceededError: The user may not set it to as much.
    """
    if not name.startswith(PREFIX.encode()):
        raise ForeignAttributeError(f"{name!r}: logfs keeps no attributes but {PREFIX}*")
    if not (isinstance(node, TopicNode) and node.name) or name == f"{PREFIX}topic_id".encode():
        raise RefusedError(f"{name!r} can only be read")
    try:
        key = _key(name)
        text = None if value is None else setting_in_units(key, value.decode())
    except (NoSuchAttributeError, UnicodeDecodeError):
        raise InvalidConfigError(f"{name!r}={value!r} is not text") from None
    if text is None and key not in store.topic_properties(node.name):
        raise NoSuchAttributeError(f"{key} is not set")
    quotas.check_setting(caller, node.name, key, text)
    known = store.config_warnings(node.name)
    store.writable.alter_topic(node.name, {key: text})
    for warning in store.config_warnings(node.name):
        if warning not in known:
            logger.warning("topic %s: %s", node.name, warning)


def _key(name: bytes) -> str:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    if not text.startswith(PREFIX):
        raise NoSuchAttributeError(f"no attribute {name!r}")
    return text.removeprefix(PREFIX)


def _topic_value(store: AnyStore, node: TopicNode, key: str) -> str | None:
    if key == "topic_id":
        return node.topic_id
    return store.topic_config(node.name).get(key) if key in TOPIC_KEYS else None


def _utc_offset(root: RootNode, local: str) -> str | None:
    try:
        return str(utc_offset_s(root.time_zone, local))
    except ValueError:
        return None


def _facts(node: Node) -> Mapping[str, str]:
    if isinstance(node, RootNode):
        return node.facts
    if isinstance(node, RawNode):
        return {"inode": str(node.disk_inode), **_stored_facts(node)}
    if not isinstance(node, FileNode) or isinstance(node, MergedNode):
        return {}
    partition = node.partition
    meta = partition_meta(partition.log, partition.level)
    facts = {key: _text(value) for key, value in meta.items()}
    snapshot = partition.log.snapshot
    match node:
        case PlainNode(view=view):
            start = snapshot.start.positions[view]
            end = snapshot.end_position(partition.level, view)
        case RangeNode(resolved=resolved):
            start, end = resolved.start, resolved.start + node.size()
        case FixedNode(resolved=resolved):
            start, end = resolved.start, resolved.end or resolved.start
        case _:
            return facts
    return facts | {"start": str(start), "end": str(end)}


def _stored_facts(node: RawNode) -> dict[str, str]:
    """Return where the store has a raw file; nothing if it has not."""
    log = node.partition.log
    try:
        address = object_of(log, node.name)
    except (LogfsError, OSError):
        return {}
    if address is None:
        return {}
    is_local = local_part(log.disk).exists(node.path()) if catalog_of(log.disk) else False
    return {"object": address, "is_local": _text(is_local)}


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(len(value)) if isinstance(value, list | tuple) else json.dumps(value)
