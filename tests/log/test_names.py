"""Names of files and directories: taken apart strictly, passed over by Kafka where they must be."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logfs.log import names
from logfs.log.names import DirectoryState, FileKind, FileSuffix
from logfs.types import TopicPartition

KAFKA_SUFFIXES = (
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot"),
    *(".deleted", ".cleaned", ".swap"),
)
HEX = "0123456789abcdef0123456789abcdef"

offsets = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000000.log", (0, FileKind.LOG, FileSuffix.NONE)),
        ("00000000000000000042.log.deleted", (42, FileKind.LOG, FileSuffix.DELETED)),
        ("00000000000000000042.index", (42, FileKind.OFFSET_INDEX, FileSuffix.NONE)),
        ("00000000000000000042.timeindex.swap", (42, FileKind.TIME_INDEX, FileSuffix.SWAP)),
        ("00000000000000000042.txnindex.cleaned", (42, FileKind.TXN_INDEX, FileSuffix.CLEANED)),
        ("00000000000000000042.snapshot", (42, FileKind.SNAPSHOT, FileSuffix.NONE)),
        ("00000000000000000042.textindex", (42, FileKind.TEXT_INDEX, FileSuffix.NONE)),
        ("09223372036854775807.log", (2**63 - 1, FileKind.LOG, FileSuffix.NONE)),
    ],
)
def test_segment_file_names(name: str, parsed: tuple[int, FileKind, FileSuffix]) -> None:
    assert names.parse_segment_file(name) == parsed
    assert names.format_segment_file(*parsed) == name


@given(offsets, st.sampled_from(FileKind), st.sampled_from(FileSuffix))
def test_segment_file_names_come_back(base: int, kind: FileKind, suffix: FileSuffix) -> None:
    name = names.format_segment_file(base, kind, suffix)
    assert names.parse_segment_file(name) == (base, kind, suffix)


@pytest.mark.parametrize(
    "name",
    [
        *("", "0.log", "0000000000000000042.log", "000000000000000000042.log"),
        *("00000000000000000042", "00000000000000000042.", "00000000000000000042.txt"),
        *("00000000000000000042.log.", "00000000000000000042.log.old", ".log"),
        *("00000000000000000042.deleted", "00000000000000000042.log.deleted.swap"),
        *("00000000000000000042.LOG", "00000000000000000042.log\n", " 0000000000000000042.log"),
        *("-0000000000000000042.log", "+0000000000000000042.log", "0000000000000000004x.log"),
        "\u0660" * 20 + ".log",  # digits, but not ASCII
        "09223372036854775808.log",  # no int64
        "99999999999999999999.log",
        "00000000000000000042.checkpoint",
    ],
)
def test_other_names_are_not_segment_files(name: str) -> None:
    assert names.parse_segment_file(name) is None


@pytest.mark.parametrize("base_offset", [-1, 2**63])
def test_base_offsets_that_do_not_fit_are_refused(base_offset: int) -> None:
    with pytest.raises(ValueError, match=f"base offset {base_offset} is outside"):
        names.format_segment_file(base_offset, FileKind.LOG)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("orders-0", ("orders", 0, DirectoryState.NONE)),
        ("a.b-c_d-12", ("a.b-c_d", 12, DirectoryState.NONE)),
        ("orders-1-2", ("orders-1", 2, DirectoryState.NONE)),
        ("orders--2147483647", ("orders-", 2**31 - 1, DirectoryState.NONE)),
        ("x-delete-3", ("x-delete", 3, DirectoryState.NONE)),
        (f"orders-0.{HEX}-delete", ("orders", 0, DirectoryState.DELETE)),
        (f"a.b-7.{HEX}-stray", ("a.b", 7, DirectoryState.STRAY)),
        (f"orders-0.{HEX}-future", ("orders", 0, DirectoryState.FUTURE)),
        (f"a-1.{HEX}-delete-2", (f"a-1.{HEX}-delete", 2, DirectoryState.NONE)),
        ("__cluster_metadata-0", ("__cluster_metadata", 0, DirectoryState.NONE)),
    ],
)
def test_partition_directory_names(name: str, parsed: tuple[str, int, DirectoryState]) -> None:
    assert names.parse_partition_directory(name) == parsed


@pytest.mark.parametrize(
    "name",
    [
        *("", "orders", "orders-", "-0", "0", "orders-x", "orders-00", "orders-01", "orders-+1"),
        *("orders-2147483648", "orders-99999999999", "orders-0-delete", "orders-0.x-delete"),
        *(f"orders-0.{HEX}", f"orders.{HEX}-delete", f"orders-0.{HEX}-deleted"),
        *(f"orders-0.{HEX[:-1]}-delete", f"orders-0.{HEX.upper()}-delete"),
        *("or ders-0", "orders-0\n", "ordérs-0", ".-0", "..-0", "a/b-0", "lost+found"),
        *("a" * 250 + "-0", "remote-log-index-cache", ".segments", "orders-1٣"),
    ],
)
def test_other_names_are_not_partition_directories(name: str) -> None:
    assert names.parse_partition_directory(name) is None


topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(lambda t: t.strip("."))


@given(topics, st.integers(0, 2**31 - 1), st.uuids())
def test_partition_directory_names_come_back(topic: str, partition: int, unique: UUID) -> None:
    topic_partition = TopicPartition(topic, partition)
    assert names.parse_partition_directory(topic_partition.directory) == (
        topic,
        partition,
        DirectoryState.NONE,
    )
    deleted = names.format_delete_directory(topic_partition, unique)
    assert len(deleted) <= 255
    found = names.parse_partition_directory(deleted)
    assert found is not None
    assert found[1:] == (partition, DirectoryState.DELETE)
    assert topic.startswith(found.topic)
    assert found.topic == topic or len(deleted) == 255


def test_delete_directory_as_kafka_names_it() -> None:
    unique = UUID(HEX)
    short = names.format_delete_directory(TopicPartition("orders", 3), unique)
    assert short == f"orders-3.{HEX}-delete"
    long = names.format_delete_directory(TopicPartition("t" * 249, 3), unique)
    assert long == "t" * (255 - 42) + f"-3.{HEX}-delete"


@given(st.from_regex(r"[a-zA-Z0-9-]{1,40}", fullmatch=True))
def test_names_of_unfinished_lines_come_back(writer_id: str) -> None:
    assert names.parse_unfinished_file(names.format_unfinished_file(writer_id)) == writer_id


@pytest.mark.parametrize("writer_id", ["", "a.b", "a/b", "a b", "é", "a\n"])
def test_writer_ids_that_cannot_be_names_are_refused(writer_id: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of a file name"):
        names.format_unfinished_file(writer_id)
    assert names.parse_unfinished_file(f"logfs.{writer_id}.unfinished") is None


@given(offsets, st.integers(0, 2**31), st.integers(0, 20))
def test_names_of_cut_copies_come_back(base_offset: int, position: int, copy: int) -> None:
    name = names.format_cut_file(base_offset, position, copy)
    assert names.parse_cut_file(name) == (base_offset, position, copy)
    assert names.parse_unfinished_file(name) is None


def test_names_of_cut_copies() -> None:
    assert names.format_cut_file(42, 1234) == "logfs.00000000000000000042.1234.cut"
    assert names.format_cut_file(42, 1234, 2) == "logfs.00000000000000000042.1234.2.cut"
    for name in ("logfs.42.1234.cut", "logfs.00000000000000000042.cut", "x.cut", "a.log.cut"):
        assert names.parse_cut_file(name) is None


OWN_NAMES = [
    names.SEGMENT_TABLE,
    names.TOPIC_CONFIG,
    names.LOSSES,
    names.format_unfinished_file("17"),
    names.format_cut_file(42, 1234),
    names.format_cut_file(42, 1234, 1),
]


@pytest.mark.parametrize(
    "name", [*OWN_NAMES, names.format_segment_file(42, FileKind.TEXT_INDEX), "logfs.segments.tmp"]
)
def test_kafka_passes_over_our_files(name: str) -> None:
    assert not name.endswith(KAFKA_SUFFIXES)


@pytest.mark.parametrize("name", OWN_NAMES)
def test_kafka_does_not_remove_ours_with_a_swapped_segment(name: str) -> None:
    """Its loader takes what is before the first dot for an offset, if it is a number."""
    with pytest.raises(ValueError, match="invalid literal"):
        int(name[: name.index(".")])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "AAAAAAAAAAAAAAAAAAAAAA"),
        (1, "AAAAAAAAAAAAAAAAAAAAAQ"),
        (2**128 - 1, "_____________________w"),
        (0xFBEFBE << 104, "----" + "A" * 18),
    ],
)
def test_topic_ids_as_kafka_writes_them(value: int, text: str) -> None:
    assert names.format_topic_id(UUID(int=value)) == text
    assert names.parse_topic_id(text) == UUID(int=value)


@given(st.uuids())
def test_topic_ids_come_back(topic_id: UUID) -> None:
    assert names.parse_topic_id(names.format_topic_id(topic_id)) == topic_id


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 22 + "==", "A" * 21 + "+", "é" * 22]
)
def test_other_texts_are_not_topic_ids(text: str) -> None:
    with pytest.raises(ValueError, match="is not a topic id"):
        names.parse_topic_id(text)


def test_usable_topic_ids() -> None:
    assert not names.is_usable_topic_id(UUID(int=0))
    assert not names.is_usable_topic_id(UUID(int=1))
    assert not names.is_usable_topic_id(names.parse_topic_id("-" + "A" * 21))
    assert names.is_usable_topic_id(names.parse_topic_id("_" + "A" * 21))


def test_staged_files_and_ledgers() -> None:
    key, unique = bytes(range(16)), bytes(range(16, 32))
    name = names.format_staged_file(key, 7, unique)
    assert name == f"logfs.{key.hex()}.7.{unique.hex()}.staged"
    assert names.parse_staged_file(name) == names.StagedFileName(key, 7, unique)
    assert not names.stops_kafka(name)
    assert not names.is_on_its_way(name)
    for other in (
        name[6:],
        name + "x",
        name.replace(".7.", ".07."),
        name.upper(),
        "logfs.segments",
    ):
        assert names.parse_staged_file(other) is None
    with pytest.raises(ValueError, match="cannot be the name of a staged file"):
        names.format_staged_file(key, -1, unique)
    ledger = names.format_ledger_file(key)
    assert names.is_ledger_file(ledger)
    assert not names.is_ledger_file(ledger + ".tmp")


def test_many_names_are_parsed_like_each_of_them() -> None:
    ends = [".log", ".index", ".timeindex", ".textindex", ".snapshot", ".txnindex"]
    digits = ["0" * 20, f"{7:020d}", "7", "9" * 20, "\u0661" * 20, " " * 20]
    suffixes = ["", ".swap", ".deleted", ".cleaned", "x"]
    listed = [d + end + suffix for d in digits for end in ends for suffix in suffixes]
    listed += ["", "logfs.segments", "leader-epoch-checkpoint"]
    kinds, others = names.group_segment_files(listed)
    parsed = {name: names.parse_segment_file(name) for name in listed}
    plain = {
        name: found
        for name, found in parsed.items()
        if found is not None and found.suffix is names.FileSuffix.NONE
    }
    assert {(base, kind) for base, found in kinds.items() for kind in found} == {
        (found.base_offset, found.kind) for found in plain.values()
    }
    assert sorted(others) == sorted(parsed.keys() - plain.keys())
    assert len(plain) == 2 * len(ends)
