"""A proxy answers in the place of the store with status 200: nothing is lost, and all continues."""

import errno
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from logfs.disk.remote import s3
from tests.mounting import Mount, wait_until
from tests.remote.answers import Answers, Reply, Request, refusal
from tests.remote.servers import Bucket
from tests.remote.test_tiered_mount import append, make_topic, remote_of, text, tiered_mount

pytestmark = [pytest.mark.fuse, pytest.mark.slow]

MODIFIED = "Sat, 28 Nov 2026 10:00:00 GMT"
PORTAL = Reply(200, {"ETag": '"a"', "Last-Modified": MODIFIED}, b"<html>Please log in</html>")


@pytest.fixture
def answers(bucket: Bucket) -> Iterator[Answers]:
    with Answers(bucket.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "reply",
    [
        PORTAL,
        Reply(200, {"Last-Modified": MODIFIED}, PORTAL.body),
        Reply(200, {"ETag": '"a"', "Last-Modified": MODIFIED}, b""),
        Reply(200, {}, refusal(200, "InternalError").body),
        Reply(404, {}, b"<!DOCTYPE html><p>nothing here"),
    ],
    ids=["page", "page without etag", "empty", "error", "404"],
)
def test_an_answer_of_another_server_is_no_list_and_no_object(
    bucket: Bucket, answers: Answers, reply: Reply
) -> None:
    bucket.open().put("a/b", [b"1234"])
    store = replace(bucket, endpoint=answers.endpoint).open(timeout_s=1)
    answers.rule = lambda _: reply
    requests: tuple[Callable[[], object], ...] = (
        lambda: store.list_level("a/"),
        lambda: list(store.list_all("a/")),
        lambda: store.get_range("a/b", 0, 2),
    )
    for request in requests:
        with pytest.raises(OSError, match="is not that of an object store") as caught:
            request()
        assert caught.value.errno == errno.EIO
    answers.rule = None
    assert [stat.key for stat in store.list_level("a/").objects] == ["a/b"]
    assert not store.list_level("b/").objects
    assert not list(store.list_all("b/"))


def page_of(keys: list[str]) -> Reply:
    """Return a page of a list that another one follows."""
    rows = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-11-28T10:00:00.000Z</LastModified>"
        "<ETag>&quot;a&quot;</ETag><Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key in keys
    )
    text = (
        "<?xml version='1.0'?><ListBucketResult><IsTruncated>true</IsTruncated>"
        f"<NextContinuationToken>again</NextContinuationToken>{rows}</ListBucketResult>"
    )
    return Reply(200, {"Content-Type": "application/xml"}, text.encode())


@pytest.mark.parametrize("repeats", [True, False])
def test_a_list_without_an_end_is_an_error(
    bucket: Bucket, answers: Answers, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    monkeypatch.setattr(s3, "_MOST_LISTED", 5000)
    store = replace(bucket, endpoint=answers.endpoint).open(timeout_s=5)
    prefix = store.url.partition("://")[2].partition("/")[2]
    start = f"{prefix}/" if prefix else ""
    numbers = itertools.count()

    def next_page(_request: Request) -> Reply:
        first = 0 if repeats else 1000 * next(numbers)
        return page_of([f"{start}a/{first + number:09}" for number in range(1000)])

    answers.rule = next_page
    with pytest.raises(OSError, match="lists objects without an end"):
        for _ in store.list_all("a/"):
            pass


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


REFUSALS = [
    (400, "ExpiredToken"),
    (403, "RequestTimeTooSkewed"),
    (429, "TooManyRequests"),
    (503, "SlowDown"),
    (507, "InsufficientStorage"),
]


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_a_store_that_refuses_everything_for_a_while_loses_no_record(
    tmp_path: Path, bucket: Bucket, answers: Answers, status: int, code: str
) -> None:
    """Expired credentials, a clock that is off, a store that is busy or full."""
    with tiered_mount(tmp_path, replace(bucket, endpoint=answers.endpoint)) as mount:
        file, lines = make_topic(mount), text(0, 60_000)
        append(file, lines[:3_000_000])
        wait_until_dropped(mount, file, 3)
        answers.rule = lambda _: refusal(status, code)
        append(file, lines[3_000_000:])
        wait_until(lambda: code in (remote_of(file)["error"] or ""), "the daemon is told why")
        assert len(local_logs(mount)) == 4
        assert file.with_name("0@offset=50000").read_bytes() == lines[5_000_000:]
        answers.rule = None
        wait_until_dropped(mount, file, 6)
        assert file.read_bytes() == lines
        assert remote_of(file)["error"] is None
