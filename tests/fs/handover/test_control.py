"""A request of the control socket is done once, though its client repeats it after a kill."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from logfs.client import Daemon
from logfs.control.frames import HEAD_BYTES, decode_head, encode_frame
from logfs.control.requests import Request, line_fields, parse_request
from logfs.disk.posix import PosixDisk
from logfs.errors import ControlError, TopicExistsError
from logfs.fs.handover.journal import Journal
from logfs.fs.handover.notes import NoteKind
from logfs.fs.handover.settling import Settling
from logfs.fs.handover.state import SLOTS, slot_index
from logfs.fs.service.commands import ControlCommands
from logfs.fs.service.server import listen
from logfs.log.lines.form import LineForm, Lines, LineTarget
from logfs.records._encoding import encode_records
from logfs.records.encoded import EncodeOptions
from logfs.records.record import Record
from tests.fakestate import Stopped
from tests.fs.served import FakeKernel, Served
from tests.fs.world import START_MS, World
from tests.log.support import lines_of

FORM = LineForm(key_delimiter=b"\t")
LINES = [b"k%d\tline %d" % (i % 7, i) for i in range(60)]
VALUES = [line.partition(b"\t")[2] for line in LINES]
TEXT = b"".join(line + b"\n" for line in LINES)
OTHER = b"of another client"


@dataclass
class KilledWorld(World):
    """A world whose notes outlive the daemon."""

    options: str = "num.partitions=3"

    def __post_init__(self) -> None:
        self._words = [0] * slot_index(SLOTS)
        self._used = [0, 0, 0]
        self._area = memoryview(bytearray(1 << 20))
        super().__post_init__()

    @property
    def journal(self) -> Journal:
        return self.operations.journal

    def open_store(self) -> None:
        journal = Journal(self._used, self._area)
        self.resumed = Settling(self._words, journal)
        super().open_store()
        self.operations.take_over(journal, self._words)
        clock = self.clock.both()
        self.commands = ControlCommands(self.store, self.operations, FakeKernel(), clock, {})

    def kill(self) -> None:
        self.disk = self.disk.after_kill()
        self.open_store()
        for log in self.store.all_partitions():  # before the client is there again
            log.append_records([Record(0, START_MS, None, OTHER)], START_MS)


def _request(
    name: str, fields: dict[str, object], payload: bytes = b"", descriptor: int | None = None
) -> Request:
    header = {"request": name, "client": 5, "number": 9, **fields}
    return parse_request(header, payload, lambda _: None, descriptor)


def _batches(records: list[Record]) -> bytes:
    options = EncodeOptions(300, timestamp_after_max_ms=2**63 - 1)
    encoded = encode_records(records, 0, 0, options)
    return b"".join(batch.data for batch in encoded.batches)


def _file(data: bytes) -> int:
    descriptor = os.memfd_create("lines")
    os.write(descriptor, data)
    return descriptor


RECORDS = [Record(0, START_MS, None, value) for value in VALUES]
ONE = line_fields(LineTarget("orders", 0, FORM))
BY_KEY = line_fields(LineTarget("orders", None, FORM))
SAFE: dict[str, object] = {"is_durable": False}
PLACE: dict[str, object] = {"topic": "orders", "partition": 0}
APPENDS: dict[str, Callable[[], Request]] = {
    "lines": lambda: _request("lines", ONE | SAFE, TEXT),
    "lines by key": lambda: _request("lines", BY_KEY | SAFE, TEXT),
    "file": lambda: _request("file", ONE | {"position": 0}, b"", _file(TEXT)),
    "file by key": lambda: _request("file", BY_KEY | {"position": 0}, b"", _file(TEXT)),
    "append": lambda: _request("append", PLACE | SAFE | {"producer": None}, _batches(RECORDS)),
}
NEW: dict[str, object] = {"topic": "t", "partitions": 1, "config": {}}
MARKER = {"partition": 0, "producer_id": 3, "epoch": 0, "commit": True, "is_durable": False}


def _found(world: World) -> Counter[bytes]:
    logs = [world.store.partition("orders", number) for number in range(3)]
    return Counter(line for log in logs for line in lines_of(log) if line != OTHER)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logfs.log.lines.pipelined._MIN_PIECE_BYTES", 200)
    monkeypatch.setattr("logfs.log.lines.pipelined._MAX_PIECE_BYTES", 200)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.allow_log("are no whole batch")
@pytest.mark.parametrize("name", APPENDS)
async def test_what_a_killed_daemon_has_appended_is_not_appended_again(name: str) -> None:
    parts = 0
    for steps in range(0, 400, 1):
        world = KilledWorld()
        await world.mkdir("orders")
        world.store.alter_topic("orders", {"max.message.bytes": "300"})
        request = APPENDS[name]()
        world.disk.stop_before(steps, torn=0.6)
        try:
            answer = await world.commands.run(request)
        except (Stopped, BaseExceptionGroup):
            world.kill()
            parts += 0 < sum(_found(world).values()) < len(LINES)
            answer = await world.commands.run(request)
            assert _found(world) == Counter(VALUES), steps
            assert isinstance(answer, dict)
            assert answer.get("accepted", len(TEXT)) == len(TEXT)
            kinds = [kind for kind, _ in world.journal.all_begun().values()]
            assert NoteKind.CONTROL not in kinds
        else:
            assert _found(world) == Counter(VALUES)
            break
    assert parts


@pytest.mark.allow_log("of its topic was interrupted")
@pytest.mark.parametrize("name", ["create", "delete", "undelete", "end"])
async def test_a_request_that_a_kill_interrupted_is_completed(name: str) -> None:
    fields: dict[str, object] = {"topic": "orders"}
    if name == "create":
        fields |= {"partitions": 1, "config": {}}
    if name == "end":
        fields |= {
            "partition": 0,
            "producer_id": 3,
            "epoch": 0,
            "commit": True,
            "is_durable": False,
        }
    for steps in range(400):
        world = KilledWorld()
        if name != "create":
            await world.mkdir("orders")
        if name == "undelete":
            await world.delete_topic("orders")
        world.disk.stop_before(steps)
        try:
            await world.commands.run(_request(name, fields))
        except (Stopped, BaseExceptionGroup):
            world.kill()
            await world.commands.run(_request(name, fields))
            assert ("orders" in world.store.topics()) == (name != "delete")
            if name == "end":
                assert world.store.partition("orders", 0).log_end_offset == 2
        else:
            break
    assert 1 < steps < 399


async def test_an_answer_that_was_not_read_is_given_again() -> None:
    world = KilledWorld()
    first = await world.commands.run(_request("create", NEW))
    world.kill()
    assert await world.commands.run(_request("create", NEW)) == first

    header = {"request": "create", "client": 5, "number": 10, **NEW}
    refused = parse_request(header, b"", lambda _: None)
    for _ in range(2):
        with pytest.raises(TopicExistsError):
            await world.commands.run(refused)


@pytest.mark.parametrize("answers", [1, 0])
async def test_a_client_repeats_its_request_to_the_next_daemon(
    tmp_path: Path, nursery: trio.Nursery, answers: int
) -> None:
    world = KilledWorld()
    await world.mkdir("orders")
    dying = listen(str(tmp_path), PosixDisk(tmp_path))
    assert dying is not None

    def die() -> None:
        connection, _ = dying.accept()
        # It dies in the request, or before it has said that another daemon follows it.
        for answer in (*[encode_frame({"result": True})] * answers, b""):
            head = decode_head(connection.recv(HEAD_BYTES))
            connection.recv(head.header_bytes + head.payload_bytes)
            connection.sendall(answer)
        connection.close()
        dying.close()

    def append() -> Lines:
        with Daemon.connect(str(tmp_path)) as daemon:  # type: ignore[union-attr]
            return daemon.append_lines(LineTarget("orders", 0, FORM), TEXT)

    lines: list[Lines] = []

    async def ask() -> None:
        lines.append(await trio.to_thread.run_sync(append))

    async with trio.open_nursery() as clients:
        clients.start_soon(ask)
        await trio.to_thread.run_sync(die)
        served = Served(world, tmp_path, nursery)
    assert lines[0].accepted == len(TEXT)
    assert _found(world) == Counter(VALUES)
    with pytest.raises(ControlError):
        await served.ask("no such request")
