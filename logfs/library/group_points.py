"""The offsets of a point in partitions, where a consumer group is to continue."""

from logfs.errors import BadSelectorError
from logfs.library.directory import chosen, partitions_of
from logfs.library.followed_directory import FollowedDirectory
from logfs.library.groups import Groups
from logfs.library.mounted_disk import reading_disk
from logfs.library.owner import shown_level
from logfs.library.places import Place
from logfs.library.zones import zone_of
from logfs.log.reading.address import AtByte
from logfs.services.retention.trimming import parse_trim_address
from logfs.services.views.resolve import VIEWS
from logfs.types import TopicPartition


def offsets_at(place: Place) -> dict[TopicPartition, int]:
    """Return the offset of the first record of ``TOPIC@FROM`` or ``TOPIC/PARTITION@FROM``.

    Raises:
        BadSelectorError: FROM is missing or a byte, or there is a TO or a view.
        NoSuchTopicError, NoSuchPartitionError: There is no such partition.
        LogfsError, OSError: It cannot be read.
    """
    meaning = "the group continues at FROM"
    given = parse_trim_address(place.address, zone_of(place), meaning)
    start = given.keep.start
    if start is None or given.keep.end is not None or given.keep.view not in VIEWS:
        raise BadSelectorError("expected one @FROM, the first record to read, as in orders@-1h")
    if isinstance(start, AtByte):
        raise BadSelectorError("a byte is no position of a group; use offset=N")
    root = place._replace(address=())
    disk = reading_disk(root, {given.topic})
    wanted = chosen(partitions_of(disk), given.topic, given.partition)
    level = shown_level(root)
    with Groups(root) as groups:
        source = FollowedDirectory(disk, lambda one: one in wanted, positions=groups.position_in)
        try:
            logs = {one: source.log(one) for one in wanted}
            return {one: source.locate(log, start, level)[1] for one, log in logs.items()}
        finally:
            source.close()
