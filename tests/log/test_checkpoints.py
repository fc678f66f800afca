"""The small text files: Kafka's bytes both ways, and every way they can be cut."""

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.errors import CorruptCheckpointError
from logfs.log import checkpoints, names
from logfs.log.checkpoints import EpochEntry
from logfs.types import TopicPartition
from tests.fakes import FakeDisk

OFFSETS = {TopicPartition("orders", 0): 1500, TopicPartition("orders", 10): 0}
OFFSET_FILE = b"0\n2\norders 0 1500\norders 10 0\n"
EPOCHS = [EpochEntry(0, 0), EpochEntry(3, 812)]
EPOCH_FILE = b"0\n2\n0 0\n3 812\n"
TOPIC_ID = UUID(bytes=bytes(range(16)))
METADATA_FILE = b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
SHUTDOWN_FILE = b'{"version":0,"brokerEpoch":-1}'

int64s = st.integers(0, 2**63 - 1)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
offset_maps = st.dictionaries(
    st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), int64s, max_size=8
)


def test_offset_checkpoint_as_kafka_writes_it() -> None:
    assert checkpoints.parse_offsets(OFFSET_FILE, "f") == OFFSETS
    assert checkpoints.format_offsets(OFFSETS) == OFFSET_FILE
    assert checkpoints.format_offsets({}) == b"0\n0\n"


def test_leader_epoch_checkpoint_as_kafka_writes_it() -> None:
    assert checkpoints.parse_leader_epochs(EPOCH_FILE, "f") == EPOCHS
    assert checkpoints.format_leader_epochs(EPOCHS) == EPOCH_FILE
    assert checkpoints.format_leader_epochs([]) == b"0\n0\n"


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_no_entries(data: bytes) -> None:
    assert checkpoints.parse_offsets(data, "f") == {}
    assert checkpoints.parse_leader_epochs(data, "f") == []


def test_fields_may_stand_apart() -> None:
    assert checkpoints.parse_offsets(b"0\n1\na  0 \t7\n", "f") == {TopicPartition("a", 0): 7}


@given(offset_maps)
def test_offset_checkpoints_come_back(offsets: dict[TopicPartition, int]) -> None:
    data = checkpoints.format_offsets(offsets)
    assert checkpoints.parse_offsets(data, "f") == offsets
    assert data.splitlines()[2:] == [
        f"{topic} {partition} {offset}".encode()
        for (topic, partition), offset in sorted(offsets.items())
    ]


@given(st.sets(st.integers(0, 2**31 - 1), max_size=8), st.data())
def test_leader_epoch_checkpoints_come_back(epochs: set[int], data: st.DataObject) -> None:
    starts = sorted(data.draw(st.lists(int64s, min_size=len(epochs), max_size=len(epochs))))
    entries = [EpochEntry(*pair) for pair in zip(sorted(epochs), starts, strict=True)]
    assert (
        checkpoints.parse_leader_epochs(checkpoints.format_leader_epochs(entries), "f") == entries
    )


@given(st.binary(max_size=60) | st.from_regex(r"\A[0-9 \na]{0,30}\Z").map(str.encode))
def test_any_bytes_parse_or_are_reported(data: bytes) -> None:
    for parse in (
        checkpoints.parse_offsets,
        checkpoints.parse_leader_epochs,
        checkpoints.parse_partition_metadata,
        checkpoints.parse_clean_shutdown,
    ):
        with suppress(CorruptCheckpointError):
            parse(data, "some/file")


def test_every_truncation_is_noticed_or_empty() -> None:
    for cut in range(len(OFFSET_FILE)):
        if OFFSET_FILE[:cut] in {b"", b"0\n"}:
            assert checkpoints.parse_offsets(OFFSET_FILE[:cut], "f") == {}
        else:
            with pytest.raises(CorruptCheckpointError, match=r"^f, line \d: "):
                checkpoints.parse_offsets(OFFSET_FILE[:cut], "f")
    for cut in range(len(EPOCH_FILE)):
        if EPOCH_FILE[:cut] in {b"", b"0\n"}:
            assert checkpoints.parse_leader_epochs(EPOCH_FILE[:cut], "f") == []
        else:
            with pytest.raises(CorruptCheckpointError, match=r"^f, line \d: "):
                checkpoints.parse_leader_epochs(EPOCH_FILE[:cut], "f")
    for cut in range(len(METADATA_FILE)):
        with pytest.raises(CorruptCheckpointError, match=r"^f"):
            checkpoints.parse_partition_metadata(METADATA_FILE[:cut], "f")
    for cut in range(len(SHUTDOWN_FILE)):
        with pytest.raises(CorruptCheckpointError, match=r"^f"):
            checkpoints.parse_clean_shutdown(SHUTDOWN_FILE[:cut], "f")


