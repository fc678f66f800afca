"""Records that were to be read and are gone, damaged or not there yet."""

import json
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from logfs.disk.posix import PosixDisk
from logfs.errors import (
    CorruptRecordError,
    DataLossError,
    NoDataDirectoryError,
)
from logfs.log.checkpoints import write_offsets
from logfs.log.names import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from logfs.spark.options import parse_options
from logfs.spark.schema import chosen
from logfs.types import TopicPartition
from tests.spark.logs import Logs
from tests.spark.reading import places

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.spark


def offsets(first: int, behind: int) -> list[int]:
    return list(range(first, behind))


@pytest.fixture
def ten(tmp_path: Path) -> Logs:
    """``t/0`` with ten records, in a directory that its writer has not let go of."""
    logs = Logs(tmp_path / "data")
    logs.topic("t")
    logs.write("t", 0, *(b"%d" % n for n in range(10)))
    return logs


def t_at(number: int) -> str:
    return json.dumps({"t": {"0": number}})


def note(logs: Logs, name: str, offset: int) -> None:
    write_offsets(PosixDisk(str(logs.path)), name, {TopicPartition("t", 0): offset})


def test_what_a_live_writer_has_written_is_read_by_the_next_load(ten: Logs) -> None:
    assert places(ten.path) == {"t/0": offsets(0, 10)}
    ten.write("t", 0, b"more")
    assert places(ten.path) == {"t/0": offsets(0, 11)}


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": t_at(2)},
        {"startingOffsets": t_at(11)},
        {"endingOffsets": t_at(11)},
    ],
)
@pytest.mark.allow_log("continuing with what is left")
def test_offsets_that_are_not_there_are_a_loss(ten: Logs, options: dict[str, str]) -> None:
    note(ten, LOG_START_OFFSET_CHECKPOINT, 4)
    with pytest.raises(DataLossError, match="set failOnDataLoss to false"):
        places(ten.path, **options)
    left = places(ten.path, failOnDataLoss="false", **options)
    expected = [] if "11" in str(options.get("startingOffsets")) else offsets(4, 10)
    assert left.get("t/0", []) == expected


def test_a_selector_before_the_log_is_its_start(ten: Logs) -> None:
    note(ten, LOG_START_OFFSET_CHECKPOINT, 4)
    for begin in ("offset=2", "earliest", "-90000d", "offset=-99"):
        assert places(ten.path, **{"from": begin}) == {"t/0": offsets(4, 10)}


def test_the_high_watermark_bounds_what_is_read(ten: Logs) -> None:
    note(ten, REPLICATION_OFFSET_CHECKPOINT, 6)
    level = {"kafka_isolation_level": "high_watermark"}
    assert places(ten.path, **level) == {"t/0": offsets(0, 6)}
    assert places(ten.path) == {"t/0": offsets(0, 10)}


@pytest.mark.allow_log("continuing with what is left")
def test_records_that_go_while_a_job_runs_are_a_loss(ten: Logs) -> None:
    from logfs.spark.batch import LogfsReader

    def planned(**options: str) -> tuple[LogfsReader, list[object]]:
        parsed = parse_options({"path": str(ten.path), **options}, UTC, is_stream=False)
        reader = LogfsReader(parsed, chosen([("offset", "bigint")]))
        return reader, list(reader.partitions())

    strict, strict_tasks = planned()
    lax, lax_tasks = planned(failOnDataLoss="false")
    for path in ten.path.glob("t-0/*.log"):
        path.unlink()
    with pytest.raises(DataLossError, match="t/0: offsets 0 to 9 are gone"):
        list(strict.read(strict_tasks[0]))
    assert list(lax.read(lax_tasks[0])) == []


def test_a_machine_without_the_data_directory_is_no_loss(ten: Logs) -> None:
    from logfs.spark.batch import LogfsReader

    for loss in ("true", "false"):
        parsed = parse_options(
            {"path": str(ten.path), "failOnDataLoss": loss}, UTC, is_stream=False
        )
        reader = LogfsReader(parsed, chosen([("offset", "bigint")]))
        (task,) = reader.partitions()
        away = ten.path.rename(ten.path.parent / "away")
        with pytest.raises(NoDataDirectoryError, match=r"data does not exist on this machine"):
            list(reader.read(task))
        ten.path.mkdir()  # a mount point where nothing is mounted
        with pytest.raises(NoDataDirectoryError, match=r"data holds no logs on this .* no.* apply"):
            list(reader.read(task))
        with pytest.raises(NoDataDirectoryError, match=r"holds no logs"):
            reader.partitions()
        ten.path.rmdir()
        away.rename(ten.path)
        assert sum(batch.num_rows for batch in reader.read(task)) == 10


def test_workers_get_the_path_unresolved(ten: Logs, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(ten.path)
    for path in (link, link / "t", link / "t" / "0@earliest"):
        assert parse_options({"path": str(path)}, UTC, is_stream=False).roots == (str(link),)
    inside = tmp_path / "inside"
    inside.symlink_to(ten.path / "t")  # not a link to a data directory
    parsed = parse_options({"path": f"{inside}/0"}, UTC, is_stream=False)
    assert parsed.roots == (str(ten.path),)


def test_damage_is_named(ten: Logs) -> None:
    (log,) = ten.path.glob("t-0/*.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    ten.write("t", 0, b"behind it")
    with pytest.raises(CorruptRecordError, match=r"t-0/0+\.log at byte 0"):
        places(ten.path)
