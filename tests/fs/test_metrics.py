"""What a mount says of itself, after all has happened to it that there are metrics for."""

import json
import os
import re
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families

from logfs.client import Daemon
from logfs.fs.metrics import forwards, groups, mirrors, remote, topicquotas, users
from tests.mounting import COMMAND, ROOT, Mount, logfs, opened_store, run, wait_until

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

GARBAGE = b"\xab" * 5_000
OWN_NAME = re.compile(r"\b(?:logfs|process|python)_[a-z0-9_]+")
"""How metrics are called in the queries of examples."""
SUFFIXES = ("_bucket", "_count", "_sum")


class Scrape(NamedTuple):
    """What a client got.

    Attributes:
        families: The metrics by name.
        text: As it came.
    """

    families: dict[str, Metric]
    text: str

    def value(self, sample: str, **labels: str) -> float:
        """Return the value of a sample; the labels given have to be among its own."""
        found = [
            s.value
            for family in self.families.values()
            for s in family.samples
            if s.name == sample and labels.items() <= s.labels.items()
        ]
        assert len(found) == 1, (sample, labels, found)
        return found[0]

    def samples(self) -> set[str]:
        return {s.name for family in self.families.values() for s in family.samples}


def parse(text: str) -> Scrape:
    return Scrape({family.name: family for family in text_string_to_metric_families(text)}, text)


def address(mount: Mount) -> str:
    """Return where the daemon that runs now says that its metrics are."""
    found: list[str] = re.findall(r"metrics are at (http://\S+)/metrics", mount.log)
    return found[-1]


def get(url: str, **headers: str) -> HTTPResponse:
    response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30)
    assert isinstance(response, HTTPResponse)
    return response


def scrape(mount: Mount) -> Scrape:
    with get(f"{address(mount)}/metrics") as response:
        return parse(response.read().decode())


