"""Promise 1 of SEMANTICS.md, through a mount; each docstring is the sentence that is run."""

import errno
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mounting import PATIENCE_S, Mount, logfs, output, run, wait_until
from tests.semantics.programs import (
    APPEND,
    append,
    append_all,
    batch_bounds,
    configure,
    errno_of,
    meta,
    numbered,
    records,
    values,
)

pytestmark = pytest.mark.fuse

MIB = 1024 * 1024


def test_two_programs_in_braces_write_one_record(topic: Path) -> None:
    """However many writes a line comes in, it is one record."""
    output("bash", "-c", r"{ printf a; printf 'b\n'; } >> 0; { echo -n c; cat; } >> 0", cwd=topic)
    assert values(topic / "0") == ["ab", "c"]


def test_a_line_that_comes_byte_by_byte_is_one_record(topic: Path) -> None:
    """However many writes a line comes in, it is one record."""
    line = b"one byte at a time\n"
    with (topic / "0").open("ab", buffering=0) as file:
        for byte in line:
            file.write(bytes([byte]))
        assert (topic / "0").read_bytes() == line
    assert len(records(topic / "0")) == 1


def test_complete_lines_are_there_while_the_last_one_is_unfinished(topic: Path) -> None:
    """Complete lines are records when write(2) returns; an unfinished one is not shown yet."""
    with (topic / "0").open("ab", buffering=0) as file:
        file.write(b"first\nsecond\nthi")
        assert (topic / "0").read_bytes() == b"first\nsecond\n"
        assert os.stat(topic / "0").st_size == len(b"first\nsecond\n")
        file.write(b"rd\n")
        assert (topic / "0").read_bytes() == b"first\nsecond\nthird\n"


def test_an_empty_line_is_an_empty_value(topic: Path) -> None:
    """Complete lines are records when write(2) returns; an unfinished one is not shown yet."""
    append(topic / "0", b"\n\nx\n")
    assert values(topic / "0") == ["", "", "x"]


def test_a_write_of_three_megabytes_is_few_batches(topic: Path) -> None:
    """The lines of one write(2) go into as few batches as `max.message.bytes` and the kernel's
    requests of 1 MiB allow.
    """
    data = b"".join(numbered(0, 30_000))
    assert len(data) == 3_000_000
    assert append(topic / "0", data) == len(data)
    assert (topic / "0").read_bytes() == data
    log = Path(topic.parent, ".segments", f"{topic.name}-0", f"{0:020}.log").read_bytes()
    # Three requests; what one holds, with the overhead of its records, needs two batches.
    assert len(batch_bounds(log)) <= 6


def _append_repeatedly(path: Path, name: bytes, sizes: list[int]) -> None:
    data = b"".join(b"%s %d %s\n" % (name, n, name * (n % 313)) for n in range(4_000))
    with path.open("ab", buffering=0) as file:
        at = turn = 0
        while at < len(data):
            at += file.write(data[at : at + sizes[turn % len(sizes)]])
            turn += 1


def test_writers_with_odd_sizes_never_mix(topic: Path) -> None:
    """Lines of writers that opened the file themselves never mix, for any write size."""
    path, context = topic / "0", multiprocessing.get_context("fork")
    sizes = {b"A": [1, 17, 4097], b"b": [65_536, 3], b"C": [1_000_003], b"d": [333]}
    writers = [context.Process(target=_append_repeatedly, args=(path, *x)) for x in sizes.items()]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    lines = path.read_bytes().split(b"\n")[:-1]
    assert len(lines) == len(values(path))
    for name in sizes:
        mine = [line for line in lines if line.startswith(name + b" ")]
        assert mine == [b"%s %d %s" % (name, n, name * (n % 313)) for n in range(4_000)]
    assert len(lines) == 4_000 * len(sizes)


