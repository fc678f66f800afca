"""Promise 1: one line is one record, also with cuts, refusals and kills in between."""

import errno
from collections import Counter

import pytest

from logfs.errors import (
    DeletedError,
    LogOfflineError,
    ReadOnlyError,
    RecordTooLargeError,
    UnparsableLineError,
)
from logfs.log.lines.writer import LineWriter
from logfs.types import View
from tests.fakes import FakeDisk
from tests.log.support import (
    DIRECTORY,
    TP,
    Bench,
    batches_in,
    lines_of,
    log_name,
    records_in,
    text_of,
)

HEADER_BYTES = 61


@pytest.fixture
def bench() -> Bench:
    return Bench()


def records_of(bench: Bench) -> list[tuple[bytes | None, bytes | None]]:
    return [(r.key, r.value) for r in records_in(bench.file(log_name(0)))]


def batch_sizes(bench: Bench) -> list[int]:
    return [batch.record_count for _, batch in batches_in(bench.file(log_name(0)))]


# Whole lines


def test_the_lines_of_one_write_are_one_batch(bench: Bench) -> None:
    assert bench.writer().write(b"a\nb\n\nc\r\n", bench.now_ms) == 8
    assert [value for _, value in records_of(bench)] == [b"a", b"b", b"", b"c\r"]
    assert batch_sizes(bench) == [4]


def test_lines_fill_as_few_batches_as_the_limit_allows() -> None:
    bench = Bench({"max.message.bytes": "100"})
    data = b"".join(b"%02d\n" % n for n in range(10))
    assert bench.writer().write(data, bench.now_ms) == len(data)
    assert text_of(bench.log) == data
    sizes = [batch.size_bytes for _, batch in batches_in(bench.file(log_name(0)))]
    record_bytes = 1 + 1 + 1 + 1 + 1 + 1 + 2 + 1
    assert max(sizes) <= 100 < max(sizes) + record_bytes
    assert batch_sizes(bench) == [4, 4, 2]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_write_cut_anywhere_makes_the_same_records(bench: Bench, cut: int) -> None:
    data = b"one\ntwo\n\nx\nlast"
    writer = bench.writer()
    for piece in (data[:cut], data[cut:]):
        assert writer.write(piece, bench.now_ms) == len(piece)
    assert lines_of(bench.log) == [b"one", b"two", b"", b"x"]
    assert writer.unfinished == 4
    writer.close(bench.now_ms)
    assert lines_of(bench.log) == [b"one", b"two", b"", b"x", b"last"]
    assert bench.names(".unfinished") == []


def test_one_byte_at_a_time(bench: Bench) -> None:
    writer = bench.writer()
    for byte in b"slow\n\nand steady\nend":
        assert writer.write(bytes([byte]), bench.now_ms) == 1
    writer.close(bench.now_ms)
    assert lines_of(bench.log) == [b"slow", b"", b"and steady", b"end"]


def test_writers_never_mix(bench: Bench) -> None:
    writers = [bench.writer() for _ in range(3)]
    names = [b"A", b"B", b"C"]
    for step in range(7):
        for writer, name in zip(writers, names, strict=True):
            writer.write(name * (step + 1) + (b"\n" if step % 3 == 2 else b""), bench.now_ms)
    for writer in writers:
        writer.close(bench.now_ms)
    lines = lines_of(bench.log)
    assert all(len(set(line)) == 1 for line in lines)
    assert Counter(lines) == Counter(name * n for name in names for n in (6, 15, 7))


def test_the_records_of_all_views(bench: Bench) -> None:
    bench.writer(View.TSV).write(b"k\tv\nno key\n\\N\t\\N\n", bench.now_ms)
    bench.writer(View.JSONL).write(b'{"key":"k","value":null}\n', bench.now_ms)
    assert records_of(bench) == [(b"k", b"v"), (None, b"no key"), (None, None), (b"k", None)]


# Refusals


def limited(spare_bytes: int = 0) -> Bench:
    """A topic whose longest line has 9 bytes and some more."""
    record_bytes = 1 + 1 + 1 + 1 + 1 + 1 + 9 + 1
    return Bench({"max.message.bytes": str(HEADER_BYTES + record_bytes + spare_bytes)})


