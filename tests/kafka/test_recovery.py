"""The same damaged directory, recovered by a broker and by logfs: same offsets, same bytes.

Every damage is done to its own topic, so that one start of the broker recovers them all. All
topics have the same log. The recovery point is what a broker has checkpointed when it was killed:
the start of the active segment, or the start of the log for topics whose name begins with ``DEEP``.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import cache
from tests.kafka import ours
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import Client
from tests.kafka.damages import DAMAGES, SWAPS, TAILS, UNNOTICED, copy_segments, logs
from tests.kafka.theirs import SMALL, batches, numbered
from tests.kafka.written import answered, written

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CONFIG = {**SMALL, "internal.segment.bytes": "8000", "segment.index.bytes": "4096"}
DEEP = "deep-"
NAMES = [*DAMAGES, *(DEEP + name for name in {**UNNOTICED, **SWAPS})]


@dataclass
class State:
    """What is left of a partition."""

    start: int
    end: int
    logs: dict[str, bytes]


@dataclass
class Recovered:
    """The partitions of one directory, recovered by each, by topic; and where logfs has left it."""

    theirs: dict[str, State]
    ours: dict[str, State]
    data: Path


def logs_of(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in logs(partition)}


def write(broker: Broker, client: Client) -> None:
    """Fill the first topic: keys, two producers with sequences, one of them with transactions."""
    plain = client.producer(enable_idempotence="true")
    transactional = client.producer(transactional_id="damaged")
    for n, batch in enumerate(batches(numbered(900, keys=5), 10)):
        if n % 3:
            plain.batches("none", [batch])
            continue
        transactional.begin()
        transactional.batches("none", [batch])
        (transactional.abort if n % 2 else transactional.commit)()
    # Whose first step waits until the last marker is noted: the next broker would write it again.
    client.producer(transactional_id="damaged")
    assert len(logs(broker.partition("none"))) >= 6


def write_and_kill(folder: Path) -> Path:
    with Broker(folder) as broker:
        client = Client(broker.bootstrap)
        client.create_topics(dict.fromkeys(NAMES, CONFIG))
        write(broker, client)
        broker.kill()
    return broker.data


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that a broker left when it was killed, with every damage."""
    broker = Broker(tmp_path_factory.mktemp("damaged"))
    written("damaged", write_and_kill, broker.data, tuple(NAMES))
    source = broker.partition("none")
    last = int(logs(source)[-1].stem)
    points = {name: 0 if name.startswith(DEEP) else last for name in NAMES}
    checkpoint = "".join(f"{name} 0 {offset}\n" for name, offset in points.items())
    (broker.data / "recovery-point-offset-checkpoint").write_text(f"0\n{len(points)}\n{checkpoint}")
    for name in NAMES[::-1]:
        if name != "none":
            copy_segments(source, broker.partition(name))
    for name in NAMES:
        DAMAGES[name.removeprefix(DEEP)](broker.partition(name))
    return broker.data


@pytest.fixture(scope="module", params=["killed", "stopped"])
def recovered(
    request: pytest.FixtureRequest, damaged: Path, tmp_path_factory: pytest.TempPathFactory
) -> Recovered:
    directory = tmp_path_factory.mktemp(f"damaged-{request.param}")
    own = copy_directory(damaged, directory / "own")
    if request.param == "stopped":
        (own / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
        for name in NAMES:
            if name.removeprefix(DEEP) in TAILS:
                copy_segments(own / "none-0", own / f"{name}-0")

    def recover(folder: Path) -> dict[str, State]:
        broker = Broker(folder)
        copy_directory(own, broker.data)
        with broker:
            client = Client(broker.bootstrap)
            bounds = {name: (client.earliest(name), client.latest(name)) for name in NAMES}
            broker.stop()
        return {n: State(*bounds[n], logs_of(broker.partition(n))) for n in NAMES}

    theirs = answered(f"recovered-{request.param}", recover, cache.sums_of(own))
    with ours.opened(own) as store:
        bounds = {
            name: (log.log_start_offset, log.log_end_offset)
            for name in NAMES
            for log in [store.partition(name, 0)]
        }
    mine = {name: State(*bounds[name], logs_of(own / f"{name}-0")) for name in NAMES}
    return Recovered(theirs, mine, own)


@pytest.mark.parametrize("name", NAMES)
def test_both_leave_the_same(recovered: Recovered, name: str) -> None:
    theirs, mine = recovered.theirs[name], recovered.ours[name]
    assert (mine.start, mine.end) == (theirs.start, theirs.end)
    assert {n: len(data) for n, data in mine.logs.items()} == {
        n: len(data) for n, data in theirs.logs.items()
    }
    assert mine.logs == theirs.logs
