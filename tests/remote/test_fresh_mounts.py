"""A mount of a store with ``-o ro,fresh``: what only the journal has is there."""

import errno
import json
import subprocess
from pathlib import Path

import pytest

from tests.mounting import Mount, logfs, wait_until
from tests.remote.servers import Bucket, FaultProxy
from tests.remote.test_promote import SETTINGS, fresh_mount, promote, refusal, wait_until_sent
from tests.remote.test_tiered_mount import append, remote_of, text

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]


def reader_mount(directory: Path, bucket: Bucket) -> Mount:
    """Return a mount of a store that follows its journal; not started."""
    return Mount(
        directory / "none",
        directory / "mnt",
        "ro,fresh",
        variables=bucket.environment,
        url=bucket.url,
    )


def names_of(point: Path) -> dict[str, bytes]:
    """Return what names of the topic show."""
    names = ("0", "0.tsv", "0.jsonl", "0@offset=700..offset=1500", "0@byte=500..byte=99000",
             "0@offset=-10.jsonl")  # fmt: skip
    return {name: (point / "orders" / name).read_bytes() for name in names}


def test_a_reader_sees_what_is_in_no_segment(tmp_path: Path, bucket: Bucket) -> None:
    with fresh_mount(tmp_path / "a", bucket) as owner:
        for topic in ("orders", "quiet"):
            logfs("topic", "create", str(owner.point / topic), *SETTINGS)
        orders, quiet = owner.point / "orders" / "0", owner.point / "quiet" / "0"
        append(quiet, b"the only one\n")
        append(orders, text(0, 1000))
        wait_until_sent(orders, quiet)
        with reader_mount(tmp_path / "r", bucket) as reader:
            there = reader.point / "orders" / "0"
            assert (reader.point / "quiet" / "0").read_bytes() == b"the only one\n"
            assert there.read_bytes() == text(0, 1000)
            with subprocess.Popen(["tail", "-c+1", "-F", there], stdout=subprocess.PIPE) as tail:
                assert tail.stdout is not None
                append(orders, text(1000, 40_000))
                assert tail.stdout.read(len(text(0, 41_000))) == text(0, 41_000)
                tail.kill()
            wait_until(lambda: there.read_bytes() == text(0, 41_000), "all lines are there")
            assert names_of(reader.point) == names_of(owner.point)
            wait_until(lambda: remote_of(there)["remote_only_segments"] > 2, "it is copied")
            assert names_of(reader.point) == names_of(owner.point)
            meta = json.loads((reader.point / "orders" / "0.meta").read_text())
            assert meta["behind"]["complete_until"] > 0
            assert meta["remote"]["error"] is None
            logfs("topic", "create", str(owner.point / "later"), *SETTINGS)
            append(owner.point / "later" / "0", b"line\n")
            later = reader.point / "later" / "0"
            wait_until(lambda: later.exists() and later.read_bytes(), "another topic is there")
            with pytest.raises(OSError, match="Read-only") as refused:
                append(there, b"line\n")
            assert refused.value.errno == errno.EROFS
        assert not [*(tmp_path / "r" / "none.cache").glob("*.fresh0/*-0")]


def test_a_reader_follows_the_next_owner(tmp_path: Path, bucket: Bucket) -> None:
    with fresh_mount(tmp_path / "a", bucket) as first:
        logfs("topic", "create", str(first.point / "orders"), *SETTINGS)
        append(first.point / "orders" / "0", text(0, 2000))
        wait_until_sent(first.point / "orders" / "0")
        with reader_mount(tmp_path / "r", bucket) as reader:
            there = reader.point / "orders" / "0"
            with there.open("rb") as file:
                append(first.point / "orders" / "0", text(2000, 500))
                first.kill()
                first.clear()
                shown = there.read_bytes()
                assert shown.startswith(text(0, 2000))
                data = tmp_path / "b" / "data"
                promote(bucket, data)
                with Mount(data, tmp_path / "b" / "mnt", variables=bucket.environment) as second:
                    orders = second.point / "orders" / "0"
                    assert orders.read_bytes().startswith(shown)
                    append(orders, b"continued\n")
                    wait_until(lambda: there.read_bytes() == orders.read_bytes(), "it continues")
                    inode = there.stat().st_ino
                    assert file.read() == there.read_bytes()
                    assert names_of(reader.point) == names_of(second.point)
                    assert there.stat().st_ino == inode


def test_a_reader_whose_store_is_away_shows_what_it_knew(
    tmp_path: Path, bucket: Bucket, faults: FaultProxy
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as owner:
        logfs("topic", "create", str(owner.point / "orders"), *SETTINGS)
        orders = owner.point / "orders" / "0"
        append(orders, text(0, 1000))
        wait_until_sent(orders)
        with reader_mount(tmp_path / "r", bucket.through(faults)) as reader:
            there = reader.point / "orders" / "0"
            with faults.refusing():
                append(orders, text(1000, 1000))
                wait_until(lambda: remote_of(there)["error"] is not None, "it says so")
                assert there.read_bytes().startswith(text(0, 1000))
            wait_until(lambda: there.read_bytes() == text(0, 2000), "it continues")
            wait_until(lambda: remote_of(there)["error"] is None, "it says so")


def test_a_reader_that_is_killed_again_and_again_shows_the_same(
    tmp_path: Path, bucket: Bucket
) -> None:
    with fresh_mount(tmp_path / "a", bucket) as owner:
        logfs("topic", "create", str(owner.point / "orders"), *SETTINGS)
        orders = owner.point / "orders" / "0"
        append(orders, text(0, 1000))
        wait_until_sent(orders)
        with reader_mount(tmp_path / "r", bucket) as reader:
            there = reader.point / "orders" / "0"
            inode = there.stat().st_ino
            for number in range(1, 5):
                append(orders, text(1000 * number, 1000))
                reader.crash()
                wait_until(lambda: there.read_bytes() == orders.read_bytes(), "it is complete")
            assert there.read_bytes() == text(0, 5000)
            assert there.stat().st_ino == inode


def test_what_cannot_be_followed_is_refused(tmp_path: Path, bucket: Bucket) -> None:
    (tmp_path / "mnt").mkdir()
    (tmp_path / "data").mkdir()
    mount = ("mount", "-o", "ro,fresh")
    assert "it has no journal to follow" in refusal(*mount, bucket.url, tmp_path / "mnt")
    told = refusal(*mount, tmp_path / "data", tmp_path / "mnt")
    assert "fresh is for the URL of an object store, with -o ro" in told
    assert "add -o ro" in refusal("mount", "-o", "fresh", bucket.url, tmp_path / "mnt")