def test_the_longest_line_is_accepted_and_one_more_byte_refused() -> None:
    bench = limited()
    writer = bench.writer()
    assert writer.write(b"123456789\n", bench.now_ms) == 10
    with pytest.raises(RecordTooLargeError) as error:
        writer.write(b"1234567890\n", bench.now_ms)
    assert error.value.size_bytes == error.value.limit_bytes + 1
    assert writer.write(b"abcdefghi\n", bench.now_ms) == 10
    assert lines_of(bench.log) == [b"123456789", b"abcdefghi"]


def test_lines_before_a_refused_one_are_appended_and_counted() -> None:
    bench = limited()
    writer = bench.writer()
    assert writer.write(b"a\nb\n1234567890\nc\n", bench.now_ms) == 4
    assert lines_of(bench.log) == [b"a", b"b"]
    with pytest.raises(RecordTooLargeError):
        writer.write(b"1234567890\nc\n", bench.now_ms)


def test_an_unfinished_line_is_refused_as_soon_as_it_cannot_fit() -> None:
    bench = limited()
    writer = bench.writer()
    assert writer.write(b"a\n12345", bench.now_ms) == 7
    with pytest.raises(RecordTooLargeError):
        writer.write(b"67890", bench.now_ms)
    assert writer.unfinished == 5
    assert writer.write(b"x\n1234567890", bench.now_ms) == 2
    assert lines_of(bench.log) == [b"a", b"12345x"]
    assert writer.unfinished == 0


def test_bytes_accepted_earlier_stay_when_the_rest_of_the_line_is_refused() -> None:
    bench = limited()
    writer = bench.writer()
    writer.write(b"12345", bench.now_ms)
    with pytest.raises(RecordTooLargeError):
        writer.write(b"67890\n", bench.now_ms)
    assert writer.unfinished == 5
    writer.close(bench.now_ms)
    assert lines_of(bench.log) == [b"12345"]


def test_a_line_that_does_not_parse_is_refused_and_those_before_it_count(bench: Bench) -> None:
    writer = bench.writer(View.JSONL)
    good = b'{"value":"v"}\n'
    assert writer.write(good + b"{\n" + good, bench.now_ms) == len(good)
    with pytest.raises(UnparsableLineError):
        writer.write(b"{\n", bench.now_ms)
    assert lines_of(bench.log) == [b"v"]


def test_the_start_of_a_line_stays_if_its_end_does_not_parse(bench: Bench) -> None:
    writer = bench.writer(View.TSV)
    writer.write(b"k\tv", bench.now_ms)
    with pytest.raises(UnparsableLineError):
        writer.write(b"\ttoo many\n", bench.now_ms)
    assert writer.unfinished == 3
    assert writer.write(b"alue\n", bench.now_ms) == 5
    assert records_of(bench) == [(b"k", b"value")]


@pytest.mark.expect_log("set aside")
def test_a_file_that_is_no_unfinished_line_is_one_loss_after_a_power_cut_too() -> None:
    bench = Bench()
    bench.put(f"logfs.{'0' * 32}.unfinished", b"damaged" * 10)
    bench.disk.sync_directory(DIRECTORY)
    bench.kill()
    bench.crash()
    assert [loss.kind for loss in bench.log.losses] == ["line"]


@pytest.mark.expect_log("set aside")
def test_what_does_not_parse_at_the_close_is_a_loss(bench: Bench) -> None:
    writer = bench.writer(View.JSONL)
    writer.write(b'{"value":', bench.now_ms)
    writer.close(bench.now_ms)
    (loss,) = bench.log.losses
    assert (loss.kind, loss.bytes) == ("line", 9)
    assert bench.file(loss.file) == b'{"value":'
    assert bench.names(".unfinished") == []
    assert bench.log.log_end_offset == 0


@pytest.mark.expect_log("set aside")
def test_a_compacted_topic_refuses_lines_without_a_key() -> None:
    bench = Bench({"cleanup.policy": "compact"})
    writer = bench.writer()
    with pytest.raises(UnparsableLineError, match=r"\.tsv"):
        writer.write(b"v\n", bench.now_ms)
    assert writer.write(b"v", bench.now_ms) == 1
    writer.close(bench.now_ms)
    assert [loss.kind for loss in bench.log.losses] == ["line"]