@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (b"1\n0\n", 1, "version 1, expected 0"),
        (b"x\n0\n", 1, "'x', expected a number"),
        (b"\n", 1, "'', expected a number"),
        (b"0\nx\n", 2, "'x', expected a number"),
        (b"0\n-1\n", 2, "'-1', expected a number"),
        (b"0\n1\n", 2, "0 entries, expected 1"),
        (b"0\n1\na 0 1\nb 0 1\n", 2, "2 entries, expected 1"),
        (b"0\n1\na 0 1\n\n", 2, "2 entries, expected 1"),
        (b"0\n1\na 0\n", 3, "'a 0', expected 3 fields"),
        (b"0\n2\na 0 1\na 0 1 2\n", 4, "'a 0 1 2', expected 3 fields"),
        (b"0\n1\n\n", 3, "'', expected 3 fields"),
        (b"0\n1\n 0 1\n", 3, "' 0 1', expected 3 fields"),
        (b"0\n1\na 0 1 \n", 3, "'a 0 1 ', expected 3 fields"),
        (b"0\n1\na 0 1\r\n", 3, "expected a number"),
        (b"0\n1\na 0 -1\n", 3, "'-1', expected a number"),
        (b"0\n1\na 0 9223372036854775808\n", 3, "expected a number from 0 to 9223372036854775807"),
        (b"0\n1\na 2147483648 0\n", 3, "expected a number from 0 to 2147483647"),
        (b"0\n1\na 0 \xd9\xa3\n", 3, "expected a number"),
        (b"0\n1\na 0 \xff\n", 3, "not UTF-8"),
        (b"0\n2\na 0 1\na 0 2\n", 4, "a/0 for the second time"),
        (b"0\n1\na 0 1", 3, "'a 0 1' has no end"),
    ],
)
def test_wrong_offset_checkpoints_name_the_line(data: bytes, line: int, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        checkpoints.parse_offsets(data, "root/recovery")
    assert str(caught.value).startswith(f"root/recovery, line {line}: ")
    assert problem in str(caught.value)
    assert (caught.value.name, caught.value.line) == ("root/recovery", line)


@pytest.mark.parametrize("entries", ["1 5\n0 7", "1 5\n1 7", "1 5\n2 4"])
def test_epochs_and_offsets_increase(entries: str) -> None:
    with pytest.raises(CorruptCheckpointError, match="line 4: EpochEntry"):
        checkpoints.parse_leader_epochs(f"0\n2\n{entries}\n".encode(), "f")


def test_partition_metadata_as_kafka_writes_it() -> None:
    assert checkpoints.format_partition_metadata(TOPIC_ID) == METADATA_FILE
    assert checkpoints.parse_partition_metadata(METADATA_FILE, "f") == TOPIC_ID
    assert checkpoints.parse_partition_metadata(METADATA_FILE + b"\n", "f") == TOPIC_ID


@given(st.uuids().filter(lambda topic_id: topic_id.int > 1))
def test_partition_metadata_comes_back(topic_id: UUID) -> None:
    data = checkpoints.format_partition_metadata(topic_id)
    assert checkpoints.parse_partition_metadata(data, "f") == topic_id


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: the topic id is zero"),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODwA", "line 2: .*is not a topic id"),
        (b"version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "line 1: 'x', expected a number"),
        (b"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "line 1: '-1', expected a number"),
        (b"version: 9\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "line 1: version 9, expected 0"),
        (b"topic_id: AAECAwQFBgcICQoLDA0ODw\nversion: 0", "expected 'version: 0' and"),
        (b"version:0\ntopic_id:AAECAwQFBgcICQoLDA0ODw", "expected 'version: 0' and"),
        (METADATA_FILE + b"\nmore: 1", "expected 'version: 0' and"),
        (METADATA_FILE + b"\n\n", "expected 'version: 0' and"),
        (b"\xff", "line 1: not UTF-8"),
    ],
)
def test_wrong_partition_metadata(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        checkpoints.parse_partition_metadata(data, "f")


def test_clean_shutdown_marker_as_kafka_writes_it() -> None:
    assert checkpoints.format_clean_shutdown() == SHUTDOWN_FILE
    assert checkpoints.format_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert checkpoints.parse_clean_shutdown(b'{"version":0,"brokerEpoch":12}', "f") == 12
    assert checkpoints.parse_clean_shutdown(SHUTDOWN_FILE, "f") is None


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b"[]", b"7", b"null", b'{"version":0}', b'{"version":1,"brokerEpoch":1}'),
        *(b'{"version":0,"brokerEpoch":"1"}', b'{"version":0,"brokerEpoch":true}', b"\xff"),
        b"[" * 100_000,
    ],
)
def test_wrong_clean_shutdown_marker(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"^f: "):
        checkpoints.parse_clean_shutdown(data, "f")


