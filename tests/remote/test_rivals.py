"""Two daemons write one topic to one store: one of them wins, and no record is lost."""

from collections import Counter
from pathlib import Path

import pytest

from tests.long import Limits
from tests.remote.rivals import Rivals
from tests.remote.servers import Bucket, ObjectServer

pytestmark = [pytest.mark.fuse, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _environment(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)


def test_one_of_two_daemons_has_the_store_and_the_other_keeps_its_records(
    tmp_path: Path, bucket: Bucket
) -> None:
    with Rivals(tmp_path, bucket, seed=1) as rivals:
        rivals.fork(common=4000)
        rivals.disturb(steps=4, most_lines=3000)
        rivals.check()


@pytest.mark.long
def test_two_daemons_that_are_killed_again_and_again(
    tmp_path: Path, object_server: ObjectServer, limits: Limits, counts: Counter[str]
) -> None:
    number = 0
    while counts["kills of rivals"] < limits.kills and not limits.is_over:
        number += 1
        directory = tmp_path / str(number)
        directory.mkdir()
        bucket = object_server.bucket(f"rivals-{number}")
        with Rivals(directory, bucket, limits.seed + number) as rivals:
            rivals.fork(common=20 * number % 9000)
            rivals.disturb(steps=40, most_lines=5000)
            rivals.check()
            counts["kills of rivals"] += rivals.kills
        counts["rounds of rivals"] += 1
