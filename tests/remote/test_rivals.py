"""Two daemons write one topic to one store: one of them wins, and no record is lost."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.long import Limits
from tests.mounting import COMMAND, environment, logfs, wait_until
from tests.remote.rivals import Rivals
from tests.remote.servers import Bucket, ObjectServer

pytestmark = [
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.usefixtures("bucket_environment"),
]


@pytest.mark.parametrize("is_clone", [False, True])
def test_one_of_two_daemons_has_the_store_and_the_other_keeps_its_records(
    tmp_path: Path, bucket: Bucket, is_clone: bool
) -> None:
    with Rivals(tmp_path, bucket, seed=1) as rivals:
        rivals.fork(common=4000, is_clone=is_clone)
        rivals.disturb(steps=4, most_lines=3000)
        winner = rivals.check()
        assert is_clone or winner is rivals.pair[0]


def test_a_copy_that_is_started_for_a_look_stops_no_daemon_until_it_takes_over(
    tmp_path: Path, bucket: Bucket
) -> None:
    with Rivals(tmp_path, bucket, seed=2) as rivals:
        first, copy = rivals.pair
        rivals.fork(common=4000, is_clone=False, is_running=True)
        copy.append(2000)
        wait_until(lambda: copy.is_stopped, "it is refused")
        assert "stop the daemon, then 'logfs remote take-over'" in copy.mount.log
        assert not first.is_stopped
        first.append(2000)
        wait_until(first.has_copied, "the first one copies")
        copy.mount.stop()
        outcome = subprocess.run(
            [*COMMAND, "remote", "take-over", copy.mount.data],
            env=environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert outcome.returncode == 1  # the store has records that the copy does not have
        assert "does not have; its log ends at" in outcome.stderr or "another one" in outcome.stderr
        assert not first.is_stopped


def test_a_copy_that_has_taken_over_is_the_owner(tmp_path: Path, bucket: Bucket) -> None:
    with Rivals(tmp_path, bucket, seed=3) as rivals:
        _, copy = rivals.pair
        rivals.fork(common=4000, is_clone=False, is_running=True)
        copy.mount.stop()
        logfs("remote", "take-over", str(copy.mount.data))
        copy.mount.start()
        winner = rivals.check()
        assert winner is copy


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
            rivals.fork(common=20 * number % 9000, is_clone=number % 2 == 0)
            rivals.disturb(steps=40, most_lines=5000)
            rivals.check()
            counts["kills of rivals"] += rivals.kills
        counts["rounds of rivals"] += 1
