"""A data directory that follows a store: what heads and journal have, without owning either.

What it shows is in valid objects of the journal or in heads. A promotion takes all of these, so
that it takes back nothing that was shown. The log of a reader is cut only where the owner itself
has lost records that the journal had, as after a power cut without the store.

The journal says which heads have changed. So a round sends one request for the next object of the
journal, however many partitions there are, and one for each head that has changed. Partitions that
are in no journal, new topics of them and deleted topics are looked for once a minute.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from logfs.disk.remote.objects import ObjectStore
from logfs.disk.vfs import Disk
from logfs.errors import LogfsError, text_of
from logfs.log import checkpoints, names
from logfs.log.names import format_delete_directory, parse_partition_directory
from logfs.log.remote.bucket import list_topics
from logfs.log.remote.head import Head
from logfs.log.remote.headfiles import HeadFiles
from logfs.log.remote.keys import PartitionPlace, parse_topic_directory
from logfs.log.remote.parallel import for_each
from logfs.log.remote.reading import read_entries, read_head
from logfs.services.journaling.assembly import Assembly, latest_notes
from logfs.services.journaling.cursor import LIST_S, JournalCursor
from logfs.services.journaling.making import PartitionFiles
from logfs.services.journaling.objects import JournalObject, PartitionId
from logfs.services.journaling.promotion import MadePartition, NextOwner, Promoted, Promotion
from logfs.services.journaling.root import confirm_root
from logfs.services.journaling.standbyfiles import MAKING, StandbyPartition
from logfs.types import TopicPartition

logger = logging.getLogger(__name__)

_KEPT_S = 60.0
"""The time that files of a deleted topic stay, for open files that read them."""
_LONGEST_PAUSE_S = 60.0
_GIVE_UP_S = 600.0


class Standby:
    """A data directory that follows a store. One thread at a time.

    Args:
        store: The store.
        disk: The local disk of the data directory, which is empty.
        clock_s: Seconds that only go forward.

    Attributes:
        complete_ms: Everything that was appended before this moment is here, of partitions that are
            in the journal; 0: the journal has no object.
    """

    def __init__(self, store: ObjectStore, disk: Disk, clock_s: Callable[[], float]) -> None:
        self._store = store
        self._disk = disk
        self._clock_s = clock_s
        self._cursor = JournalCursor(store, clock_s)
        self._files = PartitionFiles(store, disk)
        self._assembly = Assembly()
        self._partitions: dict[PartitionId, StandbyPartition] = {}
        self._names: dict[TopicPartition, PartitionId] = {}
        self._topics: set[tuple[str, UUID]] = set()
        self._look_s = clock_s() + LIST_S
        self._starts: dict[TopicPartition, int] = {}
        self._changed: set[PartitionId] = set()
        self._notes: dict[str, bytes] = {}
        self._removed: list[tuple[float, str]] = []
        self._epoch = 0
        self.complete_ms = 0

    @property
    def url(self) -> str:
        """The store."""
        return self._store.url

    @property
    def freshness_s(self) -> float:
        """How often the owner creates an object, in seconds."""
        return self._cursor.freshness_s

    @property
    def problems(self) -> list[str]:
        """What could not be read of the journal."""
        return self._cursor.problems

    def begin(self) -> None:
        """Make the directory.

        Raises:
            RemoteStorageError: The store has no journal.
            LogfsError, OSError: The store or the disk failed.
        """
        journal = self._cursor.begin()
        self._epoch = self._cursor.root.epoch
        self.complete_ms, self._notes = journal.written_ms, latest_notes(journal)
        for one in journal.objects.values():
            self._assembly.add(one)
        for partition in self._assembly:
            end = self._assembly.partition(partition)
            if end is not None:
                self._add(partition, end.topic_partition)
        self._topics.clear()  # all are listed: some partitions of a topic may be in no object
        self._find_topics()
        self._ask_due()
        self._show_changed()

    def round(self) -> bool:
        """Follow what the store has by now; returns whether the journal had a new object.

        Raises:
            LogfsError, OSError: The store or the disk failed; the next round continues.
        """
        has_news = False
        try:
            for one in self._cursor.new_objects():
                self._take(one)
                has_news = True
            if self._cursor.root.epoch != self._epoch:
                self._epoch = self._cursor.root.epoch
                self._want(self._partitions, _LONGEST_PAUSE_S / 2)  # all of them are fenced again
            if self._clock_s() >= self._look_s:
                self._look_s = self._clock_s() + LIST_S
                self._find_topics()
                self._remove_gone()
            self._ask_due()
        finally:
            self._show_changed()
        return has_news

    def promote(self, owner: NextOwner, freeze: Callable[[], object]) -> Promoted:
        """Own the store; the files are not synced when this returns.

        After a failure the directory follows the store as before, and a second call does it again.

        Args:
            owner: The data directory.
            freeze: Called if readers must not follow the directory from now on.

        Raises:
            RemoteStorageError: Another directory was promoted meanwhile.
            LogfsError, OSError: The store or the disk failed.
        """
        root = owner.begin_epoch()
        for one in self._cursor.rest(root):
            self._take(one)
        self._topics.clear()
        self._find_topics()
        self._ask_due()
        self._show_changed()
        made = [one for one in self._partitions.values() if one.is_made]
        problems = [
            f"{one.topic_partition}: its head cannot be used"
            for one in self._partitions.values()
            if not one.is_made and self._has_head(one)
        ]
        for_each(lambda one: self._own(one, owner, problems), made)
        self._show_changed()
        held = {one.id for one in made if one.held is not None}
        if held:
            freeze()
            for each in made:
                each.is_final = True
            self._changed |= held
            self._show_changed()
            for each in made:
                each.is_final = False
        for each in made:
            each.continue_epochs(self._files, root, self._assembly.partition(each.id))
        rows = {each.topic_partition: self._made_row(each) for each in made}
        notes = {name: data for name, data in self._notes.items() if data}
        problems += Promotion(*owner).finish(rows, notes)
        confirm_root(self._store, root)
        return Promoted(
            sorted(rows),
            sum(row.segments for row in rows.values()),
            sum(row.end_bytes for row in rows.values()),
            self.complete_ms,
            [*self.problems, *problems],
        )

    def _made_row(self, one: StandbyPartition) -> MadePartition:
        """Return what was made of a partition."""
        return MadePartition(
            self._starts.get(one.topic_partition, 0),
            one.end_offset(self._disk),
            one.recovery_point,
            0 if one.files is None else len(one.files.entries),
            one.size_bytes,
        )

    def _own(self, one: StandbyPartition, owner: NextOwner, problems: list[str]) -> None:
        """Fence the head of a partition, if there is one."""
        if one.files is None:
            self._ask(one)  # a head without segments: the journal did not tell of it
        if one.files is None:
            return
        place = one.files.place
        try:
            self._use(one, place, owner.fence(place, self._assembly.partition(one.id)))
        except LogfsError as error:
            problems.append(f"{one.topic_partition}: {text_of(error)}")

    # The journal

    def _take(self, one: JournalObject) -> None:
        """Add an object of the journal."""
        for partition in one.gone:
            self._remove(partition)
        self._changed |= self._assembly.add(one)
        for row in one.rows:
            known = self._partitions.get(row.id)
            if known is None:
                self._add(row.id, row.topic_partition)
            elif known.topic_partition != row.topic_partition:
                self._rename(known, row.topic_partition)
        self._notes |= one.notes
        self._want(one.heads, 1.0)
        unknown = {topic_id for topic_id, _ in set(one.heads).difference(self._partitions)}
        if unknown:
            self._topics = {topic for topic in self._topics if topic[1] not in unknown}
            self._look_s = self._clock_s()
        self.complete_ms = max(self.complete_ms, one.written_ms)

    def _add(self, partition: PartitionId, topic_partition: TopicPartition) -> None:
        """Begin to follow a partition; one of the same name is another topic, which is gone."""
        other = self._names.get(topic_partition)
        if other is not None and other != partition:
            self._remove(other)
        self._names[topic_partition] = partition
        self._partitions[partition] = StandbyPartition(partition, topic_partition)
        self._topics.add((topic_partition.topic, partition.topic_id))
        self._changed.add(partition)
        self._want([partition], _GIVE_UP_S)

    def _rename(self, one: StandbyPartition, to: TopicPartition) -> None:
        """A topic has another name; it has no segments in the store."""
        other = self._names.get(to)
        if other is not None:
            self._remove(other)
        if one.is_made:
            self._disk.rename(one.directory, to.directory)
        del self._names[one.topic_partition]
        self._starts.pop(one.topic_partition, None)
        one.topic_partition, one.files = to, None
        self._names[to] = one.id
        self._topics.add((to.topic, one.id.topic_id))
        self._want([one.id], _GIVE_UP_S)

    def _remove(self, partition: PartitionId) -> None:
        """A partition was deleted."""
        found = self._partitions.pop(partition, None)
        self._assembly.forget(partition)
        if found is None:
            return
        del self._names[found.topic_partition]
        self._starts.pop(found.topic_partition, None)
        self._topics.discard((found.topic_partition.topic, partition.topic_id))
        if found.is_made:
            name = format_delete_directory(found.topic_partition, partition.topic_id)
            if self._disk.exists(name):  # it was deleted, restored and deleted again
                self._disk.remove_tree(name)
            self._disk.rename(found.directory, name)
            self._removed.append((self._clock_s() + _KEPT_S, name))

    def _remove_gone(self) -> None:
        """Remove the files of partitions that were deleted some time ago."""
        for due_s, name in list(self._removed):
            if due_s <= self._clock_s():
                if self._disk.exists(name):
                    self._disk.remove_tree(name)
                self._removed.remove((due_s, name))

    # Heads

    def _want(self, partitions: Iterable[PartitionId], pause_s: float) -> None:
        """Have the heads of partitions read, and if they are as before, again after a pause."""
        for one in partitions:
            found = self._partitions.get(one)
            if found is not None:
                found.due_s, found.pause_s = self._clock_s(), pause_s

    def _ask_due(self) -> None:
        """Read the heads that are due."""
        now_s = self._clock_s()
        for_each(self._ask, [
            one for one in self._partitions.values() if one.due_s is not None and one.due_s <= now_s
        ])  # fmt: skip

    def _ask(self, one: StandbyPartition) -> None:
        """Read the head of a partition."""
        place = PartitionPlace(one.topic_partition, one.id.topic_id)
        try:
            found = read_head(self._store, place)
            # If the bucket went back in time, what was known is shown.
            known = -1 if one.files is None else one.files.head.counter
            if found is None or found[0].counter <= known:
                self._put_off(one)
            else:
                self._use(one, place, found[0])
        except FileNotFoundError:
            self._put_off(one)  # a table of another version of the head
        except LogfsError as error:
            logger.warning("%s: its head is not used: %s", one.topic_partition, text_of(error))
            self._put_off(one)

    def _use(self, one: StandbyPartition, place: PartitionPlace, head: Head) -> None:
        """Follow another version of a head."""
        one.files = HeadFiles(place, head, read_entries(self._store, head), 0)
        one.due_s = self._clock_s() + LIST_S if one.is_unjournaled else None
        self._assembly.forget_before(one.id, head.next_offset or 0)
        self._changed.add(one.id)

    def _put_off(self, one: StandbyPartition) -> None:
        """Read a head once more later: the journal may tell of a change before it is made."""
        one.pause_s *= 2
        one.due_s = self._clock_s() + min(one.pause_s, _LONGEST_PAUSE_S)
        is_gapped = one.is_gapped(self._assembly.partition(one.id))
        if one.pause_s > _GIVE_UP_S and not is_gapped and not one.is_unjournaled:
            one.due_s = None

    # Topics

    def _find_topics(self) -> None:
        """Find topics that are in no journal, and those that are gone."""
        parsed = [parse_topic_directory(name) for name in self._store.list_level("").directories]
        there = {topic for topic in parsed if topic is not None}
        for one in list(self._partitions.values()):
            topic = one.topic_partition.topic, one.id.topic_id
            if topic not in there and one.files is not None and not self._has_head(one):
                self._remove(one.id)
        new = there - self._topics
        for places in list_topics(self._store, sorted(new)).values():
            for place in places:
                self._add_place(place)
        self._topics |= new

    def _add_place(self, place: PartitionPlace) -> None:
        partition = PartitionId(place.topic_id, place.topic_partition.partition)
        if partition in self._partitions:
            return
        if place.topic_partition in self._names:
            logger.warning(
                "%s: the store has another topic of this name, with the id of %s: it is not shown",
                place.topic_partition, place.qualified.topic,
            )  # fmt: skip
            return
        self._add(partition, place.topic_partition)

    def _has_head(self, one: StandbyPartition) -> bool:
        """Ask the store, as a list may lack what is there."""
        try:
            self._store.stat(PartitionPlace(one.topic_partition, one.id.topic_id).head)
        except FileNotFoundError:
            return False
        return True

    # The directory

    def _show_changed(self) -> None:
        """Let the directory have what is known of partitions that have changed."""
        starts, failure = dict(self._starts), None
        for partition in list(self._changed):
            one = self._partitions.get(partition)
            try:
                if one is not None:
                    self._show(one)
                self._changed.discard(partition)
            except OSError as error:
                failure = failure or error  # it delays no other partition
        if self._starts != starts:
            checkpoints.write_offsets(self._disk, names.LOG_START_OFFSET_CHECKPOINT, self._starts)
        if failure is not None:
            raise failure

    def _show(self, one: StandbyPartition) -> None:
        end = self._assembly.partition(one.id)
        for segment in one.show(self._disk, self._files, end):
            self._assembly.take(one.id, segment.base_offset)
        if one.is_gapped(end) and one.due_s is None:
            self._want([one.id], 1.0)
        starts = [0 if end is None else end.facts.start.offset]
        starts += [] if one.files is None else [one.files.head.start.offset]
        if one.is_made and max(starts):
            self._starts[one.topic_partition] = max(starts)


def clear_standby(disk: Disk) -> None:
    """Remove what a standby has made in a data directory."""
    for name, is_directory in disk.list(""):
        if is_directory and (parse_partition_directory(name) or name.startswith(MAKING)):
            disk.remove_tree(name)
    for name in (names.LOG_START_OFFSET_CHECKPOINT, names.RECOVERY_POINT_CHECKPOINT, names.OWNED):
        with contextlib.suppress(FileNotFoundError):
            disk.remove(name)
