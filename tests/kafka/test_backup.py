"""A backup that logfs makes of a directory it has in use is one that a broker opens."""

from pathlib import Path

import pytest

from logfs.log import names
from logfs.log.store import LogStore
from logfs.records.record import Record
from logfs.services.backup.restoring import restore_all
from logfs.services.backup.taking import back_up
from logfs.services.compaction.manual import compact_now
from tests.kafka import ours, tools
from tests.kafka.broker import Broker
from tests.kafka.client import READ_COMMITTED, READ_UNCOMMITTED, Client
from tests.kafka.scenarios import keyed, numbered
from tests.log.backups import asker, bytes_below, job
from tests.log.compaction import tools as cleaning_tools
from tests.mounting import now_ms

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SETTINGS = {
    "lines": {"retention.ms": "-1", "internal.segment.bytes": "1000"},
    "keys": {
        "internal.segment.bytes": "1000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
}


def write(store: LogStore) -> None:
    """Append, compact and delete, so that segments of all kinds are there."""
    for topic, settings in SETTINGS.items():
        store.alter_topic(topic, settings)
        log = store.partition(topic, 0)
        for start in range(0, 300, 10):
            records = [
                Record(0, now_ms(), b"key %d" % (n % 13), b"%s %d" % (topic.encode(), n))
                for n in range(start, start + 10)
            ]
            log.append_records(records, now_ms())
    store.partition("lines", 0).advance_log_start_offset(101, now_ms())
    compact_now(store.partition("keys", 0), now_ms(), cleaning_tools())


def test_a_broker_reads_the_same_records_from_a_backup(tmp_path: Path) -> None:
    with Broker(tmp_path / "before") as before:
        Client(before.bootstrap).create_topics(SETTINGS)
        before.stop()
    backup = Broker(tmp_path / "backup")
    with ours.opened(before.data) as store:
        write(store)
        made = back_up(job(before.data, backup.data), "before", asker(store))
        assert made.problems == []
        expected = {name: ours.read(store.partition(name, 0)) for name in SETTINGS}
        store.partition("lines", 0).append_records(keyed(numbered(1, 1))[0], now_ms())
    restore_all(job(backup.data, tmp_path / "restored", may_link=False), "backup")
    files = sorted(backup.data.glob("lines-0/*.log")) + sorted(backup.data.glob("keys-0/*.log"))
    assert len(files) > 10
    assert tools.dump_log(files, "--deep-iteration").problems == []
    assert len(expected["keys"]) < 100
    as_made = bytes_below(backup.data)
    assert bytes_below(tmp_path / "restored") == {
        name: digest for name, digest in as_made.items() if name != names.BACKUP
    }
    with backup:
        client = Client(backup.bootstrap)
        for level in (READ_UNCOMMITTED, READ_COMMITTED):
            assert client.consume_all(SETTINGS, isolation=level) == expected
        assert (client.earliest("lines"), client.latest("lines")) == (101, 300)
        client.produce("lines", keyed(numbered(1, 2))[0])
        assert client.latest("lines") == 302
        assert backup.errors == []
        assert not [word for word in ("stray", "Corrupt") if word in backup.log]
        assert "no clean shutdown file was found" not in backup.log
    # What the broker has done to the linked files of the backup is not seen in what it was made of.
    assert ours.read(ours.seen(before.data, "lines"))[:-1] == expected["lines"]
