"""The library beside a running broker: what it writes is read and followed, and nothing is touched.

What a consumer is given, of either isolation level, is what a partition gives.
"""

import pytest

import logfs
from logfs.errors import LockedError
from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, Client
from tests.kafka.tails import foreign_names
from tests.mounting import wait_until

pytestmark = pytest.mark.kafka

BEGIN_MS = 1_700_000_000_000


def records(begin: int, count: int) -> list[Record]:
    return [
        Record(0, BEGIN_MS + n, b"%d" % n, b"value %d" % n, ((b"h", b"x"),))
        for n in range(begin, begin + count)
    ]


def test_what_a_broker_writes_is_followed(shared_broker: Broker, client: Client) -> None:
    topic = "library-follows"
    client.create_topic(topic, segment_bytes="1048576")
    client.produce(topic, records(0, 100))
    with logfs.open(shared_broker.data / topic / "0") as partition:
        coming = partition.follow("earliest")
        assert [next(coming) for _ in range(100)] == client.consume(topic)
        for begin in range(100, 200, 20):
            client.produce(topic, records(begin, 20))
            assert [next(coming).value for _ in range(20)] == [
                record.value for record in records(begin, 20)
            ]
        client.produce(topic, [Record(0, BEGIN_MS, None, b"x" * 500_000)] * 6)  # rolls
        assert [len(next(coming).value or b"") for _ in range(6)] == [500_000] * 6
        assert list(partition.read()) == client.consume(topic)
        assert partition.end_offset == client.latest(topic) == 206
        assert partition.offset_at(str(BEGIN_MS + 150)) == client.offset_for_time(
            topic, BEGIN_MS + 150
        )
        with pytest.raises(LockedError):
            partition.append(b"not here")
    assert not foreign_names(shared_broker.data)


def test_transactions_are_seen_as_a_consumer_sees_them(
    shared_broker: Broker, client: Client
) -> None:
    topic = "library-transactions"
    client.create_topic(topic)
    path = shared_broker.data / topic / "0"
    producer = client.producer(transactional_id=topic)
    with (
        logfs.open(path) as everything,
        logfs.open(path, isolation_level="read_committed") as committed,
    ):
        for n, is_kept in enumerate([True, False, True]):
            producer.begin()
            producer.send(topic, records(10 * n, 10))
            producer.flush()
            wait_until(
                lambda n=n: len(list(everything.read())) == 10 * n + 10,  # type: ignore[misc]
                "the records were there",
            )
            assert list(committed.read()) == client.consume(topic, isolation=READ_COMMITTED)
            if is_kept:
                producer.commit()
            else:
                producer.abort()
        expected = client.consume(topic, isolation=READ_COMMITTED)
        assert len(expected) == 20
        found = committed.follow("earliest")
        assert [next(found) for _ in range(20)] == expected
        wait_until(
            lambda: committed.end_offset == client.latest(topic, isolation=READ_COMMITTED),
            "the last marker was there",
        )
        assert list(everything.read()) == client.consume(topic)
