"""Two daemons that believe to be the only one that writes a topic to a store.

Both have a copy of one data directory with the same id: it was copied, a snapshot of its disk was
restored, or a machine was taken for dead. Their logs are the same up to the copy, and differ then.
"""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from logfs.disk.posix import PosixDisk
from logfs.log.names import parse_topic_id
from logfs.log.remote.directory import own_directory
from logfs.log.remote.keys import PartitionPlace
from logfs.log.remote.reading import read_head
from logfs.machine.host import machine_id
from logfs.services.tiering.stores import OLD_MS, find_orphans, named_objects
from logfs.types import TopicPartition
from tests.mounting import Mount, logfs, now_ms, wait_until
from tests.remote.servers import Bucket

SETTINGS = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "retention.bytes": "3000000",
    "local.retention.bytes": "0",
    "internal.segment.bytes": "100000",
    "file.delete.delay.ms": "0",
}
_LINE_BYTES = 100
_SETTLED_S = 1.0
_STOPPED = re.compile(
    r"ERROR .*(fenced by epoch|fenced: a copy of this data directory|is a copy of another one|"
    r"is another one than in the data directory|"
    r"that the data directory does not have|does not name the segment)"
)


def lines(mark: str, first: int, count: int) -> bytes:
    """Return numbered lines of 100 bytes that one daemon writes."""
    filler = mark.encode() * 90
    return b"".join(b"%08d %s\n" % (n, filler) for n in range(first, first + count))


