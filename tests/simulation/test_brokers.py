"""A forward and a mirror, stopped at each change of the disk and at each message of the broker.

Both are processes with threads and blocking sockets, so the simulated daemon has none. Here is what
one of their threads does for a partition; the broker is in memory.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from logfs.kafka.cluster import NO_ID, Leader
from logfs.kafka.forwarded import ForwardedPartition, LocalPartition
from logfs.kafka.mirrored import MirroredPartition
from logfs.kafka.resuming import AskAgainError, Destination
from logfs.kafka.sending import Sender
from logfs.kafka.shipping import Shaping
from logfs.kafka.targets import LocalTarget
from logfs.log.forwardfile import ForwardFile, ForwardIdentity
from logfs.log.mirrorfile import MirrorSource
from logfs.machine.host import Clock
from logfs.services.clusters.mirrors import mirror_ends, open_mirror
from logfs.types import TopicPartition
from tests.fakes import FakeDisk
from tests.fakestate import CHANGES, Stopped
from tests.log.support import DIRECTORY, Bench, lines_of
from tests.simulation.brokers import (
    NODE,
    PARTITION,
    PRODUCER_ID,
    TOPIC,
    SimulatedBroker,
    SimulatedCluster,
)

pytestmark = [pytest.mark.slow, pytest.mark.allow_log("the one before it is used")]

NOTES = f"{DIRECTORY}/logfs.forward-0000002a"
IDENTITY = ForwardIdentity(
    "cluster", "b1:9092", TOPIC, "", "same", 1, PRODUCER_ID, 0, 0, home="home"
)
SOURCE = MirrorSource("cluster", "b1:9092", TOPIC, "", "source")
MIRROR = TopicPartition("m", 0)
MOST_BATCH_BYTES = 200

Stop = Callable[[Bench], object]
STOPS: dict[str, Stop] = {
    "kill": lambda bench: bench.kill(),
    "power": lambda bench: bench.crash(None),
    "power, sectors kept": lambda bench: bench.crash(1),
}


class StopAfter:
    """Stops after a number of changes and messages.

    Attributes:
        is_over: It has.
    """

    def __init__(self, left: int, disk: FakeDisk, broker: SimulatedBroker) -> None:
        self._left = left
        self.is_over = False
        disk.before = lambda operation, *_: self._count() if operation in CHANGES else None
        broker.before = lambda _: self._count()

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.is_over = True
            raise Stopped("here")


def forward(bench: Bench, broker: SimulatedBroker) -> None:
    """Forward everything that is in the log."""
    stopping, log, cluster = threading.Event(), bench.log, SimulatedCluster(broker)
    try:
        file = ForwardFile.open(bench.disk, NOTES)
    except FileNotFoundError:
        file = ForwardFile.create(bench.disk, NOTES, IDENTITY)
    destination = Destination(cluster, cluster.topic, TopicPartition(TOPIC, PARTITION))
    shaping = Shaping(PRODUCER_ID, 0, MOST_BATCH_BYTES)
    sender = Sender(destination, file, shaping, stopping, skips_too_large=False)
    local = SimpleNamespace(
        where=destination.where,
        log=log,
        look=lambda: False,
        watch=SimpleNamespace(wait=lambda _: None),
    )
    partition = ForwardedPartition(cast("LocalPartition", local), sender, file, "home", stopping)
    partition.until = log.log_end_offset
    while not partition.is_done:
        with suppress(AskAgainError):
            partition.run()
    partition.close()


def mirror(bench: Bench, broker: SimulatedBroker) -> None:
    """Mirror everything that the broker has."""
    open_mirror(bench.store, MIRROR.topic, 1, {}, SOURCE, bench.now_ms)
    clock = Clock(lambda: bench.now_ms, lambda: 0.0, lambda: 0.0)
    target, (end,) = LocalTarget(bench.store, clock), mirror_ends(bench.store, MIRROR.topic)
    partition = MirroredPartition(
        MIRROR, TOPIC, NO_ID, Leader(NODE, 0), True, end.log_start_offset, end.log_end_offset
    )  # fmt: skip
    partition.until = broker.end
    while not partition.is_done:
        broker.before("a request")
        answer = broker.fetch(partition.wanted(-1).offset, 2)
        broker.before("an answer")
        partition.take(answer, target)
        bench.store.partition(*MIRROR).flush()


def written() -> Bench:
    bench = Bench()
    for number in range(12):
        bench.write(b"line %d" % number)
    bench.log.flush()
    bench.store.checkpoint()
    return bench


def stopped(
    run: Callable[[Bench, SimulatedBroker], None],
    disk: FakeDisk,
    broker: SimulatedBroker,
    stop: Stop,
    first: int = 0,
    step: int = 1,
) -> Iterator[tuple[Bench, SimulatedBroker]]:
    """Stop it at each n-th change or message, from one on; yields what is left each time."""
    for left in range(first, 1000, step):
        bench, there = Bench(disk=disk.after_kill()), broker.copied()
        after = StopAfter(left, bench.disk, there)
        with suppress(Stopped):
            run(bench, there)
        bench.disk.before, there.before = None, lambda _: None
        if not after.is_over:
            return
        stop(bench)
        yield bench, there
    raise AssertionError("it does not end")


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_a_forward_sends_each_record_once_wherever_it_is_stopped_twice(stop: Stop) -> None:
    disk, stops = written().disk, 0
    for bench, broker in stopped(forward, disk, SimulatedBroker(), stop):
        bench.write(b"after %d" % stops)
        bench.log.flush()
        lines = lines_of(bench.log)
        for again, there in stopped(forward, bench.disk, broker, stop, stops % 5, step=5):
            forward(again, there)
            assert there.records() == list(enumerate(lines))
            stops += 1
    assert stops > 100


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_a_mirror_has_each_record_once_wherever_it_is_stopped(stop: Stop) -> None:
    source, stops = SimulatedBroker(), 0
    forward(written(), source)
    for bench, broker in stopped(mirror, Bench().disk, source, stop):
        mirror(bench, broker)
        log = bench.store.partition(*MIRROR)
        assert list(enumerate(lines_of(log))) == source.records()
        assert (log.losses, log.log_end_offset) == ([], source.end)
        stops += 1
    assert stops > 30