def test_a_writer_that_waits_keeps_no_other_one(topic: Path) -> None:
    """Writers of `orders/0.in` do not wait for each other."""
    configure(topic, logfs_quota_producer_byte_rate=1)
    shell = 'echo "$1" >> "$2"'
    first = subprocess.Popen(["sh", "-c", shell, "sh", "x" * 1000, topic / "0.in"])
    wait_until(lambda: (topic / "0").stat().st_size == 1001, "the first line is there")
    second = subprocess.Popen(["sh", "-c", shell, "sh", "second", topic / "0.in"])
    try:
        wait_until(lambda: b"second" in (topic / "0").read_bytes(), "the second line is there")
        assert first.poll() is None
    finally:
        configure(topic, logfs_quota_producer_byte_rate=-1)
        assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
    assert (topic / "0").read_bytes() == b"x" * 1000 + b"\nsecond\n"


def test_processes_with_one_descriptor_write_one_line(topic: Path) -> None:
    """Processes that share one open file share its unfinished line."""
    command = r"{ bash -c 'printf a'; bash -c 'printf b'; printf c; } >> 0"
    output("bash", "-c", command, cwd=topic)
    assert values(topic / "0") == ["abc"]


def test_the_last_close_commits_and_no_earlier_one(topic: Path) -> None:
    """An unfinished line becomes a record when its file is closed for the last time, dup'ed and
    inherited descriptors included.
    """
    path = topic / "0"
    first = os.open(path, APPEND)
    os.write(first, b"left open")
    second = os.dup(first)
    os.close(first)
    assert path.read_bytes() == b""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has looked
        os._exit(0)
    os.close(second)
    assert path.read_bytes() == b""
    os.close(writing)
    os.waitpid(child, 0)
    os.close(reading)
    assert path.read_bytes() == b"left open\n"


def test_what_is_closed_is_read_by_the_next_command(topic: Path) -> None:
    """An unfinished line becomes a record when its file is closed for the last time, dup'ed and
    inherited descriptors included.
    """
    for number in range(200):
        path = topic / "0"
        append(path, b"%d" % number)
        assert path.read_bytes().endswith(b"\n%d\n" % number if number else b"0\n")


def test_an_unfinished_line_outlives_the_daemon(mount: Mount) -> None:
    """It becomes one, too, when the daemon stops, or comes back after a crash."""
    path = mount.point / "orders" / "0"
    descriptors = [os.open(path, APPEND) for _ in range(3)]
    os.write(descriptors[0], b"whole\nfrom the first")
    os.write(descriptors[1], b"from the ")
    os.write(descriptors[1], b"second")
    os.write(descriptors[2], b"x" * 300_000)
    mount.kill()
    for descriptor in descriptors:
        assert errno_of(os.write, descriptor, b"more\n") == errno.ENOTCONN
        assert errno_of(os.close, descriptor) == errno.ENOTCONN
    mount.start()
    found = values(path)
    assert found[0] == "whole"
    assert sorted(found[1:]) == ["from the first", "from the second", "x" * 300_000]
    mount.crash()
    assert values(path) == found
    descriptor = os.open(path, APPEND)
    os.write(descriptor, b"at a clean stop")
    mount.stop()
    assert errno_of(os.close, descriptor) == errno.ENOTCONN
    mount.start()
    assert values(path) == [*found, "at a clean stop"]


def test_a_line_finished_before_a_crash_is_not_there_twice(mount: Mount) -> None:
    """It becomes one, too, when the daemon stops, or comes back after a crash."""
    path = mount.point / "orders" / "0"
    descriptor = os.open(path, APPEND)
    os.write(descriptor, b"begun, ")
    os.write(descriptor, b"finished\n")
    mount.kill()
    assert errno_of(os.close, descriptor) == errno.ENOTCONN
    mount.start()
    assert values(path) == ["begun, finished"]