def append(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture(scope="module")
def mount(folder: Path) -> Iterator[Mount]:
    """A mount that has lost something, and has appended, flushed, recovered, compacted, deleted."""
    with Mount(folder / "data", folder / "mnt", "metrics=0") as mount:
        live(mount)
        yield mount


def live(mount: Mount) -> None:
    orders, prices, old = (mount.point / name for name in ("orders", "prices", "old"))
    orders.mkdir()
    append(orders / "0", b"lost or not\n" * 10)
    mount.kill()
    log = mount.data / "orders-0" / f"{0:020}.log"
    with log.open("ab") as file:
        file.write(GARBAGE)
    mount.start()
    append(orders / "0", b"one\ntwo\n")
    append(orders / "0", b"three\n")
    with (orders / "0").open("ab", buffering=0) as file:
        file.write(b"four\n")
        os.fsync(file.fileno())
    assert (orders / "0").read_bytes().endswith(b"three\nfour\n")
    assert run("ls", mount.point / "nosuch").returncode
    data = mount.data
    logfs("topic", "create", data / "prices", "--config", "cleanup.policy=compact")
    for number in range(9):
        append(prices / "0.tsv", b"key\tvalue %d\n" % number)
    logfs("compact", data / "prices", "--roll")
    logfs("topic", "create", data / "old", "--config", "retention.bytes=100")
    append(old / "0", b"x" * 500 + b"\n")
    with Daemon.connect(str(data)) or pytest.fail("no daemon") as daemon:
        daemon.ask("roll", {"topic": "old", "partition": 0})
        append(old / "0", b"y" * 500 + b"\n")
        assert len(daemon.ask("retention")) == 1
    append(old / "0", b"z\n")
    logfs("trim", data / "old" / "0@latest")


def test_every_metric_is_named_explained_and_typed_as_prometheus_wants_it(mount: Mount) -> None:
    found = scrape(mount)
    helps = re.findall(r"^# HELP (\S+) (.+)$", found.text, re.MULTILINE)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", found.text, re.MULTILINE))
    assert len(helps) == len(types)
    for name, text in helps:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
        assert text.strip()
        assert types[name] in ("gauge", "counter", "histogram", "summary")
        assert name.endswith("_total") == (types[name] == "counter"), name
        # Prometheus's base units, spelled out.
        assert not re.search(r"_(ms|millis\w*|micros\w*|secs?|kb|mb|percent)(_|$)", name), name
    for family in found.families.values():
        assert family.samples or family.name == "logfs_following_lag_bytes"
    assert sum(name.startswith("logfs_") for name, _ in helps) > 40


def test_appends_reads_and_flushes_are_counted(mount: Mount) -> None:
    found = scrape(mount)
    value = found.value
    assert value("logfs_topic_produce_requests_total", topic="orders") == 3
    assert value("logfs_topic_messages_in_total", topic="orders") == 4
    assert value("logfs_topic_messages_in_total", topic="prices") == 9
    size = sum(path.stat().st_size for path in (mount.data / "orders-0").glob("*.log"))
    assert value("logfs_log_size_bytes", topic="orders", partition="0") == size
    assert 0 < value("logfs_topic_bytes_in_total", topic="orders") < size
    assert value("logfs_topic_bytes_out_total", topic="orders") == 10 * 12 + 8 + 6 + 5
    assert value("logfs_log_start_offset", topic="orders", partition="0") == 0
    assert value("logfs_log_end_offset", topic="orders", partition="0") == 14
    assert value("logfs_log_unflushed_offsets", topic="orders", partition="0") == 0
    assert value("logfs_log_offline", topic="orders", partition="0") == 0
    appends = value("logfs_log_append_duration_seconds_count")
    assert appends == 3 + 9 + 3
    assert value("logfs_log_append_duration_seconds_bucket", le="+Inf") == appends
    assert value("logfs_log_append_duration_seconds_sum") > 0
    assert value("logfs_log_flush_duration_seconds_count") >= 1


def test_recoveries_losses_compactions_and_deletions_are_counted(mount: Mount) -> None:
    value = scrape(mount).value
    assert value("logfs_recoveries_total") == 1
    assert value("logfs_recovered_segments_total") == 1
    assert value("logfs_recovered_bytes_total") > len(GARBAGE)
    assert value("logfs_recovery_seconds_total") > 0
    assert value("logfs_losses_total", topic="orders", kind="cut") == 1
    assert value("logfs_lost_bytes_total", topic="orders", kind="cut") == len(GARBAGE)
    assert value("logfs_losses_total", topic="prices", kind="cut") == 0
    rounds = value("logfs_log_cleaner_rounds_total")
    assert rounds >= 1
    before = value("logfs_log_cleaner_bytes_read_total")
    assert before > value("logfs_log_cleaner_bytes_written_total") > 0
    deleted = "logfs_retention_deleted_segments_total"
    assert value(deleted, topic="old", reason="retention.bytes") >= 1
    assert value(deleted, topic="old", reason="trim") >= 1
    assert value("logfs_retention_deleted_bytes_total", topic="old", reason="trim") > 0


def test_requests_and_the_machine_are_counted(mount: Mount) -> None:
    value = scrape(mount).value
    assert value("logfs_requests_total", operation="fsync") == 1
    assert value("logfs_request_errors_total", operation="lookup", errno="ENOENT") >= 1
    assert value("logfs_partitions") == 3
    assert value("logfs_offline_partitions") == 0
    assert value("logfs_disk_size_bytes") > value("logfs_disk_free_bytes") > 0
    assert value("process_open_fds") > 3
    size = value("logfs_log_size_bytes", topic="orders", partition="0")
    cached = value("logfs_log_page_cache_bytes", topic="orders", partition="0")
    assert cached == value("logfs_log_page_cache_looked_at_bytes", topic="orders", partition="0")
    assert cached == size


def test_open_files_are_counted_while_they_are_open(mount: Mount) -> None:
    with (mount.point / "orders" / "0").open("rb"), (mount.point / "orders" / "0").open("ab"):
        wait_until(lambda: _open_files(mount) == (1, 1), "what is open is counted again")
    wait_until(lambda: _open_files(mount) == (0, 0), "what was open is counted no more")


def _open_files(mount: Mount) -> tuple[float, float]:
    found = scrape(mount)
    modes = ("read", "append")
    read, append = (found.value("logfs_open_files", mode=mode) for mode in modes)
    return read, append


def test_the_same_facts_are_in_meta(mount: Mount) -> None:
    orders, old, prices = (
        json.loads((mount.point / topic / "0.meta").read_bytes())
        for topic in ("orders", "old", "prices")
    )
    assert orders["since_start"]["appends"] == 3
    assert orders["since_start"]["recovered_bytes"] > len(GARBAGE)
    assert orders["latency"]["append"]["count"] == 3
    assert orders["latency"]["flush"]["count"] >= 1
    assert orders["page_cache"]["cached_bytes"] == orders["size_bytes"]
    assert [loss["bytes"] for loss in orders["losses"]] == [len(GARBAGE)]
    assert old["retention"]["deleted_segments"] >= 2
    assert old["retention"]["deleted_because_of"]["retention.bytes"] >= 1
    assert old["retention"]["last_look"] > 0
    assert prices["cleaner"]["bytes_read"] > 0


def test_the_loss_is_in_the_log_with_place_and_size(mount: Mount) -> None:
    line = next(line for line in mount.log.splitlines() if "were cut" in line)
    assert f"orders-0/{0:020}.log: {len(GARBAGE)} bytes from byte" in line
    assert line.endswith(f", {len(GARBAGE)} bytes]")
    scanned = int(scrape(mount).value("logfs_recovered_bytes_total"))
    assert f"INFO orders/0: recovered, 1 segments of {scanned} bytes scanned in " in mount.log


def test_the_command_prints_what_a_scrape_gets(mount: Mount) -> None:
    scraped, printed = scrape(mount), parse(logfs("metrics", mount.data).decode())
    # The endpoint asks the mount, from outside of the event loop; the daemon answers the command.
    assert printed.samples() == scraped.samples() - {"logfs_mount_answers"}
    assert printed.value("logfs_log_end_offset", topic="orders") == 14
    summary = json.loads(logfs("metrics", mount.point, "--json"))
    assert summary["logfs_recoveries_total"] == 1
    assert summary["logfs_log_append_duration_seconds"]["count"] == 15
    assert {"operation": "fsync", "value": 1} in summary["logfs_requests_total"]
    assert "logfs_log_end_offset" not in summary


def test_clients_that_know_open_metrics_get_it(mount: Mount) -> None:
    accept = "application/openmetrics-text; version=1.0.0"
    with get(f"{address(mount)}/metrics", Accept=accept) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        text = response.read().decode()
    families = {family.name for family in parse_open_metrics(text)}  # type: ignore[no-untyped-call]  # it has no annotations
    assert "logfs_topic_messages_in" in families


def test_health(mount: Mount) -> None:
    with get(f"{address(mount)}/healthz") as response:
        assert (response.status, response.read()) == (200, b"ok\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", 200),
        (b"\xff\xfe\r\n\r\n", 400),
        (b"x" * 9000, 400),
    ],
)
def test_other_paths_and_methods_get_an_answer(mount: Mount, request_: bytes, status: int) -> None:
    host, _, port = address(mount).removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(request_)
        answer = client.makefile("rb").readline()
    assert answer.split()[1] == b"%d" % status


