"""Answers in pyfuse3's types, made from ours."""

import os

from pyfuse3 import EntryAttributes, StatvfsData

from logfs.fs.nodes import Attributes, Node

MAX_REQUEST_BYTES = 1024 * 1024
"""The largest read and write the kernel sends, and the block size that makes programs send it."""

_BLOCK_BYTES = 512
_NS_PER_MS = 1_000_000


def make_entry(node: Node, attributes: Attributes) -> EntryAttributes:
    """Describe an inode.

    The blocks cover the length, so that a file with holes does not look sparse: a program that
    seeks for data would find it all.
    """
    mode, uid, gid, size, mtime_ms = attributes
    mtime_ns = mtime_ms * _NS_PER_MS
    entry = EntryAttributes()
    entry.st_ino = node.ino
    entry.st_mode = mode
    entry.st_uid = uid
    entry.st_gid = gid
    entry.st_size = size
    entry.st_blocks = (size + _BLOCK_BYTES - 1) // _BLOCK_BYTES
    entry.st_blksize = MAX_REQUEST_BYTES
    entry.st_atime_ns = mtime_ns
    entry.st_mtime_ns = mtime_ns
    entry.st_ctime_ns = mtime_ns
    entry.attr_timeout = node.attr_timeout_s
    entry.entry_timeout = node.entry_timeout_s
    return entry


def make_statvfs(free: os.statvfs_result) -> StatvfsData:
    """Describe a file system: the room is that of the data directory's."""
    stats = StatvfsData()
    stats.f_bsize = MAX_REQUEST_BYTES
    stats.f_frsize = free.f_frsize
    stats.f_blocks = free.f_blocks
    stats.f_bfree = free.f_bfree
    stats.f_bavail = free.f_bavail
    stats.f_files = free.f_files
    stats.f_ffree = free.f_ffree
    stats.f_favail = free.f_favail
    stats.f_namemax = free.f_namemax
    return stats
