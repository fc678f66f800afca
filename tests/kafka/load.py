"""Work for a broker while logfs watches its directory."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from logfs.records.record import Record
from tests.kafka.client import Client
from tests.kafka.theirs import COMPACT, SMALL

TOPICS = {
    "grows": SMALL,
    "zstd": {**SMALL, "compression.type": "zstd"},
    "trimmed": {**SMALL, "retention.bytes": "300000", "retention.ms": "-1"},
    # What was rewritten is compared with what it was made of, while that lasts: a minute, but
    # in the broker of the tests a second, which is too short for a machine that is busy.
    "compacted": {**COMPACT, "min.compaction.lag.ms": "0", "file.delete.delay.ms": "20000"},
}


def produce(client: Client, topic: str, stop: threading.Event) -> int:
    """Write numbered records, some ten batches a second; returns how many."""
    producer, count = client.producer(), 0
    while not stop.is_set():
        batch = [
            Record(0, time.time_ns() // 10**6, b"%d" % (n % 97), b"%08d " % n + b"." * 60)
            for n in range(count, count + 20)
        ]
        producer.send(topic, batch)
        producer.flush()
        count += len(batch)
        time.sleep(0.03)
    return count


@contextmanager
def running(acts: list[Callable[[threading.Event], object]]) -> Iterator[None]:
    """Run functions in threads until the block ends; what they raise fails the test."""
    stop, errors = threading.Event(), list[BaseException]()

    def guard(act: Callable[[threading.Event], object]) -> None:
        try:
            act(stop)
        except BaseException as error:  # noqa: BLE001 - raised where the test sees it
            errors.append(error)

    threads = [threading.Thread(target=guard, args=[act]) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


def delete_records(client: Client, stop: threading.Event) -> None:
    while not stop.wait(1.5):
        start, end = client.earliest("trimmed"), client.latest("trimmed")
        if end > start + 100:
            client.delete_records("trimmed", start + 100)


def load(bootstrap: str) -> AbstractContextManager[None]:
    """Return the work of all topics, for a ``with``: records are appended, and trimmed by hand."""
    # Each thread has its own client.
    acts: list[Callable[[threading.Event], object]] = [
        lambda stop, name=name: produce(Client(bootstrap), name, stop)  # type: ignore[misc]
        for name in TOPICS
    ]
    acts.append(lambda stop: delete_records(Client(bootstrap), stop))
    return running(acts)
