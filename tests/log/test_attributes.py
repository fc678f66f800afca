"""Remembered owners and modes: kept across restarts, lost loudly, never misread."""

import errno
import json

import pytest

from logfs.errors import UnsupportedFormatError
from logfs.log.attributes import Attributes, Ownership
from logfs.log.names import ATTRIBUTES
from tests.fakes import FakeDisk

NOTHING = Ownership()


def with_file(data: bytes) -> FakeDisk:
    disk = FakeDisk()
    disk.replace(ATTRIBUTES, data)
    return disk


def test_a_new_store_remembers_nothing_and_writes_nothing() -> None:
    disk = FakeDisk()
    assert Attributes(disk).get("orders", 0) == NOTHING
    assert disk.list("") == []


def test_topics_and_partitions_are_remembered_apart() -> None:
    disk = FakeDisk()
    attributes = Attributes(disk)
    attributes.set("orders", None, mode=0o750)
    attributes.set("orders", 0, uid=33, gid=34)
    attributes.set("orders", 0, mode=0o600)
    for found in (attributes, Attributes(disk)):
        assert found.get("orders", None) == Ownership(mode=0o750)
        assert found.get("orders", 0) == Ownership(0o600, 33, 34)
        assert found.get("orders", 1) == found.get("order", None) == NOTHING


def test_none_leaves_a_value_and_zero_sets_it() -> None:
    attributes = Attributes(FakeDisk())
    attributes.set("orders", 0, mode=0o600, uid=33, gid=34)
    attributes.set("orders", 0, mode=0, uid=0)
    assert attributes.get("orders", 0) == Ownership(0, 0, 34)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_what_was_set_survives_a_power_cut(seed: int | None) -> None:
    disk = FakeDisk()
    Attributes(disk).set("orders", None, uid=33)
    assert Attributes(disk.after_crash(seed)).get("orders", None) == Ownership(uid=33)


def test_the_file_is_json_that_people_can_read() -> None:
    disk = FakeDisk()
    Attributes(disk).set("orders", None, mode=448)
    Attributes(disk).set("orders", 0, uid=33, gid=33)
    entries = {"orders": {"mode": 448}, "orders/0": {"uid": 33, "gid": 33}}
    assert json.loads(disk.read(ATTRIBUTES)) == {"version": 1, "entries": entries}
    assert disk.read(ATTRIBUTES).endswith(b"}\n")


def test_a_deleted_topic_is_forgotten_with_its_partitions() -> None:
    disk = FakeDisk()
    attributes = Attributes(disk)
    for topic in ("orders", "orders.2"):
        attributes.set(topic, None, mode=1)
        attributes.set(topic, 0, mode=2)
    attributes.forget("orders")
    for found in (attributes, Attributes(disk)):
        assert found.get("orders", None) == found.get("orders", 0) == NOTHING
        assert found.get("orders.2", None).mode == 1
        assert found.get("orders.2", 0).mode == 2


def test_forgetting_what_was_never_set_writes_nothing() -> None:
    disk = FakeDisk()
    attributes = Attributes(disk)
    attributes.set("orders", None, mode=1)
    before = disk.counts.copy()
    attributes.forget("order")
    assert disk.counts == before


def test_a_failed_write_is_the_callers() -> None:
    disk = FakeDisk()
    attributes = Attributes(disk)
    disk.fail_next_write(f"{ATTRIBUTES}*", errno.ENOSPC)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        attributes.set("orders", None, mode=1)


@pytest.mark.expect_log("it does not parse")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"[]",
        b"7",
        b"{}",
        b'{"version": 1}',
        b'{"version": 1, "entries": []}',
        b'{"version": 1, "entries": {"orders": 7}}',
        b'{"version": 1, "entries": {"orders": {"colour": 7}}}',
        b'{"version": 1, "entries": {"orders": {"mode": "rw"}}}',
        b'{"version": 1, "entries": {"orders": {"mode": true}}}',
        b'{"version": 1, "entries": {"orders": {"mode": 1}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_damaged_file_is_reported_and_closes_the_mount_to_other_users(data: bytes) -> None:
    disk = with_file(data)
    attributes = Attributes(disk)
    assert attributes.get("orders", None) == Ownership(mode=0o700)
    assert attributes.get("orders", 0) == Ownership(mode=0o600)
    attributes.set("orders", None, mode=0o755)
    assert attributes.get("orders", None) == Ownership(mode=0o755)
    assert attributes.get("other", None) == Ownership(mode=0o700)
    assert disk.read(ATTRIBUTES) == data, "the file is left as it is, for the next start as well"


@pytest.mark.parametrize("version", ["2", '"1"', "null"])
def test_a_newer_file_is_refused_and_left(version: str) -> None:
    data = b'{"version": %s, "entries": {"o": {"x": 1}}}' % version.encode()
    disk = with_file(data)
    with pytest.raises(UnsupportedFormatError, match=r"logfs\.attributes: version .* reads"):
        Attributes(disk)
    assert disk.read(ATTRIBUTES) == data
