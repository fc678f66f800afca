"""What a broker with tiered storage has copied to its store, read from there by logfs.

The broker's store is Kafka's LocalTieredStorage. A consumer of the broker is the judge: it reads
the same records through the broker.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import logfs
from logfs.records.record import Record
from tests.kafka import jars
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, Client
from tests.mounting import Mount
from tests.mounting import logfs as run_logfs

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(not jars.has_storage(), reason="LocalTieredStorage is not published"),
]

TOPIC = "orders"
STORE = "kafka-tiered-storage"
BEGIN_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records(begin: int, count: int) -> list[Record]:
    return [
        Record(0, BEGIN_MS + n * 1000, b"k%d" % n, b"value %d %s" % (n, b"x" * 90), ((b"h", b"x"),))
        for n in range(begin, begin + count)
    ]


class Tiered:
    """A broker whose topic is in its store, but for the last segment.

    Attributes:
        url: The url of the store.
        stored: Records of the stored segments, as a consumer reads them.
        committed: The same under read_committed.
    """

    def __init__(self, directory: Path) -> None:
        root = directory / "store"
        self.broker = Broker(
            directory / "kafka",
            {
                "remote.log.storage.system.enable": "true",
                "remote.log.metadata.manager.listener.name": "PLAINTEXT",
                "remote.log.storage.manager.class.name": (
                    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
                ),
                "remote.log.manager.task.interval.ms": "200",
                "rsm.config.dir": str(root),
                "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
            },
        )
        self.url = f"file://{root / STORE}"
        self.stored: list[Record] = []
        self.committed: list[Record] = []

    def fill(self) -> None:
        """Write records of all kinds, and wait until the sealed segments left the disk."""
        client = Client(self.broker.bootstrap)
        settings = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
        client.create_topics({TOPIC: {**settings, "internal.segment.bytes": "50000"}})
        for number, codec in enumerate(CODECS):
            for part in range(4):
                rows = records(number * 1000 + part * 250, 250)
                client.produce(TOPIC, rows, compression_type=codec)
        producer = client.producer(transactional_id="one")
        for number, end in enumerate((producer.commit, producer.abort, producer.commit)):
            producer.begin()
            producer.send(TOPIC, records(5000 + number * 300, 300))
            producer.flush()
            end()
        for part in range(4):  # so that the segment with the last marker is sealed
            client.produce(TOPIC, records(7000 + part * 250, 250))
        local = self.broker.partition(TOPIC)
        self.broker.wait_until(lambda: len(list(local.glob("*.log"))) == 1, "the segments went")
        start = int(next(local.glob("*.log")).stem)
        self.stored = [row for row in client.consume(TOPIC) if row.offset < start]
        committed = client.consume(TOPIC, isolation=READ_COMMITTED)
        self.committed = [row for row in committed if row.offset < start]


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    made = Tiered(tmp_path_factory.mktemp("tiered"))
    with made.broker:
        made.fill()
        yield made


def test_the_records_of_a_tiered_topic_are_those_of_a_consumer(tiered: Tiered) -> None:
    assert len(tiered.stored) > len(tiered.committed) > 5600
    with logfs.open(f"{tiered.url}/{TOPIC}/0") as partition:
        assert list(partition.read()) == tiered.stored
        middle = tiered.stored[3000].offset
        rows = list(partition.read(f"offset={middle}", f"offset={middle + 20}"))
        assert rows == [row for row in tiered.stored if middle <= row.offset < middle + 20]
        assert partition.offset_at(str(BEGIN_MS + 2_500_000)) == 2500
    with logfs.open(f"{tiered.url}/{TOPIC}/0", isolation_level=READ_COMMITTED) as partition:
        assert list(partition.read()) == tiered.committed


@pytest.mark.fuse
def test_a_tiered_topic_is_mounted(tiered: Tiered, tmp_path: Path) -> None:
    lines = [(row.value or b"") + b"\n" for row in tiered.stored]
    with Mount(tmp_path / "none", tmp_path / "mnt", "ro", url=tiered.url) as mount:
        file = mount.point / TOPIC / "0"
        assert file.read_bytes() == b"".join(lines)
        later = [row for row in tiered.stored if row.timestamp >= BEGIN_MS + 4_000_000]
        found = Path(f"{file}@{BEGIN_MS + 4_000_000}").read_bytes()
        assert found == b"".join((row.value or b"") + b"\n" for row in later)
    run_logfs("verify", tiered.url)