def test_a_client_that_hangs_delays_neither_the_next_nor_the_mount(mount: Mount) -> None:
    host, _, port = address(mount).removeprefix("http://").rpartition(":")
    hanging = [socket.create_connection((host, int(port))) for _ in range(8)]
    try:
        for client in hanging:
            client.sendall(b"GET /metr")
        assert scrape(mount).value("logfs_partitions") == 3
        assert (mount.point / "orders" / "0").read_bytes()
    finally:
        for client in hanging:
            client.close()


def test_with_too_many_clients_the_oldest_are_disconnected(mount: Mount) -> None:
    host, _, port = address(mount).removeprefix("http://").rpartition(":")
    clients = [socket.create_connection((host, int(port)), timeout=30) for _ in range(40)]
    try:
        for client in clients[:15]:
            client.sendall(b"GET /")
        assert clients[0].recv(1) == b""
        assert is_served(mount)
    finally:
        for client in clients:
            client.close()
    wait_until(lambda: is_served(mount), "others were served again")


def is_served(mount: Mount) -> bool:
    try:
        return scrape(mount).value("logfs_partitions") == 3
    except (OSError, urllib.error.URLError, AssertionError):
        return False


def test_queries_of_the_examples_name_metrics_that_exist(mount: Mount, tmp_path: Path) -> None:
    dashboard = json.loads((ROOT / "examples" / "grafana" / "logfs.json").read_text())
    queries = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])
    ]
    rules = (ROOT / "examples" / "prometheus" / "logfs.rules.yml").read_text()
    named = {name for query in [*queries, rules] for name in OWN_NAME.findall(query)}
    assert len(named) > 40
    known = scrape(mount).samples() | followed(tmp_path)
    made_only_with_one = (
        remote.NAMES
        | mirrors.NAMES
        | forwards.NAMES
        | groups.NAMES
        | topicquotas.NAMES
        | users.NAMES
    )
    assert not named - known - made_only_with_one
    shown = {name.removesuffix(suffix) for name in named for suffix in ("", *SUFFIXES)}
    families = {
        sample.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        for sample in known
        if sample.startswith("logfs_")
    }
    assert sorted(families - shown) == []  # a panel for each


