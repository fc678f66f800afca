"""A proxy answers in the place of the store with status 200: nothing is lost, and all goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mounting import Mount, wait_until
from tests.remote.answers import Answers, Reply, Request
from tests.remote.servers import Bucket
from tests.remote.test_tiered_mount import append, make_topic, remote_of, text, tiered_mount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

MODIFIED = "Sat, 28 Nov 2026 10:00:00 GMT"
PORTAL = Reply(200, {"ETag": '"a"', "Last-Modified": MODIFIED}, b"<html>Please log in</html>")


@pytest.fixture
def answers(bucket: Bucket) -> Iterator[Answers]:
    with Answers(bucket.endpoint) as proxy:
        yield proxy


def local_logs(mount: Mount) -> list[Path]:
    return sorted((mount.data / "orders-0").glob("*.log"))


def wait_until_dropped(mount: Mount, file: Path, segments: int) -> None:
    """Wait until so many segments are in the store, and in the store alone."""

    def is_dropped() -> bool:
        found = remote_of(file)["remote_only_segments"], len(local_logs(mount))
        return found == (segments, 1)

    wait_until(is_dropped, "the local files are gone")


def puts_of_objects(request: Request) -> Reply | None:
    is_head = request.path.partition("?")[0].endswith("logfs-head")
    return PORTAL if request.method == "PUT" and not is_head else None


@pytest.mark.parametrize("rule", [puts_of_objects, lambda _: PORTAL], ids=["puts", "all"])
def test_a_page_in_the_place_of_the_store_loses_no_record(
    tmp_path: Path, bucket: Bucket, answers: Answers, rule: object
) -> None:
    with tiered_mount(tmp_path, replace(bucket, endpoint=answers.endpoint)) as mount:
        file, lines = make_topic(mount), text(0, 60_000)
        append(file, lines[:3_000_000])
        wait_until_dropped(mount, file, 3)
        answers.rule = rule  # type: ignore[assignment]
        append(file, lines[3_000_000:])
        wait_until(lambda: remote_of(file)["error"], "the daemon is told")
        assert len(local_logs(mount)) == 4
        answers.rule = None
        wait_until_dropped(mount, file, 6)
        assert file.read_bytes() == lines
        assert remote_of(file)["error"] is None
