"""Promise 7 of SEMANTICS.md where losses are counted; docstrings are the sentences that are run."""

import os
import re
import urllib.request
from pathlib import Path

import pytest

from tests.mounting import Mount, wait_until
from tests.semantics.programs import append, append_all, configure, meta, numbered

pytestmark = pytest.mark.fuse

LINE_BYTES = 100


def lines(first: int, last: int) -> bytes:
    return b"".join(numbered(first, last, LINE_BYTES))


def metrics(mount: Mount) -> dict[str, float]:
    """Return the samples of a mount, each with its labels as Prometheus writes them."""
    url = re.findall(r"metrics are at (http://\S+)", mount.log)[-1]
    with urllib.request.urlopen(url, timeout=30) as response:
        text = response.read().decode()
    return {
        name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)
    }


def test_a_reader_that_falls_behind(tmp_path: Path) -> None:
    """If retention overtakes a reader, the daemon logs it, with position and byte count, and adds
    it to a counter in `.meta`."""
    options = ("log.retention.check.interval.ms=20", "log.initial.task.delay.ms=0", "metrics=0")
    with Mount(tmp_path / "data", tmp_path / "mnt", *options) as mount:
        orders = mount.point / "orders"
        orders.mkdir()
        configure(
            orders,
            internal_segment_bytes=20_000,
            max_message_bytes=10_000,
            retention_bytes=60_000,
            file_delete_delay_ms=0,
        )
        path = orders / "0"
        append_all(path, lines(0, 300))
        with path.open("rb", buffering=0) as quick, path.open("rb", buffering=0) as slow:
            assert len(quick.read(300 * LINE_BYTES)) == len(lines(0, 300))
            assert slow.read(10 * LINE_BYTES) == lines(0, 10)
            append_all(path, lines(300, 2_000))
            wait_until(lambda: meta(path)["log_start_offset"] > 300, "retention had deleted")
            last, kept = 8, 9
            while kept == last + 1:  # rendered ahead, and so not lost
                last, kept = kept, int(slow.read(LINE_BYTES).split()[0])
            # A reader that begins at a hole, or seeks back to one, has missed nothing.
            with path.open("rb", buffering=0) as late:
                assert int(late.read(LINE_BYTES).split()[0]) >= kept
            os.lseek(slow.fileno(), 0, os.SEEK_SET)
            assert slow.read(LINE_BYTES)
        missed = (kept - last - 1) * LINE_BYTES
        assert meta(path)["since_start"]["readers_fell_behind"] == 1
        assert meta(path)["since_start"]["bytes_missed"] == missed
        assert meta(path)["losses"] == []
        assert (
            f"[loss: expired, orders-0, position {(last + 1) * LINE_BYTES}, {missed} bytes]"
            in mount.log
        )
        found = metrics(mount)
        assert found['logfs_lost_bytes_total{kind="expired",topic="orders"}'] == missed


def test_losses_are_counted(tmp_path: Path) -> None:
    """Losses are counted in the metrics too."""
    with Mount(tmp_path / "data", tmp_path / "mnt", "metrics=0") as mount:
        (mount.point / "orders").mkdir()
        append(mount.point / "orders" / "0", b"a line\n")
        mount.kill()
        log = max((mount.data / "orders-0").glob("*.log"))
        log.write_bytes(log.read_bytes() + b"\xab" * 77)
        mount.start()
        found = metrics(mount)
        assert found['logfs_losses_total{kind="cut",topic="orders"}'] == 1
        assert found['logfs_lost_bytes_total{kind="cut",topic="orders"}'] == 77
        mount.restart()  # they are kept
        assert metrics(mount)['logfs_losses_total{kind="cut",topic="orders"}'] == 1
