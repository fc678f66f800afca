"""``logfs topic`` on a data directory without a daemon, and on one that another process owns."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfs.config import TOPIC_KEYS
from logfs.disk.posix import PosixDisk
from logfs.log.names import META_PROPERTIES
from tests.cli.conftest import Call, command, environment, fill, open_store


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An empty directory."""
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a topic ``orders`` of two partitions, which no test changes."""
    path = tmp_path_factory.mktemp("topic") / "data"
    fill(path, {"orders/1": b"a\n"})
    return path


def test_a_topic_from_beginning_to_end(logfs: Call, data: Path) -> None:
    orders = data / "orders"
    created = logfs("topic", "create", orders, "--partitions", 2, "--config", "segment.ms=3600000")
    assert created == (0, b"", [])
    assert logfs("topic", "list", data) == (0, b"orders\n", [])
    assert logfs("topic", "alter", orders, "--config", "flush.ms=5", "--partitions", 3) == created
    store = open_store(data)
    assert store.partitions("orders") == [0, 1, 2]
    assert store.topic_properties("orders") == {"segment.ms": "3600000", "flush.ms": "5"}
    store.close(0)
    assert logfs("topic", "alter", orders, "--delete", "flush.ms") == created
    assert json.loads(logfs("topic", "describe", orders, "--json").out)["config"] == {
        "segment.ms": "3600000"
    }
    assert logfs("topic", "delete", orders) == created
    assert logfs("topic", "list", data) == (0, b"", [])


def test_the_default_is_one_partition(logfs: Call, data: Path) -> None:
    assert logfs("topic", "create", data / "orders").status == 0
    listed = json.loads(logfs("topic", "list", data, "--json").out)
    assert listed == [{"topic": "orders", "partitions": 1}]


def test_list_is_sorted_and_complete(logfs: Call, data: Path) -> None:
    fill(data, {"b/1": b"", "a/0": b"", "__consumer_offsets/0": b""})
    assert logfs("topic", "list", data).out == b"__consumer_offsets\na\nb\n"


def test_list_without_a_path_is_the_current_directory(
    logfs: Call, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(data, {"a/0": b""})
    monkeypatch.chdir(data)
    assert logfs("topic", "list").out == b"a\n"


def test_describe_prints_settings_and_partitions(logfs: Call, data: Path) -> None:
    fill(data, {"orders/1": b"a\nb\n"})
    status, out, errors = logfs("topic", "describe", data / "orders")
    assert (status, errors) == (0, [])
    head, _, table = out.decode().partition("\n\n")
    facts = dict(line.split(maxsplit=1) for line in head.splitlines())
    assert facts["topic"] == "orders"
    assert len(facts["id"]) == 22
    assert facts["partitions"] == "2"
    assert facts["config"] == "nothing set, the defaults apply"
    assert facts["retention"] == "7.0 d (retention.ms)"
    rows = [line.split() for line in table.splitlines()]
    assert rows[0][:3] == ["PARTITION", "LOG-START-OFFSET", "LOG-END-OFFSET"]
    assert rows[1] == ["0", "0", "0", "1", "0B", "-", "ok"]
    assert rows[2][:3] == ["1", "0", "2"]
    assert rows[2][-1] == "ok"


@pytest.mark.parametrize(
    ("settings", "retention"),
    [
        (["retention.ms=-1"], "unlimited: records are never removed"),
        (["cleanup.policy="], "unlimited: records are never removed"),
        (["cleanup.policy=compact"], "the last record of each key (cleanup.policy)"),
        (
            ["retention.ms=7200000", "retention.bytes=1048576"],
            "2.0 h (retention.ms), 1.0MiB for each partition (retention.bytes)",
        ),
    ],
)
def test_describe_prints_the_retention_in_effect(
    logfs: Call, data: Path, settings: list[str], retention: str
) -> None:
    logfs("topic", "create", data / "orders", *(w for s in settings for w in ("--config", s)))
    out = logfs("topic", "describe", data / "orders").out.decode()
    assert f"\nretention   {retention}\n" in out


def test_describe_every_setting(logfs: Call, data: Path) -> None:
    logfs("topic", "create", data / "orders", "--config", "segment.ms=3600000")
    lines = logfs("topic", "describe", data / "orders", "--all").out.decode().splitlines()
    assert "segment.ms=3600000" in lines
    assert "retention.ms=604800000  (default)" in lines
    shown = json.loads(logfs("topic", "describe", data / "orders", "--all", "--json").out)
    assert set(shown["effective_config"]) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert shown["config"] == {"segment.ms": "3600000"}
    assert [meta["partition"] for meta in shown["partitions"]] == [0]


def test_odd_settings_are_warnings(logfs: Call, data: Path) -> None:
    path = data / "orders"
    status, out, errors = logfs("topic", "create", path, "--config", "retention.ms=1000")
    assert (status, out, len(errors)) == (0, b"", 1)
    assert errors[0].startswith(f"logfs: {path}: warning: segment.ms=604800000 is longer than")
    assert logfs("topic", "describe", path).errors == errors
    shown = logfs("topic", "describe", path, "--json")
    assert shown.errors == []
    assert len(json.loads(shown.out)["warnings"]) == 1
    assert logfs("topic", "alter", path, "--config", "flush.ms=9").errors == errors


@pytest.mark.allow_log("could not be loaded")
def test_a_partition_that_cannot_be_loaded_is_described(logfs: Call, data: Path) -> None:
    fill(data, {"orders/1": b"a\n"})
    (data / "orders-1" / "partition.metadata").write_text("nonsense")
    status, out, _ = logfs("topic", "describe", data / "orders")
    assert status == 0
    assert b"offline: it could not be loaded" in out.splitlines()[-1]


def test_a_data_directory_that_is_missing_is_named(logfs: Call, tmp_path: Path) -> None:
    path = tmp_path / "data" / "orders"
    missing = path.parent
    (error,) = logfs("topic", "create", path).errors
    assert error == (
        f"logfs: {path}: {missing} does not exist: 'mkdir {missing}' makes it a data directory for "
        "the topic"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["create", "orders"], "topic orders exists already"),
        (["create", "a b"], "illegal topic name 'a b': expected 1 to 249 of the characters"),
        (["create", "new", "--config", "retentoin.ms=1"], "'retentoin.ms': no such topic setting"),
        (["create", "new", "--config", "retention.ms=x"], "retention.ms='x': expected"),
        (["create", "new/0"], "expected {data}/TOPIC: a topic is directly below"),
        (["create", ""], "that is a data directory; expected a topic in it, {data}/TOPIC"),
        (["list", "orders"], "expected a data directory or a mount point"),
        (["describe", "nix"], "no topic nix"),
        (["describe", ""], "that is a data directory; expected a topic in it"),
        (["alter", "nix", "--config", "flush.ms=1"], "no topic nix"),
        (["alter", "orders", "--config", "flush.ms=-1"], "flush.ms='-1': expected"),
        (["alter", "orders", "--delete", "flush.ms"], "flush.ms is not set for topic orders"),
        (["alter", "orders", "--delete", "flsh.ms"], "'flsh.ms': no such topic setting"),
        (["alter", "orders", "--partitions", "1"], "topic orders has 2 partitions; it can grow"),
        (["delete", "nix"], "no topic nix"),
        (["delete", "orders/0"], "expected {data}/TOPIC: a topic is directly below"),
    ],
)
def test_refusals(logfs: Call, filled: Path, arguments: list[str], reason: str) -> None:
    data = filled
    name, path, *options = arguments
    given = str(data / path)
    status, out, errors = logfs("topic", name, given, *options)
    assert (status, out, len(errors)) == (1, b"", 1)
    assert errors[0].startswith(f"logfs: {given}: {reason.format(data=data)}")
    assert (
        logfs("topic", "list", data, "--json").out
        == b"""[
  {
    "topic": "orders",
    "partitions": 2
  }
]
"""
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["alter", "x"],
        ["alter", "x", "--config", "flush.ms=1", "--delete", "flush.ms"],
        ["create", "x", "--partitions", "0"],
        ["create", "x", "--partitions", "10001"],
        ["create", "x", "--config", "flush.ms"],
        ["create", "x", "--config", "=1"],
    ],
)
def test_wrong_usage(logfs: Call, arguments: list[str]) -> None:
    assert logfs("topic", *arguments).status == 2


def test_an_error_leaves_an_empty_directory_empty(logfs: Call, data: Path) -> None:
    assert logfs("topic", "create", data / "a b").status == 1
    assert logfs("topic", "create", data / "a", "--config", "x=1").status == 1
    assert logfs("topic", "list", data).errors[0].startswith(f"logfs: {data}: {data} is empty")
    assert not list(data.iterdir())


def test_topics_are_not_created_in_directories_with_other_files(logfs: Call, data: Path) -> None:
    (data / "letter.txt").touch()
    status, _, errors = logfs("topic", "create", data / "orders")
    assert status == 1
    assert "expected a data directory, an empty directory or a mount point" in errors[0]
    assert [path.name for path in data.iterdir()] == ["letter.txt"]


def test_a_data_directory_that_is_missing(logfs: Call, data: Path) -> None:
    status, _, errors = logfs("topic", "create", data / "more" / "deep" / "orders" / "0")
    assert (status, len(errors)) == (1, 1)
    assert f"{data} is empty and no data directory yet" in errors[0]


def test_the_directory_of_a_broker(logfs: Call, data: Path) -> None:
    (data / META_PROPERTIES).write_text("version=1\n")
    assert logfs("topic", "list", data) == (0, b"", [])


# A directory that another process owns


@pytest.fixture
def owned(data: Path) -> Iterator[Path]:
    """A data directory whose lock another process holds."""
    fill(data, {"orders/0": b"a\n"})
    program = (
        "import sys\nfrom logfs.disk.posix import PosixDisk\n"
        "lock = PosixDisk(sys.argv[1]).lock('.lock')\nprint(flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen(
        [*command()[:1], "-c", program, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        (data / "pid").write_text(str(process.pid))
        yield data
        process.stdin.close()


@pytest.mark.parametrize(
    "arguments", [["create", "a"], ["alter", "orders", "--partitions", "2"], ["delete", "orders"]]
)
def test_changes_are_refused_while_another_process_owns_the_directory(
    logfs: Call, owned: Path, arguments: list[str]
) -> None:
    name, topic, *options = arguments
    status, _, errors = logfs("topic", name, owned / topic, *options)
    assert (status, len(errors)) == (1, 1)
    assert f"locked by process {(owned / 'pid').read_text()}" in errors[0]


def test_the_refusal_names_the_mount_that_cannot_be_used(logfs: Call, owned: Path) -> None:
    note = {"version": 1, "pid": 7, "mountpoint": "/mnt/elsewhere"}
    PosixDisk(owned).replace("logfs.daemon", json.dumps(note).encode())
    _, _, errors = logfs("topic", "delete", owned / "orders")
    assert errors[0].endswith(
        "its last daemon, process 7, was mounted at /mnt/elsewhere, which cannot be used from "
        "here: unmount it first"
    )


def test_reading_needs_no_lock(logfs: Call, owned: Path) -> None:
    assert logfs("topic", "list", owned).out == b"orders\n"
    assert logfs("topic", "describe", owned / "orders").status == 0
    assert logfs("cat", owned / "orders" / "0").out == b"a\n"


def test_delete_now_leaves_nothing_to_restore(logfs: Call, data: Path) -> None:
    topics = [data / "a", data / "b"]
    for topic in topics:
        assert logfs("topic", "create", topic).status == 0
    assert logfs("topic", "delete", *topics, "--now").status == 0
    assert not [path for path in data.iterdir() if path.is_dir()]
    assert logfs("topic", "undelete", data / "a").status == 1
