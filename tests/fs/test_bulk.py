"""Lines and batches in bulk through the control socket."""

import os
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

from logfs.control import frames
from logfs.errors import (
    ControlError,
    NoSuchPartitionError,
    NoSuchTopicError,
    ReadOnlyError,
    UnparsableLineError,
)
from logfs.log.lines.form import AppendedLines, LineForm, Lines, LineTarget
from logfs.types import View
from tests.fs.served import Served
from tests.fs.world import World
from tests.mounting import wait_until

run = trio.to_thread.run_sync
PLAIN = LineForm()
ARGUMENTS = {
    "topic": "orders",
    "partition": 0,
    "view": 0,
    "key_delimiter": "",
    "headers": [],
    "unkeyed": 0,
}


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


async def append(
    served: Served,
    place: tuple[str, int | None],
    data: bytes,
    form: LineForm = PLAIN,
    *,
    unkeyed: int = 0,
    is_durable: bool = False,
) -> Lines:
    def ask() -> Lines:
        with served.daemon() as daemon:
            target = LineTarget(*place, form, unkeyed)
            return daemon.append_lines(target, data, is_durable=is_durable)

    return await run(ask)


async def test_lines(served: Served) -> None:
    form = LineForm(View.TEXT, b": ", ((b"h\xff", b"\x00"), (b"n", None), (b"e", b"")))
    done = await append(served, ("orders", 0), b"k: v\n: w\n", form)
    assert done == Lines([AppendedLines(0, 2, 0, 1)], 9, None)
    log = served.world.store.partition("orders", 0)
    assert log.recovery_point == 0
    text = await served.world.cat("orders/0.jsonl")
    headers = b'[[{"base64":"aP8="},"\\u0000"],["n",null],["e",""]]'
    assert text.count(b'"headers":' + headers) == 2
    await append(served, ("orders", 0), b"", is_durable=True)
    assert log.recovery_point == 2
    await append(served, ("orders", 0), b"x\n", is_durable=True)
    assert log.recovery_point == 3


async def test_a_line_that_is_refused(served: Served) -> None:
    done = await append(served, ("orders", 0), b"a\tb\nc\td\te\nf\n", LineForm(View.TSV))
    assert (done.records, done.accepted) == (1, 4)
    assert isinstance(done.refusal, UnparsableLineError)
    assert str(done.refusal).startswith("line 2: more than one TAB")


