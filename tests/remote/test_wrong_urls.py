"""URLs with mistakes, and the URL of a store where a directory is expected."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.cli.conftest import logfs as logfs
from tests.mounting import Mount
from tests.remote.servers import Bucket
from tests.remote.stored import Stored, make_stored
from tests.remote.test_broker_buckets import local_tiered
from tests.remote.test_remote_commands import credentials as credentials


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """A data directory and its copy in a store; commands run in an empty directory."""
    found = make_stored(tmp_path / "stored")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return found


@pytest.mark.parametrize("url", ["s4://logs/web", "s3:/logs/web", "S3://logs/web", "s3:///web"])
@pytest.mark.parametrize(
    "command",
    [
        ("cat", "URL/orders/0"),
        ("offsets", "URL"),
        ("mount", "URL", ".", "-o", "ro"),
        ("topic", "create", "URL/new"),
        ("export", "DATA", "URL"),
        ("backup", "DATA", "URL"),
        ("restore", "DATA", "URL"),
        ("remote", "fetch", "STORE", "URL"),
    ],
)
def test_a_url_with_a_mistake_is_refused_by_name(
    logfs: Call, stored: Stored, command: tuple[str, ...], url: str
) -> None:
    places = {"URL": url, "DATA": str(stored.data), "STORE": stored.url}
    words = []
    for word in command:
        name, slash, rest = word.partition("/")
        words.append(places.get(name, name) + slash + rest)
    outcome = logfs(*words)
    assert outcome.status == 1
    assert url in outcome.errors[0]
    assert "it is no address of an object store (s3://BUCKET/PREFIX" in outcome.errors[0]
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("backup", "DATA", "s3://logs/backup"),
        ("restore", "BACKUP", "s3://logs/restored"),
        ("remote", "fetch", "STORE", "s3://logs/fetched"),
        ("remote", "init", "s3://logs/web", "s3://logs/web"),
        ("mirror", "s3://logs/web", "orders", "--from", "kafka://127.0.0.1:1"),
    ],
)
def test_a_store_is_no_destination_for_directories(
    logfs: Call, stored: Stored, tmp_path: Path, command: tuple[str, ...]
) -> None:
    backup = tmp_path / "backup"
    assert logfs("backup", stored.data, backup).status == 0
    places = {"DATA": stored.data, "BACKUP": backup, "STORE": stored.url}
    outcome = logfs(*(places.get(word, word) for word in command))
    assert outcome.status == 1
    assert "expected a directory of this machine, not the URL" in outcome.errors[0]
    assert list(Path.cwd().iterdir()) == []


def test_a_forward_does_not_start_in_a_store(logfs: Call, stored: Stored) -> None:
    outcome = logfs("forward", f"{stored.url}/orders", "--to", "kafka://127.0.0.1:1")
    assert outcome.status == 1
    assert "logs in an object store are read-only" in outcome.errors[0]


def test_the_path_of_a_directory_with_such_a_name_begins_with_a_dot(
    logfs: Call, stored: Stored
) -> None:
    assert logfs("backup", stored.data, "./s3:/logs").status == 0
    assert Path("s3:", "logs", "logfs.backup").exists()


@pytest.mark.programs
def test_a_mistyped_prefix_is_corrected(logfs: Call, credentials: Bucket, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert logfs("remote", "init", data, f"{credentials.url}/typo").status == 0
    assert logfs("remote", "init", data, credentials.url).status == 0
    assert f"url={credentials.url}\n" in (data / "logfs.remote").read_text()
    (data / "orders-0").mkdir()
    (data / "orders-0" / "logfs.tiered").write_bytes(b"")
    outcome = logfs("remote", "init", data, f"{credentials.url}/other")
    assert "its segments are there" in outcome.errors[0]


@pytest.mark.programs
def test_refused_credentials_are_not_a_matter_of_root(
    logfs: Call, credentials: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for command in (("mount", credentials.url, ".", "-o", "ro"), ("cat", credentials.url)):
        outcome = logfs(*command)
        assert outcome.status == 1
        assert "refused the credentials" in outcome.errors[0]
        assert "run it as the owner" not in outcome.errors[0]


@pytest.mark.programs
def test_a_wrong_region_is_said_with_the_variable(
    logfs: Call, credentials: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not credentials.server.has_files:
        pytest.skip("SeaweedFS takes any region")
    monkeypatch.setenv("AWS_REGION", "mars")
    (line,) = logfs("cat", credentials.url).errors
    assert 'the region "mars" is wrong' in line
    assert "set AWS_REGION" in line


def test_a_store_of_a_broker_has_no_heads_to_compare(
    logfs: Call, stored: Stored, tmp_path: Path
) -> None:
    url = f"file://{local_tiered(stored, tmp_path / 'broker')}"
    for command in ("status", "verify"):
        outcome = logfs("remote", command, url)
        assert outcome.status == 1
        assert "logfs has not written this store" in outcome.errors[0]
        assert f"'logfs verify {url}'" in outcome.errors[0]
    assert logfs("verify", url).status == 0


@pytest.mark.fuse
def test_the_status_of_a_mount_of_a_brokers_store(
    logfs: Call, stored: Stored, tmp_path: Path
) -> None:
    url = f"file://{local_tiered(stored, tmp_path / 'broker')}"
    with Mount(tmp_path / "none", tmp_path / "far", "ro", url=url) as far:
        outcome = logfs("remote", "status", far.point)
    assert outcome.status == 0, outcome.errors
    assert [line.split() for line in outcome.out.splitlines()[1:]] == [
        [b"orders/0", b"-", b"-", b"-", b"-", b"-"],
        [b"orders/1", b"-", b"-", b"-", b"-", b"-"],
    ]
