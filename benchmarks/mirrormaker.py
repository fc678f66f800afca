"""MirrorMaker 2, from a topic of a broker to another topic of the same one."""

import hashlib
import os
import time
from pathlib import Path

from benchmarks.peers import MeasuredBroker
from tests import cache
from tests.kafka import jars
from tests.kafka.client import Client
from tests.processes import Process

_POM = Path(__file__).with_name("mirrormaker.xml")
_TICKS = os.sysconf("SC_CLK_TCK")
_PATIENCE_S = 300
_SETTINGS = """
clusters = src, dst
src.bootstrap.servers = {bootstrap}
dst.bootstrap.servers = {bootstrap}
src->dst.enabled = true
src->dst.topics = {topic}
dst->src.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
refresh.topics.enabled = false
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
src.consumer.auto.offset.reset = earliest
dst.producer.linger.ms = 5
dst.producer.batch.size = 131072
"""


def cpu_per_record_s(
    directory: Path, broker: MeasuredBroker, client: Client, topic: str, records: int
) -> float:
    """Return the seconds of processor time for a record, from the first record on.

    Its start, which takes 20 seconds of processor time, is left out.

    Raises:
        RuntimeError: It has not copied the topic after five minutes.
    """
    checksum = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    place = jars.fill(cache.place() / f"mirrormaker-{jars.version(_POM)}-{checksum}", _POM)
    settings = directory / "mm2.properties"
    settings.write_text(_SETTINGS.format(bootstrap=broker.bootstrap, topic=topic))
    process = Process("MirrorMaker", directory / "mm2.log")
    logging = f"-Dlog4j2.configurationFile={jars.LOG4J}"
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    process.start([jars.java(), "-Xmx512m", logging, "-cp", f"{place}/*", main, settings])
    try:
        pid, until_s = process.running.pid, time.monotonic() + _PATIENCE_S
        first: tuple[int, float] | None = None
        while time.monotonic() < until_s:
            time.sleep(0.2)
            copied = _copied(client, f"src.{topic}")
            if copied and first is None:
                first = copied, _cpu_s(pid)
            if copied >= records and first is not None:
                return (_cpu_s(pid) - first[1]) / (copied - first[0])
        raise RuntimeError(f"MirrorMaker has not copied {topic}: {process.log[-500:]}")
    finally:
        process.kill()


def _copied(client: Client, topic: str) -> int:
    return client.latest(topic) if client.has_topic(topic) else 0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