def test_missing_files_have_no_entries() -> None:
    disk = FakeDisk()
    assert checkpoints.read_offsets(disk, names.RECOVERY_POINT_CHECKPOINT) == {}
    assert checkpoints.read_leader_epochs(disk, "orders-0") == []
    assert checkpoints.read_partition_metadata(disk, "orders-0") is None
    assert checkpoints.read_clean_shutdown(disk) is None
    assert not checkpoints.has_clean_shutdown(disk)
    assert not checkpoints.remove_clean_shutdown(disk)


def test_files_stand_where_kafka_looks_and_survive_a_power_cut() -> None:
    disk = FakeDisk()
    disk.make_directory("orders-0")
    disk.sync_directory("")
    checkpoints.write_offsets(disk, names.RECOVERY_POINT_CHECKPOINT, OFFSETS)
    checkpoints.write_leader_epochs(disk, "orders-0", EPOCHS)
    checkpoints.write_partition_metadata(disk, "orders-0", TOPIC_ID)
    checkpoints.write_clean_shutdown(disk)
    disk = disk.after_crash(None)
    assert disk.read("recovery-point-offset-checkpoint") == OFFSET_FILE
    assert disk.read("orders-0/leader-epoch-checkpoint") == EPOCH_FILE
    assert disk.read("orders-0/partition.metadata") == METADATA_FILE
    assert disk.read(".kafka_cleanshutdown") == SHUTDOWN_FILE
    assert checkpoints.read_offsets(disk, names.RECOVERY_POINT_CHECKPOINT) == OFFSETS
    assert checkpoints.read_leader_epochs(disk, "orders-0") == EPOCHS
    assert checkpoints.read_partition_metadata(disk, "orders-0") == TOPIC_ID
    assert checkpoints.has_clean_shutdown(disk)
    assert checkpoints.read_clean_shutdown(disk) is None
    assert checkpoints.remove_clean_shutdown(disk)
    assert not disk.after_crash(None).exists(".kafka_cleanshutdown")


def test_a_marker_that_does_not_parse_counts_all_the_same() -> None:
    disk = FakeDisk()
    disk.replace(names.CLEAN_SHUTDOWN, b"")
    assert checkpoints.has_clean_shutdown(disk)
    with pytest.raises(CorruptCheckpointError, match=r"^\.kafka_cleanshutdown: "):
        checkpoints.read_clean_shutdown(disk)


def test_a_broken_file_is_reported_by_name() -> None:
    disk = FakeDisk()
    disk.make_directory("orders-0")
    disk.replace("orders-0/leader-epoch-checkpoint", b"7\n0\n")
    with pytest.raises(
        CorruptCheckpointError, match=r"^orders-0/leader-epoch-checkpoint, line 1: "
    ):
        checkpoints.read_leader_epochs(disk, "orders-0")