def test_a_line_that_is_too_large_is_refused_where_it_begins(topic: Path) -> None:
    """A line that is too large to be one record is refused with EMSGSIZE. The lines before it in
    the same write are appended, and write(2) returns their length.
    """
    path = topic / "0"
    configure(topic, max_message_bytes=1000)
    fits, too_large = b"y" * 900 + b"\n", b"z" * 1000 + b"\n"
    descriptor = os.open(path, APPEND)
    assert os.write(descriptor, b"a\nb\n" + too_large + b"c\n") == 4
    assert errno_of(os.write, descriptor, too_large + b"c\n") == errno.EMSGSIZE
    assert os.write(descriptor, fits) == len(fits)
    assert os.write(descriptor, b"u" * 500) == 500
    assert errno_of(os.write, descriptor, b"u" * 500) == errno.EMSGSIZE
    assert errno_of(os.write, descriptor, b"u" * 500 + b"\n") == errno.EMSGSIZE
    os.close(descriptor)
    assert values(path) == ["a", "b", "y" * 900, "u" * 500]


def test_the_limit_is_kafkas_to_the_byte(topic: Path) -> None:
    """A line that is too large to be one record is refused with EMSGSIZE. The lines before it in
    the same write are appended, and write(2) returns their length.
    """
    configure(topic, max_message_bytes=1000)
    # The header of a batch has 61 bytes; around a value of 64 to 8191 bytes a record needs 10:
    # its length 2, attributes 1, timestamp and offset delta 1 each, no key 1, the value's length 2,
    # no headers 1, makes 9.
    largest = 1000 - 61 - 9
    assert append(topic / "0", b"v" * largest + b"\n") == largest + 1
    assert errno_of(append, topic / "0", b"v" * (largest + 1) + b"\n") == errno.EMSGSIZE


def test_the_default_limit_stops_a_line_at_its_second_request(topic: Path) -> None:
    """A line that is too large to be one record is refused with EMSGSIZE. The lines before it in
    the same write are appended, and write(2) returns their length.
    """
    descriptor = os.open(topic / "0", APPEND)
    data = b"first\n" + b"x" * (2 * MIB) + b"\n"
    accepted = os.write(descriptor, data)
    refusal: int | None = None
    assert accepted >= 6
    while refusal is None:  # where the kernel cuts depends on where the bytes lie in memory
        assert accepted < 6 + MIB
        try:
            accepted += os.write(descriptor, data[accepted:])
        except OSError as error:
            refusal = error.errno
    assert refusal == errno.EMSGSIZE
    assert values(topic / "0") == ["first"]
    os.close(descriptor)
    assert (topic / "0").read_bytes() == data[:accepted] + b"\n" * (accepted > 6)


ODD_VALUES = (None, "", "plain", "two\nlines\n", "tab\tand \\ and \r\n", "größe ☃ \x00\x7f", "\\N")


def test_values_are_read_as_they_are(topic: Path) -> None:
    """Reading gives each value's bytes and a newline, nothing escaped. A value with newlines is
    several lines, a null or empty value is an empty line, CRLF and bytes that are not UTF-8 pass
    through."""
    for value in ODD_VALUES:
        append(topic / "0.jsonl", json.dumps({"value": value}).encode() + b"\n")
    append(topic / "0", b"\xff\xfe\r\n")
    expected = b"".join((value or "").encode() + b"\n" for value in ODD_VALUES)
    assert (topic / "0").read_bytes() == expected + b"\xff\xfe\r\n"


@pytest.mark.parametrize("view", ["tsv", "jsonl"])
def test_views_accept_what_they_print(topic: Path, view: str) -> None:
    """`.tsv` and `.jsonl` accept what they print: keys, headers, timestamps and nulls go from one
    topic to another.
    """
    full = [
        {"offset": 99, "timestamp": 1_600_000_000_000 + n, "key": key, "value": value,
         "headers": [["h", value], ["", None]]}
        for n, (key, value) in enumerate(itertools.product(ODD_VALUES, repeat=2))
    ]  # fmt: skip
    append(topic / "0.jsonl", b"".join(json.dumps(x).encode() + b"\n" for x in full))
    append(topic / "0", b"\xff\xfe\r\n")
    other = topic.parent / f"{topic.name}-copy"
    other.mkdir()
    output("bash", "-c", f"cat {topic}/0.{view} >> {other}/0.{view}")
    assert (other / f"0.{view}").read_bytes() == (topic / f"0.{view}").read_bytes()
    copied, written = records(other / "0"), records(topic / "0")
    assert written[:-1] == [{**record, "offset": n} for n, record in enumerate(full)]
    fields = ("key", "value") if view == "tsv" else ("timestamp", "key", "value", "headers")
    assert [[x[name] for name in fields] for x in copied] == [
        [x[name] for name in fields] for x in written
    ]


