"""One partition that is forwarded: from what is noted to what is sent, and back to the note.

Each partition of the destination that records go to is an ``Outlet``. ``resuming`` finds where each
continues after a stop, and ``sending`` sends.
"""

import logging
import threading
import time

from logfs.disk.watching import Watch
from logfs.errors import CorruptRecordError, DeletedError
from logfs.kafka.resuming import ForwardFailedError, ForwardResumption, Outlet
from logfs.kafka.sending import Sender
from logfs.kafka.shipping import RefusedRecordError, parts_of
from logfs.library.followed_directory import FollowedDirectory
from logfs.log.forwardfile import ForwardFile, ForwardPosition
from logfs.log.reading.readable import ReadableLog
from logfs.services.clusters.batches import StoredBatches

logger = logging.getLogger(__name__)

_HOLD_EVERY_S = 1.0


class LocalPartition:
    """The local partition as it grows.

    Attributes:
        log: For reading; ``look`` replaces one that could not be followed at first.
        watch: Notices changes of its directory.
    """

    def __init__(self, source: FollowedDirectory, log: ReadableLog) -> None:
        self.where = log.topic_partition
        self.log = log
        self.watch = Watch()
        self.watch.add([source.watched(self.where), source.data])
        self._source = source

    def look(self) -> bool:
        """Load what was appended; return True if there is more to load at once."""
        if not self.log.is_followed:  # its owner has recovered it since
            self.log = self._source.log(self.where)
        has_more = self._source.refresh(self.log)
        if self.log.is_deleted:
            raise DeletedError(f"{self.where}: the topic has been deleted")
        return has_more


