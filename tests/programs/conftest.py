"""Mounts with a topic for each kind of program, whose oldest records retention has removed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logfs.log.lines.writer import LineWriter
from logfs.types import View
from tests.mounting import Mount, now_ms, opened_store

TOPICS = ("web", "orders", "app", "syslog", "journal")
FRUIT = ("apple", "plum", "pear")
TRIMMED = 1_000
LINES = 2_000


def request(number: int) -> str:
    """Return a line of an access log; every one is different."""
    status = 404 if number % 13 == 0 else 200
    when = f"21/Nov/2026:{10 + number // 3600:02}:{number // 60 % 60:02}:{number % 60:02} +0000"
    return (
        f'10.0.0.{number % 7} - - [{when}] "GET /p{number % 11} HTTP/1.1" {status} {number} "-" "-"'
    )


class Logs(NamedTuple):
    """A mount and what is kept in its topics.

    Attributes:
        mount: The mount.
        web: Lines of ``web/0``, an access log.
        orders: Keys and values of ``orders/0``.
    """

    mount: Mount
    web: list[str]
    orders: list[tuple[str, str]]

    @property
    def point(self) -> Path:
        """The mount point."""
        return self.mount.point


def filled(data: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """Make the topics, and delete what is at the beginning of web and orders; returns the rest."""
    web = [request(number) for number in range(LINES)]
    orders = [(FRUIT[number % 3], f"order {number}") for number in range(LINES)]
    data.mkdir()
    with opened_store(data) as store:
        for topic in TOPICS:
            store.create_topic(topic, 1, {}, now_ms())
        for topic, view, lines in (
            ("web", View.TEXT, web),
            ("orders", View.TSV, [f"{key}\t{value}" for key, value in orders]),
        ):
            log = store.partition(topic, 0)
            writer = LineWriter(log, view)
            writer.write("".join(f"{line}\n" for line in lines).encode(), now_ms())
            writer.close(now_ms())
            log.advance_log_start_offset(TRIMMED, now_ms())
    return web[TRIMMED:], orders[TRIMMED:]


@contextlib.contextmanager
def mounted_logs(directory: Path, *options: str) -> Iterator[Logs]:
    """Mount such topics, in a directory."""
    web, orders = filled(directory / "data")
    with Mount(directory / "data", directory / "mnt", *options) as mount:
        yield Logs(mount, web, orders)


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logs]:
    """A mount for tests that leave its daemon alone, and append to the topic app only."""
    with mounted_logs(tmp_path_factory.mktemp("programs")) as logs:
        yield logs


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Logs]:
    """A mount of a test's own."""
    with mounted_logs(tmp_path) as logs:
        yield logs
