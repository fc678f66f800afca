"""Topics as brokers leave them: what ``fill`` has a broker write, for logfs to read.

Codecs, keys, headers, nulls, times that go back, transactions that were committed, aborted and left
open, idempotent producers, LogAppendTime, several rounds of compaction with tombstones, retention
by size, records deleted by offset.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from logfs.records.record import Record
from tests.kafka.broker import Broker
from tests.kafka.client import Client

TIME_MS = 1_700_000_000_000
SMALL = {
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "512",
    # Transaction markers have the broker's time, years after the records': no reason to roll.
    "segment.ms": str(2**62),
}
COMPACT = {
    **SMALL,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    # Rounds are seen apart: nothing is cleaned before ``clean`` says so.
    "min.compaction.lag.ms": str(2**62),
}
OPEN_FOR_MS = str(2**31 - 1)
"""How long a transaction that is left open may be; these brokers allow it."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

ODD = [
    Record(0, TIME_MS, None, b"plain"),
    Record(0, TIME_MS - 86_400_000, b"key", None),
    Record(0, TIME_MS + 5, b"", b""),
    Record(0, TIME_MS + 1, b"\xff\x00", b"\xfe\n\t\\", ((b"h", b"\xff"), (b"h", None), (b"", b""))),
    Record(0, TIME_MS + 2, "größe".encode(), b"x" * 5000, (("größe".encode(), b"v"),)),
    Record(0, TIME_MS + 3, b"no value", None, ((b"why", b"tombstone"),)),
]


def numbered(count: int, first: int = 0, keys: int = 0) -> list[Record]:
    """Return records that differ in value and time, with a key of so many or none."""
    return [
        Record(0, TIME_MS + 11 * n, b"key %d" % (n % keys) if keys else None, b"value %d" % n * 3)
        for n in range(first, first + count)
    ]


def batches(records: list[Record], size: int) -> list[list[Record]]:
    return [records[at : at + size] for at in range(0, len(records), size)]


def _codec(name: str) -> Callable[[Client, str], None]:
    def fill(client: Client, topic: str) -> None:
        producer = client.producer(compression_type=name)
        producer.batches(topic, [ODD, *batches(numbered(2000), 100), ODD[:1], ODD[1:]])

    return fill


def _idempotent(client: Client, topic: str) -> None:
    for n in range(3):
        producer = client.producer(enable_idempotence="true", compression_type="lz4")
        producer.batches(topic, batches(numbered(300, 300 * n, keys=9), 20))


def transactions(client: Client, topic: str) -> None:
    """Committed, aborted and interleaved transactions, and records outside of them."""
    plain = client.producer()
    producers = [client.producer(transactional_id=f"{topic}-{n}") for n in range(3)]
    for n in range(6):
        for number, producer in enumerate(producers):
            producer.begin()
            for batch in batches(numbered(10, 100 * n + 10 * number, keys=5), 5):
                producer.send(topic, batch)
                producer.flush()
        plain.batches(topic, [numbered(3, 5000 + n, keys=4)])
        for number, producer in enumerate(producers):
            (producer.abort if (n + number) % 3 == 0 else producer.commit)()


def clean(client: Client, topic: str, broker: Broker) -> None:
    """Have the cleaner take everything but the active segment once, and then no more."""
    clean_all(client, [topic], broker)


def clean_all(client: Client, topics: Iterable[str], broker: Broker) -> None:
    """As ``clean``, for several topics at a time."""
    before = {topic: _cleaned_to(broker.data, topic) for topic in topics}
    for topic in before:
        client.alter_topic(topic, min_compaction_lag_ms="0")
    broker.wait_until(
        lambda: all(_cleaned_to(broker.data, topic) > at for topic, at in before.items()),
        f"{', '.join(before)} were cleaned",
    )
    for topic in before:
        client.alter_topic(topic, min_compaction_lag_ms=str(2**62))


