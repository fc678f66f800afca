"""Programs that read a log for a day, most of which is in the store, while daemons come and go."""

import json
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.long import Limits
from tests.mounting import logfs, wait_until
from tests.remote.day import HOURS, KINDS, Day, Readers
from tests.remote.servers import Bucket
from tests.restarts.endings import Endings
from tests.restarts.held import HeldMount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

_INTERVAL = "remote.log.manager.task.interval.ms=100\n"
_TOPIC = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "local.retention.bytes": "0",
    "file.delete.delay.ms": "0",
}


def held_mount(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, room: int
) -> HeldMount:
    """Return a mount with so much memory, and so large a cache, for what it reads of the store."""
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CACHE_DIRECTORY", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    rooms = f"cache.bytes={room}\nmemory.bytes={room}\n"
    (data / "logfs.remote").write_text(bucket.properties + _INTERVAL + rooms)
    return HeldMount(tmp_path, data=data)


def make_topic(mount: HeldMount, segment_bytes: int) -> Path:
    """Make the topic; returns the name of its partition."""
    options = [f"--config={key}={value}" for key, value in _TOPIC.items()]
    options.append(f"--config=internal.segment.bytes={segment_bytes}")
    logfs("topic", "create", str(mount.point / "day"), *options)
    return mount.point / "day" / "0"


def check_end(mount: HeldMount, file: Path, day: Day, bucket: Bucket) -> None:
    """See that the log left the disk, and that store, mount and command line have all of it."""
    wait_until(
        lambda: len(list((mount.data / "day-0").glob("*.log"))) == 1, f"it went\n{mount.log}"
    )
    remote = json.loads(Path(f"{file}.meta").read_text())["remote"]
    assert remote["error"] is None
    assert remote["remote_only_bytes"] > 0.8 * len(day.text)
    assert file.read_bytes() == day.text
    assert Path(f"{file}@earliest..latest.jsonl").read_bytes() == day.json
    logfs("remote", "verify", "--all", bucket.url)
    stored = logfs("cat", f"{bucket.url}/day/0")
    assert day.text.startswith(stored)
    assert len(stored) > 0.8 * len(day.text)


def test_programs_read_a_day_whose_hours_leave_the_disk(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_mount(tmp_path, bucket, monkeypatch, room=1 << 20) as mount:
        file, day = make_topic(mount, 100_000), Day(records=24_000)
        with Readers(file, day, tmp_path, seed=1) as readers:
            for hour in range(HOURS):
                day.append(file, hour)
                readers.check_error()
                if hour == HOURS // 3:
                    mount.end_daemon(signal.SIGUSR1)
                if hour == 2 * HOURS // 3:
                    mount.end_daemon()
        for kind in KINDS:
            readers.compare(kind)
        check_end(mount, file, day, bucket)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_day_is_the_same_however_often_daemons_end(
    tmp_path: Path,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits,
    counts: Counter[str],
    seed: int,
) -> None:
    with held_mount(tmp_path, bucket, monkeypatch, room=8 << 20) as mount:
        file, day = make_topic(mount, 1 << 20), Day(records=480_000)
        endings = Endings(mount, tmp_path, seed)
        ending = threading.Thread(target=endings.end, args=(min(limits.kills, HOURS),))
        with Readers(file, day, tmp_path, seed) as readers:
            ending.start()
            for hour in range(HOURS):
                day.append(file, hour)
                readers.check_error()
                # As much has left the disk by then as a real day would have sent away.
                limit = 12 << 20
                logs = mount.data / "day-0"
                wait_until(
                    lambda: sum(map(_size, logs.glob("*.log"))) < limit,  # noqa: B023
                    f"hour {hour} went",
                )
            ending.join()
        for kind in KINDS:
            readers.compare(kind)
        check_end(mount, file, day, bucket)
        counts.update({f"daemons ended: {way}": count for way, count in endings.counts.items()})
        counts.update({f"compared: {kind}": count for kind, count in readers.counts.items()})


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
