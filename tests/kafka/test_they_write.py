"""What a broker wrote, logfs reads as the broker's own consumer does, however the broker ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from logfs.log.writing.lines import LineWriter
from logfs.records.record import Record
from logfs.types import View
from tests.kafka import ours
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.theirs import TIME_MS, TOPICS, fill

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PREALLOCATED = "preallocated-0/"
"""After kill -9 the rest of its active segment is zeros, and logfs says what it makes of them."""


@dataclass
class Written:
    """A broker's directory, and what its consumers read in it.

    Attributes:
        data: The directory; of the broker that still runs, or a copy.
        ended: How the broker ended.
        found: Records by isolation level and topic.
        bounds: Log start and end offset, by topic.
    """

    data: Path
    ended: str
    found: dict[str, dict[str, list[Record]]]
    bounds: dict[str, tuple[int, int]]


def look(broker: Broker, ended: str) -> Written:
    client = Client(broker.bootstrap)
    levels = (READ_UNCOMMITTED, READ_COMMITTED)
    found = {level: client.consume_all(TOPICS, isolation=level) for level in levels}
    bounds = {name: (client.earliest(name), client.latest(name)) for name in TOPICS}
    return Written(broker.data, ended, found, bounds)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Written]]:
    """The directory while the broker runs, after kill -9 and after a clean stop."""
    directory = tmp_path_factory.mktemp("theirs")
    with Broker(directory / "broker") as broker:
        keep = fill(broker, Client(broker.bootstrap))
        killed = look(broker, "killed")
        broker.kill()
        killed.data = broker.copy_data(directory / "killed")
        broker.start()
        stopped = look(broker, "stopped")
        broker.stop()
        stopped.data = broker.copy_data(directory / "stopped")
        broker.start()
        yield {"killed": killed, "stopped": stopped, "live": look(broker, "live")}
        del keep


@pytest.fixture(params=["killed", "stopped", "live"])
def written(every: dict[str, Written], request: pytest.FixtureRequest) -> Written:
    return every[request.param]


def test_what_was_written_is_what_was_meant(every: dict[str, Written]) -> None:
    for written in every.values():
        for name in TOPICS:
            all_of_it = written.found[READ_UNCOMMITTED][name]
            committed = written.found[READ_COMMITTED][name]
            assert (all_of_it == []) == (name in {"empty", "all-deleted"})
            # Of what was compacted, aborted records are gone.
            assert (committed != all_of_it) == (name in {"transactions", "open-transaction"})
            assert (written.bounds[name][0] > 0) == (
                name in {"retention", "deleted-records", "all-deleted"}
            )


@pytest.mark.allow_log(PREALLOCATED)
@pytest.mark.parametrize("name", TOPICS)
def test_a_reader_finds_what_a_consumer_finds(written: Written, name: str) -> None:
    log = ours.seen(written.data, name)
    assert ours.read(log) == written.found[READ_UNCOMMITTED][name]
    assert (log.log_start_offset, log.log_end_offset) == written.bounds[name]


@pytest.mark.allow_log(PREALLOCATED)
def test_so_does_an_owner_and_it_goes_on_there(every: dict[str, Written], tmp_path: Path) -> None:
    for written in (every["killed"], every["stopped"]):
        data = copy_directory(written.data, tmp_path / written.ended)
        for appended in range(2):
            with ours.opened(data) as store:
                for name in TOPICS:
                    log = store.partition(name, 0)
                    start, end = written.bounds[name]
                    records = ours.read(log)
                    assert (
                        records[: len(records) - appended] == written.found[READ_UNCOMMITTED][name]
                    )
                    assert (log.log_start_offset, log.log_end_offset) == (start, end + appended)
                    writer = LineWriter(log, View.TSV)
                    writer.write(b"key\tvalue\n", TIME_MS)
                    writer.close(TIME_MS)
