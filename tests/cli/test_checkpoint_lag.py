"""``logfs offsets --checkpoint``: where a streaming query of Spark is, and its lag."""

import json
from pathlib import Path

import pytest

import logfs as library
from tests.cli.conftest import Call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    with library.open_store(path) as store:
        store.create_topic("orders", 2)
        for number in range(2):
            store.partition("orders", number).append_many([b"x"] * 5)
    return path


def checkpoint(path: Path, batches: list[dict[str, dict[str, int]]], completed: int) -> Path:
    """Write the files of a checkpoint, as Spark 4 writes them."""
    for name in ("offsets", "commits", "sources"):
        (path / name).mkdir(parents=True)
    for number, offsets in enumerate(batches):
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
        text = f"v1\n{metadata}\n{json.dumps(offsets)}"
        (path / "offsets" / str(number)).write_text(text)
        (path / "offsets" / f".{number}.crc").write_bytes(b"crc")
        if number < completed:
            (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return path


def test_the_lag_is_counted_from_the_last_completed_batch(
    logfs: Call, data: Path, tmp_path: Path
) -> None:
    batches = [{"orders": {"0": 2, "1": 1}}, {"orders": {"0": 4, "1": 5}}, {"orders": {"0": 5}}]
    path = checkpoint(tmp_path / "query", batches, 2)
    lines = logfs("offsets", data, "--checkpoint", path).out.decode().splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        ["orders/0", "4", "5", "1"],
        ["orders/1", "5", "5", "0"],
    ]
    [row] = json.loads(logfs("offsets", data / "orders" / "0", "--checkpoint", path, "--json").out)
    assert (row["lag"], row["metadata"]) == (1, "batch 1")
    assert 0 < row["lag_seconds"] < 600


@pytest.mark.parametrize(
    ("batches", "completed", "reason"),
    [
        ([{"orders": {"0": 2}}], 0, "no batch of the query is completed"),
        ([{"logOffset": {}}], 1, "a query over something else"),
    ],
)
def test_what_is_no_checkpoint_over_logs_is_refused(
    logfs: Call,
    data: Path,
    tmp_path: Path,
    batches: list[dict[str, dict[str, int]]],
    completed: int,
    reason: str,
) -> None:
    refused = logfs("offsets", data, "--checkpoint", checkpoint(tmp_path / "q", batches, completed))
    assert refused.status == 1
    assert reason in refused.errors[0]
    assert "no checkpoint of Spark" in logfs("offsets", data, "--checkpoint", data).errors[0]
    both = logfs("offsets", data, "--checkpoint", tmp_path / "q", "--time", "now")
    assert "excludes" in both.errors[0]