class ForwardedPartition:
    """Forwards one partition. One thread runs it; others read its attributes.

    Args:
        local: The partition.
        file: The notes of the partition.
        home: See ``ForwardIdentity``; of this directory.

    Attributes:
        until: Local offset at which it is done; None: there is no end.
        trusts_note: The user says that what is noted is true.
        failure: Why it does not continue.
    """

    def __init__(
        self,
        local: LocalPartition,
        sender: Sender,
        file: ForwardFile,
        home: str,
        stopping: threading.Event,
    ) -> None:
        self.where = local.where
        self.local = local
        self.sender = sender
        self.file = file
        self.until: int | None = None
        self.trusts_note = False
        self.failure = ""
        self.is_ready = False
        self._home = home
        self._stopping = stopping
        self._held_s = 0.0
        self._is_settled = False

    @property
    def position(self) -> int:
        """Local offset before which every record was acknowledged."""
        return self.sender.position

    @property
    def is_done(self) -> bool:
        """Whether everything that was wanted was acknowledged."""
        return self.until is not None and self.position >= self.until

    @property
    def lag(self) -> int:
        """Its lag in offsets."""
        return max(0, self.local.log.log_end_offset - self.position)

    def run(self) -> None:
        """Forward until it is done, fails or is told to stop.

        Raises:
            ForwardFailedError: It cannot continue.
            ClusterUnreachableError, ClusterRefusedError, BrokerError, OSError: It may continue
                later, with another call.
        """
        self._is_settled = False
        try:
            self._learn_positions()
            self.is_ready = True
            self._serve()
            self._is_settled = True
        except RefusedRecordError as error:
            raise ForwardFailedError(
                f"{self.where}: {error}: raise max.message.bytes of the destination, or use "
                "--skip-too-large, which is a loss"
            ) from None
        except CorruptRecordError as error:
            raise ForwardFailedError(
                f"{self.where}: {error}; 'logfs verify' shows what is left of it, and --resume-at "
                "OFFSET passes over it"
            ) from None
        finally:
            self.sender.drop()
            self.sender.totals.retries += not self._is_settled

    def close(self) -> None:
        """Note durably where it is."""
        is_clean = self._is_settled
        for outlet in self.sender.outlets.values():
            if outlet.noted.records or is_clean:
                self.file.put(outlet.partition, outlet.noted._replace(is_clean=is_clean))
        self._hold()
        self.file.sync()
        self.file.close()

    # Where it is

    def _learn_positions(self) -> None:
        """Find how far each outlet has got, and where reading begins."""
        while self.local.look():
            pass
        sender, log = self.sender, self.local.log
        held = self.file.held().next_offset
        is_copy = self.file.identity.home != self._home
        sender.outlets = {number: Outlet(number, self._noted(number)) for number in self._wanted()}
        ForwardResumption(
            self.where,
            log,
            sender.destination,
            self.file,
            sender.shaping,
            trusts_note=self.trusts_note,
            is_copy=is_copy,
        ).settle(sender.outlets.values(), held)
        for outlet in sender.outlets.values():
            noted = outlet.noted
            there = noted.destination_offset if outlet.records >= noted.records else -1
            outlet.noted = noted._replace(
                next_offset=outlet.next_offset,
                records=outlet.records,
                destination_offset=there,
                is_clean=False,
            )
            self.file.put(outlet.partition, outlet.noted)
        self.file.sync()  # before anything is sent that the note does not know of
        if is_copy:
            self._become_another_producer()
        first = min(outlet.next_offset for outlet in sender.outlets.values())
        if first > log.log_end_offset:
            raise ForwardFailedError(
                f"{self.where} ends at offset {log.log_end_offset}, and what was forwarded "
                f"ends at {first}: this log has lost its end, in a power cut, or is another "
                "one. --resume-at OFFSET continues at another offset"
            )
        self._note_deleted(first)
        sender.reach(max(first, log.log_start_offset))
        if self.position < held:  # the destination has lost records that it had acknowledged
            self.file.hold(ForwardPosition(self.position, time_ms=sender.acknowledged_ms))

    def _wanted(self) -> range:
        """Return the partitions of the destination that records go to."""
        if self.file.identity.partitions == "key":
            return range(self.file.identity.spread_over)
        return range(self.where.partition, self.where.partition + 1)

    def _noted(self, partition: int) -> ForwardPosition:
        return self.file.position(partition) or ForwardPosition(self.file.identity.first_offset)

    def _become_another_producer(self) -> None:
        """Take a new producer id: a process that forwards from the other copy has the old one.

        A broker takes a batch for a repeat if it has one of the same producer with its number.
        """
        producer_id, epoch = self.sender.destination.cluster.new_producer_id()
        identity = self.file.identity
        self.file.change(
            identity._replace(producer_id=producer_id, producer_epoch=epoch, home=self._home)
        )
        shaping = self.sender.shaping
        shaping.producer_id, shaping.producer_epoch = producer_id, epoch
        logger.warning(
            "%s: this directory is a copy, or was moved: it is forwarded as its own producer, "
            "from what the other one had forwarded on",
            self.where,
        )

    def _note_deleted(self, expected: int) -> None:
        """Note a loss if the log begins after the offset that is forwarded next."""
        start = self.local.log.log_start_offset
        if expected < start:
            self.sender.totals.losses += 1
            logger.warning(
                "%s: offsets %d to %d were deleted before they were forwarded",
                self.where, expected, start - 1,
            )  # fmt: skip

    # Sending

    def _serve(self) -> None:
        sender, local = self.sender, self.local
        linger_s = sender.destination.cluster.settings.linger_ms / 1000
        reader = StoredBatches(lambda: local.log.snapshot, self.position)
        while not self._stopping.is_set():
            piece = reader.read()
            if piece is None:
                sender.drain()
                sender.reach(reader.offset)
                self._hold_if_due()
                if self.is_done:
                    return
                if not local.look():
                    local.watch.wait(_HOLD_EVERY_S)
                    self._stopping.wait(linger_s)
                    local.look()
                continue
            if piece.first > sender.frontier:
                self._note_deleted(sender.frontier)
            for part in parts_of(piece, sender.shaping):
                sender.send(part)
                if self._stopping.is_set():
                    break
            self._hold_if_due()
        sender.drain()

    # Holds

    def _hold_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s - self._held_s >= _HOLD_EVERY_S:
            self._held_s = now_s
            self._hold()

    def _hold(self) -> None:
        held, time_ms = self.file.held(), self.sender.acknowledged_ms
        if self.position > held.next_offset or time_ms > held.time_ms:
            self.file.hold(ForwardPosition(self.position, time_ms=time_ms))