async def test_lines_by_their_keys(served: Served) -> None:
    await served.ask("create", topic="many", partitions=3, config={})
    data = b"".join(b"%d\tv\n" % n for n in range(30))
    done = await append(served, ("many", None), data, LineForm(View.TSV), is_durable=True)
    assert done.records == 30
    assert [row.partition for row in done.appended] == [0, 1, 2]
    logs = [served.world.store.partition("many", n) for n in range(3)]
    assert [log.recovery_point for log in logs] == [row.records for row in done.appended]
    for unkeyed in (1, 4):
        done = await append(served, ("many", None), b"no key\n", unkeyed=unkeyed)
        assert [row.partition for row in done.appended] == [1]


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (("nix", 0), NoSuchTopicError),
        (("nix", None), NoSuchTopicError),
        (("orders", 7), NoSuchPartitionError),
    ],
)
async def test_places_that_are_not_there(
    served: Served, place: tuple[str, int | None], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await append(served, place, b"a\n")


@pytest.mark.parametrize(
    ("payload", "changes"),
    [
        (b"no end", {}),
        (b"a\n", {"view": 7}),
        (b"a\n", {"headers": [["zz", "00"]]}),
        (b"a\n", {"headers": [None]}),
        (b"a\n", {"key_delimiter": "0"}),
        (b"a\n", {"unkeyed": None}),
        (b"a\n", {"partition": "0"}),
    ],
)
async def test_requests_that_are_none(
    served: Served, payload: bytes, changes: dict[str, object]
) -> None:
    with pytest.raises(ControlError):
        await served.ask("lines", payload, **{**ARGUMENTS, "is_durable": False, **changes})
    assert served.world.store.partition("orders", 0).log_end_offset == 0


async def test_lines_for_a_read_only_mount(served: Served) -> None:
    served.world.store.partition("orders", 0).state.read_only = True
    with pytest.raises(ReadOnlyError):
        await append(served, ("orders", 0), b"a\n")


async def test_writers_of_the_mount_continue_meanwhile(served: Served) -> None:
    """Lines come from the socket in threads; a write to the same file waits for its turn only."""
    async with trio.open_nursery() as nursery:
        for n in range(6):
            nursery.start_soon(append, served, ("orders", 0), b"bulk %d\n" % n * 500)
            await served.world.append("orders/0", b"write %d\n" % n)
    lines = (await served.world.cat("orders/0")).splitlines()
    assert len(lines) == 6 * 501
    runs = [n for n, line in enumerate(lines) if line.startswith(b"bulk")]
    # The lines of one request stand together.
    assert all(len(set(lines[i : i + 500])) == 1 for i in runs if lines[i] != lines[i - 1])


# Lines of a file that the daemon reads itself


async def append_file(
    served: Served,
    place: tuple[str, int | None],
    path: Path,
    form: LineForm = PLAIN,
    unkeyed: int = 0,
) -> list[Lines]:
    """Append a file to its end; returns what became of its lines step by step."""

    def ask() -> list[Lines]:
        found: list[Lines] = []
        with served.daemon() as daemon, path.open("rb") as file:
            while not found or (found[-1].accepted and found[-1].refusal is None):
                assert len(found) < 10
                source = (file.fileno(), sum(done.accepted for done in found))
                found.append(daemon.append_file(LineTarget(*place, form, unkeyed), source))
        return found

    return await run(ask)


async def test_a_file(served: Served, tmp_path: Path) -> None:
    path, lines = tmp_path / "in", [b"line %06d" % n for n in range(5000)]
    path.write_bytes(b"\n".join(lines))
    before = len(os.listdir("/proc/self/fd"))
    done, end = await append_file(served, ("orders", 0), path)
    assert done == Lines([AppendedLines(0, 5000, 0, 4999)], 60_000, None)
    assert end == Lines([], 0, None)
    assert await served.world.cat("orders/0") == path.read_bytes() + b"\n"
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_line_of_a_file_that_is_refused(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\tb\nc\td\te\nf\n")
    (done,) = await append_file(served, ("orders", 0), path, LineForm(View.TSV))
    assert (done.records, done.accepted) == (1, 4)
    assert str(done.refusal).startswith("line 2: more than one TAB")


async def test_a_file_by_its_keys(served: Served, tmp_path: Path) -> None:
    await served.ask("create", topic="many", partitions=3, config={})
    path = tmp_path / "in"
    path.write_bytes(b"".join(b"%d\tv\n" % n for n in range(30)))
    done, end = await append_file(served, ("many", None), path, LineForm(View.TSV))
    assert done.records == 30
    assert [row.partition for row in done.appended] == [0, 1, 2]
    assert end == Lines([], 0, None)
    path.write_bytes(b"no key\n")
    for unkeyed in (1, 4):
        done, _ = await append_file(served, ("many", None), path, unkeyed=unkeyed)
        assert [row.partition for row in done.appended] == [1]


async def test_what_is_no_file(served: Served) -> None:
    reader, writer = os.pipe()
    os.close(writer)

    def ask(descriptor: int) -> None:
        with served.daemon() as daemon:
            daemon.append_file(LineTarget("orders", 0), (descriptor, 0))

    with pytest.raises(ControlError, match="expected a regular file"):
        await run(ask, reader)
    with pytest.raises(ControlError, match="expected a regular file"):
        await served.ask("file", b"", **ARGUMENTS, position=0)
    os.close(reader)


def count_open_files() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


async def test_a_file_that_comes_with_what_needs_none_is_closed(
    served: Served, tmp_path: Path
) -> None:
    frame = frames.encode_frame({"request": "status"})
    with socket.socket(socket.AF_UNIX) as connection, (tmp_path / "in").open("w") as file:
        connection.connect(str(served.data / "logfs.socket"))
        open_files = []
        for descriptors in [], [file.fileno(), file.fileno()]:
            await run(socket.send_fds, connection, [frame], descriptors)
            assert await run(connection.recv, 1 << 16)
            open_files.append(count_open_files())
        # A thread closes what was received, perhaps after the reply.
        await run(
            wait_until,
            lambda: count_open_files() <= open_files[0],
            "the daemon has closed the files it received",
        )


async def test_writers_of_the_mount_continue_while_a_file_is_read(
    served: Served, tmp_path: Path
) -> None:
    path, lines = tmp_path / "in", [b"line %06d" % n for n in range(500_000)]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_file, served, ("orders", 0), path)
        for n in range(50):
            await served.world.append("orders/0", b"write %d\n" % n)
    found = (await served.world.cat("orders/0")).splitlines()
    assert [line for line in found if line.startswith(b"write")] == [
        b"write %d" % n for n in range(50)
    ]
    assert [line for line in found if line.startswith(b"line")] == lines