def followed(folder: Path) -> set[str]:
    """Return the metrics of a read-only mount."""
    (folder / "theirs").mkdir()
    with opened_store(folder / "theirs") as store:
        store.create_topic("orders", 1, {}, 0)
    with Mount(folder / "theirs", folder / "there", "ro", "metrics=0") as mount:
        found = scrape(mount)
    assert found.value("logfs_following_lag_bytes", topic="orders", partition="0") == 0
    return found.samples()


def test_a_socket_instead_of_a_port(tmp_path: Path) -> None:
    place = tmp_path / "metrics.socket"
    with Mount(tmp_path / "data", tmp_path / "mnt", f"metrics={place}") as mount:
        assert place.stat().st_mode & 0o777 == 0o660
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(place))
            client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert client.makefile("rb").read().endswith(b"\r\n\r\nok\n")
        mount.crash()  # what a daemon that died has left is replaced
        assert place.is_socket()
    assert not place.exists()


def test_a_port_that_is_taken_is_said_before_anything_is_mounted(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        for name in ("data", "mnt"):
            (tmp_path / name).mkdir()
        where = tmp_path / "data", tmp_path / "mnt"
        outcome = run(*COMMAND, "mount", *where, "-o", f"metrics={port}")
    assert outcome.returncode == 1
    error = outcome.stderr.decode()
    assert error.startswith(f"logfs: metrics=127.0.0.1:{port}: Address already in use; expected a")


def test_without_the_option_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        threads = {
            path.read_text().strip() for path in Path(f"/proc/{mount.pid}/task").glob("*/comm")
        }
    assert "metrics" not in threads
    program = "import logfs.fs.session.mount, sys; sys.exit('prometheus_client' in sys.modules)"
    assert run(sys.executable, "-c", program).returncode == 0


def test_errors_of_disks_are_counted_from_zero(mount: Mount) -> None:
    """``increase()`` of a series that begins with the first error is 0."""
    found = scrape(mount)
    for operation in ("read", "write", "fsync", "open", "lookup"):
        for number in ("EIO", "ENOSPC"):
            assert found.value("logfs_request_errors_total", operation=operation, errno=number) == 0


def test_without_metrics_of_topics_their_names_do_not_appear(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt", "metrics=0", "no_topic_metrics") as mount:
        for topic in ("secret", "plans"):
            (mount.point / topic).mkdir()
            with (mount.point / topic / "0").open("a") as file:
                file.write("a\nb\n")
        found = scrape(mount)
        with urllib.request.urlopen(f"{address(mount)}/metrics") as answer:
            text = answer.read().decode()
    assert found.value("logfs_topic_messages_in_total", topic="") == 4
    assert found.value("logfs_losses_total", topic="", kind="cut") == 0
    assert found.value("logfs_mount_answers") == 1
    assert "secret" not in text
    assert "partition=" not in text
