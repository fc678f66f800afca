"""The lag of consumer groups, in the metrics and in ``logfs status``."""

import json
import re
from pathlib import Path

import pytest

import logfs as library
from tests.cli.conftest import Call
from tests.mounting import Mount
from tests.mounting import logfs as run


def test_status_shows_the_lag_of_groups(logfs: Call, tmp_path: Path) -> None:
    with library.open_store(tmp_path) as store:
        store.create_topic("orders", 2)
        for number in range(2):
            store.partition("orders", number).append_many([b"x"] * 5)
            store.partition("orders", number).commit("billing", 5 - 2 * number)
    lines = logfs("status", tmp_path).out.decode().splitlines()
    assert any(line.startswith("group billing has not read 2 records of orders") for line in lines)
    status = json.loads(logfs("status", "--json", tmp_path / "orders" / "1").out)
    [row] = status["groups"]
    assert (row["group"], row["partition"], row["position"], row["lag"]) == ("billing", 1, 3, 2)
    assert 0 < row["lag_seconds"] < 600


@pytest.mark.fuse
@pytest.mark.slow
def test_the_metrics_of_a_mount_show_the_lag_of_groups(tmp_path: Path) -> None:
    with Mount(tmp_path / "data", tmp_path / "mnt") as mount:
        (mount.point / "orders").mkdir()
        with library.open(mount.point / "orders" / "0") as orders:
            orders.append_many([b"x"] * 5)
            orders.commit("billing", 2)
        text = run("metrics", mount.point).decode()
        found = dict(
            re.findall(r"^(logfs_group\w+)\{.*group=\"billing\".*\} (\S+)$", text, re.MULTILINE)
        )
        assert float(found["logfs_group_committed_offset"]) == 2
        assert float(found["logfs_group_lag_records"]) == 3
        assert 0 < float(found["logfs_group_lag_seconds"]) < 600
