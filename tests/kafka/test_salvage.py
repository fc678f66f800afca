"""What logfs salvages of a broker's damaged directory, a broker opens."""

from pathlib import Path

import pytest

from logfs.disk.posix import PosixDisk
from logfs.library.backup import salvage_directory
from logfs.log.listing import list_partitions
from tests.kafka import tools
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.scenarios import keyed, numbered
from tests.log.support import batches_in

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_a_broker_reads_all_but_the_damaged_batch(tmp_path: Path) -> None:
    with Broker(tmp_path / "before") as before:
        client = Client(before.bootstrap)
        client.create_topics({"t": {"segment.bytes": "1048576"}})
        for records in keyed(numbered(30, 10)):
            client.produce("t", records)
        before.stop()
    (path,) = (before.data / "t-0").glob("*.log")
    data = bytearray(path.read_bytes())
    position, damaged = batches_in(bytes(data))[4]
    data[position + 8 : position + 70] = b"\xff" * 62
    path.write_bytes(data)
    saved = Broker(tmp_path / "saved")
    done = salvage_directory(str(before.data), str(saved.data))
    (gone,) = [gone for one in done.partitions for gone in one.gone]
    lost = range(damaged.base_offset, damaged.last_offset + 1)
    assert (gone.first_offset, gone.next_offset) == (lost.start, lost.stop)
    assert list_partitions(PosixDisk(str(saved.data))) == list_partitions(
        PosixDisk(str(before.data))
    )
    problems = tools.dump_log(sorted(saved.data.glob("t-0/*.log")), "--deep-iteration").problems
    assert problems[0].startswith("Non-consecutive offsets in ")
    assert problems[1:] == [f"  {lost.start - 1} is followed by {lost.stop}"], problems
    with saved:
        client = Client(saved.bootstrap)
        found = client.consume_all({"t": {}})["t"]
        assert [record.offset for record in found] == [n for n in range(300) if n not in lost]
        client.produce("t", keyed(numbered(1, 2))[0])
        assert client.latest("t") == 302
        assert saved.errors == []
