"""Questions to a real broker, and Fetch in every version that logfs knows."""

from uuid import UUID

import pytest

from logfs.errors import BrokerError, ClusterUnreachableError
from logfs.kafka.cluster import EARLIEST, LATEST, Cluster
from logfs.kafka.fetching import (
    NEWEST_VERSION,
    OLDEST_VERSION,
    FetchLimits,
    Wanted,
    decode_fetch,
    fetch_request,
)
from logfs.kafka.settings import ClientSettings, parse_bootstrap
from logfs.records.batch import decode_records
from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.processes import wait_until

pytestmark = pytest.mark.kafka


def a_cluster(bootstrap: str, **properties: str) -> Cluster:
    settings = ClientSettings.from_properties(
        {key.replace("_", "."): value for key, value in properties.items()}
    )
    return Cluster(parse_bootstrap(f"kafka://{bootstrap}")[0], settings)


def test_what_a_cluster_answers(shared_broker: Broker, client: Client) -> None:
    client.create_topic("questions", 2, segment_ms="100000")
    records = [Record(0, 1_700_000_000_000 + n, b"k", b"v%d" % n, ()) for n in range(5)]
    client.produce("questions", records, partition=1)
    cluster = a_cluster(shared_broker.bootstrap)
    topics = cluster.topics(["questions", "nowhere"])
    topic = topics["questions"]
    assert topics["nowhere"].error == 3
    assert "questions" in cluster.topics(None)
    assert [leader.node for leader in topic.leaders.values()] == [1, 1]
    assert topic.topic_id != UUID(int=0)
    assert cluster.cluster_id
    assert cluster.list_offsets(1, "questions", {0: LATEST, 1: LATEST}) == {0: (0, 0), 1: (5, 0)}
    assert cluster.list_offsets(1, "questions", {1: EARLIEST})[1][0] == 0
    assert cluster.list_offsets(1, "questions", {1: 1_700_000_000_002})[1] == (2, 0)
    assert cluster.topic_configs("questions")["segment.ms"] == "100000"
    assert cluster.end_offset_for_epoch(1, "questions", 1, -1, 0) == (0, 5)
    wait_until(lambda: has_new_ids(cluster), "the broker knows producers")
    assert cluster.new_producer_id()[0] != cluster.new_producer_id()[0]
    cluster.close()


def has_new_ids(cluster: Cluster) -> bool:
    """Whether the broker has loaded what it knows of producers."""
    try:
        cluster.new_producer_id()
    except BrokerError as error:
        if not error.is_retriable:
            raise
        return False
    return True


def test_every_version_of_fetch_gives_the_same_batches(
    shared_broker: Broker, client: Client
) -> None:
    client.create_topic("versions")
    client.produce(
        "versions", [Record(0, 1_700_000_000_000, None, b"v%d" % n, ()) for n in range(9)]
    )
    cluster = a_cluster(shared_broker.bootstrap)
    topic = cluster.topics(["versions"])["versions"]
    connection = cluster.connect(1)
    wanted = [Wanted("versions", topic.topic_id, 0, 0)]
    for version in range(OLDEST_VERSION, NEWEST_VERSION + 1):
        connection.send(fetch_request(wanted, FetchLimits(wait_ms=0)), version)
        (got,) = decode_fetch(connection.receive(), version).partitions
        assert (got.error, got.high_watermark) == (0, 9)
        assert [record.value for record in decode_records(got.records)] == [
            b"v%d" % n for n in range(9)
        ]
    connection.close()
    cluster.close()


def test_a_broker_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(ClusterUnreachableError, match=r"127\.0\.0\.1:1: Connection refused"):
        a_cluster("127.0.0.1:1").topics(None)
