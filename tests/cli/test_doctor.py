"""``logfs doctor``: what is in a report, and what is not."""

from pathlib import Path

import pytest

from logfs.cli.diagnosis import Section, hide_secrets, report
from tests.cli.conftest import Call, Mounted, fill, run

TITLES = [
    "logfs",
    "machine",
    "limits and kernel",
    "mounts",
    "status",
    "daemon",
    "log of the daemon",
    "configuration",
    "settings of the directory",
    "files",
]


def titles(text: str) -> list[str]:
    return [line.removeprefix("== ") for line in text.splitlines() if line.startswith("== ")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('sasl.password = "hunter2"', "sasl.password = (hidden)"),
        ("sasl.jaas.config=Login required username=u password=p;", "sasl.jaas.config=(hidden)"),
        ('options = ["token=abc", "umask=027"]', 'options = ["token=(hidden)", "umask=027"]'),
        ("store.url=s3://user:pw@host/bucket", "store.url=s3://(hidden)@host/bucket"),
        ("2026 ERROR secret_key='a b' refused", "2026 ERROR secret_key=(hidden) refused"),
        ("retention.ms=86400000", "retention.ms=86400000"),
        ("partition.metadata: 12 bytes", "partition.metadata: 12 bytes"),
    ],
)
def test_secrets_are_hidden(text: str, shown: str) -> None:
    assert hide_secrets(text) == shown


def test_a_section_that_fails_does_not_hide_the_others() -> None:
    def fail() -> list[str]:
        raise PermissionError(13, "Permission denied", "/x")

    text = "".join(report([Section("a", fail), Section("b", lambda: ["there"])]))
    assert text.startswith("== a\nnot available: PermissionError: ")
    assert text.endswith("== b\nthere\n\n")


def test_a_report_on_a_stopped_directory(logfs: Call, tmp_path: Path) -> None:
    data, output = tmp_path / "data", tmp_path / "report.txt"
    data.mkdir()
    logfs("topic", "create", data / "orders", "--config", "retention.ms=12345")
    fill(data, {"orders/0": b"UNSPOKEN line\n"})
    assert logfs("doctor", data, "--output", output) == (0, b"", [])
    text = output.read_text()
    assert titles(text) == TITLES
    assert "UNSPOKEN" not in text
    assert "not available" not in text
    for fact in ("retention.ms=12345", "orders-0/00000000000000000000.log", '"free_bytes"'):
        assert fact in text


@pytest.mark.expect_log("orders/0 could not be loaded", "a symbolic link")
def test_links_in_the_directory_are_not_followed(logfs: Call, tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    logfs("topic", "create", data / "orders")
    outside.write_text("UNSPOKEN=1\n")
    config = data / "orders-0" / "logfs.config"
    config.unlink()
    config.symlink_to(outside)
    text = logfs("doctor", data).out.decode()
    assert titles(text) == TITLES
    assert "UNSPOKEN" not in text
    assert "a symbolic link, which is not followed" in text


def test_a_report_on_a_mount_has_no_records(mounted: Mounted) -> None:
    run("topic", "create", mounted.data / "orders")
    with (mounted.point / "orders" / "0.jsonl").open("ab", buffering=0) as file:
        file.write(b'{"key":"UNSPOKEN","value":"UNSPOKEN"}\n')
        with pytest.raises(OSError, match="Invalid argument"):
            file.write(b'{"UNSPOKEN":\n')
    with (mounted.point / "orders" / "0").open("ab", buffering=0) as file:
        file.write(b"UNSPOKEN unfinished")
        outcome = run("doctor", mounted.point)
    assert outcome.status == 0, outcome
    text = outcome.out.decode()
    assert titles(text) == TITLES
    assert "UNSPOKEN" not in text
    assert "not available" not in text
    assert f"process {mounted.pid} at {mounted.point}" in text
    assert "fuse.logfs" in text
