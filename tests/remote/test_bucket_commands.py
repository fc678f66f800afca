"""Commands, the library and the mount on the URL of a bucket, beside the data directory itself."""

import json
import os
from pathlib import Path

import pytest

import logfs as library
from logfs.errors import ReadOnlyError
from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.mounting import Mount
from tests.remote.servers import Bucket
from tests.remote.stored import Stored, make_stored

ADDRESSES = [
    *("0", "0.tsv", "0.jsonl", "0@offset=1500", "0@offset=100..offset=2500.jsonl"),
    *("0@byte=12345..byte=70000", "0@2023-11-14T22:13:22Z..2023-11-14T22:13:40Z", "0@-100000d.tsv"),
    *("1", "0@offset=2999..offset=3000"),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A data directory, everything of which is in a bucket, too."""
    return make_stored(tmp_path_factory.mktemp("stored"))


@pytest.mark.parametrize("address", ADDRESSES)
def test_cat_prints_the_same(logfs: Call, stored: Stored, address: str) -> None:
    expected = logfs("cat", f"{stored.data}/orders/{address}")
    assert expected.status == 0
    assert expected.out
    assert logfs("cat", f"{stored.url}/orders/{address}") == expected


def test_raw_segments_are_the_same(logfs: Call, stored: Stored) -> None:
    name = ".segments/orders-0/00000000000000001000"
    for suffix in (".log", ".txt", ".index", ".timeindex", ".textindex"):
        expected = logfs("cat", f"{stored.data}/{name}{suffix}")
        assert expected.out
        assert logfs("cat", f"{stored.url}/{name}{suffix}") == expected


def test_offsets_are_the_same(logfs: Call, stored: Stored) -> None:
    for more in ((), ("--at", "2023-11-14T22:13:50Z")):
        expected = logfs("offsets", stored.data / "orders", *more)
        assert logfs("offsets", f"{stored.url}/orders", *more) == expected


def test_verify_finds_nothing_and_then_the_damage(
    logfs: Call, tmp_path: Path, stored: Stored
) -> None:
    status, out, _ = logfs("verify", stored.url)
    assert status == 0, out
    damaged = make_stored(tmp_path)
    (log, *_) = sorted(damaged.bucket.glob("orders-*/0/*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    status, out, _ = logfs("verify", damaged.url)
    assert status == 1
    assert b"00000000000000000000" in out


def test_du_counts_what_is_in_the_store(logfs: Call, stored: Stored) -> None:
    rows = json.loads(logfs("du", "--json", stored.url).out)
    (row,) = [row for row in rows if row["name"] == "orders"]
    logs = sum(path.stat().st_size for path in stored.bucket.glob("orders-*/*/*.log"))
    assert row["log"] == logs


def test_dump_prints_the_same(logfs: Call, stored: Stored) -> None:
    name = "orders-0/00000000000000001000.log"
    expected = logfs("dump", "--files", f"{stored.data}/{name}")
    found = logfs("dump", "--files", f"{stored.url}/{name}")
    assert found.status == expected.status == 0
    ours, theirs = (outcome.out.splitlines() for outcome in (found, expected))
    assert len(ours) > 4
    assert [a for a, b in zip(ours, theirs, strict=True) if a != b] == ours[:1]


def test_tail_prints_the_last_lines(logfs: Call, stored: Stored) -> None:
    expected = logfs("tail", "-n", "5", stored.data / "orders/0")
    assert expected.out
    assert logfs("tail", "-n", "5", f"{stored.url}/orders/0") == expected


def test_status_shows_the_partitions(logfs: Call, stored: Stored) -> None:
    outcome = logfs("status", "--json", stored.url)
    assert outcome.status == 0
    assert b"orders" in outcome.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("append", "{url}/orders/0"),
        ("topic", "create", "{url}/new"),
        ("topic", "delete", "{url}/orders"),
        ("topic", "alter", "{url}/orders", "--config", "retention.ms=1"),
        ("trim", "{url}/orders/0@offset=5"),
        ("compact", "{url}/orders"),
        ("reindex", "{url}/orders"),
        ("backup", "{url}", "/nowhere"),
    ],
)
def test_what_changes_logs_is_refused(
    logfs: Call, stored: Stored, arguments: tuple[str, ...]
) -> None:
    outcome = logfs(*(argument.format(url=stored.url) for argument in arguments))
    assert outcome.status != 0
    assert "read-only" in " ".join(outcome.errors), outcome.errors


def test_a_url_without_logs_says_so(logfs: Call, stored: Stored, tmp_path: Path) -> None:
    outcome = logfs("cat", f"file://{tmp_path}/orders/0")
    assert outcome.status == 1
    assert "there are no logs" in outcome.errors[0]
    outcome = logfs("cat", f"{stored.url}/nothing/0")
    assert "no topic nothing" in outcome.errors[0]
    outcome = logfs("cat", f"{stored.url}/orders/7")
    assert "no partition 7" in outcome.errors[0]


def test_the_library_reads_a_bucket(stored: Stored) -> None:
    with library.open_store(str(stored.data)) as origin, library.open_store(stored.url) as found:
        assert found.topics() == origin.topics()
        ours, theirs = (store.partition("orders", 0) for store in (found, origin))
        ends = ((one.start_offset, one.end_offset) for one in (ours, theirs))
        assert len(set(ends)) == 1
        assert list(ours.read(990, 1010)) == list(theirs.read(990, 1010))
        with pytest.raises(ReadOnlyError):
            ours.append(b"x")


@pytest.mark.fuse
def test_a_mount_of_a_bucket_is_the_mount_of_its_origin(stored: Stored, tmp_path: Path) -> None:
    with (
        Mount(stored.data, tmp_path / "a", "ro", log_directory=tmp_path) as origin,
        Mount(tmp_path / "none", tmp_path / "b", "ro", url=stored.url) as found,
    ):
        for address in (*ADDRESSES, "0@earliest..latest", "0@offset=5..offset=6"):
            assert (found.point / "orders" / address).read_bytes() == (
                origin.point / "orders" / address
            ).read_bytes()
        ours, theirs = ((mount.point / "orders" / "0") for mount in (found, origin))
        assert ours.stat().st_size == theirs.stat().st_size
        last = stored.data / "orders-0" / "00000000000000002000.log"
        assert int(ours.stat().st_mtime) == int(last.stat().st_mtime)
        assert ours.stat().st_ino == theirs.stat().st_ino
        for name in ("start", "end", "log_start_offset", "log_end_offset", "topic_id"):
            attributes = (os.getxattr(path, f"user.logfs.{name}") for path in (ours, theirs))
            assert len(set(attributes)) == 1
        with pytest.raises(OSError, match="Read-only file system"):
            ours.open("ab")


@pytest.mark.usefixtures("logging_as_before")
def test_a_bucket_is_not_mounted_for_writing(logfs: Call, stored: Stored, tmp_path: Path) -> None:
    outcome = logfs("mount", stored.url, tmp_path)
    assert outcome.status == 1
    assert "add -o ro" in outcome.errors[0]


@pytest.fixture
def in_s3(bucket: Bucket, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same objects in a real store; its URL, with credentials in the environment."""
    store = bucket.open()
    for path in stored.bucket.rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(stored.bucket)), [path.read_bytes()])
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket.url


