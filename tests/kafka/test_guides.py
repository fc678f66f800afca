"""The guides that need a broker, with a real one and its tools."""

import os
import shlex
from pathlib import Path

import pytest

from tests.guides import GUIDES, run_guide
from tests.kafka import jars, tools
from tests.kafka.broker import Broker
from tests.kafka.client import Client

pytestmark = [pytest.mark.kafka, pytest.mark.fuse, jars.usual]

TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-dump-log.sh": tools.DUMP_LOG,
}
"""The scripts of Kafka's distribution, and the class that each starts."""


def test_what_the_buffer_guide_shows_is_what_happens(
    shared_broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("site")
    places = {"b1:9092": shared_broker.bootstrap, "away:9092": "127.0.0.1:1"}
    run_guide(GUIDES["cluster-buffer"], tmp_path, places=places)


def test_the_session_of_a_kafka_user_prints_what_it_shows(
    shared_broker: Broker, tmp_path: Path
) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name, main in TOOLS.items():
        script = scripts / name
        command = jars.command(main, flags=(*jars.SMALL, "-Dlog.level=error"))
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    path = f"{tmp_path}/programs:{scripts}:{os.environ['PATH']}"
    places = {"b1:9092": shared_broker.bootstrap, "/var/lib/kafka/data": str(shared_broker.data)}
    run_guide(GUIDES["kafka-session"], tmp_path, {"PATH": path}, places)
