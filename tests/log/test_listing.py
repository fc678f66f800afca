"""The files of segments in a partition directory."""

from logfs.log.listing import list_partition
from logfs.log.names import FileKind, FileSuffix
from tests.fakes import FakeDisk


def test_files_are_found_by_kind_and_suffix_in_the_order_of_their_offsets() -> None:
    disk = FakeDisk()
    disk.make_directory("t-0")
    for base_offset, end in [(30, ".log"), (7, ".log"), (7, ".index"), (30, ".log.swap")]:
        disk.open(f"t-0/{base_offset:020d}{end}", write=True, create=True)
    for name in ("00000000000000000031.snapshot", "7.log", "leader-epoch-checkpoint", "x.log"):
        disk.open(f"t-0/{name}", write=True, create=True)
    listing = list_partition(disk, "t-0")
    logs = listing.inodes(FileKind.LOG)
    assert list(logs) == [7, 30]
    assert logs[7] == disk.stat(f"t-0/{7:020d}.log").inode
    assert list(listing.inodes(FileKind.LOG, FileSuffix.SWAP)) == [30]
    assert listing.kinds() == {
        7: {FileKind.LOG, FileKind.OFFSET_INDEX},
        30: {FileKind.LOG},
        31: {FileKind.SNAPSHOT},
    }
