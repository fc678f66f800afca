"""A forward in this process, to a real broker."""

from collections.abc import Sequence
from pathlib import Path

import logfs
from logfs import NewRecord
from logfs.kafka.forwarding import Forward, ForwardPlan
from logfs.machine.disks import disk_of
from logfs.records.record import Record
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.copies import RunningCopy, quick_cluster

START_MS = 1_700_000_000_000


def some(count: int, first: int = 0) -> list[NewRecord]:
    """Records with everything that a record may have."""
    keys, values = (None, b"", b"k1", b"k2"), (None, b"", b"\xff\0value")
    return [
        NewRecord(
            values[n % 3] if n % 7 == 0 else b"value %d" % n,
            keys[n % 4],
            ((b"h", b"\xff"), (b"h", None), (b"", b""))[: n % 4],
            START_MS + n,
        )
        for n in range(first, first + count)
    ]


def make(data: Path, topic: str, partitions: int = 1, **config: str) -> None:
    """Make a topic in a data directory."""
    properties = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in config.items()}
    with logfs.open_store(str(data)) as store:
        store.create_topic(topic, partitions, properties)


def append(data: Path, topic: str, records: list[NewRecord], partition: int = 0) -> None:
    """Append records to a partition."""
    with logfs.open(f"{data}/{topic}/{partition}") as local:
        local.append_many(records)


def forward_plan(
    bootstrap: str, topic: str, destination: str | None = None, **changes: object
) -> ForwardPlan:
    """Return a plan for all partitions; ``changes`` are those of ``ForwardPlan``."""
    return ForwardPlan(topic, None, bootstrap, destination or topic, **changes)  # type: ignore[arg-type]


class RunningForward(RunningCopy):
    """A forward in a thread, of a data directory that others write."""

    def __init__(self, data: Path, plan: ForwardPlan, **properties: str) -> None:
        super().__init__()
        cluster = quick_cluster(plan.bootstrap, properties)
        self.forward = Forward(cluster, disk_of(str(data)), plan, self.said.append)

    def make(self) -> Forward:
        return self.forward

    def wait_for(self, position: int, partition: int = 0) -> None:
        """Wait until every record below an offset was acknowledged."""
        self.wait_until(
            lambda: any(
                one.position >= position
                for one in self.forward.partitions
                if one.where.partition == partition
            ),
            f"it is at {position}",
        )


def forward_now(data: Path, plan: ForwardPlan, **properties: str) -> Forward:
    """Forward what is there now, and return the forward that has ended."""
    with RunningForward(data, plan, **properties) as running:
        running.wait_for_end()
    assert running.error is None, running.error
    assert not running.forward.failures
    return running.forward


def without_offsets(records: Sequence[Record]) -> list[Record]:
    return [record._replace(offset=0) for record in records]


def check_forwarded(
    client: Client, data: Path, topic: str, destination: str | None = None, partition: int = 0
) -> list[Record]:
    """Compare every field and the order with what consumers of both levels read."""
    level = logfs.IsolationLevel.READ_COMMITTED
    with logfs.open(f"{data}/{topic}/{partition}", isolation_level=level) as local:
        ours = without_offsets(list(local.read()))
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        theirs = client.consume(destination or topic, partition, isolation=isolation)
        assert without_offsets(theirs) == ours, isolation
    return ours
