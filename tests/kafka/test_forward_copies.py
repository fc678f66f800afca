"""Forwards from copies of a directory: nothing is taken for a repeat of the other's records."""

import shutil
from pathlib import Path

import pytest

from logfs.kafka.forwarding import Forward
from logfs.log.forwardfile import portable_note, read_notes
from logfs.machine.disks import disk_of
from tests.kafka.broker import Broker
from tests.kafka.client import Client
from tests.kafka.forwards import (
    RunningForward,
    append,
    check_forwarded,
    forward_now,
    forward_plan,
    make,
    some,
)

pytestmark = [pytest.mark.kafka, pytest.mark.allow_log("logfs.kafka.")]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def values(client: Client, topic: str) -> list[bytes | None]:
    return [record.value for record in client.consume(topic)]


def producers(data: Path, topic: str) -> list[int]:
    return [note.identity.producer_id for note in read_notes(disk_of(str(data)), f"{topic}-0")]


def refused(data: Path, plan_topic: str, bootstrap: str) -> Forward:
    """Forward what is there now, which fails."""
    plan = forward_plan(bootstrap, plan_topic, until_now=True)
    with RunningForward(data, plan) as running:
        running.wait_for_end()
    return running.forward


@pytest.mark.parametrize("is_set_back", [False, True])
def test_a_backup_with_other_records_is_refused_at_the_first_of_them(
    *, is_set_back: bool, shared_broker: Broker, client: Client, data: Path, copy: Path
) -> None:
    """Restored elsewhere, or the directory itself is set back to a snapshot."""
    topic = f"restored-{is_set_back}"
    client.create_topic(topic)
    make(data, topic)
    append(data, topic, some(100))
    plan = forward_plan(shared_broker.bootstrap, topic, until_now=True)
    forward_now(data, plan)
    shutil.copytree(data, copy)
    append(data, topic, some(20, 100))
    forward_now(data, plan)
    if is_set_back:
        for path in (data / f"{topic}-0").iterdir():
            path.unlink()
        shutil.copytree(copy, data, dirs_exist_ok=True)
        copy = data
    append(copy, topic, some(3, 100))
    append(copy, topic, some(40, 500))
    (failure,) = refused(copy, topic, shared_broker.bootstrap).failures
    assert f"{topic}/0: the destination has other records" in failure
    assert "--resume-at 103 sends what is here" in failure
    assert client.latest(topic) == 120
    forward_now(
        copy, forward_plan(shared_broker.bootstrap, topic, until_now=True, start=103, resumes=True)
    )
    expected = [record.value for record in [*some(120), *some(40, 500)]]
    assert values(client, topic) == expected


def test_two_that_run_at_once_send_the_records_of_both(
    shared_broker: Broker, client: Client, data: Path, copy: Path
) -> None:
    client.create_topic("two-at-once")
    make(data, "two-at-once")
    append(data, "two-at-once", some(10))
    plan = forward_plan(shared_broker.bootstrap, "two-at-once")
    with RunningForward(data, plan) as first:
        first.wait_for(10)
        shutil.copytree(data, copy)
        with RunningForward(copy, plan) as second:
            second.wait_for(10)
            for number in range(5):
                append(data, "two-at-once", some(1, 100 + number))
                first.wait_for(11 + number)
                append(copy, "two-at-once", some(1, 200 + number))
                second.wait_for(11 + number)
    expected = [record.value for record in some(10)]
    for number in range(5):
        expected += [record.value for record in [*some(1, 100 + number), *some(1, 200 + number)]]
    assert values(client, "two-at-once") == expected
    assert len({*producers(data, "two-at-once"), *producers(copy, "two-at-once")}) == 2


def test_a_directory_that_was_moved_continues_with_every_record_once(
    shared_broker: Broker, client: Client, data: Path, copy: Path
) -> None:
    """Its note is older than what was sent, as after a kill."""
    client.create_topic("moved")
    make(data, "moved")
    append(data, "moved", some(50))
    plan = forward_plan(shared_broker.bootstrap, "moved", until_now=True)
    forward_now(data, plan)
    (note,) = data.glob("moved-0/logfs.forward-????????")
    old = note.read_bytes()
    append(data, "moved", some(30, 50))
    forward_now(data, plan)
    note.write_bytes(old)
    shutil.copytree(data, copy)
    shutil.rmtree(data)
    append(copy, "moved", some(20, 80))
    forward_now(copy, plan)
    assert len(check_forwarded(client, copy, "moved")) == 100
    append(copy, "moved", some(5, 100))
    (before,) = producers(copy, "moved")
    forward_now(copy, plan)
    assert producers(copy, "moved") == [before]
    assert len(check_forwarded(client, copy, "moved")) == 105


def test_a_second_machine_sends_nothing_again_that_was_acknowledged(
    shared_broker: Broker, client: Client, data: Path, copy: Path
) -> None:
    """Its note is that of the last round of the journal, without the report of the process."""
    client.create_topic("second")
    make(data, "second")
    append(data, "second", some(50))
    plan = forward_plan(shared_broker.bootstrap, "second", until_now=True)
    forward_now(data, plan)
    (note,) = (data / "second-0").glob("logfs.forward-????????")
    sent = portable_note(note.read_bytes())
    append(data, "second", some(20, 50))
    forward_now(data, plan)
    shutil.copytree(data, copy)
    (copy / "second-0" / note.name).write_bytes(sent)
    append(copy, "second", some(5, 70))
    forward_now(copy, plan)
    assert values(client, "second") == [record.value for record in some(75)]
