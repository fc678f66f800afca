"""What a program does with a broker: topics, producers, consumers, offsets; by librdkafka.

Records are ``logfs.records.record.Record``, so what a consumer reads compares with what logfs
reads. Source of names: Kafka Admin, Producer, Consumer.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from logfs.records.record import Record
from tests.kafka import jars
from tests.mounting import PATIENCE_S

READ_UNCOMMITTED = "read_uncommitted"
READ_COMMITTED = "read_committed"

_QUIET = {"log_level": "0", "log.connection.close": "false"}
"""Else librdkafka tells stderr of each broker that stops; errors come as errors all the same."""

_NOT_YET = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


_SMALL_SEGMENTS = "internal.segment.bytes"
"""Before Kafka 4.1 ``segment.bytes`` may be as small."""


class Client:
    """A client of one broker.

    Args:
        bootstrap: ``Broker.bootstrap``; after a restart of the broker make another client.
        replicas: How many each partition of new topics has.
    """

    def __init__(self, bootstrap: str, replicas: int = 1) -> None:
        self.bootstrap = bootstrap
        self._replicas = replicas
        self._common = {"bootstrap.servers": bootstrap, **_QUIET}
        self._admin = AdminClient(self._common)

    # Topics

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic and wait until it can be written; ``segment_ms`` is ``segment.ms``."""
        self.create_topics({name: config}, partitions)

    def create_topics(self, configs: Mapping[str, Mapping[str, str]], partitions: int = 1) -> None:
        """Make topics, each with its configuration, and wait until they can be written.

        A topic without ``retention.ms`` keeps its records for any timestamps.
        """
        topics = [
            NewTopic(
                name,
                partitions,
                self._replicas,
                config=_properties({"retention.ms": "-1"} | {**config}),
            )
            for name, config in configs.items()
        ]
        for future in self._admin.create_topics(topics).values():
            future.result(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        for name in configs:
            while not self._has_leaders(name, partitions):
                assert time.monotonic() < deadline, f"topic {name} has no leaders"
                time.sleep(0.01)
            # The controller knows of leaders before the broker is one and has made the directory.
            for partition in range(partitions):
                self.earliest(name, partition)

    def has_topic(self, name: str) -> bool:
        """Return whether there is a topic."""
        return name in self._admin.list_topics(timeout=PATIENCE_S).topics

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the node that leads a partition; -1: none does now."""
        found = self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return int(found.partitions[partition].leader)

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """Return the nodes whose replicas of a partition are in sync."""
        found = self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return sorted(found.partitions[partition].isrs)

    def alter_topic(self, name: str, **config: str) -> None:
        """Change the configuration of a topic."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in _properties(config).items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(PATIENCE_S)

    def topic_config(self, name: str) -> dict[str, str]:
        """Return the effective value of every setting of a topic."""
        return self._described(ConfigResource(ResourceType.TOPIC, name))

    def broker_config(self) -> dict[str, str]:
        """Return the effective value of every setting of the broker that has one."""
        return self._described(ConfigResource(ResourceType.BROKER, "1"))

    def refusal_of(self, name: str, properties: Mapping[str, str]) -> str | None:
        """Return why settings would be refused for a topic; None if they would not be."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in properties.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        asked = self._admin.incremental_alter_configs([resource], validate_only=True)
        try:
            asked[resource].result(PATIENCE_S)
        except KafkaException as error:
            return str(error.args[0].str())
        return None

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        for future in self._admin.delete_topics([name]).values():
            future.result(PATIENCE_S)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Move the log start offset, as kafka-delete-records does."""
        where = TopicPartition(topic, partition, before)
        for future in self._admin.delete_records([where]).values():
            future.result(PATIENCE_S)

    # Writing

    def producer(self, **config: str) -> "RecordProducer":
        """Return a producer; ``compression_type`` is ``compression.type``."""
        return RecordProducer(self._common | _properties(config))

    def produce(
        self, topic: str, records: Iterable[Record], partition: int = 0, **config: str
    ) -> None:
        """Write records with their own producer, in as few batches as it makes of them."""
        producer = self.producer(**config)
        producer.send(topic, records, partition)
        producer.flush()

    # Reading

    def consume(
        self,
        topic: str,
        partition: int = 0,
        *,
        isolation: str = READ_UNCOMMITTED,
        start: int = OFFSET_BEGINNING,
    ) -> list[Record]:
        """Read a partition from an offset to its end as an isolation level shows it."""
        where = TopicPartition(topic, partition, start)
        return self._consume([where], isolation)[topic]

    def consume_all(
        self,
        topics: Iterable[str],
        *,
        isolation: str = READ_UNCOMMITTED,
        starts: Mapping[str, int] | None = None,
    ) -> dict[str, list[Record]]:
        """Read partition 0 of many topics in the time of one, each from its start or its start."""
        begin = starts or {}
        where = [TopicPartition(name, 0, begin.get(name, OFFSET_BEGINNING)) for name in topics]
        return self._consume(where, isolation)

    def earliest(self, topic: str, partition: int = 0) -> int:
        """Return the log start offset."""
        return self._offset(topic, partition, OffsetSpec.earliest())

    def latest(self, topic: str, partition: int = 0, *, isolation: str = READ_UNCOMMITTED) -> int:
        """Return the high watermark, which with one replica is the log end offset.

        Under read_committed it is the last stable offset.
        """
        return self._offset(topic, partition, OffsetSpec.latest(), isolation)

    def offset_for_time(
        self,
        topic: str,
        timestamp_ms: int,
        partition: int = 0,
        *,
        isolation: str = READ_UNCOMMITTED,
    ) -> int | None:
        """Return what the broker answers for a time; None if it knows no such record."""
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        offset = self._offset(topic, partition, spec, isolation)
        return None if offset < 0 else offset

    def offset_of_max_timestamp(self, topic: str, partition: int = 0) -> int | None:
        """Return where the broker says that the record with the largest timestamp is."""
        offset = self._offset(topic, partition, OffsetSpec.max_timestamp())
        return None if offset < 0 else offset

    def list_offsets(
        self, topics: Iterable[str], time: int | str, *, isolation: str = READ_UNCOMMITTED
    ) -> dict[str, tuple[int, int] | None]:
        """Return (timestamp, offset) of partition 0 of many topics as ListOffsets answers it.

        Args:
            topics: Their names.
            time: Epoch milliseconds, or ``earliest``, ``latest``, ``max_timestamp``.
            isolation: The isolation of the consumer that asks.
        """
        spec = (
            getattr(OffsetSpec, time)() if isinstance(time, str) else OffsetSpec.for_timestamp(time)
        )
        where = {TopicPartition(name, 0): spec for name in topics}
        level = IsolationLevel[isolation.upper()]
        futures = self._admin.list_offsets(where, isolation_level=level)
        found = {tp.topic: future.result(PATIENCE_S) for tp, future in futures.items()}
        return {
            name: None if info.offset < 0 else (int(info.timestamp), int(info.offset))
            for name, info in found.items()
        }

    # Inside

    def _consume(self, where: list[TopicPartition], isolation: str) -> dict[str, list[Record]]:
        consumer = Consumer(
            {
                **self._common,
                "group.id": "tests",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "auto.offset.reset": "earliest",
                "isolation.level": isolation,
                "check.crcs": "true",
                "fetch.wait.max.ms": "10",
            }
        )
        try:
            consumer.assign(where)
            return _read_to_the_ends(consumer, {each.topic for each in where})
        finally:
            consumer.close()

    def _offset(
        self, topic: str, partition: int, spec: OffsetSpec, isolation: str = READ_UNCOMMITTED
    ) -> int:
        level = IsolationLevel[isolation.upper()]
        where = TopicPartition(topic, partition)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            [future] = self._admin.list_offsets({where: spec}, isolation_level=level).values()
            try:
                return int(future.result(PATIENCE_S).offset)
            except KafkaException as error:
                # A broker that has just started may not lead all its partitions yet.
                if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _described(self, resource: ConfigResource) -> dict[str, str]:
        found = self._admin.describe_configs([resource])[resource].result(PATIENCE_S)
        return {key: entry.value for key, entry in found.items() if entry.value is not None}

    def _has_leaders(self, name: str, partitions: int) -> bool:
        topics = self._admin.list_topics(name, timeout=PATIENCE_S).topics
        topic = topics[name]
        found = topic.partitions.values()
        return len(found) == partitions and all(p.leader >= 0 for p in found)


class RecordProducer:
    """One producer; with ``transactional_id`` it has transactions."""

    def __init__(self, config: Mapping[str, str]) -> None:
        # What is sent together is meant to be a batch: flush sends at once what has gathered.
        self._producer = Producer({"linger.ms": "1000", "partitioner": "consistent"} | {**config})
        if "transactional.id" in config:
            self._producer.init_transactions(PATIENCE_S)

    def send(self, topic: str, records: Iterable[Record], partition: int = 0) -> None:
        """Take records to send; their offsets are ignored. Needs ``flush`` or ``commit``."""
        for record in records:
            self._producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                timestamp=max(record.timestamp, 0),
                headers=[(name.decode(), value) for name, value in record.headers],
                on_delivery=_check_delivery,
            )
            self._producer.poll(0)

    def batches(self, topic: str, batches: Iterable[Sequence[Record]], partition: int = 0) -> None:
        """Send batches, one after the other."""
        for batch in batches:
            self.send(topic, batch, partition)
            self.flush()

    def flush(self) -> None:
        """Send what was taken, and wait until the broker has it."""
        assert self._producer.flush(PATIENCE_S) == 0, "the broker does not take them"

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def commit(self) -> None:
        """Send what was taken, and commit."""
        self._producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        """Abort; what was taken and not flushed is not sent."""
        self._producer.abort_transaction(PATIENCE_S)


def _properties(names: Mapping[str, str]) -> dict[str, str]:
    properties = {name.replace("_", "."): value for name, value in names.items()}
    if jars.version_info() < (4, 1) and _SMALL_SEGMENTS in properties:
        properties["segment.bytes"] = properties.pop(_SMALL_SEGMENTS)
    return properties


def _check_delivery(error: KafkaError | None, _: Message) -> None:
    if error is not None:
        raise KafkaException(error)


def _read_to_the_ends(consumer: Consumer, unfinished: set[str]) -> dict[str, list[Record]]:
    records: dict[str, list[Record]] = {topic: [] for topic in unfinished}
    deadline = time.monotonic() + PATIENCE_S
    while unfinished:
        assert time.monotonic() < deadline, f"no end of {sorted(unfinished)}"
        for message in consumer.consume(10_000, 0.01):
            error, topic = message.error(), message.topic()
            if error is None:
                records[topic].append(_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(topic)
            else:
                raise AssertionError(f"reading topic {topic}: {error}")
    return records


def _record(message: Message) -> Record:
    headers = message.headers() or []
    return Record(
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple((name.encode(), value) for name, value in headers),
    )
