"""Spark reads the logs of an object store.

With ``make test-long`` on executors, too, that share nothing but the store.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from logfs.log.reading.lookup import offset_for_time
from logfs.services.following.files import FollowedSegments
from logfs.services.scanning.stored import StoredLog
from logfs.types import IsolationLevel
from tests.fakes import START_MS
from tests.kafka.jars import SMALL
from tests.mounting import environment
from tests.remote.accounts import SOURCES, Accounts, Platform
from tests.remote.accounts import accounts as accounts
from tests.remote.accounts import platform as platform
from tests.remote.buckets import TP, bucket_disk
from tests.remote.stored import make_stored
from tests.remote.test_bucket import Origin
from tests.spark.conftest import ROOT


def test_a_moment_is_found_with_three_requests_after_a_listing() -> None:
    origin = Origin(segments=20)
    disk = bucket_disk(origin.store)
    origin.store.counts.clear()
    log = StoredLog(disk, FollowedSegments(disk, 16), TP)
    log.refresh(origin.bench.now_ms)
    assert log.latest(IsolationLevel.READ_UNCOMMITTED, 0) == origin.tiered.entries[-1].next_offset
    assert origin.store.counts == {"list_level": 1, "get": 1}
    moment = START_MS + 700_000
    found = log.offset_for_time(moment, IsolationLevel.READ_UNCOMMITTED, origin.bench.now_ms)
    assert found == offset_for_time(origin.log.snapshot, moment)
    seen = {key for operation, key in origin.store.asked if operation == "get_range"}
    assert len(seen) == 2  # the indexes of one segment, and its records


def read_by_spark(
    master: str, url: str, names: list[str], variables: Mapping[str, str], directory: Path
) -> dict[str, Any]:
    """Return what Spark's processes have read."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.spark.from_store", master, url, *names],
        cwd=directory,
        env=environment(
            PYTHONPATH=str(ROOT),
            PYSPARK_PYTHON=sys.executable,
            JDK_JAVA_OPTIONS=" ".join(SMALL),
            SPARK_LOCAL_IP="127.0.0.1",
            **variables,
        ),
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


MASTERS = ["local[2]", pytest.param("local-cluster[1,2,1024]", marks=pytest.mark.long)]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("master", MASTERS)
def test_executors_read_a_store_while_their_key_is_renewed_again_and_again(
    accounts: Accounts, tmp_path: Path, platform: Platform, master: str
) -> None:
    bucket, stored = accounts.bucket(), make_stored(tmp_path / "stored")
    store = bucket.open()
    for path in stored.bucket.rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(stored.bucket)), [path.read_bytes()])
    (tmp_path / "home").mkdir()
    source = SOURCES["named"](tmp_path / "home", platform)
    settings = ["AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_EC2_METADATA_DISABLED"]
    variables = {name: source.variables[name] for name in settings}
    key = accounts.add()
    source.give(key)
    ends = threading.Event()

    def renew() -> None:
        old = key
        while not ends.wait(0.5):
            new = accounts.add()
            source.give(new)
            accounts.remove(old)
            old = new

    since = "orders/0@2023-11-14T22:13:22Z"
    names = ["orders", "orders/0@offset=990..offset=1010", "orders/1", since]
    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        variables |= {"AWS_ACCESS_KEY_ID": "", "AWS_ENDPOINT_URL": bucket.endpoint}
        found = read_by_spark(master, bucket.url, names, variables, tmp_path)
    finally:
        ends.set()
        renewing.join()
    rows = [[0, n, f"key {n % 7}", f"line {n} of partition 0"] for n in range(3000)]
    rows += [[1, n, f"key {n % 7}", f"line {n} of partition 1"] for n in range(10)]
    assert found["orders"] == rows
    assert found[names[1]] == rows[990:1010]
    assert found["orders/1"] == rows[3000:]
    first = -(-(1_700_000_002_000 - START_MS) // 9)
    assert found[since] == rows[first:3000]
    assert found["streamed"] == len(rows)
    assert "read-only" in found["refusal"]
