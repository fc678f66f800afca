"""What a broker says costs no more than it may."""

import pytest

from logfs.errors import ClusterUnreachableError
from logfs.kafka.cluster import Cluster
from logfs.kafka.settings import Address, ClientSettings
from tests.clusters.brokers import FakeBroker


@pytest.mark.expect_log("the cluster names a topic that is left out")
def test_topics_with_illegal_names_are_left_out_and_the_others_are_there() -> None:
    with FakeBroker("orders") as broker:
        cluster = Cluster([Address("127.0.0.1", broker.port)], ClientSettings())
        broker.others = ("../../etc", "a b", "x" * 250, "..", "a/b", "web")
        assert sorted(cluster.topics(None)) == ["orders", "web"]
        assert sorted(cluster.topics(None)) == ["orders", "web"]
        cluster.close()


def test_a_huge_answer_about_topics_is_refused() -> None:
    with FakeBroker("orders") as broker:
        cluster = Cluster([Address("127.0.0.1", broker.port)], ClientSettings())
        broker.others = ("x" * (17 << 20),)
        with pytest.raises(ClusterUnreachableError, match="expected 4 to 16777216"):
            cluster.topics(None)
        cluster.close()
