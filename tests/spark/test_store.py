"""Spark reads the logs of an object store, on executors that share nothing but the store."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from logfs.log.following.files import FollowedSegments
from logfs.log.reading.lookup import offset_for_time
from logfs.log.scanning.stored import StoredLog
from logfs.types import IsolationLevel
from tests.fakes import START_MS
from tests.kafka.jars import SMALL
from tests.mounting import environment
from tests.remote.buckets import TP, bucket_disk
from tests.remote.servers import Bucket
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


@pytest.mark.spark
@pytest.mark.slow
def test_executors_read_a_store(bucket: Bucket, tmp_path: Path) -> None:
    stored = make_stored(tmp_path)
    store = bucket.open()
    for path in stored.bucket.rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(stored.bucket)), [path.read_bytes()])
    since = "orders/0@2023-11-14T22:13:22Z"
    names = ["orders", "orders/0@offset=990..offset=1010", "orders/1", since]
    master = "local-cluster[1,2,1024]"
    result = subprocess.run(
        [sys.executable, "-m", "tests.spark.from_store", master, bucket.url, *names],
        cwd=tmp_path,
        env=environment(
            PYTHONPATH=str(ROOT),
            PYSPARK_PYTHON=sys.executable,
            JDK_JAVA_OPTIONS=" ".join(SMALL),
            SPARK_LOCAL_IP="127.0.0.1",
            **bucket.environment,
        ),
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout.splitlines()[-1])
    rows = [[0, n, f"key {n % 7}", f"line {n} of partition 0"] for n in range(3000)]
    rows += [[1, n, f"key {n % 7}", f"line {n} of partition 1"] for n in range(10)]
    assert found["orders"] == rows
    assert found[names[1]] == rows[990:1010]
    assert found["orders/1"] == rows[3000:]
    first = -(-(1_700_000_002_000 - START_MS) // 9)
    assert found[since] == rows[first:3000]
    assert found["streamed"] == len(rows)
    assert "read-only" in found["refusal"]