def test_a_deleted_topic_refuses_everything(bench: Bench) -> None:
    writer, half = bench.writer(), bench.writer()
    half.write(b"half", bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    for data in (b"line\n", b"half"):
        with pytest.raises(DeletedError):
            writer.write(data, bench.now_ms)
    writer.close(bench.now_ms)


@pytest.mark.expect_log("waits")
def test_the_unfinished_line_of_a_deleted_topic_goes_with_it(bench: Bench) -> None:
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    bench.store.delete_topic("t", bench.now_ms)
    writer.close(bench.now_ms)
    bench.store.remove_due_files(bench.now_ms + 3_600_000)
    assert [name for name, is_directory in bench.disk.list("") if is_directory] == []


def test_a_store_opened_read_only_refuses_everything(bench: Bench) -> None:
    log = bench.open(read_only=True).partition(*TP)
    for data in (b"line\n", b"half"):
        with pytest.raises(ReadOnlyError):
            LineWriter(log, View.TEXT).write(data, bench.now_ms)


# A full disk


def test_a_full_disk_leaves_the_log_and_the_line_as_they_were(bench: Bench) -> None:
    writer = bench.writer()
    writer.write(b"one\nbeg", bench.now_ms)
    for pattern in ("*.log", "*.unfinished"):
        for after_bytes in (0, 5, 1000):
            bench.disk.fail_next_write(pattern, errno.ENOSPC, after_bytes)
            with pytest.raises(OSError, match="No space"):
                writer.write(b"in\n", bench.now_ms)
            assert writer.unfinished == 3
    assert writer.write(b"in\n", bench.now_ms) == 3
    bench.disk.fail_next_write("*.unfinished", errno.ENOSPC, 30)
    assert writer.write(b"two\nhalf", bench.now_ms) == 4
    assert bench.log.offline is None
    assert lines_of(bench.log) == [b"one", b"begin", b"two"]
    assert lines_of(bench.kill()) == [b"one", b"begin", b"two"]


def test_batches_that_had_room_count(bench: Bench) -> None:
    bench.store.alter_topic("t", {"max.message.bytes": "100"})
    writer = bench.writer()
    bench.write(b"first")
    writer.write(b"beg", bench.now_ms)
    done: list[str] = []

    def fill_up(operation: str, name: str, _size: int) -> None:
        if operation == "pwrite" and name.endswith(".log"):
            done.append(name)
            if len(done) == 2:
                bench.disk.fail_next_write("*.log", errno.ENOSPC, 7)

    bench.disk.before = fill_up
    data = b"in\n" + b"x" * 25 + b"\n" + b"y" * 25 + b"\n"
    assert writer.write(data, bench.now_ms) == 3
    bench.disk.before = None
    assert writer.unfinished == 0
    assert lines_of(bench.log) == [b"first", b"begin"]
    assert lines_of(bench.kill()) == [b"first", b"begin"]


# Kills


def one_line_of_two_writers(bench: Bench, acknowledged: list[bytes]) -> None:
    """Write lines in pieces with two files, noting each piece when its write has returned."""
    writers = [bench.writer(), bench.writer()]
    for writer, piece in [(0, b"a1"), (1, b"b1"), (0, b"a2\na3"), (1, b"b2\nb3\nb4"), (0, b"\na4")]:
        writers[writer].write(piece, bench.now_ms)
        acknowledged.append(piece)
    writers[0].sync()
    writers[0].close(bench.now_ms)
    writers[1].write(b"\n", bench.now_ms)
    writers[1].close(bench.now_ms)


def kill_points(bench: Bench, acknowledged: list[bytes]) -> list[tuple[FakeDisk, int]]:
    """The disk before every operation, and how many pieces were acknowledged by then."""
    points: list[tuple[FakeDisk, int]] = []
    changes = {"pwrite", "truncate", "rename", "remove", "sync", "sync_directory", "open"}

    def note(operation: str, _name: str, _size: int) -> None:
        if operation in changes:
            points.append((bench.disk.after_kill(), len(acknowledged)))

    bench.disk.before = note
    one_line_of_two_writers(bench, acknowledged)
    bench.disk.before = None
    points.append((bench.disk.after_kill(), len(acknowledged)))
    return points


def expected_lines(count: int, *, is_closed: bool = False) -> set[bytes]:
    """Every line, whole or unfinished, of the pieces acknowledged so far."""
    of_a, of_b = [b"a1", b"a2\na3", b"\na4"], [b"b1", b"b2\nb3\nb4"]
    order = [of_a, of_b, of_a, of_b, of_a]
    seen: dict[int, bytes] = {id(of_a): b"", id(of_b): b""}
    taken = {id(of_a): 0, id(of_b): 0}
    for stream in order[:count]:
        seen[id(stream)] += stream[taken[id(stream)]]
        taken[id(stream)] += 1
    return {line for data in seen.values() for line in data.split(b"\n") if line}


@pytest.mark.slow
def test_a_kill_anywhere_makes_every_line_a_record_once(bench: Bench) -> None:
    acknowledged: list[bytes] = []
    for disk, count in kill_points(bench, acknowledged):
        log = bench.open(disk).partition(*TP)
        found = Counter(lines_of(log))
        allowed = expected_lines(count), expected_lines(count + 1)
        assert max(found.values(), default=1) == 1
        for line in allowed[0]:
            assert any(other.startswith(line) for other in found), f"{line!r} is lost"
        assert set(found) <= allowed[0] | allowed[1] | {b"a1a2", b"b1b2"}
        assert Counter(lines_of(bench.open(disk.after_kill()).partition(*TP))) == found
        log.flush()
        assert [name for name, _ in disk.list("t-0") if name.endswith(".unfinished")] == []


@pytest.mark.slow
def test_a_kill_while_lines_are_adopted_makes_them_records_once(bench: Bench) -> None:
    for _ in range(2):
        bench.writer().write(b"the same", bench.now_ms)
    bench.writer().write(b"another", bench.now_ms)
    bench.disk.kill()
    wanted = Counter({b"the same": 2, b"another": 1})
    first = bench.disk.after_kill()
    points: list[FakeDisk] = []
    first.before = lambda _operation, _name, _size: points.append(first.after_kill())
    bench.open(first)
    first.before = None
    for disk in [*points, first.after_kill()]:
        assert Counter(lines_of(bench.open(disk).partition(*TP))) == wanted


@pytest.mark.parametrize("number", range(4))
def test_equal_lines_are_not_taken_for_each_other(bench: Bench, number: int) -> None:
    writers = [bench.writer() for _ in range(4)]
    for writer in writers:
        writer.write(b"the same", bench.now_ms)
    killed: list[FakeDisk] = []

    def kill(operation: str, name: str, _size: int) -> None:
        if operation == "pwrite" and name.endswith(".log"):
            killed.append(bench.disk.after_kill())  # announced, and not appended

    bench.disk.before = kill
    writers[number].write(b"\n", bench.now_ms)
    bench.disk.before = None
    assert lines_of(bench.open(killed[0]).partition(*TP)) == [b"the same"] * 4


def test_an_fsync_keeps_the_unfinished_line(bench: Bench) -> None:
    writer = bench.writer()
    writer.write(b"one\nhalf", bench.now_ms)
    writer.sync()
    writer.write(b" more", bench.now_ms)
    lines = lines_of(bench.crash())
    assert lines == [b"one", b"half"]


def test_what_was_synced_survives_even_if_the_end_of_its_line_does_not(bench: Bench) -> None:
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    writer.sync()
    writer.write(b" more\nnext", bench.now_ms)
    assert lines_of(bench.log) == [b"half more"]
    assert lines_of(bench.crash()) == [b"half"]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.allow_log("are no whole batch")
def test_a_synced_line_is_a_record_once_after_a_power_cut(seed: int) -> None:
    bench = Bench()
    writer = bench.writer()
    writer.write(b"half", bench.now_ms)
    writer.sync()
    writer.write(b" more\n", bench.now_ms)
    writer.close(bench.now_ms)
    if seed % 2:
        bench.log.flush()
    assert lines_of(bench.crash(seed)) in ([b"half"], [b"half more"])


@pytest.mark.expect_log("set aside", "waits")
@pytest.mark.allow_log("offline")
def test_a_line_waits_while_the_partition_is_offline(bench: Bench) -> None:
    writer, broken = bench.writer(), bench.writer(View.JSONL)
    writer.write(b"half", bench.now_ms)
    broken.write(b"{", bench.now_ms)
    bench.log.state.take_offline("of a test")
    with pytest.raises(LogOfflineError):
        writer.write(b"more", bench.now_ms)
    writer.close(bench.now_ms)
    broken.close(bench.now_ms)
    assert len(bench.names(".unfinished")) == 2
    log = bench.reload()
    assert lines_of(log) == [b"half"]
    assert [loss.kind for loss in log.losses] == ["line"]
