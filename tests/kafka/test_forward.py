"""A forward to a real broker: every record once, as it is, over everything that happens."""

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

import logfs
from logfs import NewRecord
from logfs.log.forwardfile import read_notes
from logfs.machine.disks import disk_of
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.forwards import (
    RunningForward,
    append,
    check_forwarded,
    forward_now,
    forward_plan,
    make,
    some,
)
from tests.mounting import COMMAND

pytestmark = [pytest.mark.kafka, pytest.mark.allow_log("logfs.kafka.")]


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_every_field_arrives_as_it_is(
    codec: str, shared_broker: Broker, client: Client, data: Path
) -> None:
    topic = f"fields-{codec}"
    client.create_topic(topic)
    make(data, topic, compression_type=codec)
    append(data, topic, some(200))
    append(data, topic, [NewRecord(b"large %d" % n * 500, b"k") for n in range(200)])
    with RunningForward(data, forward_plan(shared_broker.bootstrap, topic)) as running:
        running.wait_for(400)
        for number in range(20):
            append(data, topic, some(1, 400 + number))
        running.wait_for(420)
    assert len(check_forwarded(client, data, topic)) == 420
    forward_now(data, forward_plan(shared_broker.bootstrap, topic, until_now=True))
    assert len(check_forwarded(client, data, topic)) == 420


def test_aborted_transactions_are_not_sent(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("sold")
    make(data, "sold")
    with logfs.open_store(str(data)) as store:
        log = store.partition("sold", 0)
        for number in range(6):
            log.append(b"plain %d" % number)
            producer = log.producer(10 + number)
            with contextlib.suppress(RuntimeError), producer.transaction():
                producer.append_many([b"in %d" % number] * 3)
                if number % 2:
                    raise RuntimeError("for a test")
    forward_now(data, forward_plan(shared_broker.bootstrap, "sold", until_now=True))
    assert len(check_forwarded(client, data, "sold")) == 6 + 3 * 3


def test_each_partition_goes_to_its_own_and_new_ones_follow(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("pairs", 3)
    make(data, "pairs", 2)
    for partition in (0, 1):
        append(data, "pairs", some(50, 100 * partition), partition)
    with RunningForward(data, forward_plan(shared_broker.bootstrap, "pairs")) as running:
        running.wait_for(50)
        done = subprocess.run([*COMMAND, "topic", "alter", data / "pairs", "--partitions", "3"])
        assert done.returncode == 0
        append(data, "pairs", some(30, 300), 2)
        running.wait_for(30, partition=2)
    for partition in (0, 1, 2):
        check_forwarded(client, data, "pairs", partition=partition)


def test_by_key_each_key_keeps_its_order_over_restarts(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("keyed", 4)
    client.create_topic("as-theirs", 4)
    make(data, "keyed")
    plan = forward_plan(shared_broker.bootstrap, "keyed", by_key=True, until_now=True)
    for number in range(5):
        append(
            data,
            "keyed",
            [NewRecord(b"%d %d" % (number, n), b"key %d" % (n % 17)) for n in range(200)],
        )
        forward_now(data, plan)
    sent = [
        (record.key, record.value, partition)
        for partition in range(4)
        for record in client.consume("keyed", partition)
    ]
    assert len(sent) == 1000
    places = {key: {p for k, _, p in sent if k == key} for key, _, _ in sent}
    assert all(len(found) == 1 for found in places.values())
    assert len({p for found in places.values() for p in found}) > 1
    for key in places:
        assert [v for k, v, _ in sent if k == key] == [
            b"%d %d" % (number, n)
            for number in range(5)
            for n in range(200)
            if b"key %d" % (n % 17) == key
        ]


def test_a_record_that_is_too_large_stops_it_with_its_offset_or_is_left_out(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("small", max_message_bytes="2000")
    make(data, "small")
    append(data, "small", some(100))
    append(data, "small", [NewRecord(b"x" * 5000)])
    append(data, "small", some(100, 100))
    plan = forward_plan(shared_broker.bootstrap, "small", until_now=True)
    with RunningForward(data, plan) as running:
        running.wait_for_end()
    (failure,) = running.forward.failures
    assert "small/0: offset 100 is refused" in failure or "offset 100:" in failure
    assert "--skip-too-large" in failure
    skipping = forward_plan(shared_broker.bootstrap, "small", until_now=True, skips_too_large=True)
    with RunningForward(data, skipping) as running:
        running.wait_for_end()
    assert running.forward.losses == 1
    assert len(client.consume("small")) == 200


def test_the_note_says_where_it_is_and_a_topic_made_again_is_refused(
    shared_broker: Broker, client: Client, data: Path
) -> None:
    client.create_topic("noted")
    make(data, "noted")
    append(data, "noted", some(10))
    plan = forward_plan(shared_broker.bootstrap, "noted", until_now=True)
    forward_now(data, plan)
    (note,) = read_notes(disk_of(str(data)), "noted-0")
    assert (note.held_offset, note.identity.topic, note.report["state"]) == (10, "noted", "stopped")
    client.delete_topic("noted")
    client.create_topic("noted")
    with RunningForward(data, plan) as running:
        running.wait_for_end()
    assert "made again at the destination" in str(running.error)
    again = forward_plan(shared_broker.bootstrap, "noted", until_now=True, start=4, resumes=True)
    forward_now(data, again)
    assert [r.value for r in client.consume("noted")] == [r.value for r in some(6, 4)]


def test_a_broker_that_has_forgotten_the_producer_is_scanned(forgetful: Broker, data: Path) -> None:
    client, chance = Client(forgetful.bootstrap), random.Random(5)
    client.create_topic("forgotten")
    make(data, "forgotten")
    plan = forward_plan(forgetful.bootstrap, "forgotten")
    for number in range(6):
        append(data, "forgotten", some(chance.randint(1, 300), 1000 * number))
        with RunningForward(data, plan) as running:
            if number % 2:
                running.wait_until(
                    lambda running=running: running.forward.partitions,  # type: ignore[misc]
                    "it runs",
                )
        # Others write to the topic as well.
    forward_now(data, forward_plan(forgetful.bootstrap, "forgotten", until_now=True))
    check_forwarded(client, data, "forgotten")