class Rival:
    """One of the daemons.

    Attributes:
        mount: Its mount.
        text: All lines that it has acknowledged since the log began.
    """

    def __init__(self, mark: str, mount: Mount) -> None:
        self.mark = mark
        self.mount = mount
        self.text = b""

    @property
    def file(self) -> Path:
        """The file of the partition."""
        return self.mount.point / "orders" / "0"

    def append(self, count: int) -> None:
        """Append lines in writes of 20 kB; they are acknowledged then."""
        data = lines(self.mark, len(self.text) // _LINE_BYTES, count)
        with self.file.open("ab", buffering=0) as out:
            for start in range(0, len(data), 20_000):
                out.write(data[start : start + 20_000])
        self.text += data

    @property
    def is_stopped(self) -> bool:
        """Whether it has given the store up, by ``.meta``."""
        return bool(self._remote()["stopped"])

    def has_copied(self) -> bool:
        """Whether all its sealed segments are in the store, and only there."""
        remote = self._remote()
        return not remote["lag"]["segments"] and remote["remote_only_segments"] > 0

    def _remote(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(f"{self.file}.meta").read_text())["remote"]
        return found

    def check_log(self) -> None:
        """See that its own lines are all there, as far as retention keeps them."""
        found = self.file.read_bytes()
        assert found
        assert self.text.endswith(found), self.mount.log
        start = len(self.text) - len(found)
        assert start <= max(len(self.text) - int(SETTINGS["retention.bytes"]) // 2, 0)

    def check_that_it_says_so(self) -> None:
        """See that a loser is loud: in its log, in ``.meta`` and in its metrics."""
        assert _STOPPED.search(self.mount.log), self.mount.log
        metrics = logfs("metrics", str(self.mount.point)).decode()
        assert re.search(r"^logfs_remote_copy_stopped(\{.*\})? 1(\.0)?$", metrics, re.MULTILINE)


class Rivals:
    """Two daemons on copies of one directory; both are stopped at the end.

    Args:
        directory: For the data and the mount points.
        bucket: Their store.
        seed: The seed of what happens.
    """

    def __init__(self, directory: Path, bucket: Bucket, seed: int) -> None:
        self._bucket = bucket
        self._chance = Random(seed)
        self.pair = [self._rival(directory, mark) for mark in "ab"]
        self.kills = 0

    def __enter__(self) -> "Rivals":
        return self

    def __exit__(self, *_: object) -> None:
        for rival in self.pair:
            rival.mount.clear()

    def _rival(self, directory: Path, mark: str) -> Rival:
        mount = Mount(
            directory / f"data-{mark}",
            directory / f"mnt-{mark}",
            variables=self._bucket.environment,
        )
        return Rival(mark, mount)

    def fork(self, common: int, *, is_clone: bool, is_running: bool = False) -> None:
        """Write so many lines with one daemon, copy its directory, start both.

        Args:
            common: Lines.
            is_clone: The second one cannot know that it is a copy, as on a clone of the machine.
            is_running: The first one runs meanwhile, and has copied all that is sealed.
        """
        first, second = self.pair
        settings = "remote.log.manager.task.interval.ms=100\ncache.bytes=0\n"
        (first.mount.data / "logfs.remote").write_text(self._bucket.properties + settings)
        first.mount.start()
        options = [f"--config={key}={value}" for key, value in SETTINGS.items()]
        logfs("topic", "create", str(first.mount.point / "orders"), *options)
        first.append(common)
        if is_running:
            wait_until(first.has_copied, "it is copied")
        else:
            time.sleep(self._chance.random())
            first.mount.kill()
        shutil.rmtree(second.mount.data)
        subprocess.run(["cp", "-a", first.mount.data, second.mount.data], check=True)
        second.text = first.text
        if is_clone:
            disk = PosixDisk(str(second.mount.data))
            own_directory(disk, lambda: b"", machine_id(), is_moved=True)
        started = self.pair if not is_running else [second]
        for rival in started:
            rival.mount.start()

    def disturb(self, steps: int, most_lines: int) -> None:
        """Append to both, and kill them, again and again."""
        for _ in range(steps):
            rival = self._chance.choice(self.pair)
            if self._chance.random() < 0.5:
                rival.append(self._chance.randint(1, most_lines))
                time.sleep(self._chance.random() * 0.2)
            else:
                rival.mount.crash()
                self.kills += 1

    def settle(self) -> tuple[Rival, Rival]:
        """Append to both until one has given up; returns the one that continues, and the other.

        Both are killed and started again, in each order: that changes nothing.
        """
        for rival in self.pair:
            rival.append(3000)
        wait_until(lambda: any(rival.is_stopped for rival in self.pair), "one is fenced")
        (loser,) = (rival for rival in self.pair if rival.is_stopped)
        (winner,) = (rival for rival in self.pair if rival is not loser)
        for order in (self.pair, self.pair[::-1]):
            for rival in order:
                rival.mount.crash()
                rival.append(2000)
            wait_until(lambda: loser.is_stopped, "it is fenced again")
            assert not winner.is_stopped
        deadline_s = time.monotonic() + _SETTLED_S
        while time.monotonic() < deadline_s or not self._is_settled(loser):
            time.sleep(0.05)
        assert loser.is_stopped
        return winner, loser

    def _is_settled(self, loser: Rival) -> bool:
        stopped = [rival for rival in self.pair if rival.is_stopped]
        assert stopped in ([], [loser])
        assert len(stopped) < 2, "".join(rival.mount.log for rival in self.pair)
        going = [rival for rival in self.pair if rival not in stopped]
        local = [len(list((rival.mount.data / "orders-0").glob("*.log"))) for rival in going]
        return local == [1]

    def check(self) -> Rival:
        """See that one log is in the store, that the other one is loud, and no record is lost.

        Returns:
            The one whose log is in the store.
        """
        winner, loser = self.settle()
        loser.check_that_it_says_so()
        for rival in self.pair:
            rival.check_log()
        self._check_store(winner)
        self._remove_orphans(winner)
        self._check_store(winner)
        for rival in self.pair:
            rival.check_log()
        return winner

    def _check_store(self, winner: Rival) -> None:
        logfs("remote", "verify", "--all", self._bucket.url)
        logfs("verify", self._bucket.url)
        stored = logfs("cat", f"{self._bucket.url}/orders/0")
        at = winner.text.find(stored)
        assert at >= 0
        assert stored
        local = winner.file.read_bytes()
        assert local.startswith(stored)
        assert len(local) - len(stored) < 2 * int(SETTINGS["internal.segment.bytes"])

    def _remove_orphans(self, winner: Rival) -> None:
        """Remove what no head names, as ``logfs remote gc`` does a day later."""
        store = self._bucket.open()
        place = PartitionPlace(TopicPartition("orders", 0), _topic_id(winner))
        for stat in find_orphans(store, place, now_ms() + 2 * OLD_MS):
            store.delete(stat.key)
        found = read_head(store, place)
        assert found is not None
        named = {place.head, *named_objects(store, place, found[0])}
        kept = {stat.key for stat in store.list_level(place.prefix).objects}
        assert kept == named


def _topic_id(rival: Rival) -> UUID:
    metadata = (rival.mount.data / "orders-0" / "partition.metadata").read_text()
    found = re.search(r"^topic_id: (\S+)$", metadata, re.MULTILINE)
    assert found is not None
    return parse_topic_id(found[1])
