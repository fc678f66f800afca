"""``logfs remote`` on a real store, with a real daemon that copies to it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.mounting import Mount, wait_until
from tests.remote.servers import Bucket
from tests.remote.stored import Stored, make_stored
from tests.remote.test_tiered_mount import append, local_logs, make_topic, text

FAST = "--config=remote.log.manager.task.interval.ms=100"


@pytest.fixture
def credentials(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


def test_init_probes_the_store_and_names_it(
    logfs: Call, credentials: Bucket, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    outcome = logfs("remote", "init", data, f"{credentials.url}/", FAST)
    assert outcome.status == 0, outcome.errors
    text = (data / "logfs.remote").read_text()
    assert f"url={credentials.url}\n" in text
    assert "directory.id=" in text
    assert "SECRET" not in text.upper()
    assert [stat.key for stat in credentials.open().list_level("").objects] == ["logfs-store"]
    assert logfs("remote", "init", data, credentials.url).status == 0


def test_init_refuses_what_is_no_data_directory(logfs: Call, tmp_path: Path) -> None:
    outcome = logfs("remote", "init", tmp_path / "nothing", "s3://bucket/logs")
    assert outcome.status == 1
    assert "expected a data directory" in outcome.errors[0]
    outcome = logfs("remote", "init", tmp_path, "http://bucket/logs")
    assert "s3://BUCKET/PREFIX" in outcome.errors[0]


@pytest.mark.fuse
@pytest.mark.slow
def test_from_a_mount_to_its_store_and_back(
    logfs: Call, credentials: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, restored, url = tmp_path / "data", tmp_path / "restored", credentials.url
    data.mkdir()
    endpoint = f"--endpoint={credentials.endpoint}"
    assert logfs("remote", "init", data, url, endpoint, FAST).status == 0
    with Mount(data, tmp_path / "mnt", variables=credentials.environment) as mount:
        file = make_topic(mount)
        append(file, text(0, 50_000))
        wait_until(lambda: len(local_logs(mount)) == 1, f"the segments went\n{mount.log}")
        (row,) = json.loads(logfs("remote", "status", "--json", mount.point).out)
        assert row["segments"] > 2
        assert row["lag"]["segments"] == 0
        with Mount(tmp_path / "none", tmp_path / "far", "ro", url=url) as far:
            found = (far.point / "orders" / "0").read_bytes()
            meta = json.loads((far.point / "orders" / "0.meta").read_bytes())
            lines = logfs("remote", "status", far.point).out.splitlines()
        assert len(lines) == 2
        assert lines[1].split()[-2:] == [b"-", b"-"]
        assert found
        assert file.read_bytes().startswith(found)
        assert meta["remote"]["segments"] == row["segments"]
        assert 0 < meta["behind"]["complete_until"] <= meta["remote"]["head_modified"] + 1000
    assert logfs("cat", f"{url}/orders/0").out == found
    assert logfs("cat", f"{data}/orders/0").out == text(0, 50_000)
    assert logfs("remote", "verify", url) == (0, f"{url}: 0 damages\n".encode(), [])
    with monkeypatch.context() as changed:
        changed.delenv("AWS_ENDPOINT_URL")  # the directory names its server
        outcome = logfs("remote", "verify", "--all", data)
        assert (outcome.status, outcome.out) == (0, f"{url}: 0 damages\n".encode())
    assert logfs("remote", "verify", "--all", url).status == 0
    assert b"0 objects" in logfs("remote", "gc", data).out
    outcome = logfs("remote", "fetch", url, restored)
    assert outcome.status == 0, outcome.errors
    assert logfs("cat", f"{restored}/orders/0").out == found
    assert logfs("verify", restored).status == 0
    # The restored directory may write the store only after it has taken over.
    assert logfs("remote", "init", restored, url).status == 0
    outcome = logfs("remote", "take-over", restored)
    assert outcome.status == 0, outcome.errors
    (row,) = json.loads(logfs("remote", "status", "--json", url).out)
    assert row["epoch"] > 1


def test_verify_names_what_is_missing(logfs: Call, stored: Stored) -> None:
    (log, *_) = sorted(stored.bucket.glob("orders-*/0/*.log"))
    log.unlink()
    (other,) = stored.bucket.glob("orders-*/1/*.indexes")
    other.write_bytes(b"x")
    status, out, _ = logfs("remote", "verify", stored.url)
    assert status == 1
    assert f"{log.name}: the store does not have it".encode() in out
    assert f"{other.name}: it has 1 bytes".encode() in out
    assert b"2 damages" in out


def test_status_shows_the_heads_of_a_store(logfs: Call, stored: Stored) -> None:
    rows = json.loads(logfs("remote", "status", "--json", stored.url).out)
    assert [(row["partition"], row["start_offset"], row["end_offset"]) for row in rows] == [
        (0, 0, 3000),
        (1, 0, 10),
    ]


def test_a_store_is_fetched_and_an_interrupted_fetch_continues(
    logfs: Call, stored: Stored, tmp_path: Path
) -> None:
    target = tmp_path / "restored"
    hidden = next(stored.bucket.glob("orders-*/1/*.log"))
    hidden.rename(tmp_path / "hidden")
    outcome = logfs("remote", "fetch", stored.url, target)
    assert outcome.status == 1
    assert logfs("cat", f"{target}/orders/0").status == 1  # it is not whole
    (tmp_path / "hidden").rename(hidden)
    outcome = logfs("remote", "fetch", stored.url, target)
    assert outcome.status == 0, outcome.errors
    for number in (0, 1):
        expected = logfs("cat", f"{stored.data}/orders/{number}.jsonl").out
        assert logfs("cat", f"{target}/orders/{number}.jsonl").out == expected
    assert logfs("verify", target).status == 0
    outcome = logfs("remote", "fetch", stored.url, stored.data)
    assert "not empty" in outcome.errors[0]


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """A data directory and its bucket, for this test alone."""
    return make_stored(tmp_path / "stored")