def _cleaned_to(data: Path, topic: str) -> int:
    """Return the checkpoint of the cleaner; -1 if it has never cleaned the topic."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return -1
    return next((int(x.split()[2]) for x in lines if x.split()[0] == topic), -1)


def _compact(client: Client, topic: str, broker: Broker) -> None:
    producer = client.producer(compression_type="zstd" if "zstd" in topic else "none")
    for n in range(3):
        # Most keys come again and again, some only once, so that something is left everywhere.
        records = [
            r._replace(key=b"once %d" % at) if at % 13 == 0 else r
            for at, r in enumerate(numbered(900, 900 * n, keys=40 + 30 * n), 900 * n)
        ]
        tombstones = [r._replace(value=None) for r in numbered(7, 31 * n, keys=100)]
        producer.batches(topic, [*batches(records, 30), tombstones])
        producer.batches(topic, batches(numbered(400, 10_000, keys=2), 80))
        clean(client, topic, broker)


def _compact_transactions(client: Client, topic: str, broker: Broker) -> None:
    for n in range(2):
        transactions(client, topic)
        client.producer().batches(topic, batches(numbered(900, 20_000 * n, keys=3), 30))
        clean(client, topic, broker)


def _retention(client: Client, topic: str, broker: Broker) -> None:
    client.producer().batches(topic, batches(numbered(2000), 50))
    client.alter_topic(topic, retention_bytes="30000")
    broker.wait_until(lambda: client.earliest(topic) > 0, f"{topic} is shortened")


def _deleted_records(client: Client, topic: str) -> None:
    client.producer(compression_type="gzip").batches(topic, batches(numbered(2000), 50))
    client.delete_records(topic, 777)


def _all_deleted(client: Client, topic: str) -> None:
    client.producer().batches(topic, batches(numbered(500), 50))
    client.delete_records(topic, 500)


TOPICS: Mapping[str, tuple[Mapping[str, str], Callable[..., None]]] = {
    **{f"codec-{name}": (SMALL, _codec(name)) for name in CODECS},
    "recompressed": ({**SMALL, "compression.type": "gzip"}, _codec("zstd")),
    "append-time": ({**SMALL, "message.timestamp.type": "LogAppendTime"}, _codec("snappy")),
    "idempotent": (SMALL, _idempotent),
    "transactions": (SMALL, transactions),
    "open-transaction": (SMALL, transactions),
    "compacted": (COMPACT, _compact),
    "compacted-zstd": ({**COMPACT, "internal.segment.bytes": "2000"}, _compact),
    "compacted-transactions": (COMPACT, _compact_transactions),
    "retention": (SMALL, _retention),
    "deleted-records": (SMALL, _deleted_records),
    "all-deleted": (SMALL, _all_deleted),
    "preallocated": ({**SMALL, "preallocate": "true"}, _codec("none")),
    "empty": ({}, lambda client, topic: None),
}
"""Name -> configuration, and what fills it."""

NEEDS_BROKER = (_compact, _compact_transactions, _retention)


def fill(broker: Broker, client: Client) -> list[object]:
    """Make and fill all topics; what it returns keeps a transaction open that is in one of them."""
    client.create_topics({name: config for name, (config, _) in TOPICS.items()})
    for name in TOPICS:
        fill_topic(broker, client, name)
    left_open = client.producer(
        transactional_id="left-open", transaction_timeout_ms=OPEN_FOR_MS, compression_type="lz4"
    )
    left_open.begin()
    left_open.send("open-transaction", numbered(10))
    left_open.flush()
    client.producer().batches("open-transaction", [numbered(20), numbered(5)])
    return [left_open]


def fill_topic(broker: Broker, client: Client, name: str) -> None:
    """Fill one of the topics, which has been made."""
    _, write = TOPICS[name]
    if write in NEEDS_BROKER:
        write(client, name, broker)
    else:
        write(client, name)
