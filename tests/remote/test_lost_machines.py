"""Machines are lost one after the other; each is continued by ``logfs promote`` on another one."""

import contextlib
import random
import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.long import Limits
from tests.mounting import Mount, logfs
from tests.remote.servers import Bucket, ObjectServer
from tests.remote.test_promote import FRESHNESS_MS, SETTINGS, fresh_mount, promote

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]

TOPICS = {"fast": 0.0002, "slow": 0.05, "quiet": 0.7}
"""Topic -> the seconds between two lines."""


class Writer(threading.Thread):
    """Appends numbered lines to a topic until the mount is gone.

    Attributes:
        acknowledged: The moment after each write that succeeded, in ms, and its line.
    """

    def __init__(self, file: Path, pause_s: float, name: str) -> None:
        super().__init__()
        self._file, self._pause_s, self._name = file, pause_s, name
        self.acknowledged: list[tuple[int, bytes]] = []

    def run(self) -> None:
        """Append until a write fails."""
        number = 0
        try:
            with self._file.open("ab", buffering=0) as out:
                while True:
                    line = b"%s %d %s\n" % (self._name.encode(), number, b"." * 500)
                    out.write(line)
                    self.acknowledged.append((time.time_ns() // 1_000_000, line))
                    number += 1
                    time.sleep(self._pause_s)
        except OSError:
            return


class History:
    """What each topic has to have.

    Attributes:
        texts: Topic -> its text as it was when the last machine was lost.
    """

    def __init__(self) -> None:
        self.texts = dict.fromkeys(TOPICS, b"")

    def check(self, mount: Mount, writers: dict[str, Writer], complete_ms: int) -> int:
        """Compare the topics of the next machine; returns how old the oldest lost line is."""
        lost_ms = 0
        for topic, writer in writers.items():
            there = (mount.point / topic / "0").read_bytes()
            lines = [line for _, line in writer.acknowledged]
            everything = self.texts[topic] + b"".join(lines)
            sent = b"".join(line for ms, line in writer.acknowledged if ms < complete_ms - 1)
            assert there.startswith(self.texts[topic] + sent)
            # The last line may have been written, and not acknowledged.
            assert everything.startswith(there) or there.startswith(everything)
            self.texts[topic] = there
            kept = there.count(b"\n") - (everything.count(b"\n") - len(lines))
            if kept < len(lines):
                lost_ms = max(lost_ms, writer.acknowledged[-1][0] - writer.acknowledged[kept][0])
        return lost_ms


def lose_machines(directory: Path, bucket: Bucket, seed: int, count: int) -> int:
    """Lose so many machines; returns the age of the oldest line that was lost, in ms."""
    random_ = random.Random(seed)
    history, worst_ms = History(), 0
    with contextlib.ExitStack() as mounts:
        mount = mounts.enter_context(fresh_mount(directory / "0", bucket))
        for topic in TOPICS:
            logfs("topic", "create", str(mount.point / topic), *SETTINGS)
        for number in range(1, count + 1):
            writers = {
                topic: Writer(mount.point / topic / "0", pause_s, f"{topic} {number}")
                for topic, pause_s in TOPICS.items()
            }
            for writer in writers.values():
                writer.start()
            time.sleep(random_.uniform(3, 12) * FRESHNESS_MS / 1000)
            mount.kill()
            for writer in writers.values():
                writer.join()
            mount.clear()
            shutil.rmtree(mount.data)
            data = directory / str(number) / "data"
            found = promote(bucket, data)
            assert found["problems"] == []
            point = directory / str(number) / "mnt"
            mount = mounts.enter_context(Mount(data, point, variables=bucket.environment))
            complete_ms = found["complete_ms"]
            assert isinstance(complete_ms, int)
            worst_ms = max(worst_ms, history.check(mount, writers, complete_ms))
        mount.stop()
        logfs("verify", str(mount.data))
    return worst_ms


def test_machines_are_lost(tmp_path: Path, bucket: Bucket) -> None:
    lose_machines(tmp_path, bucket, seed=1, count=2)


@pytest.mark.long
def test_machines_are_lost_again_and_again(
    tmp_path: Path, object_server: ObjectServer, limits: Limits, counts: Counter[str]
) -> None:
    number = 0
    while counts["lost machines"] < limits.kills and not limits.is_over:
        number += 1
        bucket = object_server.bucket(f"lost-{number}")
        worst_ms = lose_machines(tmp_path / str(number), bucket, limits.seed + number, 5)
        counts["lost machines"] += 5
        counts["worst lost line in ms"] = max(counts["worst lost line in ms"], worst_ms)
