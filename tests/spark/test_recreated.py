"""A topic that was deleted and created again while a query had its offsets."""

import logging
from pathlib import Path

import pytest

from logfs.errors import DataLossError, InvalidConfigError
from logfs.spark.selection import parse_selection
from tests.spark.logs import Logs
from tests.spark.streams import Stream, offsets

pytestmark = pytest.mark.spark

OLD, NEW = 5, 8


def create_again(logs: Logs, records: int) -> None:
    logs.store.delete_topic("t", logs.now_ms)
    logs.topic("t")
    logs.write("t", 0, *(b"new %d" % n for n in range(records)))


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    logs = Logs(tmp_path / "data")
    logs.topic("t")
    logs.topic("other")
    logs.write("t", 0, *(b"old %d" % n for n in range(OLD)))
    logs.write("other", 0, b"one")
    return logs


@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "running"])
@pytest.mark.parametrize("records", [2, OLD, NEW], ids=["shorter", "equal", "longer"])
def test_records_of_a_topic_that_was_created_again_are_not_left_out_in_silence(
    logs: Logs, records: int, *, is_restarted: bool
) -> None:
    stream = Stream(logs, startingOffsets="earliest")
    assert stream.batch() == {"t/0": offsets(0, OLD), "other/0": [0]}
    create_again(logs, records)
    if is_restarted:
        stream = Stream(logs, stream.offset, startingOffsets="earliest")
    with pytest.raises(DataLossError, match=r"topic t was deleted and created again.*offset 4"):
        stream.batch()


@pytest.mark.expect_log("topic t was deleted and created again")
@pytest.mark.parametrize("records", [2, OLD, NEW], ids=["shorter", "equal", "longer"])
def test_without_fail_on_data_loss_the_new_topic_is_read_from_its_beginning(
    logs: Logs, records: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    stream = Stream(logs, **options)
    stream.batch()
    create_again(logs, records)
    logs.write("other", 0, b"two")
    stream = Stream(logs, stream.offset, **options)
    assert stream.batch() == {"t/0": offsets(0, records), "other/0": [1]}
    assert stream.batch() is None


def test_a_topic_that_is_created_again_after_its_batch_was_planned_is_a_loss(logs: Logs) -> None:
    stream = Stream(logs, startingOffsets="earliest")
    start = stream.offset
    stream.batch()
    end = stream.offset
    create_again(logs, NEW)
    with pytest.raises(DataLossError, match="created again"):
        stream.read(start, end)


def test_a_checkpoint_without_ids_continues(logs: Logs) -> None:
    stream = Stream(logs, {"t": {"0": 3}, "other": {"0": 1}}, startingOffsets="earliest")
    assert stream.batch() == {"t/0": offsets(3, OLD)}


@pytest.mark.parametrize("pattern", ["[a-z&&[^b]]", "[a--b]", "[[a]"])
def test_a_class_that_java_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidConfigError, match="Java reads this class"):
        parse_selection({"subscribePattern": pattern})
