"""A read-only mount beside a running broker: what it writes, rolls, deletes and rewrites is seen.

What a consumer reads is the judge. Nothing may be written into the broker's directory, and no file
of it may be open for writing.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.tails import Tail, files_open_for_writing, foreign_names
from tests.kafka.theirs import COMPACT, SMALL, TIME_MS, batches, numbered
from tests.mounting import Mount, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.fuse, pytest.mark.slow]


@pytest.fixture
def mount(shared_broker: Broker, client: Client, tmp_path: Path) -> Iterator[Mount]:
    """A mount of the running broker's directory."""
    with Mount(shared_broker.data, tmp_path / "mnt", "ro") as mount:
        yield mount
        assert not files_open_for_writing(mount.pid, shared_broker.data)
    assert not foreign_names(shared_broker.data)


def values(records: list[Record]) -> list[bytes]:
    return [record.value or b"" for record in records]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def meta(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_name(f"{path.name}.meta").read_text())
    return found


def _wait_for_end(path: Path, last: bytes) -> None:
    wait_until(lambda: lines(path)[-1:] == [last], "the last record was seen")


def _wait_for_fewer(client: Client, most: int) -> None:
    wait_until(lambda: len(client.consume("compacted")) < most, "it was cleaned")


def test_what_is_produced_is_seen_within_a_second_and_rolls_are_followed(
    mount: Mount, client: Client
) -> None:
    client.create_topics({"rolled": SMALL})
    path = mount.point / "rolled" / "0"
    wait_until(path.exists, "the new topic was seen")
    with Tail(path) as tail:
        producer = client.producer()
        waits = []
        for batch in batches(numbered(3000), 100):
            producer.send("rolled", batch)
            producer.flush()
            last, started = values(batch)[-1], time.monotonic()
            _wait_for_end(path, last)
            waits.append(time.monotonic() - started)
        expected = values(client.consume("rolled"))
        assert lines(path) == expected == values(numbered(3000))
        assert sorted(waits)[len(waits) // 2] < 1
        wait_until(lambda: len(tail.lines) == 3000, "tail had everything")
        assert tail.lines == expected
        jsonl = [json.loads(line) for line in lines(path.with_name("0.jsonl"))]
        assert [row["offset"] for row in jsonl] == list(range(3000))


def test_retention_and_deleted_records_are_holes(mount: Mount, client: Client) -> None:
    client.create_topics({"trimmed": SMALL})
    path = mount.point / "trimmed" / "0"
    wait_until(path.exists, "the new topic was seen")
    producer = client.producer()
    producer.batches("trimmed", batches(numbered(2000), 100))
    wait_until(lambda: len(lines(path)) == 2000, "everything was seen")
    size = path.stat().st_size
    with Tail(path) as tail:
        wait_until(lambda: len(tail.lines) == 2000, "tail had everything")
        client.delete_records("trimmed", 950)
        wait_until(
            lambda: lines(path) == values(client.consume("trimmed")), "the start was followed"
        )
        assert meta(path)["log_start_offset"] == 950
        client.alter_topic("trimmed", retention_bytes="20000")
        wait_until(lambda: client.earliest("trimmed") > 950, "retention came")
        wait_until(
            lambda: lines(path) == values(client.consume("trimmed")), "retention was followed"
        )
        assert path.stat().st_size == size
        producer.batches("trimmed", batches(numbered(100, 2000), 100))
        wait_until(lambda: len(tail.lines) == 2100, "tail continued")
        assert tail.lines == values(numbered(2100))


def test_what_a_compaction_keeps_stays_where_it_was(mount: Mount, client: Client) -> None:
    client.create_topics({"compacted": COMPACT})
    path = mount.point / "compacted" / "0"
    wait_until(path.exists, "the new topic was seen")
    records = numbered(2000, keys=150)
    producer = client.producer()
    producer.batches("compacted", batches(records, 50))
    wait_until(lambda: len(lines(path)) == 2000, "everything was seen")
    before = path.read_bytes()
    with Tail(path):
        for first in (2000, 2200, 2400):
            client.alter_topic("compacted", min_compaction_lag_ms="0")
            more = numbered(200, first, keys=150)
            producer.batches("compacted", batches(more, 50))
            records += more
            _wait_for_fewer(client, len(records) - 400)
            wait_until(
                lambda: sorted(lines(path)) == sorted(values(client.consume("compacted"))),
                "the compaction was followed",
            )
        found = lines(path)
        assert found == values(client.consume("compacted"))
        everything = b"".join(value + b"\n" for value in values(records))
        assert path.stat().st_size == len(everything)
        with path.open("rb") as file:
            for line in found[:: max(len(found) // 50, 1)]:
                at = everything.index(line + b"\n")
                assert os.pread(file.fileno(), len(line) + 1, at) == line + b"\n"
        assert everything.startswith(before)
        assert not meta(path)["losses"]


def test_a_deleted_topic_goes(mount: Mount, client: Client) -> None:
    client.create_topic("deleted", partitions=2)
    client.produce("deleted", numbered(500))
    path = mount.point / "deleted" / "0"
    wait_until(lambda: path.exists() and len(lines(path)) == 500, "everything was seen")
    with path.open("rb") as file:
        assert file.read(10) == values(numbered(1))[0][:10]
        client.delete_topic("deleted")
        wait_until(lambda: "deleted" not in os.listdir(mount.point), "the topic went")
        assert len(file.read().split(b"\n")) == 501


def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        client.create_topics({"orders": SMALL})
        client.produce("orders", numbered(1000), batch_size="2000")
        with Mount(broker.data, tmp_path / "mnt", "ro") as mount:
            path = mount.point / "orders" / "0"
            with Tail(path) as tail:
                wait_until(lambda: len(tail.lines) == 1000, "tail had everything")
                broker.kill()
                log = max(broker.partition("orders").glob("*.log"))
                with log.open("ab") as file:
                    file.write(b"\0" * 7 + b"torn batch" * 9)
                time.sleep(0.5)
                assert lines(path) == values(numbered(1000))
                broker.start()
                client = Client(broker.bootstrap)
                client.produce("orders", numbered(1000, 1000), batch_size="2000")
                wait_until(lambda: len(tail.lines) == 2000, "tail continued")
                assert tail.lines == lines(path) == values(client.consume("orders"))
                assert not meta(path)["losses"]
            mount.restart()
            assert lines(path) == values(numbered(2000))


def test_a_cut_and_rewritten_tail_is_a_loss(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        client = Client(broker.bootstrap)
        client.create_topic("orders")
        client.producer().batches("orders", batches(numbered(1000), 100))
        with Mount(broker.data, tmp_path / "mnt", "ro") as mount:
            path = mount.point / "orders" / "0"
            with Tail(path) as tail:
                wait_until(lambda: len(tail.lines) == 1000, "tail had everything")
                size = path.stat().st_size
                broker.kill()
                [log] = broker.partition("orders").glob("*.log")
                os.truncate(log, log.stat().st_size - 10)  # as a power cut would
                broker.start()
                client = Client(broker.bootstrap)
                new = [Record(0, TIME_MS, None, b"new %d" % n) for n in range(300)]
                client.produce("orders", new)
                wait_until(lambda: lines(path)[-1] == b"new 299", "the new tail was seen")
                assert lines(path) == values(client.consume("orders"))
                wait_until(lambda: len(tail.lines) == 1300, "tail continued")
                assert tail.lines == values(numbered(1000)) + values(new)
                assert path.stat().st_size == size + sum(len(value) + 1 for value in values(new))
                losses = meta(path)["losses"]
                assert len(losses) == 1
                assert "cut at offset 900" in losses[0]["detail"]


def test_positions_outlast_the_mount(mount: Mount, client: Client) -> None:
    client.create_topics({"kept": SMALL})
    client.producer().batches("kept", batches(numbered(1000), 100))
    path = mount.point / "kept" / "0"
    wait_until(lambda: path.exists() and len(lines(path)) == 1000, "everything was seen")
    inode, size = path.stat().st_ino, path.stat().st_size
    client.delete_records("kept", 800)
    wait_until(lambda: meta(path)["log_start_offset"] == 800, "the start was followed")
    mount.stop()
    client.producer().batches("kept", batches(numbered(1000, 1000), 100))
    mount.start()
    assert lines(path) == values(client.consume("kept"))
    assert path.stat().st_ino == inode
    with path.open("rb") as file:
        file.seek(size)
        assert file.readline() == values(numbered(1, 1000))[0] + b"\n"
    mount.crash()
    assert path.stat().st_ino == inode
    assert lines(path) == values(client.consume("kept"))
    assert not meta(path)["losses"]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions_are_followed(
    shared_broker: Broker, client: Client, tmp_path: Path, level: str
) -> None:
    topic = f"transactions-{level}"
    client.create_topics({topic: SMALL})
    with Mount(shared_broker.data, tmp_path / "mnt", "ro", f"isolation.level={level}") as mount:
        path = mount.point / topic / "0"
        wait_until(path.exists, "the new topic was seen")

        def agrees() -> bool:
            return lines(path) == values(client.consume(topic, isolation=level))

        with Tail(path) as tail:
            producer = client.producer(transactional_id=topic)
            for number in range(12):
                producer.begin()
                producer.send(topic, numbered(60, number * 100))
                producer.flush()
                if number % 3 == 1:
                    producer.abort()
                else:
                    producer.commit()
                client.produce(topic, numbered(5, number * 100 + 90))
            producer.begin()
            producer.send(topic, numbered(60, 5000))
            producer.flush()
            client.produce(topic, numbered(5, 6000))
            wait_until(agrees, "both showed the same while a transaction was open")
            mount_end = path.stat().st_size
            producer.commit()
            wait_until(agrees, "both showed the same when it was over")
            expected = lines(path)
            wait_until(lambda: len(tail.lines) == len(expected), "tail had everything")
            assert tail.lines == expected
            assert mount_end <= path.stat().st_size
        mount.restart()
        assert agrees()
        producer.begin()
        producer.send(topic, numbered(60, 7000))
        producer.flush()
        producer.abort()
        client.produce(topic, numbered(5, 8000))
        wait_until(agrees, "both showed the same after a restart")
