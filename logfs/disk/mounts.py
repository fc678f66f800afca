"""Which mount of a file system a directory lies on: another one may have lost unsynced bytes.

The page cache belongs to the *superblock*, which begins with the first mount of a file system and
ends with its last unmount. Neither the device number nor the file system's own id changes with it,
and mounts have their own ids in each mount namespace, as a systemd unit has one. But the kernel
makes directories in sysfs for it, and never gives one of their inode numbers again:

    /sys/fs/ext4/sda1       of each superblock of ext4, xfs, f2fs: while it is mounted
    /sys/class/bdi/0:45     of each superblock without its own device: NFS, CIFS, ceph
    STATX_MNT_ID_UNIQUE     elsewhere (Linux 6.8): of the mount, so a new namespace is another one

What lies in memory anyhow (tmpfs) is as good as the page cache.
"""

import io
import os

_AT_FDCWD = -100
_STATX_MNT_ID_UNIQUE = 0x4000
_STATX_BYTES = 256
_MASK_AT, _MOUNT_ID_AT = 0, 144
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def mount_id(path: str, sysfs: str = "/sys", mounts: str = "/proc/self/mountinfo") -> str | None:
    """Return what changes when the file system that holds a directory is mounted again.

    Args:
        path: The directory.
        sysfs: The directory at which sysfs is mounted.
        mounts: The mounts of this process.

    Returns:
        The same text as long as the page cache of the directory's files cannot have been lost; None
        if that cannot be found out.
    """
    try:
        number = os.stat(path).st_dev
        device = f"{os.major(number)}:{os.minor(number)}"
        with io.FileIO(mounts) as file:
            kinds = _kinds(os.fsdecode(file.readall()), device)
        if kinds and kinds <= _IN_MEMORY:
            return f"memory {device}"
        found = _superblock(sysfs, device, kinds)
    except OSError:
        return None
    unique = found or _unique_mount(path)
    return None if unique is None else f"{device} {unique}"


def _kinds(mountinfo: str, device: str) -> set[str]:
    """Return the types of the file system that has a device number."""
    rows = [line.split(" ") for line in mountinfo.splitlines()]
    return {row[row.index("-") + 1] for row in rows if row[2] == device}


def _superblock(sysfs: str, device: str, kinds: set[str]) -> str | None:
    """Return the inode number of the superblock's directory in sysfs; None if it has none."""
    if not device.startswith("0:"):
        name = os.path.basename(os.path.realpath(f"{sysfs}/dev/block/{device}"))
        kinds = set(os.listdir(f"{sysfs}/fs")) if os.path.isdir(f"{sysfs}/fs") else set()
        for found in (f"{sysfs}/fs/{kind}/{name}" for kind in sorted(kinds)):
            if os.path.exists(found):
                return f"superblock {os.stat(found).st_ino}"
    elif kinds != {"btrfs"} and os.path.exists(bdi := f"{sysfs}/class/bdi/{device}"):
        return f"superblock {os.stat(bdi).st_ino}"
    return None


def _unique_mount(path: str) -> str | None:
    """Return the id of the mount, which no other ever has; None if the kernel knows none."""
    import ctypes  # slow to import, and rarely needed

    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    encoded = os.fsencode(path)
    if statx is None or statx(_AT_FDCWD, encoded, 0, _STATX_MNT_ID_UNIQUE, buffer):
        return None
    if not int.from_bytes(buffer.raw[_MASK_AT : _MASK_AT + 4], "little") & _STATX_MNT_ID_UNIQUE:
        return None
    return f"mount {int.from_bytes(buffer.raw[_MOUNT_ID_AT : _MOUNT_ID_AT + 8], 'little')}"
