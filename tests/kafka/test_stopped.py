"""logfs stopped before any step of a compaction or a recovery: a broker opens what it left.

Every state is put into its own topic, so that one start of the broker opens them all. What its
consumers then read has to be what logfs itself would show.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.log.partition import PartitionLog
from logfs.records.record import Record
from tests.fakes import FakeDisk
from tests.kafka import ours
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.theirs import COMPACT
from tests.kafka.written import answered, with_topics
from tests.log.compaction import CompactedLog, filled, records
from tests.log.support import DIRECTORY, contents, log_name

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.allow_log("are no whole batch")]

CHANGES = {"pwrite", "truncate", "sync", "rename", "remove", "sync_directory"}
RECOVERY_POINT = "recovery-point-offset-checkpoint"
SEEDS: tuple[int | None, ...] = (None, 3)
"""The seeds of what a power cut keeps; after a kill everything is kept."""


@dataclass
class State:
    """A directory as a stop left it, what logfs makes of it, and what a broker does."""

    files: dict[str, bytes]
    recovery_point: int
    shown: list[Record]
    consumed: list[Record]


def states_during(
    disk: FakeDisk, act: Callable[[], object], seeds: tuple[int | None, ...] = ()
) -> list[tuple[FakeDisk, bool]]:
    """The disk as it is found after a stop before each change, and whether power was lost."""
    states: list[tuple[FakeDisk, bool]] = []

    def look(operation: str, _name: str, _size: int) -> None:
        if operation in CHANGES:
            disk.before = None
            states.append((disk.after_kill(), False))
            if len(states) % 4 == 0:
                states.extend((disk.after_crash(seed), True) for seed in seeds)
            disk.before = look

    disk.before = look
    act()
    disk.before = None
    return [*states, (disk.after_kill(), False)]


def compaction() -> tuple[CompactedLog, list[tuple[FakeDisk, bool]]]:
    """Stop a second round, whose first one has left segments with gaps."""
    log = filled(15, internal_segment_bytes="300")
    log.clean()
    for first in range(15, 24, 3):
        log.append(records(first, 3, 7))
    log.roll()
    log.append(records(24, 2))
    log.log.flush()
    log.bench.store.checkpoint()
    return log, states_during(log.bench.disk, log.clean, SEEDS)


def recovery() -> tuple[CompactedLog, list[tuple[FakeDisk, bool]]]:
    """Kill a recovery that cuts, after a stop that has torn the last batch.

    Not without power: where that also took an index, a broker cuts a segment in the middle, keeps
    those after it, and its consumers wait before the gap for ever.
    """
    log = filled(15, internal_segment_bytes="300")
    log.append(records(15, 4))
    log.bench.store.checkpoint()
    disk = log.bench.disk
    name = log_name(log.log.snapshot.active.base_offset)
    log.bench.put(name, log.bench.file(name) + b"torn" * 30)
    disk.kill()
    return log, states_during(disk, lambda: log.bench.open(disk))


def shown(log: CompactedLog, disk: FakeDisk, *, lost_power: bool) -> PartitionLog:
    if lost_power:
        log.bench.new_boot()
    return log.bench.open(disk.after_kill(), read_only=True).partition("t", 0)


def distinct(log: CompactedLog, found: list[tuple[FakeDisk, bool]]) -> list[State]:
    """What of the states differs for a broker."""
    states: dict[int, State] = {}
    for disk, lost_power in found:
        files = {
            name.removeprefix(f"{DIRECTORY}/"): data
            for name, data in contents(disk, DIRECTORY).items()
        }
        seen = shown(log, disk, lost_power=lost_power)
        checkpoint = disk.read(RECOVERY_POINT).decode().split()
        key = hash(tuple(sorted(row for row in files.items() if "logfs." not in row[0])))
        states[key] = State(files, int(checkpoint[-1]), ours.read(seen), [])
    return list(states.values())


@pytest.fixture(scope="module", params=[compaction, recovery], ids=lambda make: make.__name__)
def states(request: pytest.FixtureRequest) -> list[State]:
    states = distinct(*request.param())
    found = answered("stopped", lambda folder: consumed(folder, states), *parts(states))
    for state, records_ in zip(states, found, strict=True):
        state.consumed = records_
    return states


def parts(states: list[State]) -> Iterator[str]:
    """Yield all that decides what a broker makes of them."""
    for state in states:
        yield str(state.recovery_point)
        for name, data in sorted(state.files.items()):
            yield f"{name} {hashlib.sha256(data).hexdigest()}"


def consumed(folder: Path, states: list[State]) -> list[list[Record]]:
    """Return what consumers of a broker read that opens them all."""
    names = [f"state-{number}" for number in range(len(states))]
    broker = Broker(folder)
    config = {**COMPACT, "segment.index.bytes": "4096"}
    with_topics(dict.fromkeys(names, config), broker.data)
    (broker.data / ".kafka_cleanshutdown").unlink()
    for name, state in zip(names, states, strict=True):
        put(state.files, broker.partition(name))
    points = "".join(
        f"{name} 0 {s.recovery_point}\n" for name, s in zip(names, states, strict=True)
    )
    (broker.data / RECOVERY_POINT).write_text(f"0\n{len(names)}\n{points}")
    with broker:
        assert "stray" not in broker.log
        found = Client(broker.bootstrap).consume_all(names)
    return [found[name] for name in names]


def put(files: dict[str, bytes], partition: Path) -> None:
    """Put the segments of logfs in the place of the broker's."""
    for path in partition.iterdir():
        if path.name not in {"partition.metadata", "leader-epoch-checkpoint"}:
            path.unlink()
    for name, data in files.items():
        if name not in {"partition.metadata", "leader-epoch-checkpoint"}:
            (partition / name).write_bytes(data)


def test_a_broker_finds_what_logfs_shows(states: list[State]) -> None:
    assert len(states) > 10
    for state in states:
        assert state.consumed
        assert state.consumed == state.shown, sorted(state.files)
