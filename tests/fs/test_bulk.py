"""Lines and batches in bulk through the control socket."""

from pathlib import Path

import pytest
import trio

from logfs.errors import (
    ControlError,
    NoSuchPartitionError,
    NoSuchTopicError,
    ReadOnlyError,
    UnparsableLineError,
)
from logfs.log.writing.bulk import AppendedLines, LineForm, Lines
from logfs.types import View
from tests.fs.served import Served
from tests.fs.world import World

run = trio.to_thread.run_sync


@pytest.fixture
async def served(orders: World, tmp_path: Path, nursery: trio.Nursery) -> Served:
    return Served(orders, tmp_path, nursery)


async def append(
    served: Served,
    place: tuple[str, int | None],
    data: bytes,
    form: LineForm = LineForm(),  # noqa: B008
    *,
    unkeyed: int = 0,
    is_durable: bool = False,
) -> Lines:
    def ask() -> Lines:
        with served.daemon() as daemon:
            return daemon.append_lines(place, data, form, unkeyed=unkeyed, is_durable=is_durable)

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
    arguments = {
        "topic": "orders",
        "partition": 0,
        "view": 0,
        "key_delimiter": "",
        "headers": [],
        "unkeyed": 0,
        "is_durable": False,
    }
    with pytest.raises(ControlError):
        await served.ask("lines", payload, **{**arguments, **changes})
    assert served.world.store.partition("orders", 0).log_end_offset == 0


async def test_lines_for_a_read_only_mount(served: Served) -> None:
    served.world.store.partition("orders", 0).read_only = True
    with pytest.raises(ReadOnlyError):
        await append(served, ("orders", 0), b"a\n")


async def test_writers_of_the_mount_go_on_meanwhile(served: Served) -> None:
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
