"""A read-only mount on a broker that writes, rolls, deletes and compacts, all at the same time.

Readers follow every partition with ``tail -f`` meanwhile: each record comes once, in order, and
nothing is written into the broker's directory.
"""

from pathlib import Path

import pytest

from logfs.records.record import Record
from tests.kafka import ours
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.load import TOPICS, load
from tests.kafka.tails import Tail, files_open_for_writing, foreign_names
from tests.mounting import Mount, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.fuse, pytest.mark.slow]

RECORDS = 2500
"""Each topic gets as many, in ten segments and more."""


def test_every_record_once_and_in_order(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        client.create_topics(TOPICS)
        with Mount(broker.data, tmp_path / "mnt", "ro") as mount:
            tails = {name: Tail(mount.point / name / "0.tsv") for name in TOPICS}
            with load(broker.bootstrap):
                wait_until(lambda: has_changed(client), "segments were rolled, removed, rewritten")
                assert not files_open_for_writing(mount.pid, broker.data)
            for name, tail in tails.items():
                end = client.latest(name)
                wait_until(lambda tail=tail, end=end: is_at(tail, end), f"{name} was seen")  # type: ignore[misc]
                with tail:
                    numbers = [int(line.split(b"\t")[1][:8]) for line in tail.lines]
                if name == "compacted":
                    # What is superseded at once may go before anybody has read it.
                    assert numbers == sorted(set(numbers))
                    assert {int((r.value or b"")[:8]) for r in client.consume(name)} <= {*numbers}
                else:
                    assert numbers == list(range(end)), name
            for name in TOPICS:
                wait_until(
                    lambda name=name: shown(mount, name) == client.consume(name),  # type: ignore[misc]
                    f"{name} reads as by a consumer",
                )
            assert not foreign_names(broker.data)
            assert "Traceback" not in mount.log


def has_changed(client: Client) -> bool:
    """Whether enough was written, and some of it was trimmed and compacted."""
    return (
        all(client.latest(name) >= RECORDS for name in TOPICS)
        and client.earliest("trimmed") > 0
        and len(client.consume("compacted")) < client.latest("compacted") / 2
    )


def is_at(tail: Tail, end: int) -> bool:
    return bool(tail.lines) and int(tail.lines[-1].split(b"\t")[1][:8]) == end - 1


def shown(mount: Mount, name: str) -> list[Record]:
    return ours.parse((mount.point / name / "0.jsonl").read_bytes())
