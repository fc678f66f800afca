"""The object store of a disk. Most disks have none: then nothing is loaded that reads one."""

from typing import TYPE_CHECKING

from logfs.disk.vfs import Disk

if TYPE_CHECKING:
    from logfs.log.remote.bucket import Bucket
    from logfs.log.remote.catalog import DirectoryCatalog


def bucket_of(disk: Disk) -> "Bucket | None":
    """Return the bucket that a disk shows; None for any other disk."""
    tree = getattr(disk, "tree", None)  # of a TreeDisk
    if tree is None:
        return None
    from logfs.log.remote.bucket import Bucket

    return tree if isinstance(tree, Bucket) else None


def catalog_of(disk: Disk) -> "DirectoryCatalog | None":
    """Return the catalog of the disk of a data directory; None if it has no store."""
    catalog = getattr(disk, "catalog", None)  # of an OverlayDisk
    if catalog is None:
        return None
    from logfs.log.remote.catalog import DirectoryCatalog

    return catalog if isinstance(catalog, DirectoryCatalog) else None