def test_a_real_store_is_read(logfs: Call, stored: Stored, in_s3: str) -> None:
    for address in ("orders/0", "orders/0@offset=1500.jsonl", "orders/1.tsv"):
        assert logfs("cat", f"{in_s3}/{address}") == logfs("cat", f"{stored.data}/{address}")
    status, out, errors = logfs("verify", in_s3)
    assert status == 0, (out, errors)


def test_a_real_store_is_verified_by_processes(logfs: Call, in_s3: str) -> None:
    status, _, errors = logfs("verify", "--jobs", "2", in_s3)
    assert status == 0, errors


@pytest.mark.fuse
def test_a_real_store_is_mounted(stored: Stored, in_s3: str, tmp_path: Path) -> None:
    with Mount(tmp_path / "none", tmp_path / "b", "ro", url=in_s3) as mount:
        found = (mount.point / "orders" / "0").read_bytes()
    with library.open(f"{stored.data}/orders/0") as partition:
        assert found == b"".join((record.value or b"") + b"\n" for record in partition.read())


def test_wrong_credentials_say_so(logfs: Call, in_s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    outcome = logfs("cat", f"{in_s3}/orders/0")
    assert outcome.status == 1
    assert "refused" in outcome.errors[0]


def test_salvage_copies_what_is_left_of_a_store(logfs: Call, tmp_path: Path) -> None:
    stored = make_stored(tmp_path)
    whole = logfs("cat", stored.data / "orders" / "0").out
    logs = sorted(stored.bucket.glob("orders-*/0/*.log"))
    assert len(logs) > 2
    logs[1].unlink()
    assert logfs("remote", "fetch", stored.url, tmp_path / "fetched").status != 0
    status, out, _ = logfs("salvage", stored.url, tmp_path / "saved")
    assert status == 1
    assert b"gone: " in out
    saved = logfs("cat", tmp_path / "saved" / "orders" / "0").out.splitlines()
    lost = set(whole.splitlines()) - set(saved)
    assert 0 < len(lost) < len(whole.splitlines()) / 2
    assert [line for line in whole.splitlines() if line not in lost] == saved