@pytest.mark.parametrize(
    ("view", "good", "bad"),
    [
        ("tsv", b"key\tvalue\n", b"a\tb\tc\n"),
        ("tsv", b"no tab\n", b"no such escape\\x\n"),
        ("jsonl", b'{"value":"v"}\n', b"not JSON\n"),
        ("jsonl", b'{"key":"k"}\n', b'{"vlaue":"a typo"}\n'),
        ("jsonl", b"{}\n", b'{"value":1}\n'),
    ],
)
def test_a_line_that_does_not_parse_is_refused(
    topic: Path, view: str, good: bytes, bad: bytes
) -> None:
    """A line that `.tsv` or `.jsonl` cannot parse is refused in the same way, with EINVAL."""
    path = topic / f"0.{view}"
    assert append(path, good + bad + good) == len(good)
    assert errno_of(append, path, bad + good) == errno.EINVAL
    assert len(records(topic / "0")) == 1


def test_a_compacted_topic_refuses_records_without_a_key(topic: Path) -> None:
    """A line that `.tsv` or `.jsonl` cannot parse is refused in the same way, with EINVAL."""
    configure(topic, cleanup_policy="compact")
    assert errno_of(append, topic / "0", b"value\n") == errno.EINVAL
    append(topic / "0.tsv", b"key\tvalue\n")
    assert [(r["key"], r["value"]) for r in records(topic / "0")] == [("key", "value")]


def test_an_unfinished_line_that_does_not_parse_is_a_loss(topic: Path) -> None:
    """An unfinished line that turns out not to parse when it is closed is set aside as a loss."""
    append(topic / "0.jsonl", b'{"value":"whole"}\n{"value":"cut of')
    assert values(topic / "0") == ["whole"]
    (loss,) = meta(topic / "0")["losses"]
    assert loss["kind"] == "line"
    assert loss["bytes"] == len(b'{"value":"cut of')
    raw = topic.parent / ".segments" / f"{topic.name}-0"
    assert (raw / loss["file"]).read_bytes() == b'{"value":"cut of'


def test_close_reports_what_went_wrong(topic: Path) -> None:
    """close(2) reports an earlier failure."""
    descriptor = os.open(topic / "0", APPEND)
    os.write(descriptor, b"before\n")
    logfs("topic", "delete", topic)
    assert errno_of(os.write, descriptor, b"after\n") == errno.ESTALE
    assert errno_of(os.close, descriptor) == errno.ESTALE


def test_programs_that_append_in_their_own_ways(topic: Path) -> None:
    """Complete lines are records when write(2) returns; an unfinished one is not shown yet."""
    data = b"".join(numbered(0, 5_000))
    source = topic / "0"
    append_all(source, data)
    # cp copies ranges, dd opens with O_APPEND only if told to, tee -a copies to two places.
    other = topic.parent / f"{topic.name}-copy"
    other.mkdir()
    output("bash", "-c", f"cat {source} >> 0; tee -a 0 < {source} > /dev/null", cwd=other)
    output("dd", f"if={source}", "of=0", "oflag=append", "conv=notrunc", "bs=10007", "status=none",
           cwd=other)  # fmt: skip
    output("split", "-b", "100003", "--filter=cat >> 0", source, cwd=other)
    output(sys.executable, "-c", "import sys; open('0', 'a').writelines(sys.stdin)", cwd=other,
           data=data)  # fmt: skip
    assert (other / "0").read_bytes() == data * 2 + data + _split_lines(data) + data
    assert run("cp", source, other / "0").returncode != 0


def _split_lines(data: bytes) -> bytes:
    """Return what is read after ``split --filter``: every piece ends its last line."""
    pieces = [data[at : at + 100_003] for at in range(0, len(data), 100_003)]
    return b"".join(piece if piece.endswith(b"\n") else piece + b"\n" for piece in pieces)
