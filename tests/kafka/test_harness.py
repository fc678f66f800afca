"""The broker, its tools and the client do what the other tests take for granted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from logfs.records.record import Record
from tests.kafka import jars, tools
from tests.kafka.broker import Broker, copy_directory
from tests.kafka.client import READ_COMMITTED, Client

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIME_MS = 1_700_000_000_000
RECORDS = [
    Record(0, TIME_MS, None, b"plain"),
    Record(1, TIME_MS + 5, b"key", None, ((b"h", b"\xff"), (b"h", None))),
    Record(2, TIME_MS - 9, b"", b""),
]
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "log with a flipped bit": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "log with a torn tail": lambda data: data + data[:20],
    "log with zeros": lambda data: data + bytes(100),
    "index that points elsewhere": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "timeindex of other times": lambda data: data[:3] + bytes([data[3] ^ 1]) + data[4:],
}


def test_a_consumer_reads_what_a_producer_wrote(client: Client) -> None:
    client.create_topic("plain", partitions=2)
    client.produce("plain", RECORDS, partition=1, compression_type="zstd")
    assert client.consume("plain", 1) == RECORDS
    assert client.consume("plain", 0) == []
    assert client.consume("plain", 1, start=2) == RECORDS[2:]
    assert (client.earliest("plain", 1), client.latest("plain", 1)) == (0, 3)
    assert client.offset_for_time("plain", TIME_MS + 1, 1) == 1
    assert client.offset_for_time("plain", TIME_MS + 6, 1) is None


def test_transactions_show_as_isolation_levels_say(client: Client) -> None:
    client.create_topic("transactions")
    producer = client.producer(transactional_id="harness")
    for end in (producer.commit, producer.abort, lambda: None):
        producer.begin()
        producer.send("transactions", RECORDS[:1])
        producer.flush()
        end()
    # Markers take offsets 1 and 3.
    assert [record.offset for record in client.consume("transactions")] == [0, 2, 4]
    committed = client.consume("transactions", isolation=READ_COMMITTED)
    assert [record.offset for record in committed] == [0]
    producer.abort()


def test_a_broker_survives_all_stops_and_its_copy_runs_elsewhere(tmp_path: Path) -> None:
    with Broker(tmp_path / "first") as broker:
        Client(broker.bootstrap).create_topic("t")
        Client(broker.bootstrap).produce("t", RECORDS)
        broker.kill()
        assert (broker.data / ".lock").exists()
        broker.start()
        assert Client(broker.bootstrap).consume("t") == RECORDS
        assert "no clean shutdown file was found" in broker.log
        broker.stop()
        assert (broker.data / ".kafka_cleanshutdown").exists()
        broker.copy_data(tmp_path / "second" / "data")
    with Broker(tmp_path / "second") as copy:
        assert Client(copy.bootstrap).consume("t") == RECORDS
        assert Client(copy.bootstrap).latest("t") == 3


def test_kafka_dump_log_tells_sound_files_from_others(
    client: Client, shared_broker: Broker
) -> None:
    client.create_topic("dumped", segment_index_bytes="4096")
    client.produce("dumped", RECORDS)
    log = shared_broker.partition("dumped") / f"{0:020}.log"
    sound = tools.dump_log([log], "--deep-iteration")
    assert sound.problems == []
    assert "baseOffset: 0 lastOffset: 2 count: 3" in sound.stdout


def test_kafka_dump_log_finds_damage(client: Client, shared_broker: Broker, tmp_path: Path) -> None:
    client.create_topic("damaged", index_interval_bytes="0")
    client.producer().batches("damaged", [[Record(0, TIME_MS + n)] for n in range(9)])
    base = f"{0:020}"
    sound = copy_directory(shared_broker.partition("damaged"), tmp_path / "sound")
    for index in (".index", ".timeindex"):
        # What a running broker has of an index is longer than its entries.
        data = (sound / f"{base}{index}").read_bytes()
        (sound / f"{base}{index}").write_bytes(data.rstrip(b"\0"))
    for damage in DAMAGES:
        directory = copy_directory(sound, tmp_path / damage)
        file = directory / f"{base}.{damage.partition(' ')[0]}"
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
        assert tools.dump_log([file], "--deep-iteration").problems, damage
    files = [sound / f"{base}.{suffix}" for suffix in ("log", "index", "timeindex")]
    assert tools.dump_log(files, "--deep-iteration").problems == []


def test_without_the_jars_a_test_fails_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(jars.MissingError, match="run make test"):
        Broker(tmp_path / "broker").start()


def test_the_jars_are_fetched_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven = tmp_path / "mvn"
    maven.write_text('#!/bin/sh\nmkdir -p "${6#*=}"\necho jar > "${6#*=}/x.jar"\nexit $FAILS\n')
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAILS", "1")
    with pytest.raises(jars.MissingError, match="ended with 1"):
        jars.install()
    assert list((tmp_path / "cache" / "logfs").iterdir()) == []
    monkeypatch.setenv("FAILS", "0")
    assert jars.install() == jars.jars_directory()
    assert [path.name for path in jars.jars_directory().iterdir()] == ["x.jar"]
    maven.unlink()
    assert jars.install() == jars.jars_directory()
