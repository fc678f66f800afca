"""What commands say of batches that take more memory than they may."""

from pathlib import Path

import pytest

from logfs.log.lines.writer import LineWriter
from logfs.types import View
from tests.cli.conftest import open_store, run
from tests.fakes import START_MS

LARGE = b"v" * (3 << 20) + b"\n"
SETTING = "logfs.decompressed.max.bytes (of a command: --decompressed-max-bytes)"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a batch of some hundred bytes that holds 3 MiB."""
    path = tmp_path / "data"
    path.mkdir()
    store = open_store(path)
    properties = {"compression.type": "zstd", "max.message.bytes": "8388608"}
    store.create_topic("orders", 1, properties, START_MS)
    for lines in (b"before\n", LARGE, b"behind\n"):
        writer = LineWriter(store.partition("orders", 0), View.TEXT)
        assert writer.write(lines, START_MS) == len(lines)
    store.close(START_MS)
    assert (path / "orders-0/00000000000000000000.log").stat().st_size < 2000
    return path


def test_cat_stops_at_a_batch_that_is_too_large_and_names_the_setting(data: Path) -> None:
    cat = run("--decompressed-max-bytes", str(1 << 20), "cat", data / "orders/0")
    assert cat.out == b"before\n"
    assert cat.status == 1
    assert SETTING in "\n".join(cat.errors)
    assert "more than 1048576 bytes" in "\n".join(cat.errors)
    cat = run("--decompressed-max-bytes", str(4 << 20), "cat", data / "orders/0")
    assert cat.out == b"before\n" + LARGE + b"behind\n"


def test_verify_names_the_setting(data: Path) -> None:
    verify = run("--decompressed-max-bytes", str(1 << 20), "verify", data)
    assert SETTING in verify.out.decode()
    assert verify.status == 1
    assert run("verify", data).status == 0
